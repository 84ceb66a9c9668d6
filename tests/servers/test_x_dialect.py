"""The X- dialect, story by story: the server counts epochs, the client only says what it knows."""

import contextlib
from pathlib import Path

import pytest

from oncelog import limits
from tests.servers.running import Running, running
from tests.servers.talking import Answer, Client, Headers, request


def x(seq: int, session: str = "", epoch: int = -1, name: str = "p") -> Headers:
    headers: Headers = {"X-Producer-Id": name, "X-Producer-Seq": seq}
    if session:
        headers["X-Producer-Session"] = session
    if epoch >= 0:
        headers["X-Producer-Epoch"] = epoch
    return headers


def told(answer: Answer) -> tuple[int, str | None, str | None]:
    """Status, epoch, offset of the last record."""
    return answer.status, answer.headers.get("x-producer-epoch"), answer.headers.get("x-stream-offset")


def test_first_contact_opens_epoch_1_and_says_the_offset_in_eight_digits(shared: Running, text: str) -> None:
    answer = shared.ask("POST", text, b"a", x(0))
    assert told(answer) == (201, "1", "00000000")
    assert answer.next_offset == 1
    assert told(shared.ask("POST", text, b"b", x(1))) == (201, "1", "00000001")


def test_offset_is_that_of_the_last_record(shared: Running, topic: str) -> None:
    path = f"/stream/{topic}"
    shared.ask("PUT", path, headers={"Content-Type": "application/json"})
    answer = shared.ask("POST", path, b"[1,2,3]", x(0) | {"Content-Type": "application/json"})
    assert told(answer) == (201, "1", "00000002")


def test_unknown_producer_may_start_anywhere(shared: Running, text: str) -> None:
    assert told(shared.ask("POST", text, b"a", x(17))) == (201, "1", "00000000")
    assert told(shared.ask("POST", text, b"b", x(18))) == (201, "1", "00000001")


def test_retry_gets_the_original_offset(shared: Running, text: str) -> None:
    for seq in range(3):
        shared.ask("POST", text, b"%d" % seq, x(seq, epoch=1 if seq else -1))
    for seq in range(3):
        answer = shared.ask("POST", text, b"%d" % seq, x(seq))
        assert told(answer) == (204, "1", f"{seq:08d}")
        assert answer.headers["stream-duplicate"] == "true"
    assert shared.ask("GET", text).body == b"012"


def test_retry_that_is_no_longer_remembered_is_a_duplicate_without_an_offset(shared: Running, text: str) -> None:
    with shared.client() as client:
        for seq in range(8):
            assert client.ask("POST", text, b"%d" % seq, x(seq)).status == 201
        answer = client.ask("POST", text, b"1", x(1))
        assert told(answer) == (204, "1", None)
        assert "stream-next-offset" not in answer.headers


def test_following_sequence_with_other_content_is_409(shared: Running, text: str) -> None:
    with shared.client() as client:
        for seq in range(2):
            client.ask("POST", text, b"%d" % seq, x(seq))
        answer = client.ask("POST", text, b"other", x(1))
    assert (answer.status, answer.code, answer.json["sequence"]) == (409, "sequence_conflict", 1)
    assert len(answer.json["stored_digest"]) == len(answer.json["claimed_digest"]) == 32
    assert shared.ask("GET", text).body == b"01"


# --- without a session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("followers", [0, 1, 5])
def test_sequence_0_with_the_same_content_soon_after_is_a_retry(shared: Running, text: str, followers: int) -> None:
    with shared.client() as client:
        for seq in range(1 + followers):
            client.ask("POST", text, b"%d" % seq, x(seq))
    answer = shared.ask("POST", text, b"0", x(0))
    assert told(answer)[:2] == (204, "1")


def test_sequence_0_with_the_same_content_long_after_is_a_restart(shared: Running, text: str) -> None:
    with shared.client() as client:
        for seq in range(7):
            client.ask("POST", text, b"%d" % seq, x(seq))
    assert told(shared.ask("POST", text, b"0", x(0))) == (201, "2", "00000007")


