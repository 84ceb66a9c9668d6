"""Requests that overtake each other on several connections: taken in their order, or told the gap after a while."""

import contextlib
import itertools
import time
from collections.abc import Callable

import pytest

from oncelog import limits
from oncelog.core.command import Append, CloseStream, Command, Commit, CursorMove
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, SequenceGap, Stopping
from oncelog.core.producer import SequenceMode
from oncelog.engine.weight import size_of
from oncelog.servers.http.early import EarlyRequests, Held
from tests.servers.running import Running, running
from tests.servers.talking import Client, Headers, request

HOLD_MS = 300


def numbered(seq: int, epoch: int = 0, name: str = "p") -> Headers:
    return {"Producer-Id": name, "Producer-Epoch": epoch, "Producer-Seq": seq}


def x_numbered(seq: int, **more: str) -> Headers:
    return {"X-Producer-Id": "p", "X-Producer-Seq": seq, **more}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[1::4])
def test_sequences_over_several_connections_are_taken_in_order(
    shared: Running, text: str, order: tuple[int, ...]
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(shared.client()) for _ in order]
        for seq in order:
            clients[seq].send(request("POST", text, b"%d" % seq, numbered(seq)))
            # The next one leaves only when this one was looked at.
            shared.until(lambda: sum(len(c.slots) for c in shared.server.connections) == len(_waiting(shared)))
        for seq, client in enumerate(clients):
            answer = client.answer()
            assert (answer.status, answer.next_offset) == (200, seq + 1)
            assert "stream-duplicate" not in answer.headers
    assert shared.ask("GET", text).body == b"0123"


def _waiting(server: Running) -> list[Held]:
    return server.server.early.waiting()


def test_early_sequences_of_the_x_dialect_wait_too(shared: Running, text: str) -> None:
    with shared.client() as first, shared.client() as second:
        assert first.ask("POST", text, b"0", x_numbered(0)).status == 201
        second.send(request("POST", text, b"2", x_numbered(2)))
        shared.until(lambda: bool(shared.server.early.held))
        assert first.ask("POST", text, b"1", x_numbered(1)).status == 201
        assert second.answer().status == 201
    assert shared.ask("GET", text).body == b"012"


def test_early_close_waits_too(shared: Running, text: str) -> None:
    with shared.client() as first, shared.client() as second:
        second.send(request("POST", text, headers=numbered(1) | {"Stream-Closed": "true"}))
        shared.until(lambda: bool(shared.server.early.held))
        assert first.ask("POST", text, b"0", numbered(0)).status == 200
        answer = second.answer()
        assert (answer.status, answer.headers["stream-closed"], answer.next_offset) == (204, "true", 1)


def test_real_gap_is_409_after_the_hold(shared: Running, text: str) -> None:
    began = time.monotonic()
    with shared.client() as client:
        answer = client.ask("POST", text, b"x", numbered(1))
    assert time.monotonic() - began >= HOLD_MS / 1000
    assert (answer.status, answer.code) == (409, "sequence_gap")
    assert (answer.json["expected"], answer.json["received"]) == (0, 1)
    assert answer.headers["producer-expected-seq"] == "0"
    assert answer.headers["producer-received-seq"] == "1"
    assert shared.ask("HEAD", text).next_offset == 0
    assert not shared.on_loop(lambda: bool(shared.server.early.held))


def test_gap_of_the_x_dialect_has_its_headers(shared: Running, text: str) -> None:
    assert shared.ask("POST", text, b"0", x_numbered(0)).status == 201
    answer = shared.ask("POST", text, b"x", x_numbered(2))
    assert (answer.status, answer.code) == (409, "sequence_gap")
    assert (answer.headers["x-expected-seq"], answer.headers["x-received-seq"]) == ("1", "2")


