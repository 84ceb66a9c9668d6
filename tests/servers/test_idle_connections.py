"""Ten thousand clients that only stay connected: they cost little memory and nobody waits for them.

Both ends are on this machine, so each is a process of its own: 10,000 descriptors each, which their soft limit may not
allow but their hard limit must.
"""

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
                print(f"\n{CONNECTIONS} idle connections: {each / KIB:.1f} KiB each, slowest append {longest * 1e3:.1f} ms")
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
