"""Records to answers: byte, JSON and raw bodies; what their headers say; server-sent events."""

import base64
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core import batch as codec
from oncelog.protocols.http import offsets, read
from oncelog.protocols.http.actions import Read
from oncelog.protocols.http.read import Found, Standing
from tests.core.test_batch import compressed
from tests.protocols.http.requests import NOW_MS, made, routed


def standing(content_type: str = "text/plain", *, stable: int = 3, closed: bool = False, floor: int = 0) -> Standing:
    return Standing(7, content_type, floor, stable, stable, closed)


def found(*values: bytes, start: int = 0, base: int | None = None, next_offset: int | None = None) -> Found:
    base = start if base is None else base
    batches = [(base, codec.encode_values(values, NOW_MS))] if values else []
    return Found(start, batches, base + len(values) if next_offset is None else next_offset)


def asked(offset: int = offsets.START, *, raw: bool = False, if_none_match: str = "", live: str = "") -> Read:
    return Read("t", 0, offset, live=live, cursor="", raw=raw, if_none_match=if_none_match)


def split(answer: tuple[bytes, bytes]) -> tuple[int, dict[str, str], bytes]:
    head, body = answer
    assert head.endswith(b"\r\n\r\n")
    line, *lines = head[:-4].decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    status = int(line.split(" ")[1])
    if status == 200:
        assert int(headers["Content-Length"]) == len(body)
    else:
        assert not body
        assert "Content-Length" not in headers
    return status, headers, body


# --- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "values", "body"),
    [
        ("text/plain", [b"a", b"bc", b""], b"abc"),
        ("text/plain", [], b""),
        ("application/octet-stream", [b"\x00\xff"], b"\x00\xff"),
        ("application/json", [b'{"a": 1}', b"[2]"], b'[{"a": 1},[2]]'),
        ("application/json", [b"1"], b"[1]"),
        ("application/json", [], b"[]"),
        ("APPLICATION/JSON; charset=utf-8", [b"1", b"2"], b"[1,2]"),
        ("application/json-seq", [b"1", b"2"], b"12"),
    ],
)
def test_body_is_the_records(content_type: str, values: list[bytes], body: bytes) -> None:
    assert read.body_of(found(*values), content_type, raw=False) == body


def test_body_begins_at_the_offset_asked_for_within_a_batch() -> None:
    assert read.body_of(found(b"a", b"b", b"c", start=1, base=0), "text/plain", raw=False) == b"bc"
    assert read.body_of(found(b"1", b"2", b"3", start=2, base=0), "application/json", raw=False) == b"[3]"


def test_record_without_a_value_is_left_out() -> None:
    batch = codec.encode([(0, NOW_MS, b"key", None, ()), (1, NOW_MS, None, b"x", ()), (2, NOW_MS, None, None, ())])
    here = Found(0, [(0, batch)], 3)
    assert read.body_of(here, "text/plain", raw=False) == b"x"
    assert read.body_of(here, "application/json", raw=False) == b"[x]"


def test_raw_body_is_batches_with_their_offsets() -> None:
    batches = [(40, codec.encode_values([b"a", b"b"], NOW_MS)), (50, codec.encode_one(b"c", NOW_MS))]
    body = read.body_of(Found(41, batches, 51), "application/json", raw=True)
    first = codec.read_header(body)
    assert first.base_offset == 40, "the first batch may begin before the offset asked for"
    end = len(codec.encode_values([b"a", b"b"], NOW_MS))
    second = codec.read_header(body, end)
    assert second.base_offset == 50
    assert codec.decode_values(body[end:]) == [b"c"]
    codec.skim(body[:end])
    codec.skim(body[end:])


def test_compressed_batches_are_counted_by_what_they_hold() -> None:
    """A read of a megabyte of them could be gigabytes: the rest is left for the next one."""
    large = compressed(codec.encode_one(bytes(10_000), NOW_MS), 4)
    small = codec.encode_one(b"x", NOW_MS)
    assert len(large) < 200
    batches = [(5, large), (6, small), (9, large), (10, large), (11, small)]
    first = read.decoded(Found(5, batches, 20), 15_000)
    assert ([base for base, _ in first.batches], first.next_offset) == ([5, 6, 9], 10)
    assert [len(value or b"") for value in first.values or ()] == [10_000, 1, 10_000]
    assert len(read.body_of(first, "text/plain", raw=False)) == 20_001
    rest = read.decoded(Found(10, batches[3:], 20), 15_000)
    assert ([base for base, _ in rest.batches], rest.next_offset) == ([10, 11], 20)
    alone = read.decoded(Found(9, batches[2:], 20), 1)
    assert ([base for base, _ in alone.batches], alone.next_offset) == ([9], 10)


def test_batches_that_are_as_large_as_they_look_are_all_told() -> None:
    batches = [(number, codec.encode_one(bytes(1_000), NOW_MS)) for number in range(10)]
    assert read.decoded(Found(0, batches, 10), 1).next_offset == 10


# --- catch-up ------------------------------------------------------------------------------------------------------


