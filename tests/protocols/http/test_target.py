"""Targets: decoded once and with care; what cannot be read is 400, whatever it is."""

from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core.command import Columns, CreateTopic
from oncelog.core.names import command_refused
from oncelog.core.outcome import NameInvalid, TooLarge
from oncelog.protocols.http import offsets, write_answers
from oncelog.protocols.http.actions import Read, Stand, Submit
from oncelog.protocols.http.target import Query, TargetInvalid, decoded, digits, split
from tests.protocols.http.requests import answer_of, made, routed


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        (b"a%20b", "a b"),
        (b"a+b", "a+b"),
        (b"%41%4a%4A", "AJJ"),
        (b"a%2Fb/c", "a/b/c"),
        (b"%252e", "%2e"),
        (b"Z%C3%BCrich", "Zürich"),
        ("Zürich".encode(), "Zürich"),
        (b"%00", "\0"),
        (b"", ""),
    ],
)
def test_percent_encoding_is_taken_off_once(raw: bytes, text: str) -> None:
    assert decoded(raw) == text


@pytest.mark.parametrize(
    "raw", [b"%", b"a%", b"%4", b"%zz", b"%4g", b"%%41", b"% 41", b"%ff", b"%C3", b"\xff", b"%ED%A0%80"]
)
def test_bad_percent_encoding_is_refused(raw: bytes) -> None:
    with pytest.raises(TargetInvalid):
        decoded(raw)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/v1/stream/a%ff", "the path holds 'a%ff', which is not UTF-8 text"),
        ("/v1/cursors/c%C3/t", "the path holds 'c%C3', which is not UTF-8 text"),
        ("/v1/streams?prefix=%fe", "the query holds '%fe', which is not UTF-8 text"),
    ],
)
def test_what_is_not_utf_8_is_named(target: str, says: str) -> None:
    answer = answer_of(routed(made("GET", target)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f'"detail":"{says}"'.encode() in answer


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_survives_encoding(text: str) -> None:
    assert decoded(quote_from_bytes(text.encode(), safe="").encode()) == text


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/a/b?c=d", (b"/a/b", b"c=d")),
        (b"/a", (b"/a", b"")),
        (b"/a?b#c", (b"/a", b"b")),
        (b"/a?b?c", (b"/a", b"b?c")),
        (b"http://host:1/a?b", (b"/a", b"b")),
        (b"http://host", (b"/", b"")),
    ],
)
def test_target_is_split_where_it_is_still_encoded(target: bytes, parts: tuple[bytes, bytes]) -> None:
    assert split(target) == parts


@pytest.mark.parametrize("target", [b"*", b"a", b"", b"host:443"])
def test_target_that_is_no_path_is_refused(target: bytes) -> None:
    with pytest.raises(TargetInvalid):
        split(target)
    assert b" 400 " in answer_of(routed(made("GET", target.decode())))


# --- queries -------------------------------------------------------------------------------------------------------


def test_query_decodes_names_and_values_and_ignores_what_nobody_asks_for() -> None:
    query = Query(b"a=1&b=x+y&%63=%26&d&=e&topic=a&topic=b")
    assert [query.text(name) for name in ("a", "b", "c", "d", "missing")] == ["1", "x y", "&", "", None]
    assert query.texts("topic") == ["a", "b"]
    with pytest.raises(TargetInvalid, match="2 times"):
        query.text("topic")


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1 ", "1.0", "٣", "１", "1e1", "11", "9" * 20, "0x1"])
def test_number_outside_its_bounds_is_refused_with_the_bounds(text: str) -> None:
    query = Query(b"n=" + quote_from_bytes(text.encode()).encode())
    with pytest.raises(TargetInvalid, match="n is a number from 1 to 10"):
        query.number("n", 5, low=1, high=10)


def test_number_within_its_bounds_is_taken() -> None:
    assert [Query(b"n=%d" % number).number("n", 5, low=1, high=10) for number in (1, 10)] == [1, 10]
    assert Query(b"").number("n", 5, low=1, high=10) == 5
    assert digits("0" * limits.HTTP_DIGITS_MAX) == 0


# --- offsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "offset"),
    [(None, offsets.START), ("-1", offsets.START), ("now", offsets.NOW), ("0", 0), ("0000000000000042", 42)],
)
def test_offset_is_read(text: str | None, offset: int) -> None:
    assert offsets.parsed(text) == offset


@given(st.integers(0, 10**16 - 1), st.integers(0, 10**16 - 1))
def test_offsets_sort_as_text_and_come_back(one: int, other: int) -> None:
    assert (offsets.spelled(one) < offsets.spelled(other)) == (one < other)
    assert offsets.parsed(offsets.spelled(one)) == one


