"""Records to bodies and back: what a caller may hand in, which form it takes, what is refused before it is taken."""

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from oncelog.client.errors import AnswerUnreadable, RecordTooLarge
from oncelog.client.packing import RECORD_BYTES_MAX, Form, Packer, ProducerRecord, Record, cost, is_json, records_of
from oncelog.core import batch as codec

JSON = Packer("application/json")
TEXT = Packer("text/plain")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ({"a": 1}, b'{"a":1}'),
        ([1, 2], b"[1,2]"),
        ("x", b'"x"'),
        (None, b"null"),
        (7, b"7"),
        (b' {"a" : 1}', b' {"a" : 1}'),
    ],
)
def test_a_json_stream_takes_any_value_and_bytes_as_they_are(data: object, value: bytes) -> None:
    assert JSON.item(data) == value


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, msgspec.Raw])
def test_bytes_of_every_kind_mean_the_same_on_a_json_stream(kind: Callable[[bytes], object]) -> None:
    assert JSON.item(kind(b"1")) == b"1"
    assert JSON.item(kind(b'{"a":1}'), key="k", timestamp_ms=7) == JSON.item({"a": 1}, key="k", timestamp_ms=7)
    with pytest.raises(ValueError, match="not one JSON value"):
        JSON.item(kind(b"MQ=="))


def test_what_a_bytearray_held_when_it_was_appended_is_what_is_stored() -> None:
    given = bytearray(b"1")
    item = JSON.item(given)
    given[0] = ord("2")
    assert item == b"1"


@pytest.mark.parametrize("data", [b"", b"1,2", b"{", b'"\xff"', b"nul"])
def test_bytes_that_are_not_one_json_value_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not one JSON value"):
        JSON.item(data)


class Reading(enum.Enum):
    NONE = math.nan
    FULL = 1.0


@dataclasses.dataclass
class Measured:
    values: tuple[object, ...]


class Sent(msgspec.Struct):
    note: str | None
    body: object


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, Reading.NONE])
@pytest.mark.parametrize(
    "around",
    [
        lambda number: number,
        lambda number: [1, None, [number]],
        lambda number: {"a": {"b": number}},
        lambda number: Measured((1, number)),
        lambda number: Sent("null", {number}),
        lambda number: {"raw": msgspec.Raw(b"null"), "number": number},
    ],
)
def test_a_number_that_json_does_not_have_is_refused_wherever_it_is(
    around: Callable[[object], object], number: object
) -> None:
    with pytest.raises(ValueError, match="no NaN and no infinity"):
        JSON.item(around(number))
    assert JSON.item(around(1.0)) == msgspec.json.encode(around(1.0))


@pytest.mark.parametrize("data", [None, [None, 1.5], {"null": "null"}, {"a": msgspec.Raw(b"null")}, {math.nan: 1}])
def test_null_that_was_meant_is_stored(data: object) -> None:
    assert JSON.item(data) == msgspec.json.encode(data)


def test_null_may_nest_as_deeply_as_any_value() -> None:
    value: object = None
    for _ in range(300):
        value = [value]
    assert JSON.item(value) == b"[" * 300 + b"null" + b"]" * 300


def test_a_value_without_null_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("oncelog.client.json_values._has_unspeakable")
    assert JSON.item({"a": [1.5, "x", True]}) == b'{"a":[1.5,"x",true]}'


def test_a_list_stays_one_record() -> None:
    item = JSON.item([1, 2])
    assert JSON.body(JSON.form(item), [item]) == b"[[1,2]]"


def test_many_json_records_are_one_array() -> None:
    items = [JSON.item(n) for n in range(3)]
    assert (JSON.form(items[0]), JSON.alone(items[0])) == (Form.ARRAY, False)
    assert JSON.body(Form.ARRAY, items) == b"[0,1,2]"


@pytest.mark.parametrize(("data", "value"), [("ä", "ä".encode()), (b"x", b"x"), (bytearray(b"y"), b"y")])
def test_other_streams_take_text_and_bytes_one_request_each(data: object, value: bytes) -> None:
    item = TEXT.item(data)
    assert item == value
    assert (TEXT.form(item), TEXT.alone(item), TEXT.content_type(Form.VALUE)) == (Form.VALUE, True, "text/plain")
    assert TEXT.body(Form.VALUE, [item]) == value


