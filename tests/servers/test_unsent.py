"""The bytes of answers that clients have not taken are bounded for the whole server."""

import contextlib
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.limits import KIB, MIB
from oncelog.servers.unsent import UnsentBytes
from tests.servers.running import running
from tests.servers.talking import request

TYPE = {"Content-Type": "application/octet-stream"}
PATH = "/v1/stream/large"


class Client:
    """A connection whose socket has not taken so many bytes."""

    def __init__(self) -> None:
        self.unsent = 0
        self.begun = 0

    def unsent_bytes(self) -> int:
        return self.unsent

    def begin(self) -> None:
        self.begun += 1


def test_a_read_waits_until_others_were_taken() -> None:
    unsent = UnsentBytes(100)
    first, second, third = Client(), Client(), Client()
    unsent.enter(first, 60, first.begin)
    unsent.enter(second, 60, second.begin)
    unsent.enter(third, 30, third.begin)
    assert (first.begun, second.begun, third.begun) == (1, 0, 0), "the third does not overtake the second"
    first.unsent = 50
    unsent.settle(first)
    assert (second.begun, unsent.total) == (0, 50)
    first.unsent = 5
    unsent.settle(first)
    assert (second.begun, third.begun, unsent.total, unsent.waiting) == (1, 1, 95, 0)


def test_one_that_is_larger_than_the_bound_begins_alone() -> None:
    unsent = UnsentBytes(100)
    large, small = Client(), Client()
    unsent.enter(large, 1_000, large.begin)
    unsent.enter(small, 1, small.begin)
    assert (large.begun, small.begun) == (1, 0)
    unsent.let_go(large)
    assert (small.begun, unsent.total) == (1, 1)


def test_a_client_that_leaves_waits_no_longer() -> None:
    unsent = UnsentBytes(100)
    first, second = Client(), Client()
    unsent.enter(first, 100, first.begin)
    unsent.enter(second, 100, second.begin)
    unsent.let_go(second)
    unsent.let_go(first)
    assert (second.begun, unsent.total, unsent.waiting) == (0, 0, 0)


def test_reads_that_are_answered_at_once_do_not_nest() -> None:
    unsent = UnsentBytes(100)
    first = Client()
    clients = [Client() for _ in range(5_000)]

    def answer(client: Client) -> None:
        client.begin()
        unsent.settle(client)

    unsent.enter(first, 100, first.begin)
    for client in clients:
        unsent.enter(client, 100, partial(answer, client))
    unsent.settle(first)
    assert all(client.begun == 1 for client in clients)
    assert unsent.total == 0


@pytest.mark.from_source
@pytest.mark.from_source
def test_many_clients_that_do_not_read_hold_no_more_than_the_bound(tmp_path: Path) -> None:
    """Those who read are served beside them, since a client that takes nothing is cut while others wait."""
    bound = mock.patch.object(limits, "UNSENT_BYTES_MAX", 4 * MIB)
    stall = mock.patch.object(limits, "UNSENT_STALL_MS", 200)
    with bound, stall, running(tmp_path, sweep_s=0.02) as server, contextlib.ExitStack() as stack:
        writer = stack.enter_context(server.client())
        assert writer.ask("PUT", PATH, headers=TYPE).status == 201
        for _ in range(8):
            assert writer.ask("POST", PATH, b"x" * MIB, TYPE).status == 204
        silent = [stack.enter_context(server.client(receive_bytes=16 * KIB)) for _ in range(12)]
        for number, client in enumerate(silent):
            client.send(request("GET", f"{PATH}?offset={number % 8}") * 4)
        unsent = server.server.unsent
        server.until(lambda: unsent.waiting > 0)
        assert server.on_loop(lambda: unsent.total) <= 4 * MIB + 2 * MIB
        with server.client() as reader:
            assert len(reader.ask("GET", f"{PATH}?offset=0").body) >= MIB
