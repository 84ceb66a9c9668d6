"""Requests for sans-IO tests: made from their parts, or parsed from bytes in any pieces."""

from collections.abc import Iterable

from oncelog.limits import KIB, MIB
from oncelog.protocols.http.actions import Action, Done
from oncelog.protocols.http.parser import BodyBudget, RequestParser
from oncelog.protocols.http.request import Request, RequestRefused
from oncelog.protocols.http.routes import Router
from oncelog.protocols.http.session import Session

NOW_MS = 1_700_000_000_000

Shown = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes, bool, str]


def made(method: str, target: str, body: bytes = b"", /, **headers: str) -> Request:
    """A request; `content_type="text/plain"` becomes a header."""
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    if body:
        named[b"content-length"] = b"%d" % len(body)
    return Request(method.encode(), target.encode(), named, body, keep_alive=True)


def shown(request: Request) -> Shown:
    """A request as something that compares."""
    refused = "" if request.refused is None else request.refused.code
    headers = tuple(sorted(request.headers.items()))
    return request.method, request.target, headers, bytes(request.body), request.keep_alive, refused


class Fed:
    """A parser and what came out of it."""

    def __init__(
        self, header_bytes_max: int = 32 * KIB, body_bytes_max: int = MIB, budget: BodyBudget | None = None
    ) -> None:
        self.requests: list[Shown] = []
        self.parser = RequestParser(
            lambda request: self.requests.append(shown(request)), header_bytes_max, body_bytes_max, budget
        )

    def feed(self, data: bytes) -> None:
        """As the server does: a large body goes where it belongs, and a refusal is the end."""
        try:
            self._feed(data)
        except RequestRefused:
            self.parser.let_go()
            raise

    def _feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            room = self.parser.body_room()
            if room is None:
                self.parser.feed(data[at:])
                return
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            at += count
            self.parser.body_came(count)


def parsed(pieces: Iterable[bytes], header_bytes_max: int = 32 * KIB, body_bytes_max: int = MIB) -> list[Shown]:
    """All requests of these bytes."""
    fed = Fed(header_bytes_max, body_bytes_max)
    for piece in pieces:
        fed.feed(piece)
    return fed.requests


def routed(
    request: Request, session: Session | None = None, *, strict: bool = False, browser_writes: bool = False
) -> Action:
    """What the request asks for."""
    router = Router(lambda _stream_id: ("t", 0), x_producer_strict=strict, browser_writes=browser_writes)
    return router.route(request, session or Session(), NOW_MS)


def status_of(action: Action) -> int:
    """Of an action that is an answer already; 0 if it is none."""
    return int(action.answer[9:12]) if isinstance(action, Done) else 0


def answer_of(action: Action) -> bytes:
    assert isinstance(action, Done), action
    return action.answer