def test_gap_is_told_to_all_that_wait_when_the_missing_one_does_not_come(shared: Running, text: str) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(shared.client()) for _ in range(3)]
        for seq, client in enumerate(clients, start=1):
            client.send(request("POST", text, b"x", numbered(seq)))
        for seq, client in enumerate(clients, start=1):
            answer = client.answer()
            assert (answer.status, answer.json["expected"], answer.json["received"]) == (409, 0, seq)


def test_request_too_far_ahead_is_told_at_once(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=60_000) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        far = limits.EARLY_AHEAD_MAX + 1
        assert server.ask("POST", path, b"x", numbered(far)).json["expected"] == 0


def test_retry_of_a_request_that_waits_waits_too(topic: str) -> None:
    """The first copy is carried out even if its client has gone: a retry that is refused would be written all the
    same."""
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=60_000) as server, server.client() as again, server.client() as third:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        first = Client(server.port)
        first.send(request("POST", path, b"1", numbered(1)))
        server.until(lambda: len(_waiting(server)) == 1)
        first.reset()
        again.send(request("POST", path, b"1", numbered(1)))
        server.until(lambda: len(_waiting(server)) == 2)
        third.send(request("POST", path, b"2", numbered(2)))
        server.until(lambda: len(_waiting(server)) == 3)
        assert server.ask("POST", path, b"0", numbered(0)).status == 200
        retried = again.answer()
        assert (retried.status, retried.next_offset, retried.headers["stream-duplicate"]) == (204, 2, "true")
        assert third.answer().next_offset == 3
        assert server.ask("GET", path).body == b"012"


def test_what_waited_in_vain_is_told_what_is_so_by_then(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=200) as server, server.client() as client:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        client.send(request("POST", path, b"5", numbered(5)))
        server.until(lambda: len(_waiting(server)) == 1)
        for seq in range(2):
            assert server.ask("POST", path, b"%d" % seq, numbered(seq)).status == 200
        answer = client.answer()
        assert (answer.status, answer.json["expected"], answer.json["received"]) == (409, 2, 5)
        assert answer.headers["producer-expected-seq"] == "2"


def test_run_that_was_displaced_while_it_waited_is_told_so_and_of_no_gap(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=200) as server, server.client() as old:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        assert old.ask("POST", path, b"a", x_numbered(0, **{"X-Producer-Session": "s1"})).status == 201
        old.send(request("POST", path, b"b", x_numbered(3, **{"X-Producer-Session": "s1"})))
        server.until(lambda: len(_waiting(server)) == 1)
        assert server.ask("POST", path, b"c", x_numbered(0, **{"X-Producer-Session": "s2"})).status == 201
        answer = old.answer()
        assert (answer.status, answer.headers["x-error"], answer.headers["x-current-epoch"]) == (
            403,
            "stale-epoch",
            "2",
        )


def test_server_that_holds_nothing_tells_at_once(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=0) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        assert server.ask("POST", path, b"x", numbered(1)).code == "sequence_gap"


def test_held_request_is_refused_when_it_is_fenced_meanwhile(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=60_000) as server, server.client() as old:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        assert server.ask("POST", path, b"0", numbered(0)).status == 200
        old.send(request("POST", path, b"x", numbered(2)))
        server.until(lambda: bool(server.server.early.held))
        for seq in range(2):
            assert server.ask("POST", path, b"n", numbered(seq, epoch=1)).status == 200
        answer = old.answer()
        assert (answer.status, answer.headers["producer-epoch"]) == (403, "1")
        assert server.ask("GET", path).body == b"0nn"


