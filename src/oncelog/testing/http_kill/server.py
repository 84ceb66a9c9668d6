"""The server that is killed: `oncelog serve` in a process of its own, started on the same directory and port again.

The port is kept by a socket that is bound and never listens: while the server is down nobody else is given it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from oncelog.testing.http_kill.wire import HOST
from oncelog.testing.kill.engine_client import PATIENCE_S

SEGMENT_BYTES: Final = 256 * 1024
CHECKPOINT_BYTES: Final = 128 * 1024
"""Both small, so that segments change and the index is committed many times between two kills."""

SERVE: Final = """
from oncelog.cli.main import main
main()
"""

_STDERR_SHOWN_BYTES: Final = 4_000


class ServerDied(AssertionError):
    """The server ended, hung or said something else than it should, although nobody had killed it."""


class Server:
    """One directory, one port, and the process that serves them at present, if any."""

    def __init__(self, directory: Path, script: str = "") -> None:
        """`script` is Python that runs before the server does: a bug that is put in, say."""
        self.directory = directory
        self._script = script + SERVE
        # What is put in would change nothing where it was compiled.
        self._environment = os.environ | ({"ONCELOG_PURE": "1"} if script else {})
        self._errors = directory.with_name(f"{directory.name}.stderr")
        self._process: subprocess.Popen[bytes] | None = None
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((HOST, 0))
        self.port: int = self._reservation.getsockname()[1]
        self.start_s = 1.0
        """How long the last start took."""

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def stderr(self) -> str:
        """The end of what the server complained about."""
        if not self._errors.exists():
            return ""
        return self._errors.read_bytes()[-_STDERR_SHOWN_BYTES:].decode(errors="replace")

    async def start(self, within_s: float = PATIENCE_S) -> bool:
        """Whether it says by then that it takes requests; if not, it is killed on its way. Raises ServerDied."""
        assert self._process is None
        began = time.monotonic()
        self._spawn()
        try:
            async with asyncio.timeout(within_s):
                line = await self._ready_line()
        except TimeoutError:
            self.kill()
            if within_s >= PATIENCE_S:
                raise ServerDied(f"the server was not ready after {PATIENCE_S} s: {self.stderr}") from None
            return False
        except BaseException:
            self.discard()
            raise
        if not line.startswith(f"ready http={HOST}:{self.port} ".encode()):
            self.discard()
            raise ServerDied(f"the server began with {line!r}: {self.stderr}")
        self.start_s = time.monotonic() - began
        return True

    def kill(self) -> None:
        """SIGKILL, at once."""
        process = self._process
        assert process is not None
        if process.poll() is not None:
            raise ServerDied(f"the server ended with code {process.returncode} by itself: {self.stderr}")
        os.kill(process.pid, signal.SIGKILL)
        self._forget(process)

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        process = self._process
        assert process is not None
        os.kill(process.pid, signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise ServerDied(f"the server did not stop within {PATIENCE_S} s: {self.stderr}") from None
        self._forget(process)
        return process.returncode

    def discard(self) -> None:
        """End it in any state."""
        if self._process is not None:
            self._process.kill()
            self._forget(self._process)

    def close(self) -> None:
        """Let go of everything."""
        self.discard()
        self._reservation.close()

    def _spawn(self) -> None:
        with self._errors.open("ab") as errors:
            # A session of its own: an interrupt from the keyboard reaches only us.
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        settings = {"storage.segment_bytes": SEGMENT_BYTES, "storage.checkpoint_bytes": CHECKPOINT_BYTES}
        arguments = ["serve", "--data", os.fspath(self.directory), "--any-port", "--http", f"{HOST}:{self.port}"]
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        return [sys.executable, "-c", self._script, *arguments]

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        self._process = None

    async def _ready_line(self) -> bytes:
        """The first line of its output; what there is of it if the output ends before."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        os.set_blocking(descriptor, False)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()
        line = bytearray()

        def readable() -> None:
            with contextlib.suppress(BlockingIOError):
                data = os.read(descriptor, 1_000)
                line.extend(data)
                if (not data or line.endswith(b"\n")) and not done.done():
                    done.set_result(bytes(line))

        loop.add_reader(descriptor, readable)
        try:
            return await done
        finally:
            loop.remove_reader(descriptor)
