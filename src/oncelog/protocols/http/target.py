"""Request targets: path and query, percent-decoded with care. Pure text; what a path means is in `routes`."""

import re
from typing import Final

from oncelog import limits

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})?")
_SHOWN_MAX: Final = 80


class TargetInvalid(Exception):
    """A path or a query that cannot be read."""


def decoded(raw: bytes, where: str = "path") -> str:
    """Percent-decoded once, as UTF-8. Raises TargetInvalid, which names the part of the target and what is there."""
    sent = raw
    if b"%" in raw:
        raw = _ESCAPE.sub(_unescaped, raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        shown = sent[:_SHOWN_MAX].decode("latin-1")
        raise TargetInvalid(f"the {where} holds {shown!r}, which is not UTF-8 text") from None


def _unescaped(match: re.Match[bytes]) -> bytes:
    digits = match.group(1)
    if digits is None:
        raise TargetInvalid("a % without two hexadecimal digits")
    return bytes.fromhex(digits.decode())


def split(target: bytes) -> tuple[bytes, bytes]:
    """(path, query), both still encoded. The absolute form that proxies send is taken too."""
    if not target.startswith(b"/"):
        _, separator, rest = target.partition(b"://")
        if not separator:
            raise TargetInvalid("a request target begins with /")
        target = rest[rest.find(b"/") :] if b"/" in rest else b"/"
    path, _, query = target.partition(b"?")
    return path, query.partition(b"#")[0]


class Query:
    """The parameters of a request. A parameter that may be given once is refused if it stands twice."""

    def __init__(self, raw: bytes) -> None:
        self._values: dict[str, list[str]] = {}
        if raw:
            for pair in raw.split(b"&"):
                name, _, value = pair.partition(b"=")
                text = decoded(value.replace(b"+", b" "), "query")
                self._values.setdefault(decoded(name, "query"), []).append(text)

    def text(self, name: str) -> str | None:
        """A parameter that stands at most once; None if it is absent."""
        values = self._values.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise TargetInvalid(f"{name} is given {len(values)} times")
        return values[0]

    def texts(self, name: str) -> list[str]:
        """A parameter that may be repeated."""
        return self._values.get(name, [])

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        value = digits(text)
        if value is None or not low <= value <= high:
            raise TargetInvalid(f"{name} is a number from {low} to {high}, not {text[:40]!r}")
        return value


def digits(text: str) -> int | None:
    """The number of a text of ASCII digits and nothing else; None otherwise."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= limits.HTTP_DIGITS_MAX else None