def test_other_streams_take_nothing_else() -> None:
    with pytest.raises(TypeError, match="dict"):
        TEXT.item({})


@pytest.mark.parametrize("data", [b"", "", None])
def test_a_record_without_content_travels_in_a_raw_batch(data: object) -> None:
    item = TEXT.item(data)
    assert TEXT.form(item) is Form.RAW
    (record,) = codec.decode(TEXT.body(Form.RAW, [item]))
    assert (record[3] or b"") == b""


def test_a_key_headers_or_a_time_make_a_raw_batch() -> None:
    for given in ({"key": "k"}, {"headers": {"h": "v"}}, {"timestamp_ms": 5}):
        item = JSON.item(1, **given)
        assert (JSON.form(item), JSON.alone(item)) == (Form.RAW, False)
    items = [
        JSON.item(1, "k", {"h": "v", "n": None}, 5),
        JSON.item(2, b"\x00", [("h", b"1"), ("h", b"2")], 7),
    ]
    records = codec.decode(JSON.body(Form.RAW, items))
    assert records == [
        (0, 5, b"k", b"1", (("h", b"v"), ("n", None))),
        (1, 7, b"\x00", b"2", (("h", b"1"), ("h", b"2"))),
    ]


def test_a_message_id_travels_alone_in_the_form_of_its_stream() -> None:
    item = JSON.item(1, message_id="m")
    assert isinstance(item, ProducerRecord)
    assert (JSON.form(item), JSON.alone(item), JSON.body(Form.ARRAY, [item])) == (Form.ARRAY, True, b"[1]")
    keyed = JSON.item(1, "k", message_id="m")
    assert (JSON.form(keyed), JSON.alone(keyed)) == (Form.RAW, True)


def test_raw_batches_hold_many_records_of_any_stream() -> None:
    packer = Packer("text/plain", raw_batches=True)
    items = [packer.item("a"), packer.item("b")]
    assert (packer.form(items[0]), packer.alone(items[0])) == (Form.RAW, False)
    assert packer.content_type(Form.RAW) == "application/vnd.oncelog.batches"
    assert codec.decode_values(packer.body(Form.RAW, items)) == [b"a", b"b"]


def test_a_record_that_cannot_be_stored_is_not_taken() -> None:
    assert TEXT.item(bytes(RECORD_BYTES_MAX))
    for given in ({}, {"key": "k"}):
        with pytest.raises(RecordTooLarge) as caught:
            TEXT.item(bytes(RECORD_BYTES_MAX + 1), **given)  # type: ignore[arg-type]
        assert caught.value.limit == RECORD_BYTES_MAX
    with pytest.raises(RecordTooLarge):
        TEXT.item(b"", headers={"h": bytes(RECORD_BYTES_MAX)})


