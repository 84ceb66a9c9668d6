"""The server of the demo: `oncelog serve` in a process of its own, killed and started again on the same port.

The port is kept by a socket that is bound and never listens: while the server is down nobody else is given it.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Final

from oncelog.demo.network import HOST
from oncelog.demo.processes import kill_session, session_gone
from oncelog.errors import OncelogError

READY_WITHIN_S: Final = 60.0
"""A start takes a second; recovery after a kill a little longer, a busy machine ten times that."""

STOP_WITHIN_S: Final = 30.0

SEGMENT_BYTES: Final = 1 << 20
CHECKPOINT_BYTES: Final = 256 * 1024
"""Both small, so that segments change and the index is committed between two kills, and the directory stays small."""

RUN: Final = "from oncelog.cli.main import main; main()"
RUN_BOUND: Final = f"from oncelog.demo.lifeline import hold; hold(); {RUN}"
"""It ends with the demo. Its index builder ends with it."""

_STDERR_SHOWN_BYTES: Final = 2_000


class ServerFailed(OncelogError):
    """The server ended, hung or said something else than it should, although nobody had killed it."""


class Server:
    """One directory, one port, and the process that serves them at present, if any."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._errors = directory.with_name(f"{directory.name}.stderr")
        self._process: asyncio.subprocess.Process | None = None
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((HOST, 0))
        self.port: int = self._reservation.getsockname()[1]

    @property
    def url(self) -> str:
        """The way to it without a network in between."""
        return f"http://{HOST}:{self.port}"

    async def start(self) -> None:
        """Until it takes requests. Raises ServerFailed."""
        assert self._process is None
        arguments = ["serve", "--data", os.fspath(self._directory), "--any-port", "--http", f"{HOST}:{self.port}"]
        arguments += ["--set", f"storage.segment_bytes={SEGMENT_BYTES}"]
        arguments += ["--set", f"storage.checkpoint_bytes={CHECKPOINT_BYTES}"]
        with self._errors.open("ab") as errors:
            # A session of its own: an interrupt from the keyboard reaches only us.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", RUN_BOUND, *arguments,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ServerFailed(f"the server was not ready after {READY_WITHIN_S:g} s: {self._stderr()}") from None
        if not line.startswith(b"ready "):
            raise ServerFailed(f"the server began with {line!r}: {self._stderr()}")

    async def kill(self) -> None:
        """SIGKILL, at once. Raises ServerFailed if it had ended by itself."""
        process = self._process
        assert process is not None
        if process.returncode is not None:
            raise ServerFailed(f"the server ended with code {process.returncode} by itself: {self._stderr()}")
        self.discard()
        await process.wait()

    async def stop(self) -> None:
        """SIGTERM, and the exit code must be 0."""
        process, self._process = self._process, None
        assert process is not None
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            raise ServerFailed(f"the server did not stop within {STOP_WITHIN_S:g} s: {self._stderr()}") from None
        if code != 0:
            raise ServerFailed(f"the server ended with code {code}: {self._stderr()}")

    async def verify(self) -> None:
        """`oncelog verify` of the directory, after `stop`. Raises ServerFailed if it finds damage."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", RUN, "verify", os.fspath(self._directory),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                kill_session(process.pid)
        if process.returncode != 0:
            raise ServerFailed(f"oncelog verify ended with code {process.returncode}: {said.decode().strip()}")

    def discard(self) -> None:
        """End it in any state, its index builder included."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            kill_session(process.pid)

    async def close(self) -> None:
        """Let go of everything; nothing is left when it returns."""
        process = self._process
        self.discard()
        if process is not None:
            await process.wait()
            await session_gone(process.pid)
        self._reservation.close()

    def _stderr(self) -> str:
        return self._errors.read_bytes()[-_STDERR_SHOWN_BYTES:].decode(errors="replace").strip()
