"""Through a real nginx: live reads arrive at once, and bodies come through, with its defaults and with what our docs
recommend."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running import Running, running
from tests.servers.talking import PATIENCE_S, Client, request

NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt install nginx-light)")

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "protocols" / "http.md"

DEFAULTS = "location / { proxy_pass http://127.0.0.1:4437; }"


def recommended() -> str:
    """The configuration that the docs recommend."""
    block = DOCS.read_text().partition("```nginx\n")[2].partition("```")[0]
    assert block
    return block


@contextlib.contextmanager
def nginx(folder: Path, server: Running, location: str) -> Iterator[int]:
    """An nginx before the server; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    location = location.replace("127.0.0.1:4437", f"127.0.0.1:{server.port}")
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}"
        f"server {{ listen 127.0.0.1:{port}; {location} }} }}\n"
    )
    assert NGINX is not None
    with subprocess.Popen([NGINX, "-c", str(configuration), "-p", str(folder)], stderr=subprocess.PIPE) as process:
        try:
            until = time.monotonic() + PATIENCE_S
            while not (folder / "nginx.pid").exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
            yield port
        finally:
            process.terminate()


@pytest.fixture(params=["defaults", "recommended"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Running, int]]:
    location = DEFAULTS if request.param == "defaults" else recommended()
    with running(sse_comment_ms=50, long_poll_ms=20_000) as server:
        server.ask("PUT", "/v1/stream/t", headers={"Content-Type": "text/plain"})
        with nginx(tmp_path, server, location) as port:
            yield server, port


def line_until(client: Client, wanted: bytes) -> None:
    """Read on until a line that holds this."""
    while wanted not in (line := client.line()):
        assert line, "the stream has ended"


def test_events_come_at_once_and_comments_in_between(behind: tuple[Running, int]) -> None:
    server, port = behind
    with Client(port) as client:
        client.send(request("GET", "/v1/stream/t?offset=-1&live=sse"))
        line_until(client, b"event: control")
        for number in range(3):
            server.ask("POST", "/v1/stream/t", b"record %d" % number)
            line_until(client, b"data:record %d" % number)
        line_until(client, b":\n")


def test_long_poll_is_woken_through_the_proxy(behind: tuple[Running, int]) -> None:
    server, port = behind
    with Client(port) as client:
        client.send(request("GET", "/v1/stream/t?offset=now&live=long-poll"))
        server.until(lambda: bool(server.engine.follow._waiters))
        server.ask("POST", "/v1/stream/t", b"woken\n")
        head = client.head()
        assert head.status == 200
        line_until(client, b"woken")


def test_chunked_and_expected_bodies_come_through(behind: tuple[Running, int]) -> None:
    server, port = behind
    with Client(port) as client:
        client.send(b"POST /v1/stream/t HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n")
        client.send(b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert client.head().status == 204
    with Client(port) as client:
        client.send(b"POST /v1/stream/t HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n")
        client.send(b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        line_until(client, b"100 Continue")
        assert client.line() == b"\r\n"
        client.send(b"fg")
        assert client.head().status == 204
    assert server.ask("GET", "/v1/stream/t").body == b"abcdefg"
