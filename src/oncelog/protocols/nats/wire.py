"""What the server sends: INFO, MSG and HMSG, +OK, -ERR, PING, PONG, and the statuses that have a header block alone."""

from typing import Any, Final

import msgspec

from oncelog.protocols.nats import headers

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
OK: Final = b"+OK\r\n"

STALE: Final = "Stale Connection"
SLOW: Final = "Slow Consumer"


def error(text: str) -> bytes:
    """-ERR."""
    return f"-ERR '{text}'\r\n".encode()


def info(fields: dict[str, Any]) -> bytes:
    """INFO."""
    return b"INFO " + msgspec.json.encode(fields) + b" \r\n"


def message(subject: str, sid: str, reply: str, header: bytes, payload: bytes) -> bytes:
    """MSG, or HMSG if there is a header block."""
    if header:
        size, total = len(header), len(header) + len(payload)
        head = (
            f"HMSG {subject} {sid} {reply} {size} {total}\r\n" if reply else f"HMSG {subject} {sid} {size} {total}\r\n"
        )
        return b"%b%b%b\r\n" % (head.encode(), header, payload)
    head = f"MSG {subject} {sid} {reply} {len(payload)}\r\n" if reply else f"MSG {subject} {sid} {len(payload)}\r\n"
    return b"%b%b\r\n" % (head.encode(), payload)


def status(code: int, text: str = "", fields: headers.Headers | None = None) -> bytes:
    """A header block with a status."""
    return headers.encode(fields or [], f"{code} {text}" if text else str(code))
