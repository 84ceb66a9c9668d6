"""JSON bodies: split into the raw bytes of their elements, never re-encoded."""

import re
from typing import Final

import msgspec

from oncelog.limits import BATCH_RECORDS_MAX
from oncelog.protocols.http.request import Body

_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_is_array: Final = re.compile(rb"[ \t\r\n]*\[").match


class JsonInvalid(Exception):
    """Not JSON: says what is wrong and where."""


class TooManyElements(JsonInvalid):
    """More elements than one batch has records."""

    def __init__(self, count: int) -> None:
        super().__init__(f"an array of {count} elements")
        self.count = count


def elements(body: Body) -> list[bytes]:
    """The records of a body: the elements of an array, or the one value that it is. Byte for byte as sent, but for
    white space around them."""
    try:
        # The splitter looks at structure alone; a string that is not UTF-8 would pass it.
        str(body, "utf-8")
        if _is_array(body):
            raw = _array(body)
            if len(raw) > BATCH_RECORDS_MAX:
                raise TooManyElements(len(raw))
            return [bytes(element) for element in raw]
        return [bytes(_value(body))]
    except UnicodeDecodeError as error:
        raise JsonInvalid(f"byte {error.start} is not UTF-8") from None
    except msgspec.DecodeError as error:
        if "truncated" in str(error):  # said of half a surrogate pair, too
            raise JsonInvalid("it ends inside of a value, or of a pair of surrogates (\\ud800 stands alone)") from None
        raise JsonInvalid(str(error)) from None
    except RecursionError:
        raise JsonInvalid("nested too deeply") from None
