"""JSON read strictly, and its RFC 8785 form (JCS): two texts mean the same exactly if their forms are equal bytes.

JCS knows IEEE doubles alone. A text that a double cannot carry has no form, and `read` refuses it with `JsonRefused`:
integers that no double holds exactly, numbers beyond the range of a double, NaN and Infinity. It also refuses keys that
occur twice, since parsers differ in which one wins, and lone surrogates, which have no UTF-8.

`read` returns a number that is whole and below 10^16 as int, whatever its spelling (`1`, `1.0`, `1e0`), every other one
as float. `form` depends on that: for what `read` returned, `json` writes the same digits as JCS, except in exponents.
"""

import json
import re
from typing import Any, Final, NoReturn

import rfc8785

from oncelog.errors import OncelogError

DEPTH_MAX: Final = 100
"""Nesting of objects and arrays. Parsers of other languages give up between 64 and 1,000; facts are flat."""

INTEGER_DIGITS_MAX: Final = 400
"""The largest double has 309 digits; Python takes quadratic time for long ones."""

_PLAIN_BELOW: Final = 10**16
"""Python writes whole doubles from here on with an exponent, JCS from 10^21 on."""

_EXACT_BELOW: Final = 2**53
"""Below it every integer is a double."""

_EXPONENT: Final = re.compile(r"\de[-+]?\d")

Json = None | bool | int | float | str | list[Any] | dict[str, Any]


class JsonRefused(OncelogError):
    """The text is not JSON, or has no canonical form."""


def _integer(text: str) -> int | float:
    if len(text) > INTEGER_DIGITS_MAX:
        raise JsonRefused(f"an integer of {len(text):,} digits is beyond the range of a double")
    number = int(text)
    if -_EXACT_BELOW <= number <= _EXACT_BELOW:
        return number
    try:
        double = float(number)
    except OverflowError:
        raise JsonRefused(f"the integer {text[:40]}... is beyond the range of a double") from None
    if int(double) != number:
        raise JsonRefused(
            f"a double cannot hold the integer {text[:40]} exactly (2^53 is {_EXACT_BELOW:,}): send it as a string"
        )
    return number if -_PLAIN_BELOW < number < _PLAIN_BELOW else double


def _float(text: str) -> int | float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise JsonRefused(f"the number {text[:40]} is beyond the range of a double")
    if -_PLAIN_BELOW < number < _PLAIN_BELOW and number.is_integer():
        return int(number)
    return number


def _constant(name: str) -> NoReturn:
    raise JsonRefused(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise JsonRefused(f"the key {twice[:80]!r} occurs twice in one object")
    return found


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_integer, parse_constant=_constant
).decode
_encode_sorted: Final = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
_encode_as_is: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def read(text: str | bytes | bytearray | memoryview) -> Json:
    """The value of a JSON text. Raises JsonRefused."""
    if not isinstance(text, str):
        try:
            text = str(text, "utf-8")
        except UnicodeDecodeError as error:
            raise JsonRefused(f"byte {error.start} is not UTF-8") from None
    if text.count("[") + text.count("{") > DEPTH_MAX:
        _refuse_depth(text)
    try:
        value: Json = _decode(text)
    except json.JSONDecodeError as error:
        raise JsonRefused(f"it is not JSON: {error}") from None
    except RecursionError:  # brackets inside of strings hid the depth, or the caller's own stack is deep
        raise JsonRefused(f"it is nested more than {DEPTH_MAX} deep") from None
    if ("\\u" in text or "\\U" in text or not text.isascii()) and not is_unicode(value):
        raise JsonRefused("it holds a lone surrogate, which has no UTF-8")
    return value


def is_unicode(value: Json) -> bool:
    """Whether every text in the value can be spelled in UTF-8."""
    try:
        _encode_as_is(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_depth(text: str) -> None:
    """Raise JsonRefused if brackets outside of strings nest too deeply. Text that is not JSON is left to the parser."""
    depth = 0
    for token in _TOKENS.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise JsonRefused(f"it is nested more than {DEPTH_MAX} deep")
        elif mark in "]}":
            depth -= 1


_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def form(value: Json) -> bytes:
    """The RFC 8785 form of what `read` returned, or of a value made of such parts."""
    text = _encode_sorted(value)
    # Keys in ASCII sort alike by code point and by UTF-16 unit, and without an exponent both spell numbers alike.
    if text.isascii() and _EXPONENT.search(text) is None:
        return text.encode()
    return rfc8785.dumps(_doubles(value))


def _doubles(value: Json) -> Json:
    """The same with integers that `rfc8785` refuses as the doubles that they are."""
    if isinstance(value, dict):
        return {name: _doubles(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_doubles(inner) for inner in value]
    if type(value) is int and not -_EXACT_BELOW < value < _EXACT_BELOW:
        return float(value)
    return value


def written(value: Json) -> str:
    """A JSON text of the value, keys in their order. `read` of it gives an equal value."""
    return _encode_as_is(value)