@pytest.mark.parametrize("timestamp_ms", [-1, 2**62])
def test_a_time_out_of_range_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match="1970"):
        TEXT.item(b"x", timestamp_ms=timestamp_ms)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"timestamp_ms": 1.7e12}, TypeError),
        ({"timestamp_ms": "1"}, TypeError),
        ({"key": 7}, TypeError),
        ({"key": "\ud800"}, ValueError),
        ({"headers": {"h": 7}}, TypeError),
        ({"headers": {"h": "\ud800"}}, ValueError),
        ({"headers": {b"h": "v"}}, TypeError),
        ({"headers": {"\ud800": "v"}}, ValueError),
        ({"message_id": " m"}, ValueError),
        ({"message_id": 5}, TypeError),
        ({"message_id": 0}, TypeError),
        ({"message_id": b"m"}, TypeError),
    ],
)
@pytest.mark.parametrize("packer", [JSON, TEXT])
def test_what_could_not_be_packed_later_is_refused_at_once(
    packer: Packer, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        packer.item(b"1", **given)


def test_whatever_is_bytes_is_copied_to_bytes() -> None:
    given = bytearray(b"k")
    item = JSON.item(1, given, {"h": given, "m": memoryview(b"v"), "n": None}, 5)  # type: ignore[arg-type]
    given[:] = b"?"
    assert item == ProducerRecord(b"1", b"k", (("h", b"k"), ("m", b"v"), ("n", None)), 5)
    ((_, time_ms, key, value, headers),) = codec.decode(JSON.body(Form.RAW, [item]))
    assert (time_ms, key, value, headers) == (5, b"k", b"1", (("h", b"k"), ("m", b"v"), ("n", None)))


def test_raw_json_is_checked_like_bytes() -> None:
    assert JSON.item(msgspec.Raw(b"[1]")) == b"[1]"
    with pytest.raises(ValueError, match="not one JSON value"):
        JSON.item(msgspec.Raw(b"1,2"))


def test_json_that_nests_too_deeply_is_refused_as_a_value() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        JSON.item(b"[" * 100_000 + b"]" * 100_000)


def test_a_header_name_counts_by_its_bytes() -> None:
    with pytest.raises(RecordTooLarge):
        TEXT.item(b"", headers={"€" * (RECORD_BYTES_MAX // 2): b""})


def test_the_cost_covers_what_the_server_needs_for_a_record() -> None:
    # A body within max_batch_bytes must fit the server's batch, however small its records are.
    values: list[bytes] = [b"1"] * 20_000
    assert len(codec.encode_values(values, 1)) < sum(cost(value) for value in values)


@pytest.mark.parametrize(
    ("content_type", "json"),
    [("application/json", True), ("Application/JSON; charset=utf-8", True), ("application/jsonl", False), ("", False)],
)
def test_json_is_known_by_its_media_type(content_type: str, json: bool) -> None:
    assert is_json(content_type) is json


# --- reading -----------------------------------------------------------------------------------------------------


def stamped(batch: bytes, offset: int) -> bytes:
    return b"".join(codec.stamp(batch, offset))


def test_records_come_with_all_they_have_from_the_offset_on() -> None:
    body = stamped(codec.encode_values([b"a", b"b", b"c"], 9), 5)
    body += stamped(codec.encode([(1, 4, b"k", b'{"x":1}', (("h", b"v"),)), (3, 4, None, None, ())]), 10)
    records = records_of(body, 7)
    assert records == [
        Record(7, 9, None, b"c", ()),
        Record(11, 4, b"k", b'{"x":1}', (("h", b"v"),)),
        Record(13, 4, None, None, ()),
    ]
    assert records[1].json() == {"x": 1}
    assert records[2].json() is None


def test_markers_are_not_records() -> None:
    body = stamped(codec.encode_marker(1, 0, True, 0, 5), 3) + stamped(codec.encode_one(b"a", 1), 4)
    assert [record.offset for record in records_of(body, 0)] == [4]


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_damaged_answer_is_refused(cut: int) -> None:
    body = stamped(codec.encode_one(b"abcdefgh", 1), 0)
    with pytest.raises(AnswerUnreadable):
        records_of(body[:-cut] if cut < len(body) else body[:1], 0)
    flipped = bytearray(body)
    flipped[-2] ^= 1
    with pytest.raises(AnswerUnreadable, match="damaged"):
        records_of(bytes(flipped), 0)


def test_records_are_values() -> None:
    record = Record(1, 2, None, b"x", ())
    with pytest.raises(AttributeError):
        record.offset = 3  # type: ignore[misc]
    assert msgspec.structs.replace(record, offset=3).offset == 3


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"1E400", math.inf),
        (b'{"a":[-1e400,1]}', {"a": [-math.inf, 1]}),
        (b"1" + b"0" * 400, 10**400),
        (None, None),
    ],
)
def test_whatever_the_server_takes_as_json_can_be_read_as_json(value: bytes | None, read: object) -> None:
    assert Record(0, 0, None, value, ()).json() == read


def test_a_value_that_is_not_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        Record(0, 0, None, b"plain text", ()).json()
