"""A record as JSON and as a line of text. Bytes that are no UTF-8 are base64, and say so."""

import base64
import datetime
from collections.abc import Sequence
from typing import Any

from oncelog.cli.screen import printable


def record_json(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> dict[str, Any]:
    """`{"offset", "time", "key", "headers", "value"}`; `base64` instead of `value` if it is no text.

    A key or a header value that is no text is `{"base64": …}`. Headers are pairs, since a name may come twice.
    """
    record = {
        "offset": offset,
        "time": iso(timestamp_ms),
        "key": _text_or_base64(key),
        "headers": [[name, _text_or_base64(content)] for name, content in headers],
    }
    content = _text_or_base64(value)
    if isinstance(content, dict):
        record |= content
    else:
        record["value"] = content
    return record


def iso(timestamp_ms: int) -> str | None:
    """UTC, to the millisecond; None for a time that no calendar has."""
    try:
        time = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_for_terminal(value: bytes | None) -> str:
    """A value for eyes: one line, and nothing in it can drive the terminal."""
    if value is None:
        return ""
    try:
        return printable(value.decode())
    except UnicodeDecodeError:
        return repr(value)[2:-1]


def _text_or_base64(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
