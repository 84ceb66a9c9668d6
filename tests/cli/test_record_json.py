"""A record as JSON loses nothing, and as a line on a terminal can do no harm."""

import base64

import pytest

from oncelog.cli.record_json import iso, line_for_terminal, record_json
from oncelog.cli.screen import printable, when


def test_text_is_text() -> None:
    assert record_json(7, 1_000, b"k", "väl".encode(), [("h", b"v"), ("h", None)]) == {
        "offset": 7,
        "time": "1970-01-01T00:00:01.000Z",
        "key": "k",
        "headers": [["h", "v"], ["h", None]],
        "value": "väl",
    }


def test_bytes_that_are_no_text_are_base64_and_say_so() -> None:
    record = record_json(0, 0, b"\xff", b"\xfe", [("h", b"\xfd")])
    assert "value" not in record
    assert base64.b64decode(record["base64"]) == b"\xfe"
    assert base64.b64decode(record["key"]["base64"]) == b"\xff"
    assert base64.b64decode(record["headers"][0][1]["base64"]) == b"\xfd"


def test_nothing_stays_nothing() -> None:
    assert record_json(0, 0, None, None, []) == {
        "offset": 0, "time": "1970-01-01T00:00:00.000Z", "key": None, "headers": [], "value": None,
    }  # fmt: skip


@pytest.mark.parametrize(("time_ms", "said"), [(1, "1970-01-01T00:00:00.001Z"), (2**62, None), (-(2**62), None)])
def test_time_is_utc_or_unknown(time_ms: int, said: str | None) -> None:
    assert iso(time_ms) == said


def test_moments_in_tables_are_short() -> None:
    assert when(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert when(-1) == "–"
    assert when(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"plain \xc3\xa4", "plain ä"),
        (b"\x1b[2Jgone", "\\x1b[2Jgone"),
        (b"two\nlines\ttab", "two\\nlines\\ttab"),
        (b"\xff\x00", "\\xff\\x00"),
        (b"it's", "it's"),
        (b"\xff it's", "\\xff it's"),
        (None, ""),
        (b"", ""),
    ],
)
def test_line_for_a_terminal_cannot_drive_it(value: bytes | None, line: str) -> None:
    assert line_for_terminal(value) == line


def test_printable_leaves_ordinary_text_alone() -> None:
    assert printable("a b/c–…✓") == "a b/c–…✓"
    assert printable("\u202e\x00") == "\\u202e\\x00"
