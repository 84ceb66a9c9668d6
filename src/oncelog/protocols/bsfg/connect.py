"""The Connect protocol, unary: what a request says of itself, and how answers and errors look.

As https://connectrpc.com/docs/protocol has it: POST with a body in JSON or protobuf, an answer in the same encoding
with status 200, an error as JSON with the status of its code whatever the encoding of the request. Calls by GET are not
offered. A body may be compressed with gzip or zstd; answers are not.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from oncelog.core import compression
from oncelog.core.content_type import media_type
from oncelog.errors import BatchInvalid
from oncelog.protocols.bsfg import messages
from oncelog.protocols.bsfg.quick_append import quick_append

JSON: Final = "application/json"
PROTO: Final = "application/proto"
CONTENT_TYPES: Final = (JSON, PROTO)

STATUS: Final = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}
"""Every code of the protocol, and its status."""

TIMEOUT_MS_DIGITS_MAX: Final = 10
"""Of `Connect-Timeout-Ms`, by the specification."""

_ENCODINGS: Final = {b"gzip": compression.CODEC_GZIP, b"zstd": compression.CODEC_ZSTD}

_encode: Final = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """What goes back: the server adds the line of the status and the length."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    code: str = ""
    """Of an error, for the counts."""


class RpcError(Exception):
    """A call that is answered with an error. Everything that a method refuses is one."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        detail: tuple[str, messages.Message] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        assert code in STATUS
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
        """Name and content of a message that programs can read."""
        self.headers = headers


class Asked(NamedTuple):
    """What the head of a request says."""

    is_json: bool
    codec: int
    timeout_ms: int | None


def asked(headers: Mapping[bytes, bytes]) -> Asked:
    """Read the head of a call. Raises RpcError."""
    timeout = headers.get(b"connect-timeout-ms")
    if timeout is not None and not (timeout.isdigit() and len(timeout) <= TIMEOUT_MS_DIGITS_MAX):
        shown = timeout[:40].decode("latin-1")
        raise RpcError("invalid_argument", f"Connect-Timeout-Ms is {shown!r}; it is 1 to 10 digits.")
    version = headers.get(b"connect-protocol-version", b"1")
    if version != b"1":
        raise RpcError("invalid_argument", f"Connect-Protocol-Version is {version[:40].decode('latin-1')!r}; it is 1.")
    encoding = headers.get(b"content-encoding", b"identity").lower()
    if encoding != b"identity" and encoding not in _ENCODINGS:
        shown = encoding[:40].decode("latin-1")
        problem = f"Content-Encoding {shown!r} is unknown; supported are identity, gzip, zstd."
        raise RpcError("unimplemented", problem, headers=(("Accept-Encoding", "gzip, zstd"),))
    kind = media_type(headers.get(b"content-type", b"").decode("latin-1"))
    return Asked(kind == JSON, _ENCODINGS.get(encoding, 0), None if timeout is None else int(timeout))


def is_supported(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the content type is one of a unary call."""
    return media_type(headers.get(b"content-type", b"").decode("latin-1")) in CONTENT_TYPES


def request_of(method: str, said: Asked, body: bytes, bytes_max: int) -> messages.Message:
    """The message of a call, inflated if need be. Raises RpcError."""
    if said.codec and body:
        try:
            body = compression.inflate(said.codec, body, bytes_max)
        except BatchInvalid as error:
            raise RpcError("invalid_argument", f"the body cannot be inflated: {error.reason}") from None
    if said.is_json and method == "AppendFact" and (quick := quick_append(body)) is not None:
        return quick
    try:
        decode = messages.from_json if said.is_json else messages.from_protobuf
        return decode(f"{method}Request", body)
    except messages.Malformed as malformed:
        raise RpcError("invalid_argument", str(malformed)) from None


def answer(method: str, is_json: bool, message: messages.Message) -> Answer:
    """A success."""
    name = f"{method}Response"
    if is_json:
        return Answer(200, JSON, _encode(messages.json_ready(name, message)))
    return Answer(200, PROTO, messages.to_protobuf(name, message))


def error_answer(error: RpcError) -> Answer:
    """An error, in JSON as the protocol has it for both encodings."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.detail is not None:
        name, content = error.detail
        # Base64 without padding, as the specification has it.
        value = base64.b64encode(messages.to_protobuf(name, content)).decode().rstrip("=")
        debug = messages.json_ready(name, content)
        body["details"] = [{"type": f"{messages.PACKAGE}.{name}", "value": value, "debug": debug}]
    return Answer(STATUS[error.code], JSON, _encode(body), error.headers, error.code)