def test_read_that_reaches_the_end_says_so() -> None:
    status, headers, body = split(read.catch_up(asked(), standing(), found(b"a", b"b", b"c")))
    assert (status, body) == (200, b"abc")
    assert headers["Content-Type"] == "text/plain"
    assert headers["Stream-Next-Offset"] == "0000000000000003"
    assert headers["Stream-Up-To-Date"] == "true"
    assert "Stream-Closed" not in headers
    assert headers["Cache-Control"] == "no-cache", "what is at the end may change: ask again"


def test_read_that_does_not_reach_the_end_is_asked_for_again_before_it_is_used() -> None:
    _, headers, _ = split(read.catch_up(asked(), standing(stable=9, closed=True), found(b"a")))
    assert "Stream-Up-To-Date" not in headers
    assert "Stream-Closed" not in headers, "more follows in this closed stream"
    assert headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("values", [(b"a", b"b", b"c"), ()])
def test_end_of_a_closed_stream_says_so(values: tuple[bytes, ...]) -> None:
    here = found(*values, start=0 if values else 3)
    _, headers, _ = split(read.catch_up(asked(), standing(closed=True), here))
    assert headers["Stream-Closed"] == "true"
    assert headers["Stream-Up-To-Date"] == "true"


def test_now_is_the_end_and_is_never_kept() -> None:
    for content_type, body in (("text/plain", b""), ("application/json", b"[]")):
        answer = read.catch_up(asked(offsets.NOW, if_none_match="*"), standing(content_type), found(start=3))
        status, headers, empty = split(answer)
        assert (status, empty) == (200, body)
        assert headers["Cache-Control"] == "no-store"
        assert headers["Stream-Next-Offset"] == "0000000000000003"
        assert "ETag" not in headers


def test_etag_names_the_stretch_the_form_and_the_end() -> None:
    here = found(b"a", b"b", b"c")
    tags = {
        read.etag_of(here, standing(), raw=False),
        read.etag_of(here, standing(), raw=True),
        read.etag_of(here, standing(closed=True), raw=False),
        read.etag_of(found(b"a", b"b", b"c", b"d"), standing(stable=4), raw=False),
        read.etag_of(found(b"b", b"c", start=1), standing(), raw=False),
        read.etag_of(here, standing()._replace(stream_id=8), raw=False),
    }
    assert len(tags) == 6
    assert all(re.fullmatch(r'"[!-~]+"', tag) for tag in tags)


@pytest.mark.parametrize(
    ("sent", "status"),
    [("{}", 304), ("W/{}", 304), ('"x", {}', 304), ("*", 304), ('"x"', 200), ("", 200), ('"x", "y"', 200)],
)
def test_etag_that_the_client_has_is_304(sent: str, status: int) -> None:
    etag = split(read.catch_up(asked(), standing(), found(b"a", b"b", b"c")))[1]["ETag"]
    answer = read.catch_up(asked(if_none_match=sent.replace("{}", etag)), standing(), found(b"a", b"b", b"c"))
    found_status, headers, _ = split(answer)
    assert found_status == status
    assert headers["ETag"] == etag
    assert headers["Stream-Next-Offset"] == "0000000000000003"


def test_raw_answer_has_its_own_type() -> None:
    action = routed(made("GET", "/v1/stream/t", accept="application/vnd.oncelog.batches"))
    assert isinstance(action, Read)
    assert action.raw
    _, headers, _ = split(read.catch_up(action, standing(), found(b"a", b"b", b"c")))
    assert headers["Content-Type"] == "application/vnd.oncelog.batches"


def test_head_says_where_the_stream_stands() -> None:
    answer = read.stands(standing("text/plain; charset=utf-8", stable=12, floor=5, closed=True))
    _, headers, _ = split((answer, b""))
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["Stream-Next-Offset"] == "0000000000000012"
    assert headers["Stream-Floor"] == "0000000000000005"
    assert headers["Stream-Closed"] == "true"
    assert headers["Cache-Control"] == "no-store"
    assert b"Stream-Closed" not in read.stands(standing())


# --- long-poll -----------------------------------------------------------------------------------------------------


def test_long_poll_with_records_is_200_with_a_cursor() -> None:
    status, headers, body = split(read.polled(asked(live="long-poll"), standing(), found(b"c", start=2), "77"))
    assert (status, body) == (200, b"c")
    assert headers["Stream-Cursor"] == "77"
    assert headers["Stream-Up-To-Date"] == "true"
    assert headers["Cache-Control"] == "no-store"


def test_long_poll_in_vain_is_204() -> None:
    status, headers, _ = split(read.polled(asked(live="long-poll"), standing(), found(start=3), "77"))
    assert status == 204
    assert headers["Stream-Next-Offset"] == "0000000000000003"
    assert headers["Stream-Up-To-Date"] == "true"
    assert headers["Stream-Cursor"] == "77"


def test_long_poll_at_the_end_of_a_closed_stream_has_no_cursor() -> None:
    _, headers, _ = split(read.polled(asked(live="long-poll"), standing(closed=True), found(start=3), "77"))
    assert headers["Stream-Closed"] == "true"
    assert "Stream-Cursor" not in headers