def test_only_the_three_answers_of_the_hot_path_spell_offsets_themselves_and_alike() -> None:
    folder = Path(offsets.__file__).parent
    spellings = {path.name: count for path in folder.glob("*.py") if (count := path.read_text().count("016d"))}
    assert spellings == {"offsets.py": 1, "write_answers.py": 3}
    for template, numbers in (
        (write_answers._PLAIN, (42,)),
        (write_answers._PRODUCER, (42, 0, 0)),
        (write_answers._X, (42, 1, 41)),
    ):
        assert f"Stream-Next-Offset: {offsets.spelled(42)}\r\n".encode() in template % numbers


@pytest.mark.parametrize(
    "raw",
    ["", "-2", "+1", "1,2", "0_0", "%20", "1%20", "%201", "a", "NOW", "1%00", "1%0A", "1%0D%0A", "..", "1/2",
     "%D9%A3", "1.0", "9" * 20],
)  # fmt: skip
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_offset_that_is_not_ours_is_400(raw: str, live: str) -> None:
    answer = answer_of(routed(made("GET", f"/v1/stream/t?offset={raw}{live}")))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"target_invalid"' in answer


@pytest.mark.parametrize(
    "query",
    ["offset=1&offset=1", "live=tomorrow&offset=1", "live=sse", "live=long-poll", "partition=-1", "partition=x"],
)
def test_read_that_makes_no_sense_is_400(query: str) -> None:
    assert b" 400 " in answer_of(routed(made("GET", f"/v1/stream/t?{query}")))


def test_unknown_parameters_are_ignored() -> None:
    action = routed(made("GET", "/v1/stream/t?offset=now&utm=1&utm=2"))
    assert isinstance(action, Read)
    assert (action.topic, action.offset, action.partition) == ("t", offsets.NOW, 0)


# --- names of streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "partition"),
    [
        ("/v1/stream/a", "a", 0),
        ("/stream/a", "a", 0),
        ("/v1/stream/a/b/c", "a/b/c", 0),
        ("/v1/stream/a%2Fb", "a/b", 0),
        ("/v1/stream/a%3Fb?partition=3", "a?b", 3),
        ("/v1/stream/Z%C3%BCrich%20%F0%9F%8C%8A", "Zürich 🌊", 0),
        ("http://proxy/v1/stream/a?partition=1", "a", 1),
        ("http://proxy/stream/a", "a", 0),
        ("/v1/stream/__dsx", "__dsx", 0),
        (f"/v1/stream/a?partition={limits.PARTITIONS_MAX - 1}", "a", limits.PARTITIONS_MAX - 1),
    ],
)
def test_path_names_the_stream(path: str, name: str, partition: int) -> None:
    action = routed(made("HEAD", path))
    assert isinstance(action, Stand)
    assert (action.topic, action.partition) == (name, partition)
    for _ in range(2):  # the second time it is remembered
        append = routed(made("POST", path, b"x", content_type="text/plain"))
        assert isinstance(append, Submit)
        assert isinstance(append.command, Columns)
        assert (append.command.topic, append.command.partition) == (name, partition)


@pytest.mark.parametrize("path", ["/v1/stream/__ds", "/v1/stream/__ds/a", "/stream/__ds/a", "/v1/stream/%5F_ds/a"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_reserved_segment_is_no_stream(path: str, method: str) -> None:
    assert b" 501 " in answer_of(routed(made(method, path, b"x", content_type="text/plain")))


TRAVERSALS = [
    "..",
    "../a",
    "a/..",
    "a/../b",
    "%2e%2e",
    "a%2F..%2Fb",
    "a/%2E%2e/b",
    ".",
    "a/./b",
    "a//b",
    "/a",
    "a/",
    "%2F",
    "",
]
UNPRINTABLE = ["a%00", "%00", "a%0Ab", "a%0D%0Ab", "%7F", "a%1Bb", "%E2%80%A8", "%EF%BF%BF"]


@pytest.mark.parametrize("raw", TRAVERSALS + UNPRINTABLE)
@pytest.mark.parametrize("path", ["/v1/stream/", "/stream/", "/v1/topics/"])
def test_name_that_climbs_or_cannot_be_printed_makes_no_topic(path: str, raw: str) -> None:
    action = routed(made("PUT", path + raw))
    assert isinstance(action, Submit)
    assert isinstance(action.command, CreateTopic)
    assert isinstance(command_refused(action.command), NameInvalid)


@pytest.mark.parametrize(
    ("size", "fits"), [(limits.TOPIC_NAME_BYTES_MAX, True), (limits.TOPIC_NAME_BYTES_MAX + 1, False)]
)
def test_name_is_as_long_as_the_limit_says(size: int, fits: bool) -> None:
    action = routed(made("PUT", "/v1/stream/" + "ü%C3%BC" * (size // 4) + "a" * (size % 4)))
    assert isinstance(action, Submit)
    refusal = command_refused(action.command)
    if fits:
        assert refusal is None
    else:
        assert isinstance(refusal, TooLarge)
        assert (refusal.limit, refusal.received) == (limits.TOPIC_NAME_BYTES_MAX, size)
