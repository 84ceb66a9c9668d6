"""Ten thousand clients that only stay connected, or only promise: they cost little memory and nobody waits for them.

Both ends are on this machine, so each is a process of its own: 10,000 descriptors each, which their soft limit may not
allow but their hard limit must.
"""

import contextlib
import resource
import subprocess
import sys
import time

import psutil
import pytest

from oncelog.limits import KIB
from oncelog.servers.process import FILES_BESIDE_SOCKETS
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
    if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + FILES_BESIDE_SOCKETS:
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
    promise = b"POST /v1/stream/a HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 4000000\r\n\r\nx"
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
