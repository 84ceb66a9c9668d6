"""A face is a value: the face of lines (`line_face.py`) gets everything that faces share from one line in the list."""

import contextlib
import datetime
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oncelog.servers import settings as server_settings
from oncelog.servers.faces import FACES
from tests.servers import line_face
from tests.servers.line_face import LINE, LineServer, LineSettings
from tests.servers.running import Running, running
from tests.servers.talking import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent


class LineClient:
    """A blocking client."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(address, PATIENCE_S)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> "LineClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, *lines: str) -> None:
        self.socket.sendall("".join(f"{line}\n" for line in lines).encode())

    def line(self) -> str:
        return self._file.readline().decode()

    def ask(self, line: str) -> str:
        self.send(line)
        return self.line()


@pytest.fixture
def _with_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The list of faces as it would be with the one line in it."""
    monkeypatch.setitem(server_settings.FACE_SETTINGS, "line", LineSettings)
    FACES.append(LINE)
    yield
    FACES.remove(LINE)


@contextlib.contextmanager
def lines(tls: ssl.SSLContext | None = None, **settings: Any) -> Iterator[tuple[Running, LineServer, LineClient]]:
    with running(faces={"line": settings}) as server:
        face = server.face("line")
        assert isinstance(face, LineServer)
        with LineClient(server.addresses["line"], tls) as client:
            yield server, face, client


pytestmark = pytest.mark.usefixtures("_with_lines")


def test_lines_are_appended_and_read_and_every_face_sees_them() -> None:
    with lines() as (server, _, client):
        assert client.ask("make t") == "ok\n"
        client.send("append t first", "append t second line")
        assert [client.line() for _ in range(2)] == ["ok 0\n", "ok 1\n"]
        client.send("read t 0")
        assert [client.line() for _ in range(3)] == ["ok 2\n", "first\n", "second line\n"]
        assert server.ask("GET", "/v1/stream/t?offset=-1").body == b"firstsecond line"


def test_metrics_and_counts_are_there_without_any_other_change() -> None:
    with lines() as (server, face, client):
        before = server.metrics()["oncelog_confirms_total"]
        client.ask("make t")
        client.ask("append t x")
        assert client.ask("append nowhere x") == "refused topic_missing\n"
        assert client.ask("nonsense").startswith("malformed: ")
        metrics = server.metrics()
        assert metrics["oncelog_confirms_total"] == before + 1
        assert metrics["oncelog_refusals_total[topic_missing]"] == 1
        assert metrics["oncelog_line_malformed_total"] == face.counts.malformed == 1
        assert metrics["oncelog_line_connections"] == 1


def test_connections_are_bounded() -> None:
    with lines(connections_max=1) as (server, face, client):
        assert client.ask("make t") == "ok\n"
        with LineClient(server.addresses["line"]) as second:
            assert second.line() == ""
        assert face.counts.connections_refused == 1
        assert client.ask("append t x") == "ok 0\n"


def test_idle_client_is_closed() -> None:
    with lines(idle_ms=100) as (_, _, client):
        assert client.line() == ""


def test_client_that_does_not_read_is_cut() -> None:
    with lines(write_stall_ms=100, line_bytes_max=1 << 20) as (_, face, client):
        client.ask("make t")
        for _ in range(8):
            client.ask(f"append t {'x' * 100_000}")
        client.send(*["read t 0"] * 16)
        with contextlib.suppress(ConnectionError):
            while client.socket.send(b"read t 0\n"):
                pass
        assert face.counts.cut_stalled == 1


def test_nothing_is_read_while_commands_wait_for_the_engine() -> None:
    with lines() as (server, face, client):
        client.ask("make t")
        commits = server.engine.commits
        server.on_loop(lambda: setattr(commits, "held", True))
        client.send("append t a")
        server.until(lambda: server.engine.overloaded)
        client.send("append t b")
        server.until(lambda: all(connection.is_paused for connection in face.listener.connections))
        server.on_loop(lambda: setattr(commits, "held", False))
        server.on_loop(server.engine._take_waiting)
        assert [client.line(), client.line()] == ["ok 0\n", "ok 1\n"]
        server.until(lambda: not any(connection.is_paused for connection in face.listener.connections))


def test_stop_answers_what_was_taken() -> None:
    with lines() as (server, _, client):
        client.ask("make t")
        with server.slow_disk():
            client.send("append t a")
            server.until(lambda: server.engine.commits.waiting == 0 and bool(server.engine.commits.groups_total))
            server.begin_stop()
            server.until(lambda: server.face("line").listener.is_stopping)  # type: ignore[attr-defined]
        assert client.line() == "ok 0\n"
        assert client.line() == ""


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return certificate_file, key_file


def test_face_speaks_tls_when_its_settings_say_so(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    tls = ssl.create_default_context(cafile=str(chain))
    with lines(tls, tls_certificate=chain, tls_key=key) as (_, _, client):
        assert client.ask("make t") == "ok\n"
        assert client.ask("append t secret") == "ok 0\n"


def test_http_speaks_tls_too(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    tls = ssl.create_default_context(cafile=str(chain))
    with (
        running(tls_certificate=chain, tls_key=key) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as plain,
        tls.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"status":"ok"' in answer


def test_process_has_its_flags_its_address_and_its_settings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.servers.line_serve", "serve"]
    shown = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--line" in shown
    assert "--no-line" in shown
    arguments = ["--data", str(tmp_path / "log"), "--any-port", "--set", "line.line_bytes_max=16"]
    with subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            addresses = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            assert list(addresses) == [*(kind.name for kind in FACES), "durability", "data"]
            host, _, port = addresses["line"].rpartition(":")
            with LineClient((host, int(port))) as client:
                assert client.ask("make t") == "ok\n"
                assert client.ask("append t x") == "ok 0\n"
                client.send("x" * 20)
                assert client.line() == "malformed: make TOPIC, append TOPIC TEXT or read TOPIC OFFSET\n"
                process.send_signal(signal.SIGTERM)
                assert client.line() == ""
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_face_of_lines_is_small() -> None:
    assert len(Path(line_face.__file__).read_text().splitlines()) <= 150
