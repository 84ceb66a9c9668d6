"""The face as one function: a request's head and body in, an answer or a call in progress out.

Paths: POST /bsfg.v1.BoundaryService/<Method>; GET /bsfg/boundary.proto is the contract as a document, GET /bsfg/zone
says which zone this is, GET /bsfg/status how its consumers stand; POST /bsfg/gate opens and closes one of them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from typing import Any, Final

import msgspec

from oncelog.limits import MIB
from oncelog.protocols.bsfg import calls, connect, objects, status
from oncelog.protocols.bsfg.connect import Answer, RpcError
from oncelog.protocols.bsfg.messages import METHODS, PACKAGE, Message
from oncelog.protocols.bsfg.policy import Caller, caller_of
from oncelog.protocols.bsfg.zone import Ask, Steps, Zone

PREFIX: Final = f"/{PACKAGE}.BoundaryService/"
DOCUMENTS: Final = "/bsfg/"
PREFIXES: Final = (PREFIX, DOCUMENTS)
"""What the server mounts."""

BODY_BYTES_MAX: Final = 5 * MIB
"""An object of 3 MiB in base64, and the names around it."""

_CALLS: Final[dict[str, Callable[[Zone, Caller, Message], Steps]]] = {
    "AppendFact": calls.append_fact,
    "FetchFacts": calls.fetch_facts,
    "ConfirmReceipt": calls.confirm_receipt,
    "PutObject": objects.put_object,
    "GetObject": objects.get_object,
    "GetReceipt": calls.get_receipt,
}


class Call:
    """A call in progress. `advance` with None, then with the reply to each ask, until it returns an answer."""

    def __init__(
        self,
        name: str,
        steps: Steps,
        render: Callable[[Message], Answer],
        timeout_ms: int | None = None,
        caller: str = "",
    ) -> None:
        self.name = name
        self.caller = caller
        """The zone that it speaks for."""
        self.timeout_ms = timeout_ms
        self._steps = steps
        self._render = render

    def advance(self, reply: Any) -> Ask | Answer:
        """What it asks next, or its answer."""
        try:
            return self._steps.send(reply)
        except StopIteration as done:
            return self._render(done.value)
        except RpcError as error:
            return connect.error_answer(error)

    def expired(self) -> Answer:
        """The answer once `Connect-Timeout-Ms` has passed. The call goes on: only its answer is dropped."""
        text = (
            f"{self.name} took longer than {self.timeout_ms} ms; it may still be carried out. Send it again as it is."
        )
        return connect.error_answer(RpcError("deadline_exceeded", text))


def begin(zone: Zone, method: bytes, path: str, headers: Mapping[bytes, bytes], body: bytes) -> Call | Answer:
    """A request, read whole: the call that it begins, or the answer if it begins none."""
    if not path.startswith(PREFIX):
        return _document(zone, method, path, headers, body)
    name = path[len(PREFIX) :]
    try:
        if name not in METHODS:
            known = ", ".join(METHODS)
            raise RpcError("unimplemented", f"there is no method {name[:80]!r}; the service has {known}.")
        if method != b"POST":
            return _not_allowed("POST")
        if not connect.is_supported(headers):
            return Answer(
                415,
                "text/plain",
                b"Content-Type is application/json or application/proto\n",
                (("Accept-Post", ", ".join(connect.CONTENT_TYPES)),),
            )
        said = connect.asked(headers)
        caller = caller_of(zone.name, zone.peers, headers.get(b"authorization"))
        request = connect.request_of(name, said, body, BODY_BYTES_MAX)
        render = partial(connect.answer, name, said.is_json)
        return Call(name, _CALLS[name](zone, caller, request), render, said.timeout_ms, caller.zone)
    except RpcError as error:
        return connect.error_answer(error)


def _document(zone: Zone, method: bytes, path: str, headers: Mapping[bytes, bytes], body: bytes) -> Call | Answer:
    if path in ("/bsfg/gate", "/bsfg/status"):
        allowed = (b"POST",) if path == "/bsfg/gate" else (b"GET", b"HEAD")
        if method not in allowed:
            return _not_allowed(b", ".join(allowed).decode())
        try:
            caller = caller_of(zone.name, zone.peers, headers.get(b"authorization"))
            if path == "/bsfg/status":
                return Call(path, status.status(zone), _json)
            return Call(path, status.set_gate(zone, caller, status.gate_request(body)), _json, caller=caller.zone)
        except RpcError as error:
            return connect.error_answer(error)
    if path not in ("/bsfg/boundary.proto", "/bsfg/zone"):
        return Answer(404, "text/plain", b"nothing is here; /bsfg/boundary.proto is the contract\n")
    if method not in (b"GET", b"HEAD"):
        return _not_allowed("GET, HEAD")
    if path == "/bsfg/zone":
        return _json({"zone": zone.name})
    return Answer(200, "text/plain; charset=utf-8", contract())


def _json(document: Message) -> Answer:
    return Answer(200, connect.JSON, msgspec.json.encode(document), (("Cache-Control", "no-store"),))


def _not_allowed(allowed: str) -> Answer:
    return Answer(405, "text/plain", f"this path takes {allowed}\n".encode(), (("Allow", allowed),))


def contract() -> bytes:
    """The text of `boundary.proto`."""
    return (resources.files("oncelog.protocols.bsfg") / "boundary.proto").read_bytes()
