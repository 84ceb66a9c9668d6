"""JSON bodies: split into the raw bytes of their elements, never re-encoded."""

import re
from typing import Final

import msgspec

from oncelog.protocols.http.parser import Body

_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_is_array: Final = re.compile(rb"[ \t\r\n]*\[").match


class JsonInvalid(Exception):
    """Not JSON: says what is wrong and where."""


def elements(body: Body) -> list[bytes]:
    """The records of a body: the elements of an array, or the one value that it is. Byte for byte as sent, but for
    white space around them."""
    try:
        # The splitter looks at structure alone; a string that is not UTF-8 would pass it.
        str(body, "utf-8")
        if _is_array(body):
            return [bytes(element) for element in _array(body)]
        return [bytes(_value(body))]
    except UnicodeDecodeError as error:
        raise JsonInvalid(f"byte {error.start} is not UTF-8") from None
    except msgspec.DecodeError as error:
        raise JsonInvalid(str(error)) from None
    except RecursionError:
        raise JsonInvalid("nested too deeply") from None
