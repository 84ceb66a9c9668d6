"""Which request is which: method and path to an action. Mistakes in a request become its answer here.

Streams come first: nearly all requests are theirs. A path is cut where it is still encoded, so that a `/` inside a name
(`%2F`) does not cut it. The segment `__ds` is reserved by the durable-streams protocol, before stream names.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog import limits
from oncelog.core.command import DeleteTopic
from oncelog.core.outcome import TopicDone
from oncelog.core.txn import DEFAULT_TIMEOUTS, TxnTimeouts
from oncelog.protocols.http import admin, answers, append, read, txns
from oncelog.protocols.http.actions import Action, Cut, Done, Health, Metrics, Stand, Stood, Submit
from oncelog.protocols.http.claims import refuse_of_one_append
from oncelog.protocols.http.commit_body import BodyInvalid
from oncelog.protocols.http.openapi import DESCRIPTION
from oncelog.protocols.http.request import Request, RequestRefused
from oncelog.protocols.http.session import Session
from oncelog.protocols.http.target import Query, TargetInvalid, decoded, digits, split

STREAM: Final = b"/v1/stream/"
STREAM_ALIAS: Final = b"/stream/"
TXNS: Final = b"/v1/txns/"

NAMES_REMEMBERED_MAX: Final = 10_000

_STREAM_METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
_PREFLIGHT: Final = (
    b"Access-Control-Allow-Headers: Content-Type, Authorization, Accept, If-Match, If-None-Match, Idempotency-Key, "
    b"Stream-Seq, Stream-Closed, Stream-TTL, Stream-Expires-At, Stream-Message-Id, Stream-Partitions, "
    b"Producer-Id, Producer-Epoch, Producer-Seq, Producer-Mode, "
    b"X-Producer-Id, X-Producer-Seq, X-Producer-Session, X-Producer-Epoch\r\n"
    b"Access-Control-Max-Age: 86400\r\n"
)
_PAGES_READ: Final = answers.empty(204, b"Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n" + _PREFLIGHT)
_PAGES_WRITE: Final = answers.empty(
    204, b"Access-Control-Allow-Methods: GET, HEAD, PUT, POST, PATCH, DELETE, OPTIONS\r\n" + _PREFLIGHT
)
_GET: Final = (b"GET", b"HEAD")
"""Whoever answers leaves the body out of the second."""
_CHANGE_NOTHING: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class _Asked(NamedTuple):
    """All that a path of its own may need to know."""

    request: Request
    query: Query
    now_ms: int
    name_of: admin.NameOf


class Router:
    """Turns requests into actions. One per server; what a connection remembers comes with each request."""

    def __init__(
        self,
        name_of: admin.NameOf,
        *,
        x_producer_strict: bool = False,
        browser_writes: bool = False,
        txn_timeouts: TxnTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._name_of = name_of
        self._strict = x_producer_strict
        self._browser_writes = browser_writes
        self._txn_timeouts = txn_timeouts
        self._names: dict[bytes, str] = {}
        """Paths of streams that were written to, as they were sent: they come again and again."""

    def route(self, request: Request, session: Session, now_ms: int) -> Action:
        """What this request asks for."""
        if request.refused is not None:
            return Done(refused_answer(request.refused))
        if (refused := self.refused_origin(request)) is not None:
            return refused
        try:
            target = request.target
            if target.startswith(STREAM):
                return self._stream(request, target[len(STREAM) :], session, now_ms)
            if target.startswith(STREAM_ALIAS):
                return self._stream(request, target[len(STREAM_ALIAS) :], session, now_ms)
            path, query = split(target)
            for prefix in (STREAM, STREAM_ALIAS):
                if path.startswith(prefix):  # the absolute form
                    return self._stream(request, path[len(prefix) :] + b"?" + query, session, now_ms)
            return self._other(request, path, Query(query), now_ms)
        except TargetInvalid as error:
            return Done(answers.problem(400, "target_invalid", str(error)))
        except BodyInvalid as error:
            return Done(answers.problem(400, "body_invalid", str(error)))
        except append.MISTAKES as error:
            return Done(append.mistake(error))

    def refused_origin(self, request: Request) -> Done | None:
        """The answer to a write that comes from a page in a browser; None to any other request."""
        if b"origin" in request.headers and not self._browser_writes and request.method not in _CHANGE_NOTHING:
            # Not only those of other origins: no page is ours, and a name that was rebound makes any page look so.
            return Done(answers.problem(403, "origin_refused", "a write with an Origin comes from a page in a browser"))
        return None

    # --- streams ---------------------------------------------------------------------------------------------------

    def _stream(self, request: Request, rest: bytes, session: Session, now_ms: int) -> Action:
        method = request.method
        named = self._names.get(rest)
        if named is not None and method == b"POST":
            return append.post(request, named, 0, session, strict=self._strict)
        raw_name, mark, raw_query = rest.partition(b"?")
        name = decoded(raw_name)
        query = Query(raw_query)
        partition = admin.partition_of(query) if mark else 0
        if name.startswith("__ds/") or name == "__ds":
            detail, hint = (
                "subscriptions are not supported by this server yet",
                "read with ?live=sse or ?live=long-poll",
            )
            return Done(answers.problem(501, "not_built", detail, hint=hint))
        if method == b"POST":
            if not mark and len(rest) <= limits.TOPIC_NAME_BYTES_MAX:
                self._remember(rest, name)
            return append.post(request, name, partition, session, strict=self._strict)
        if method == b"GET":
            return read.wish(request, name, partition, query)
        if method == b"PUT":
            if mark and query.text("partition") is not None:
                raise TargetInvalid("a PUT makes a topic with all its partitions; Stream-Partitions says how many")
            return append.put(request, name, now_ms)
        if method == b"HEAD":
            return Stand(name, partition)
        if method == b"DELETE":
            if mark and query.text("partition") is not None:
                raise TargetInvalid("a DELETE unlinks the topic with all its partitions")
            refuse_of_one_append(request.headers, "a DELETE has no condition")
            return Submit(DeleteTopic(name), admin.rendered(TopicDone, lambda _: answers.empty(204)))
        if method == b"OPTIONS":
            return self._preflight()
        return _not_allowed(_STREAM_METHODS)

    def _preflight(self) -> Action:
        return Done(_PAGES_WRITE if self._browser_writes else _PAGES_READ)

    def _remember(self, raw: bytes, name: str) -> None:
        if len(self._names) >= NAMES_REMEMBERED_MAX:
            self._names.clear()
        self._names[raw] = name

    # --- everything else -------------------------------------------------------------------------------------------

    def _other(self, request: Request, path: bytes, query: Query, now_ms: int) -> Action:
        method = request.method
        if method == b"OPTIONS":
            return self._preflight()
        get = method in _GET
        if not get and path != b"/v1/commit":  # which has words of its own for it
            refuse_of_one_append(request.headers, "this request is none, and would be done without it")
        fixed = _FIXED.get(path)
        if fixed is not None:
            allowed, action = fixed
            if not (get if allowed == b"GET" else method == allowed):
                return _not_allowed(allowed.decode())
            return action(_Asked(request, query, now_ms, self._name_of))
        if path.startswith(TXNS):
            return txns.txn(request, path[len(TXNS) :], now_ms, self._name_of, self._txn_timeouts)
        for prefix, action_of in (
            (b"/v1/topics/", self._topic),
            (b"/v1/receipts/", _receipt),
            (b"/v1/producers/", _producer),
            (b"/v1/commit/producers/", _commit_producer),
            (b"/v1/cursors/", _cursor),
            (b"/v1/applications/", _application),
            (b"/v1/stages/", _stage),
        ):
            if path.startswith(prefix):
                return action_of(request, path[len(prefix) :], query)
        return Done(answers.problem(404, "path_unknown", f"nothing is at {decoded(path)[:200]!r}"))

    def _topic(self, request: Request, rest: bytes, _query: Query) -> Action:
        method = request.method
        if method == b"POST":
            raw_name, _, verb = rest.rpartition(b"/")
            if verb == b"trim":
                return admin.trim(request, decoded(raw_name))
            if verb == b"delete-records":
                return admin.delete_records(request, decoded(raw_name))
            raise TargetInvalid("POST goes to /v1/topics/<topic>/trim or /v1/topics/<topic>/delete-records")
        name = decoded(rest)
        if method in _GET:
            return admin.get_topic(name)
        if method == b"PUT":
            return admin.put_topic(request, name)
        if method == b"PATCH":
            return admin.patch_topic(request, name)
        # Names may hold slashes, so a path that ends with a verb is also the path of a topic of that name.
        takes_post = rest.endswith((b"/trim", b"/delete-records"))
        return _not_allowed("GET, PUT, PATCH, POST" if takes_post else "GET, PUT, PATCH")


def _topic_and_last(rest: bytes, what: str) -> tuple[str, str]:
    """`<topic>/<last>`: the topic may hold slashes, what follows the last one may not unless it is encoded."""
    raw_topic, slash, raw_last = rest.rpartition(b"/")
    if not slash or not raw_topic or not raw_last:
        raise TargetInvalid(f"the path ends with <topic>/{what}")
    return decoded(raw_topic), decoded(raw_last)


def _receipt(request: Request, rest: bytes, query: Query) -> Action:
    if request.method not in _GET:
        return _not_allowed("GET")
    topic, message_id = _topic_and_last(rest, "<id>")
    return admin.receipt(topic, message_id, query)


def _producer(request: Request, rest: bytes, query: Query) -> Action:
    if request.method not in _GET:
        return _not_allowed("GET")
    topic, name = _topic_and_last(rest, "<name>")
    return admin.producer(topic, name, query)


def _commit_producer(request: Request, rest: bytes, _query: Query) -> Action:
    return admin.commit_producer(decoded(rest)) if request.method in _GET else _not_allowed("GET")


def _cursor(request: Request, rest: bytes, query: Query) -> Action:
    if request.method not in (*_GET, b"PUT", b"DELETE"):
        return _not_allowed("GET, PUT, DELETE")
    raw_name, slash, raw_topic = rest.partition(b"/")
    if not slash or not raw_name or not raw_topic:
        raise TargetInvalid("the path ends with <name>/<topic>")
    return admin.cursor(request, decoded(raw_name), decoded(raw_topic), query)


def _application(request: Request, rest: bytes, _query: Query) -> Action:
    if request.method == b"POST":
        return admin.open_application(decoded(rest))
    return admin.get_application(decoded(rest)) if request.method in _GET else _not_allowed("GET, POST")


def _stage(request: Request, rest: bytes, query: Query) -> Action:
    if request.method != b"POST":
        return _not_allowed("POST")
    if rest == b"drop":
        return admin.drop_stages(request)
    stage_id = digits(decoded(rest))
    if stage_id is None:
        raise TargetInvalid("a stage is named by its number")
    return admin.append_stage(request, stage_id, query)


def _topics(query: Query) -> list[str] | None:
    topics = query.texts("topic")
    if len(topics) > limits.HTTP_LIST_MAX:
        raise TargetInvalid(f"at most {limits.HTTP_LIST_MAX} topics are named at once, or none for all")
    return list(dict.fromkeys(topics)) or None


def _stood(asked: _Asked) -> Action:
    query = asked.query
    entry = query.number("entry", -1, low=0, high=limits.SEQUENCE_MAX)
    time_ms = query.number("time_ms", -1, low=0, high=limits.SEQUENCE_MAX)
    if (entry < 0) == (time_ms < 0):
        raise TargetInvalid("offsets are asked for by entry or by time_ms: give one of them")
    return Stood(_topics(query), entry if entry >= 0 else None, time_ms)


_FIXED: Final[dict[bytes, tuple[bytes, Callable[[_Asked], Action]]]] = {
    b"/health": (b"GET", lambda _: Health()),
    b"/metrics": (b"GET", lambda _: Metrics()),
    b"/v1/openapi.json": (b"GET", lambda _: Done(answers.json(DESCRIPTION))),
    b"/v1/stages": (b"POST", lambda asked: admin.open_stage(asked.request)),
    b"/v1/commit": (b"POST", lambda asked: admin.commit(asked.request, asked.now_ms, asked.name_of)),
    b"/v1/publish": (b"POST", lambda asked: admin.publish(asked.request, asked.name_of)),
    b"/v1/cut": (b"GET", lambda asked: Cut(_topics(asked.query))),
    b"/v1/offsets": (b"GET", _stood),
    b"/v1/streams": (b"GET", lambda asked: admin.list_streams(asked.query)),
    b"/v1/producers": (b"GET", lambda asked: admin.list_producers(asked.query)),
    b"/v1/cursors": (b"GET", lambda asked: admin.list_cursors(asked.query)),
    b"/v1/txns": (b"GET", lambda asked: txns.list_txns(asked.query)),
}


def _not_allowed(allowed: str) -> Done:
    if allowed.startswith("GET") and "HEAD" not in allowed:
        allowed = allowed.replace("GET", "GET, HEAD", 1)  # which is taken wherever the other is
    headers = f"Allow: {allowed}\r\n".encode()
    return Done(answers.problem(405, "method_not_allowed", f"this path takes {allowed}", headers=headers))


def refused_answer(refused: RequestRefused) -> bytes:
    """The answer to bytes that are no request, or one over a bound."""
    numbers = {name: value for name in ("limit", "received") if (value := getattr(refused, name)) >= 0}
    headers = b"Retry-After: 1\r\n" if refused.status == 503 else b""
    return answers.problem(
        refused.status,
        refused.code,
        refused.detail,
        retryable=refused.status in (408, 503),
        numbers=numbers,
        headers=headers,
    )
