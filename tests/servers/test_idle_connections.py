"""Ten thousand clients that only stay connected, or only promise: they cost little memory and nobody waits for them.

Both ends are on this machine, so each is a process of its own: 10,000 descriptors each, which their soft limit may not
allow but their hard limit must.
"""

import contextlib
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from oncelog.limits import BACKLOG_MAX, KIB
from oncelog.servers.descriptors import FILES_BESIDE_SOCKETS, connections_allowed
from tests.servers.process import Process, process
from tests.servers.talking import PATIENCE_S, Client

CONNECTIONS = 10_000
BYTES_EACH_MAX = 16 * KIB

CLIENTS = """
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
print("connected", flush=True)
sys.stdin.read()
"""


def connections(server: Process) -> int:
    text = server.ask("GET", "/metrics").body.decode()
    line = next(line for line in text.splitlines() if line.startswith("oncelog_http_connections "))
    return int(float(line.rpartition(" ")[2]))


def test_ten_thousand_idle_connections(capsys: pytest.CaptureFixture[str]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + BACKLOG_MAX + FILES_BESIDE_SOCKETS:
        pytest.skip(f"a process may open {hard} files here")
    with process(in_memory=True, http__connections_max=CONNECTIONS + 10) as server:
        memory = psutil.Process(server.popen.pid).memory_info
        assert server.ask("PUT", "/v1/stream/a", headers={"Content-Type": "text/plain"}).status == 201
        before = memory().rss
        clients = subprocess.Popen(
            [sys.executable, "-c", CLIENTS, str(server.port), str(CONNECTIONS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert clients.stdout is not None
            assert clients.stdout.readline() == "connected\n"
            deadline = time.monotonic() + PATIENCE_S
            while connections(server) < CONNECTIONS and time.monotonic() < deadline:
                pass
            assert connections(server) == CONNECTIONS + 1
            each = (memory().rss - before) / CONNECTIONS
            with Client(server.port) as client:
                longest = 0.0
                for number in range(200):
                    began = time.monotonic()
                    assert client.ask("POST", "/v1/stream/a", b"x").next_offset == number + 1
                    longest = max(longest, time.monotonic() - began)
            with capsys.disabled():
                print(f"\n{CONNECTIONS} idle clients: {each / KIB:.1f} KiB each, append {longest * 1e3:.1f} ms at most")
            assert each < BYTES_EACH_MAX
            assert longest < 1
        finally:
            clients.communicate("")
        deadline = time.monotonic() + PATIENCE_S
        while connections(server) > 1 and time.monotonic() < deadline:
            pass
        assert connections(server) == 1
        server.tell_to_stop()
        assert server.ended() == (0, "")


def test_promised_body_costs_nothing_until_it_comes() -> None:
    """A header that says 4 MB is 100 bytes: whoever sends a thousand of them must not get a thousand times 4 MB."""
    promise = b"POST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 4000000\r\n\r\nx"
    with process(in_memory=True) as server, contextlib.ExitStack() as stack:
        memory = psutil.Process(server.popen.pid).memory_info
        clients = [stack.enter_context(Client(server.port)) for _ in range(100)]
        for client in clients:
            assert client.ask("GET", "/health").status == 200
        before = memory().rss
        for client in clients:
            client.send(promise)
        # What was sent before this request has been read before it is answered.
        assert server.ask("GET", "/health").status == 200
        assert server.ask("GET", "/health").status == 200
        assert (memory().rss - before) / len(clients) < 200 * KIB


@pytest.mark.parametrize(
    ("wanted", "files", "connections"),
    [(20_000, 20_000 + BACKLOG_MAX + FILES_BESIDE_SOCKETS, 20_000), (20_000, 4_096, 3_136), (100, 4_096, 100),
     (20_000, 1_024, 448), (20_000, 200, 88), (20_000, 3, 1)],
)  # fmt: skip
def test_connections_leave_descriptors_for_files(wanted: int, files: int, connections: int) -> None:
    allowed, backlog = connections_allowed(wanted, files)
    assert allowed == connections
    assert backlog >= 1
    assert files < 4 or allowed + backlog + min(FILES_BESIDE_SOCKETS, files // 2) <= files


def is_turned_away(client: Client) -> bool:
    """It is cut, or it is told why first."""
    try:
        answer = client.drain()
    except ConnectionResetError:
        return True
    return not answer or answer.startswith(b"HTTP/1.1 503 ")


def test_clients_that_use_up_all_descriptors_do_not_end_the_server(tmp_path: Path) -> None:
    """Forty records of half a segment's size each: their segments are opened while clients hold whatever they get."""
    settings: dict[str, Any] = {
        "data": str(tmp_path / "log"),
        "storage.segment_bytes": 64 * KIB,
        "http.connections_max": 20_000,
        "kafka.enabled": False,
        "nats.enabled": False,
    }
    with process(files_max=200, **settings) as server, contextlib.ExitStack() as stack:
        writer = stack.enter_context(Client(server.port))
        assert writer.ask("PUT", "/v1/stream/a", headers={"Content-Type": "text/plain"}).status == 201
        clients = [stack.enter_context(Client(server.port)) for _ in range(250)]
        for number in range(40):
            assert writer.ask("POST", "/v1/stream/a", b"x" * 20 * KIB).next_offset == number + 1
        assert all(is_turned_away(client) for client in clients[100:])
        assert clients[0].ask("GET", "/health").status == 200
        server.tell_to_stop()
        code, told = server.ended()
        assert code == 0
        assert re.fullmatch(r"oncelog: 88 connections at once and not [0-9,]+: [^\n]+ 200 files, [^\n]+\n", told)
