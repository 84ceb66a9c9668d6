"""Lines of an ingested file that do not fit, and what becomes of them. No line is dropped or rewritten.

    fail                      the run ends at the first one, and names it
    keep                      the line is stored as it is, with the header `oncelog.bad`
    dead-letter:<topic>       the line is stored in that topic, with headers that say where it comes from
    dead-letter:<folder>      the lines of each file become a file in that folder, byte for byte

A place that begins with `/` or `.`, or is an address such as `s3://…`, is a folder; every other one is a topic.
"""

from typing import Final, Literal

import msgspec

from oncelog.pipelines.lake_place import PlaceUnknown, TablePlace, place_of
from oncelog.pipelines.running import PipelineRefused

BLANK: Final = "blank"
"""A line without a byte. It is not a document and has nothing to keep, so `ingest` counts it and does not store it."""

KINDS: Final = {
    "not_utf8": "is not UTF-8",
    "not_json": "is not JSON",
    "trailing": "has something behind its JSON document",
    "not_schema": "does not fit the schema",
    "malformed": "cannot be read as a row",
}
"""What can be wrong with a line, and how people say it."""

BAD_HEADER: Final = "oncelog.bad"
"""Of a record that did not fit: the kind."""

FILE_HEADER: Final = "oncelog.file"
LINE_HEADER: Final = "oncelog.line"
"""Of a record in a dead-letter topic: where it comes from. Lines are counted from 1."""

DEAD_LETTER: Final = "dead-letter:"


class BadLines(msgspec.Struct, frozen=True):
    """What is to become of them."""

    what: Literal["fail", "keep", "dead-letter"] = "fail"
    topic: str = ""
    place: TablePlace | None = None


def bad_lines_of(text: str) -> BadLines:
    """The choice as a user writes it. Raises PipelineRefused."""
    if text == "fail":
        return BadLines("fail")
    if text == "keep":
        return BadLines("keep")
    where = text.removeprefix(DEAD_LETTER)
    if where == text or not where:
        raise PipelineRefused(f"bad lines: {text!r} is not fail, keep, dead-letter:TOPIC or dead-letter:FOLDER")
    if not where.startswith(("/", ".")) and "://" not in where:
        return BadLines("dead-letter", topic=where)
    try:
        return BadLines("dead-letter", place=place_of(where))
    except PlaceUnknown as error:
        raise PipelineRefused(f"bad lines: {error}") from None
