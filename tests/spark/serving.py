"""A server that can be killed and started again, and a proxy before it that stops requests at marked points.

Spark talks to the proxy's address, which never changes. A `Trap` waits for a request that begins in a certain way and
then does one thing: hold it, hold its answer, drop its answer, or call a function, such as one that kills the server.
"""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Literal

SERVE = "from oncelog.cli.main import main; main()"

PATIENCE_S = 90.0

What = Literal["hold", "hold_answer", "drop_answer", "before", "after"]


class Server:
    """`oncelog serve` on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self._process: Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def start(self) -> None:
        command = [sys.executable, "-c", SERVE, "serve", "--data", str(self.directory), "--any-port"]
        self._process = Popen(command, stdout=PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready.startswith("ready "), ready
        self.address = dict(word.split("=", 1) for word in ready.split()[1:])["http"]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)


class Trap:
    """Catches the next `count` requests that begin with `prefix`, after letting `skip` of them pass."""

    def __init__(self, prefix: bytes, what: What, call: Callable[[], None], count: int, skip: int) -> None:
        self.prefix = prefix
        self.what = what
        self.call = call
        self.count = count
        self.skip = skip
        self.caught = threading.Event()
        """A request is in the trap; for `hold_answer`, the server has answered it."""
        self.released = threading.Event()
        self.caught_count = 0

    def takes(self, data: bytes) -> bool:
        if not data.startswith(self.prefix) or self.count <= 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.count -= 1
        self.caught_count += 1
        return True

    def wait(self) -> None:
        assert self.caught.wait(PATIENCE_S), f"nobody sent {self.prefix!r}"

    def release(self) -> None:
        self.released.set()


class Proxy:
    """Bytes from here to the server and back, one thread per direction and connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._traps: list[Trap] = []
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def trap(
        self, prefix: str, what: What, call: Callable[[], None] = lambda: None, *, count: int = 1, skip: int = 0
    ) -> Trap:
        trap = Trap(prefix.encode(), what, call, count, skip)
        self._traps.append(trap)
        return trap

    def close(self) -> None:
        self._closed = True
        for trap in self._traps:
            trap.release()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            upstream = socket.create_connection(("127.0.0.1", self._server.port))
        except OSError:
            client.close()
            return
        answers = _Answers(upstream, client)
        threading.Thread(target=answers.pump, daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                with self._lock:
                    trap = next((trap for trap in self._traps if trap.takes(data)), None)
                if trap is not None and not self._trapped(trap, answers):
                    break
                upstream.sendall(data)
                if trap is not None and trap.what == "after":
                    trap.call()
                    trap.caught.set()
        for end in (client, upstream):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _trapped(self, trap: Trap, answers: "_Answers") -> bool:
        """Whether the request goes on to the server."""
        if trap.what == "hold":
            trap.caught.set()
            trap.released.wait()
        elif trap.what == "before":
            trap.call()
            trap.caught.set()
            return False
        elif trap.what in ("hold_answer", "drop_answer"):
            answers.trap = trap
        return True


class _Answers:
    """The way back of one connection."""

    def __init__(self, upstream: socket.socket, client: socket.socket) -> None:
        self._upstream = upstream
        self._client = client
        self.trap: Trap | None = None

    def pump(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._upstream.recv(1 << 20):
                trap, self.trap = self.trap, None
                if trap is not None:
                    trap.caught.set()
                    if trap.what == "drop_answer":
                        break
                    trap.released.wait()
                self._client.sendall(data)
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def served(directory: Path) -> Iterator[Server]:
    server = Server(directory)
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def proxied(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
