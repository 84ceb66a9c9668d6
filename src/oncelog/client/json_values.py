"""Values to JSON, and no number that JSON does not have.

msgspec writes NaN and the infinities as `null`: a record would hold something else than it was given, and nobody would
know. So they are refused. What msgspec has written decides whether to look: each of them has become a `null`, so bytes
without that word come from a value without them, and one search in the bytes is all that most values cost. Where the
word stands, be it for None or inside a text, the value itself is walked through, in the form that msgspec encodes:
dataclasses, structs, enums and sets are dicts, lists and floats there. Keys are not looked at: a key is text in JSON,
so NaN as a key is the text `nan` and not lost.
"""

import math
from typing import Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode


def json_of(value: object) -> bytes:
    """The value as JSON. TypeError for what has no form there; ValueError for NaN, infinity, text that is no UTF-8."""
    encoded = _encode(value)
    if b"null" in encoded and _has_unspeakable(value):
        raise ValueError("JSON has no NaN and no infinity; send None or a text in their place")
    return encoded


def _has_unspeakable(value: object) -> bool:
    # The hook is for `msgspec.Raw` alone, which is JSON already; anything else would have failed to encode.
    waiting: list[object] = [msgspec.to_builtins(value, enc_hook=lambda _raw: None)]
    # A stack and no recursion: what nests as deeply as msgspec can encode must not fail here.
    while waiting:
        one = waiting.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                return True
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
    return False
