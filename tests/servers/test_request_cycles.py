"""No request leaves a cycle behind: what it made is freed when its answer is out, and not when the collector comes.

A body of a megabyte that hangs on a cycle stays for hundreds of further requests: the collector counts objects and not
bytes. So every kind of request is made here with the collector switched off, and what it finds afterwards is judged.
"""

import gc
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from oncelog import limits
from oncelog.limits import KIB
from tests.servers.running import Running, running
from tests.servers.talking import Client, request

REPEATS = 10
PATH = "/v1/stream/events"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """All reads count as cold, and no body is kept."""
    directory: Path = tmp_path_factory.mktemp("log")
    old = mock.patch.object(limits, "READ_RECENT_BYTES", -1)
    none_kept = mock.patch.object(limits, "HTTP_BODIES_KEPT_BYTES", 0)
    with old, none_kept, running(directory, long_poll_ms=20, read_bytes_max=2 * KIB) as server:
        with server.client() as client:
            assert client.ask("PUT", PATH, headers={"Content-Type": "text/plain"}).status == 201
            for number in range(50):
                headers = {"Stream-Message-Id": f"id {number}"}
                assert client.ask("POST", PATH, b"%04d" % number * 25, headers=headers).status in (200, 204)
        yield server


def _garbage(work: Callable[[], object], server: Running) -> list[str]:
    """What `work` leaves to the collector, as far as it is ours."""
    work()
    server.until(lambda: len(server.server.connections) <= 1)  # those of other tests are gone
    gc.collect()
    gc.disable()
    try:
        for _ in range(REPEATS):
            work()
        server.until(lambda: True)  # callbacks that were put off to the next turn of the loop
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return sorted({_name(found) for found in gc.garbage if _is_ours(found)})
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_ours(found: object) -> bool:
    kind = found if isinstance(found, types.FunctionType) else type(found)
    return str(kind.__module__).startswith("oncelog.")


def _name(found: object) -> str:
    return found.__qualname__ if isinstance(found, types.FunctionType) else type(found).__qualname__


def _asks(method: str, target: str, body: bytes = b"", status: int = 200, **headers: str) -> Callable[[Client], object]:
    chosen: dict[str, str | int] = {name.replace("_", "-"): value for name, value in headers.items()}

    def ask(client: Client) -> None:
        assert client.ask(method, target, body, chosen).status == status

    return ask


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(_asks("GET", f"{PATH}?offset=-1"), id="catch-up"),
        pytest.param(_asks("GET", f"{PATH}?offset=7", Accept="application/vnd.oncelog.batches"), id="raw"),
        pytest.param(_asks("GET", f"{PATH}?offset=3&live=long-poll"), id="long-poll that finds something"),
        pytest.param(_asks("GET", f"{PATH}?offset=now&live=long-poll", status=204), id="long-poll in vain"),
        pytest.param(_asks("GET", f"{PATH}?offset=999", status=400), id="offset ahead"),
        pytest.param(_asks("GET", "/v1/stream/none?offset=-1", status=404), id="no such stream"),
        pytest.param(_asks("HEAD", PATH), id="head"),
        pytest.param(_asks("POST", PATH, b"more", 204), id="append"),
        pytest.param(_asks("POST", PATH, b"0000" * 25, 204, Stream_Message_Id="id 0"), id="duplicate"),
        pytest.param(_asks("GET", "/v1/cut"), id="cut"),
        pytest.param(_asks("GET", "/v1/offsets?time_ms=1"), id="offsets by time"),
        pytest.param(_asks("GET", "/v1/streams"), id="list streams"),
        pytest.param(_asks("GET", "/v1/producers?topic=events"), id="list producers"),
        pytest.param(_asks("GET", "/v1/cursors"), id="list cursors"),
        pytest.param(_asks("GET", "/v1/receipts/events/id%200"), id="receipt"),
        pytest.param(_asks("GET", "/health"), id="health"),
    ],
)
def test_a_request_leaves_no_cycle(server: Running, ask: Callable[[Client], object]) -> None:
    with server.client() as client:
        assert _garbage(lambda: ask(client), server) == []


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_a_client_that_leaves_takes_its_read_with_it(server: Running, live: str) -> None:
    """So does its connection."""

    def read_and_leave() -> None:
        with server.client() as client:
            client.send(request("GET", f"{PATH}?offset=0{live}"))
            client.head()
        server.until(lambda: not server.server.connections)

    assert _garbage(read_and_leave, server) == []
