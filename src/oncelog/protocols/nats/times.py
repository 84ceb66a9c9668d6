"""Times as JetStream's JSON writes them: RFC 3339 with nanoseconds, in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Final

NEVER: Final = "0001-01-01T00:00:00Z"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def json_time(time_ns: int) -> str:
    """Without trailing zeros, as Go writes it; 0 is Go's zero time."""
    if time_ns <= 0:
        return NEVER
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{nanoseconds:09d}".rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"