def test_sequence_0_with_other_content_is_a_restart_and_fences_the_run_before(shared: Running, text: str) -> None:
    with shared.client() as old, shared.client() as new:
        old.ask("POST", text, b"a", x(0))
        old.ask("POST", text, b"b", x(1))
        assert told(new.ask("POST", text, b"c", x(0))) == (201, "2", "00000002")
        fenced = old.ask("POST", text, b"d", x(2))
        assert (fenced.status, fenced.code) == (403, "fenced")
        assert (fenced.headers["x-error"], fenced.headers["x-current-epoch"]) == ("stale-epoch", "2")
        assert told(new.ask("POST", text, b"e", x(1))) == (201, "2", "00000003")
        assert old.ask("POST", text, b"d", x(2)).status == 403, "it stays fenced"
    assert shared.ask("GET", text).body == b"abce"


def test_request_without_epoch_belongs_to_the_current_one_on_a_fresh_connection(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a", x(0))
    shared.ask("POST", text, b"b", x(0))
    assert told(shared.ask("POST", text, b"c", x(1))) == (201, "2", "00000002")


def test_restart_pipelined_with_what_follows_it(shared: Running, text: str) -> None:
    with shared.client() as client:
        for seq in range(3):
            client.ask("POST", text, b"%d" % seq, x(seq))
        client.send(b"".join(request("POST", text, b"n%d" % seq, x(seq)) for seq in range(3)))
        assert [told(client.answer()) for _ in range(3)] == [
            (201, "2", "00000003"),
            (201, "2", "00000004"),
            (201, "2", "00000005"),
        ]


# --- with an epoch -------------------------------------------------------------------------------------------------


def test_epoch_that_was_never_given_out_is_400(shared: Running, text: str) -> None:
    unknown = shared.ask("POST", text, b"a", x(0, epoch=1))
    assert (unknown.status, unknown.code) == (400, "claim_invalid")
    shared.ask("POST", text, b"a", x(0))
    for seq in (0, 1):
        ahead = shared.ask("POST", text, b"b", x(seq, epoch=2))
        assert (ahead.status, ahead.code) == (400, "claim_invalid")
        assert (ahead.json["expected"], ahead.json["received"]) == (1, 2)
    assert shared.ask("POST", text, b"b", x(1, epoch=0)).status == 400


def test_old_epoch_is_403(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a", x(0))
    shared.ask("POST", text, b"b", x(0))
    answer = shared.ask("POST", text, b"c", x(1, epoch=1))
    assert (answer.status, answer.headers["x-error"], answer.headers["x-current-epoch"]) == (403, "stale-epoch", "2")
    assert answer.json["claimed"] == 1


# --- with a session ------------------------------------------------------------------------------------------------


def test_same_session_retries_however_much_followed(shared: Running, text: str) -> None:
    for seq in range(9):
        assert shared.ask("POST", text, b"%d" % seq, x(seq, "run-1")).status == 201
    assert told(shared.ask("POST", text, b"0", x(0, "run-1")))[:2] == (204, "1")
    assert told(shared.ask("POST", text, b"8", x(8, "run-1"))) == (204, "1", "00000008")


def test_new_session_restarts_even_with_the_same_content(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a", x(0, "run-1"))
    assert told(shared.ask("POST", text, b"a", x(0, "run-2"))) == (201, "2", "00000001")


def test_displaced_session_is_fenced_whatever_it_sends(shared: Running, text: str) -> None:
    shared.ask("POST", text, b"a", x(0, "run-1"))
    shared.ask("POST", text, b"b", x(0, "run-2"))
    for seq in (0, 1, 5):
        answer = shared.ask("POST", text, b"zombie", x(seq, "run-1"))
        assert (answer.status, answer.headers["x-current-epoch"]) == (403, "2")
        assert (answer.code, answer.json["current"], "claimed" in answer.json) == ("fenced", 2, False)
    assert shared.ask("POST", text, b"zombie", x(1, "run-1", epoch=1)).status == 403
    assert shared.ask("GET", text).body == b"ab"


def test_session_begins_at_0(shared: Running, text: str) -> None:
    for seq in (7, 1):
        answer = shared.ask("POST", text, b"x", x(seq, "run-1"))
        assert (answer.status, answer.code, answer.headers["x-expected-seq"]) == (409, "sequence_gap", "0")
    assert shared.ask("POST", text, b"a", x(0, "run-1")).status == 201
    late = shared.ask("POST", text, b"x", x(1, "stranger"))
    assert (late.status, late.headers["x-expected-seq"]) == (409, "0")
    assert shared.ask("POST", text, b"x", x(1, "stranger", epoch=1)).status == 403, "that epoch is another's"
    assert shared.ask("GET", text).body == b"a"


@pytest.mark.parametrize("known", [False, True])
def test_restart_that_is_overtaken_on_another_connection_is_whole(shared: Running, text: str, known: bool) -> None:
    if known:
        assert shared.ask("POST", text, b"old", x(0, "run-1")).status == 201
    with shared.client() as one, shared.client() as two:
        two.send(request("POST", text, b"b", x(1, "run-2")))
        shared.until(lambda: bool(shared.server.early.held))
        assert one.ask("POST", text, b"a", x(0, "run-2")).status == 201
        assert two.answer().status == 201
    assert shared.ask("GET", text).body.removeprefix(b"old") == b"ab"


def test_run_that_starts_over_and_names_its_old_epoch_is_a_restart_and_its_retry_a_retry(
    shared: Running, text: str
) -> None:
    shared.ask("POST", text, b"a", x(0))
    for status in (201, 204):
        assert told(shared.ask("POST", text, b"b", x(0, epoch=1)))[:2] == (status, "2")


def test_other_names_streams_and_scopes_are_other_producers(shared: Running, text: str) -> None:
    assert told(shared.ask("POST", text, b"a", x(0, name="one")))[:2] == (201, "1")
    assert told(shared.ask("POST", text, b"a", x(0, name="two")))[:2] == (201, "1")
    plain: Headers = {"Producer-Id": "one", "Producer-Epoch": 7, "Producer-Seq": 0}
    assert shared.ask("POST", text, b"a", plain).status == 200
    assert told(shared.ask("POST", text, b"b", x(1, name="one")))[:2] == (201, "1")


# --- strict, alias, closing ----------------------------------------------------------------------------------------


def test_strict_server_refuses_a_request_that_names_neither(topic: str) -> None:
    path = f"/v1/stream/{topic}"
    with running(x_producer_strict=True) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        answer = server.ask("POST", path, b"a", x(0))
        assert (answer.status, answer.code) == (400, "header_invalid")
        assert server.tail(topic) == 0
        assert server.ask("POST", path, b"a", x(0, "run-1")).status == 201
        assert server.ask("POST", path, b"b", x(1, epoch=1)).status == 201


def test_both_paths_are_one_stream(shared: Running, topic: str) -> None:
    shared.ask("PUT", f"/stream/{topic}", headers={"Content-Type": "text/plain"})
    assert told(shared.ask("POST", f"/stream/{topic}", b"a", x(0)))[:2] == (201, "1")
    assert told(shared.ask("POST", f"/v1/stream/{topic}", b"a", x(0)))[:2] == (204, "1")
    assert shared.ask("GET", f"/stream/{topic}").body == b"a"


def test_retry_of_a_success_is_a_success_on_a_closed_stream(shared: Running, text: str) -> None:
    with shared.client() as client:
        client.ask("POST", text, b"a", x(0))
        assert client.ask("POST", text, b"b", x(1) | {"Stream-Closed": "true"}).status == 201
        retry = client.ask("POST", text, b"b", x(1) | {"Stream-Closed": "true"})
        assert told(retry) == (204, "1", "00000001")
        late = client.ask("POST", text, b"c", x(2))
        assert (late.status, late.headers["stream-closed"], late.next_offset) == (409, "true", 2)


def test_epochs_are_remembered_for_each_connection_apart(shared: Running, text: str) -> None:
    with shared.client() as one, shared.client() as two:
        one.ask("POST", text, b"a", x(0))
        two.ask("POST", text, b"b", x(0))
        assert told(two.ask("POST", text, b"c", x(1)))[:2] == (201, "2")
        assert one.ask("POST", text, b"d", x(1)).status == 403
        assert _fresh(shared.port, text) == (204, "2")


def _fresh(port: int, path: str) -> tuple[int, str | None]:
    with Client(port) as client:
        return told(client.ask("POST", path, b"c", x(1)))[:2]


def test_request_without_a_session_belongs_to_the_run_of_its_connection(shared: Running, text: str) -> None:
    """1. A names its session with sequence 0 alone, as a client may. 2. B begins a newer run. 3. A goes on: it is
    fenced, and does not write in the epoch of B, whose number it would take."""
    with shared.client() as a, shared.client() as b:
        assert a.ask("POST", text, b"a0", x(0, session="s1")).headers["x-producer-epoch"] == "1"
        assert b.ask("POST", text, b"b0", x(0, session="s2")).headers["x-producer-epoch"] == "2"
        fenced = a.ask("POST", text, b"a1", x(1))
        assert (fenced.status, fenced.headers["x-error"]) == (403, "stale-epoch")
        assert b.ask("POST", text, b"b1", x(1, session="s2")).status == 201
        assert shared.ask("GET", text).body == b"a0b0b1"


def test_request_without_a_session_belongs_to_the_last_run_of_its_connection(shared: Running, text: str) -> None:
    with shared.client() as a:
        assert a.ask("POST", text, b"0", x(0)).headers["x-producer-epoch"] == "1"
        assert a.ask("POST", text, b"1", x(0, session="s9")).headers["x-producer-epoch"] == "2"
        assert a.ask("POST", text, b"2", x(1)).headers["x-producer-epoch"] == "2"


def test_request_behind_a_new_session_in_one_pipeline_belongs_to_it(shared: Running, text: str) -> None:
    """Its epoch is not told yet, and the one that was told is another run's."""
    with shared.client() as a:
        assert a.ask("POST", text, b"0", x(0, session="s1")).status == 201
        a.send(request("POST", text, b"1", x(0, session="s2")) + request("POST", text, b"2", x(1)))
        assert [told(a.answer())[:2] for _ in range(2)] == [(201, "2"), (201, "2")]


def test_fenced_run_that_connects_anew_writes_nothing_behind_its_session(shared: Running, text: str) -> None:
    with shared.client() as a, shared.client() as b:
        assert b.ask("POST", text, b"a0", x(0, session="s1")).status == 201
        for seq in range(2):
            assert b.ask("POST", text, b"b%d" % seq, x(seq, session="s2")).status == 201
        a.send(request("POST", text, b"a1", x(1, session="s1")) + request("POST", text, b"a2", x(2)))
        assert [a.answer().status for _ in range(2)] == [403, 403]
        assert b.ask("POST", text, b"b2", x(2, session="s2")).status == 201
    assert shared.ask("GET", text).body == b"a0b0b1b2"


def test_other_producers_on_the_connection_end_no_fence(shared: Running, text: str) -> None:
    """A proxy keeps its connections for many clients."""
    with shared.client() as c, shared.client() as d:
        assert c.ask("POST", text, b"x", x(0, name="p0")).status == 201
        for number in range(limits.HTTP_CONNECTION_EPOCHS_MAX):
            assert c.ask("POST", text, b"y", x(0, session="s", name=f"q{number}")).status == 201
        assert told(d.ask("POST", text, b"newer", x(0, name="p0")))[:2] == (201, "2")
        assert c.ask("POST", text, b"fenced", x(1, name="p0")).status == 403


def test_requests_alike_belong_to_the_run_that_their_connection_names_meanwhile(shared: Running, text: str) -> None:
    for before in range(1, 6):  # what requests are compared with is not taken from each of them
        with shared.client() as a:
            assert a.ask("POST", text, b"0", x(0, session=f"s{before}")).status == 201
            for seq in range(1, 1 + before):
                assert told(a.ask("POST", text, b"%d" % seq, x(seq)))[:2] == (201, f"{2 * before - 1}")
            assert a.ask("POST", text, b"0", x(0, session=f"n{before}")).status == 201
            for seq in range(1, 6):
                assert told(a.ask("POST", text, b"%d" % seq, x(seq)))[:2] == (201, f"{2 * before}")


def test_epoch_that_is_named_alone_takes_the_place_of_a_session(shared: Running, text: str) -> None:
    with shared.client() as a, shared.client() as b:
        assert a.ask("POST", text, b"0", x(0, session="s1")).status == 201
        assert told(b.ask("POST", text, b"1", x(0, session="s2")))[:2] == (201, "2")
        assert told(a.ask("POST", text, b"2", x(1, epoch=2)))[:2] == (201, "2")
        assert told(a.ask("POST", text, b"3", x(2)))[:2] == (201, "2")


# --- a client that names neither session nor epoch, with five requests in flight ------------------------------------


def write_out_of_order(server: Running, path: str, run: str) -> list[int]:
    """Sequences 0 to 4 of a run, each on a connection of its own, arriving in the order 1 0 2 3 4; their statuses."""
    with contextlib.ExitStack() as stack:
        clients = {seq: stack.enter_context(server.client()) for seq in (1, 0, 2, 3, 4)}
        for seq, client in clients.items():
            client.send(request("POST", path, f"{run}{seq} ".encode(), x(seq)))
            if seq == 1:
                server.until(lambda: bool(server.server.early.held))
        return [clients[seq].answer().status for seq in range(5)]


def test_overtaken_first_sequence_of_a_run_without_a_name_is_stored_once_and_in_order(tmp_path: Path) -> None:
    """Seed 003, as it is written, in a first run and in a second one after a restart of both. Before, the second run's
    sequence 1 was answered 204 and never stored."""
    path = "/stream/orders"
    for number, run in enumerate("ab"):
        with running(tmp_path, early_hold_ms=20_000) as server:
            server.ask("PUT", path, headers={"Content-Type": "text/plain"})
            assert write_out_of_order(server, path, run) == [201] * 5
            expected = "".join(f"{of}{seq} " for of in "ab"[: number + 1] for seq in range(5))
            assert server.ask("GET", path).body.decode() == expected


def test_second_run_without_a_name_whose_sequence_0_never_comes_is_refused_and_not_called_a_duplicate(
    topic: str,
) -> None:
    path = f"/stream/{topic}"
    with running(early_hold_ms=50) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        for seq in range(9):
            assert server.ask("POST", path, b"a%d" % seq, x(seq)).status == 201
        answer = server.ask("POST", path, b"b1", x(1))
        assert (answer.status, answer.code) == (409, "sequence_conflict")
        assert server.ask("POST", path, b"a1", x(1)).status == 204, "a retry is a duplicate"
        assert server.tail(topic) == 9


@pytest.mark.parametrize("early_hold_ms", [0, 50])
def test_unknown_producer_without_a_name_begins_where_it_does_if_no_sequence_0_comes(
    topic: str, early_hold_ms: int
) -> None:
    path = f"/stream/{topic}"
    with running(early_hold_ms=early_hold_ms) as server:
        server.ask("PUT", path, headers={"Content-Type": "text/plain"})
        assert told(server.ask("POST", path, b"b1", x(1))) == (201, "1", "00000000")
        assert told(server.ask("POST", path, b"b1", x(1))) == (204, "1", "00000000")
        assert told(server.ask("POST", path, b"b2", x(2))) == (201, "1", "00000001")
