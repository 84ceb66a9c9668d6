"""The server of the demo: `oncelog serve` in a process of its own, killed and started again on the same ports.

A port is kept by a socket that is bound and never listens: while the server is down nobody else is given it.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oncelog.demo.network import HOST
from oncelog.demo.processes import kill_session, session_gone
from oncelog.errors import OncelogError

PROTOCOLS: Final = ("http", "kafka", "nats")
"""The faces that the server of the demo opens: a face that producers of the demo write through is named here."""

ADVERTISED: Final[tuple[str, ...]] = ("kafka",)
"""Those of them whose clients connect to the address that the server names, not to the one that they were given."""

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


class Reservation:
    """A free port that stays ours while nobody listens on it."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give it back."""
        self._socket.close()


class Server:
    """One directory, a port for each protocol, and the process that serves them at present, if any.

    `settings` go to `oncelog serve --set`; they are read at each start.
    """

    def __init__(self, directory: Path, protocols: Sequence[str] = PROTOCOLS) -> None:
        self._directory = directory
        self.settings: dict[str, str] = {
            "storage.segment_bytes": str(SEGMENT_BYTES),
            "storage.checkpoint_bytes": str(CHECKPOINT_BYTES),
        }
        self._reservations = {protocol: Reservation() for protocol in protocols}
        self._errors = directory.with_name(f"{directory.name}.stderr")
        self._process: asyncio.subprocess.Process | None = None

    def port(self, protocol: str) -> int:
        """Where it listens for that protocol."""
        return self._reservations[protocol].port

    @property
    def url(self) -> str:
        """The way to its HTTP face without a network in between."""
        return f"http://{HOST}:{self.port('http')}"

    async def start(self) -> None:
        """Until it takes requests. Raises ServerFailed."""
        assert self._process is None
        arguments = ["serve", "--data", os.fspath(self._directory), "--any-port"]
        for protocol in self._reservations:
            arguments += [f"--{protocol}", f"{HOST}:{self.port(protocol)}"]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
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
        for reservation in self._reservations.values():
            reservation.close()

    def _stderr(self) -> str:
        return self._errors.read_bytes()[-_STDERR_SHOWN_BYTES:].decode(errors="replace").strip()
