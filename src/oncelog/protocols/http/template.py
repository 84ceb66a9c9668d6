"""Appends that are like the one before them: read by comparing bytes, since only two values differ.

A client that appends sends the same head again and again, but for the length of its body and the sequence of its
producer or the id of its message. What the last head meant is kept as the literal bytes around these two. A request
whose bytes are the same up to digits (or the text of an id) in these places means the same up to them: the lines are
the same lines, each header still stands once, and topic, type, dialect and all of the claim but its sequence were read
from bytes that have not changed. Everything else - a bound, a digit too many, a body that is not all there, any other
byte - is no match, and the request is read from its first byte as if there were no template. A test compares the two
ways.

Not every append becomes a template: none with a condition or a close, none with both a producer and an id, and none
that depends on what its connection remembers (the X- dialect without a session).
"""

import re
from collections.abc import Sequence
from typing import Final

from oncelog import limits
from oncelog.core.command import Columns, Command
from oncelog.core.content_type import JSON
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import values_digest
from oncelog.protocols.http.append import content_type_of
from oncelog.protocols.http.append_command import append_of_values, following
from oncelog.protocols.http.claims import Dialect
from oncelog.protocols.http.json_body import JsonInvalid, elements
from oncelog.protocols.http.plain import LENGTH_DIGITS_MAX, VALUE
from oncelog.protocols.http.request import Request
from oncelog.protocols.http.write_answers import ANSWERS

_END: Final = b"\r\n\r\n"

_VARYING: Final = re.compile(
    rb"\r\n(content-length|(?:x-)?producer-seq|stream-message-id|idempotency-key): ([^\r]+)", re.IGNORECASE
)

_NOT_ALIKE: Final = frozenset((b"stream-closed", b"if-match", b"stream-seq"))
"""Headers that say more than a template knows."""

_SESSION: Final = b"x-producer-session"

_is_value: Final = re.compile(VALUE).fullmatch


