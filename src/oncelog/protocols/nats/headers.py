"""Header blocks: `NATS/1.0[ status[ text]]`, then one `Name: value` per line, then an empty line.

A block is kept as the client sent it where it is only passed on; it is taken apart where it is stored or decided on.
Names are compared without case.
"""

from typing import Final

VERSION_LINE: Final = b"NATS/1.0"
Headers = list[tuple[str, str]]


def parse(block: bytes) -> Headers | None:
    """Names and values in order; None if the block is not one. A status on the first line is ignored."""
    if not block.startswith(VERSION_LINE) or not block.endswith(b"\r\n\r\n"):
        return None
    try:
        lines = block.decode().split("\r\n")
    except UnicodeDecodeError:
        return None
    found: Headers = []
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon or not name or "\n" in line or name.strip() != name:
            return None
        found.append((name, value.strip(" \t")))
    return found


def encode(headers: Headers, status: str = "") -> bytes:
    """A block; the headers were checked (`is_safe`)."""
    lines = [f"NATS/1.0 {status}" if status else "NATS/1.0"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def is_safe(name: str, value: str) -> bool:
    """Whether a stored header can be written into a block: it ends no line and names something."""
    return bool(name) and not any(mark in name for mark in ":\r\n") and not any(mark in value for mark in "\r\n")


def first(headers: Headers, name: str) -> str | None:
    """The value of the first header of that name, without case."""
    wanted = name.lower()
    for have, value in headers:
        if have.lower() == wanted:
            return value
    return None


def without(headers: Headers, prefix: str) -> Headers:
    """All whose names do not begin with `prefix`, without case."""
    wanted = prefix.lower()
    return [(name, value) for name, value in headers if not name.lower().startswith(wanted)]