NOW_S = read.CURSOR_EPOCH_S + 20 * 1000 + 7


@pytest.mark.parametrize("sent", ["", "999", "x", "-5", "1e9", "9" * 30])
def test_cursor_is_the_number_of_the_interval(sent: str) -> None:
    assert read.cursor_after(sent, NOW_S, 0) == "1000"


@given(st.integers(1000, 10**18), st.integers(0, 10**6))
def test_cursor_moves_on_when_a_client_comes_back_within_the_interval(sent: int, jitter: int) -> None:
    after = int(read.cursor_after(str(sent), NOW_S, jitter))
    assert sent < after <= sent + read.CURSOR_JITTER_MAX


# --- SSE -----------------------------------------------------------------------------------------------------------


def events(chunk: bytes) -> list[tuple[str, bytes]]:
    """(name, data) of each event, read as a browser does."""
    size, _, rest = chunk.partition(b"\r\n")
    assert len(rest) == int(size, 16) + 2
    text = rest[:-2]
    assert text.endswith(b"\n\n")
    assert b"\r" not in text
    parsed = []
    for event in text[:-2].split(b"\n\n"):
        first, *lines = event.split(b"\n")
        assert all(line.startswith(b"data:") for line in lines)
        # One space behind the colon is not part of the data (HTML standard, 9.2.6).
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines)
        parsed.append((first.decode().removeprefix("event: "), data))
    return parsed


def control(data: bytes) -> dict[str, Any]:
    assert data.startswith(b"{")
    assert data.count(b"}") == 1
    assert b"\n" not in data
    decoded: dict[str, Any] = msgspec.json.decode(data)
    return decoded


def test_event_stream_head_says_its_type_and_no_length() -> None:
    head = read.sse_head(standing("text/plain"))
    assert b"Content-Type: text/event-stream\r\n" in head
    assert b"Cache-Control: no-cache\r\n" in head
    assert b"Transfer-Encoding: chunked\r\n" in head
    assert b"Content-Length" not in head
    assert b"Encoding: base64" not in head
    assert b"Stream-SSE-Data-Encoding: base64\r\n" in read.sse_head(standing("application/octet-stream"))
    assert b"Encoding: base64" not in read.sse_head(standing("Application/JSON;charset=utf-8"))


def test_data_and_its_control_are_one_piece() -> None:
    data, told = events(read.sse_events(standing(), found(b"a", b"b", b"c"), "5"))
    assert data == ("data", b"abc")
    assert told[0] == "control"
    assert control(told[1]) == {"streamNextOffset": "0000000000000003", "streamCursor": "5", "upToDate": True}


def test_nothing_to_read_is_one_control_with_the_real_offset() -> None:
    ((name, data),) = events(read.sse_events(standing(), found(start=3), "5"))
    assert name == "control"
    assert control(data) == {"streamNextOffset": "0000000000000003", "streamCursor": "5", "upToDate": True}


def test_part_of_the_stream_is_not_up_to_date() -> None:
    told = control(events(read.sse_events(standing(stable=9), found(b"a"), "5"))[1][1])
    assert told == {"streamNextOffset": "0000000000000001", "streamCursor": "5"}


def test_end_of_a_closed_stream_says_so_and_has_no_cursor() -> None:
    told = control(events(read.sse_events(standing(closed=True), found(b"a", b"b", b"c"), "5"))[1][1])
    assert told == {"streamNextOffset": "0000000000000003", "streamClosed": True, "upToDate": True}


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_line_of_text_is_a_line_of_data(end: bytes) -> None:
    payload = end.join([b"line1", b"", b"event: control", b"data:{}", b"last"]) + end
    data, _ = events(read.sse_events(standing(stable=1), found(payload), "5"))
    assert data == ("data", b"line1\n\nevent: control\ndata:{}\nlast\n")


def test_line_that_needs_no_space_has_none() -> None:
    assert b"\ndata:line1\ndata:line2\n\n" in read.sse_events(standing(stable=1), found(b"line1\nline2"), "5")


@given(st.lists(st.text(st.sampled_from(" :\r\n") | st.characters(codec="utf-8")), min_size=1, max_size=4))
def test_no_text_breaks_out_of_its_event(values: list[str]) -> None:
    chunk = read.sse_events(standing(stable=len(values)), found(*[value.encode() for value in values]), "5")
    data, told = events(chunk)
    assert (data[0], told[0]) == ("data", "control")
    assert data[1] == re.sub(rb"\r\n|\r|\n", b"\n", "".join(values).encode())


@given(st.lists(st.binary(), min_size=1, max_size=4))
def test_bytes_are_base64(values: list[bytes]) -> None:
    chunk = read.sse_events(standing("image/png", stable=len(values)), found(*values), "5")
    data, _ = events(chunk)
    assert base64.b64decode(data[1], validate=True) == b"".join(values)


def test_json_is_one_array_per_event() -> None:
    data, _ = events(read.sse_events(standing("application/json", stable=2), found(b'{"a":\n1}', b"2"), "5"))
    assert msgspec.json.decode(data[1]) == [{"a": 1}, 2]