class AppendTemplate:
    """One head, taken apart: literal bytes, a value, and with a producer or an id more bytes and another value, then
    the end. One of the values is the length. `command` is asked for every request of its connection."""

    __slots__ = (
        "_body_bytes_max",
        "_claim",
        "_content_type",
        "_first",
        "_first_size",
        "_first_width",
        "_is_alone",
        "_last",
        "_last_size",
        "_length",
        "_length_is_first",
        "_length_text",
        "_partition",
        "_second",
        "_second_size",
        "_second_width",
        "_topic",
        "is_json",
        "next_at",
        "render",
    )

    def __init__(
        self,
        command: Columns,
        head: bytes,
        values: list[re.Match[bytes]],
        *,
        is_json: bool,
        body_bytes_max: int,
    ) -> None:
        self._topic = command.topic
        self._partition = command.partition
        self._claim = command.claim
        self._content_type = command.content_type
        self.is_json = is_json
        """Its bodies are one JSON value, or an array of them."""
        self._body_bytes_max = body_bytes_max
        self._length = -1
        self._length_text = b""
        self.render: Final = ANSWERS[_dialect_of(command.claim)]
        self.next_at = 0
        """Where the next request begins, once `command` has found one."""
        first, last = values[0], values[-1]
        self._is_alone = first is last
        self._length_is_first = first[1].lower() == b"content-length"
        self._first = head[: first.start(2)]
        self._second = b"" if self._is_alone else head[first.end(2) : last.start(2)]
        self._last = head[last.end(2) :] + _END
        self._first_size, self._second_size, self._last_size = len(self._first), len(self._second), len(self._last)
        # That values are as long as the last time is the first guess.
        self._first_width, self._second_width = len(first[2]), len(last[2])

    def command(self, data: bytes, at: int) -> Columns | None:
        """The command of the request that begins at `at`, if it is like the template and whole."""
        begin = at + self._first_size
        if data[at:begin] != self._first:
            return None
        end = begin + self._first_width
        length = data[begin:end]
        other = b""
        if self._is_alone:
            body_at = end + self._last_size
            if data[end:body_at] != self._last:
                return self.command(data, at) if self._fits_anew(data, begin) else None
        else:
            second_at = end + self._second_size
            second_end = second_at + self._second_width
            body_at = second_end + self._last_size
            if data[end:second_at] != self._second or data[second_end:body_at] != self._last:
                return self.command(data, at) if self._fits_anew(data, begin) else None
            other = data[second_at:second_end]
            if not self._length_is_first:
                length, other = other, length
        if length != self._length_text and not self._takes(length):
            return None
        next_at = body_at + self._length
        body = data[body_at:next_at]
        if len(body) != self._length:
            return None
        values: Sequence[bytes] = (body,)
        if self.is_json:
            try:
                values = elements(body)
            except JsonInvalid:
                return None  # told by whoever reads it next
            if not values:
                return None
        command = self._of_values(values, values_digest(values) if other else b"", other)
        if command is not None:
            self.next_at = next_at
        return command

    def _of_values(self, values: Sequence[bytes], digest: bytes, other: bytes) -> Columns | None:
        """`other` is the sequence or the id; empty if there is neither."""
        claim = self._claim
        if claim is not None:
            # Digit by digit: compiled, that takes less than to ask whether all of them are digits.
            sequence = 0
            for digit in other:
                if not 48 <= digit <= 57:
                    return None
                sequence = 10 * sequence + digit - 48
            claim = following(claim, sequence, digest)
            other = b""
        elif other and not _is_value(other):
            return None
        return append_of_values(self._topic, self._partition, values, digest, claim, other, self._content_type)

    def _takes(self, length_text: bytes) -> bool:
        """Whether it is the length of a body that may be; the same one mostly comes again."""
        if not length_text.isdigit():
            return False
        length = int(length_text)
        if not 0 < length <= self._body_bytes_max:
            return False
        self._length, self._length_text = length, length_text
        return True

    def _fits_anew(self, data: bytes, begin: int) -> bool:
        """Look how long the values are: whether they are not as guessed, and no longer than may be."""
        first_max = LENGTH_DIGITS_MAX if self._length_is_first else self._other_max
        first = data.find(b"\r", begin, begin + first_max + 1) - begin
        second = first
        if not self._is_alone:
            second_at = begin + first + self._second_size
            second_max = self._other_max if self._length_is_first else LENGTH_DIGITS_MAX
            second = data.find(b"\r", second_at, second_at + second_max + 1) - second_at
        if first <= 0 or second <= 0 or (first, second) == (self._first_width, self._second_width):
            return False
        self._first_width, self._second_width = first, second
        return True

    @property
    def _other_max(self) -> int:
        return limits.HTTP_TEMPLATE_ID_BYTES_MAX if self._claim is None else limits.HTTP_DIGITS_MAX


def template_of(
    request: Request, command: Command, header_bytes_max: int, body_bytes_max: int
) -> AppendTemplate | None:
    """What the next append may be like, after this request has become this command; None if it is of no use to know."""
    head = request.head
    # With the longest values that it may get, it is still no longer than a head may be.
    room = min(
        limits.HTTP_TEMPLATE_HEAD_BYTES_MAX,
        header_bytes_max - LENGTH_DIGITS_MAX - limits.HTTP_TEMPLATE_ID_BYTES_MAX - len(_END),
    )
    if not 0 < len(head) <= room or not isinstance(command, Columns) or not _NOT_ALIKE.isdisjoint(request.headers):
        return None
    claim = command.claim
    if not command.content_type or (claim is not None and claim.managed and _SESSION not in request.headers):
        return None
    values = list(_VARYING.finditer(head))
    if len(values) != 1 + (claim is not None) + (command.message_ids is not None) or len(values) > 2:
        return None
    kind = content_type_of(request.headers)[1]
    return AppendTemplate(command, head, values, is_json=kind == JSON, body_bytes_max=body_bytes_max)


def _dialect_of(claim: ProducerClaim | None) -> Dialect:
    if claim is None:
        return Dialect.PLAIN
    return Dialect.X if claim.managed else Dialect.PRODUCER
