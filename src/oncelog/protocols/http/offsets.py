"""Offsets as this face spells them: 16 digits, so that they sort as text. `-1` is the start, `now` the end."""

from typing import Final

from oncelog.protocols.http.target import TargetInvalid, digits

START: Final = -1
NOW: Final = -2


def spelled(offset: int) -> str:
    """Of the next record to read, or of the end."""
    return f"{offset:016d}"


def parsed(text: str | None) -> int:
    """An offset, START or NOW. Raises TargetInvalid."""
    if text is None or text == "-1":
        return START
    if text == "now":
        return NOW
    offset = digits(text)
    if offset is None:
        raise TargetInvalid(f"an offset is -1, now, or what Stream-Next-Offset said, not {text[:40]!r}")
    return offset
