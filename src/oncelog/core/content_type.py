"""Content types: when two are the same, and what a stream of JSON may hold.

The media type counts, in any case; parameters such as a charset do not. A stream of JSON is read as one array, so one
value that is no JSON would break it for every reader: whatever face a record comes through, it is checked unless that
face says that it has done so.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.outcome import BatchRefused

JSON: Final = "application/json"
ANY: Final = "application/octet-stream"
BATCHES: Final = "application/vnd.oncelog.batches"
"""Record batches as they are stored: a way to send and to fetch records, never what a stream holds."""

_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode


def media_type(content_type: str) -> str:
    """The type alone, as it is compared."""
    if len(content_type) > limits.MEDIA_TYPE_CACHED_CHARS_MAX:
        return _taken_apart(content_type)
    return _cached(content_type)


def _taken_apart(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


_cached: Final = lru_cache(maxsize=limits.MEDIA_TYPES_CACHED_MAX)(_taken_apart)


def is_same_type(one: str, other: str) -> bool:
    """Whether records of one belong into a stream of the other."""
    return one == other or media_type(one) == media_type(other)


def is_json(content_type: str) -> bool:
    """Whether a stream of this type holds JSON values."""
    return content_type != ANY and media_type(content_type) == JSON


def json_flaw(value: bytes) -> str | None:
    """What keeps these bytes from being one JSON value; None if nothing does."""
    try:
        # The decoder looks at structure alone when it keeps the bytes: a string that is not UTF-8 would pass it.
        str(value, "utf-8")
        _raw(value)
    except UnicodeDecodeError as error:
        return f"byte {error.start} is not UTF-8"
    except msgspec.DecodeError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return None


def batch_refused(content_type: str, batch: bytes) -> BatchRefused | None:
    """Why a batch does not belong into a stream of this type."""
    return values_refused(codec.decode_values(batch)) if is_json(content_type) else None


def values_refused(values: Iterable[bytes | None]) -> BatchRefused | None:
    """Why values do not belong into a stream of JSON. A record without a value does: it is left out."""
    for number, value in enumerate(values):
        if value is not None and (flaw := json_flaw(value)) is not None:
            return BatchRefused(f"the stream holds JSON, and record {number} is none: {flaw}")
    return None