def test_held_request_whose_client_has_gone_is_still_carried_out(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(early_hold_ms=60_000) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        gone = Client(server.port)
        gone.send(request("POST", path, b"1", numbered(1)))
        server.until(lambda: bool(server.server.early.held))
        gone.reset()
        server.until(lambda: not server.server.connections)
        assert server.ask("POST", path, b"0", numbered(0)).status == 200
        server.until(lambda: not server.server.early.held)
        retry = server.ask("POST", path, b"1", numbered(1))
        assert (retry.status, retry.next_offset) == (204, 2)
        assert server.ask("GET", path).body == b"01"


def test_pipelined_sequences_after_a_gap_on_one_connection_are_answered_in_order(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.send(b"".join(request("POST", text, b"%d" % seq, numbered(seq)) for seq in (2, 1, 0, 3)))
        assert [client.answer().next_offset for _ in range(4)] == [3, 2, 1, 4]
    assert shared.ask("GET", text).body == b"0123"


# --- without sockets -----------------------------------------------------------------------------------------------


class Timers:
    """What would be called later."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def later(self, _seconds: float, call: Callable[[], None]) -> "Timers.Timer":
        self.waiting.append(call)
        return Timers.Timer(self, call)

    class Timer:
        def __init__(self, timers: "Timers", call: Callable[[], None]) -> None:
            self._timers = timers
            self._call = call

        def cancel(self) -> None:
            if self._call in self._timers.waiting:
                self._timers.waiting.remove(self._call)


def early_append(seq: int, size: int, name: str = "p") -> Append:
    claim = ProducerClaim(f"http:{name}", 0, seq, seq, int(SequenceMode.REQUESTS))
    return Append("t", 0, b"x" * size, 1, claim=claim)


def test_bytes_that_wait_are_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    room = sum(size_of(early_append(seq, size)) for seq, size in ((1, 60_000), (2, 40_000), (1, 0)))
    monkeypatch.setattr(limits, "HTTP_EARLY_BYTES_MAX", room)
    timers = Timers()
    submitted: list[Command] = []
    replies: list[object] = []
    told: list[object] = []
    vain: list[object] = []
    last = vain.append

    def submit(command: Command, reply: object) -> None:
        submitted.append(command)
        replies.append(reply)

    early = EarlyRequests(submit, timers.later, lambda f, *a: f(*a), 500)

    def hold(command: Append) -> bool:
        assert command.claim is not None
        return early.hold(command, SequenceGap(0, command.claim.first), told.append, last)

    assert not early.held
    assert hold(early_append(1, 60_000))
    assert not hold(early_append(2, 60_000)), "too much would wait"
    assert not hold(early_append(2, 60_000, "other"))
    assert hold(early_append(2, 40_000))
    assert hold(early_append(1, 0)), "a copy of one that waits"
    assert not hold(early_append(1, 1)), "which counts as well"
    early.taken(early_append(0, 0), Confirmed(1, 0, 1, sequence=0))
    assert submitted == [early_append(1, 60_000), early_append(1, 0)]
    assert hold(early_append(3, 60_000)), "what went on gave its bytes back"
    for timer in list(timers.waiting):
        timer()
    assert submitted[2:] == [early_append(2, 40_000), early_append(3, 60_000)], "each of them a last time"
    assert replies[2:] == [last, last]
    assert (bool(early.held), timers.waiting) == (False, [])
    assert hold(early_append(1, 100))
    early.give_up_all()
    assert (told, bool(early.held), timers.waiting) == ([Stopping()], False, [])
    assert not hold(early_append(1, 1)), "nobody waits while the server stops"


def test_everything_that_a_commit_brings_is_counted_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_EARLY_BYTES_MAX", 100_000)
    early = EarlyRequests(lambda *_: None, Timers().later, lambda f, *a: f(*a), 500)
    claim = ProducerClaim("commit:p", 0, 1, 1, int(SequenceMode.REQUESTS))
    commit = Commit([], cursors=[CursorMove("c", "t", 0, 1, "m" * 30_000)], claim=claim)

    def told(_outcome: object) -> None: ...

    assert [early.hold(commit, SequenceGap(0, 1), told, told) for _ in range(4)] == [True, True, True, False]
    close = CloseStream("t", 0, ProducerClaim("http:p", 0, 1, 1, int(SequenceMode.REQUESTS)))
    copies = 0
    while early.hold(close, SequenceGap(0, 1), told, told):
        copies += 1
        assert copies < 1_000, "a close takes room as well"
