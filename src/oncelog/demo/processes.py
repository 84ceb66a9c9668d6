"""Processes that the demo starts, kills with SIGKILL, starts again, and never leaves behind.

Each has a session of its own: an interrupt from the keyboard reaches only the demo, and a kill reaches whatever the
process has started, such as the virtual machine and the workers of a Spark driver. Each has a pipe of the demo's as its
stdin, by which it sees that the demo has ended (`lifeline`).
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from oncelog.errors import OncelogError

LINE_BYTES_MAX: Final = 1 << 20
"""Of what a process says in one line; the longest is the result of an audit."""

GONE_LOOK_S: Final = 0.02
"""A killed process takes milliseconds to go."""

_STDERR_SHOWN_BYTES: Final = 2_000


class ProcessFailed(OncelogError):
    """A process ended by itself and not well."""


class Process:
    """One Python module, run again after each kill until it has ended by itself."""

    def __init__(
        self,
        name: str,
        module: str,
        argument: str,
        errors: Path,
        *,
        on_line: Callable[[str], None] = lambda _: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`on_line` gets every JSON object that it says; `errors` is the file where its complaints go."""
        self.name = name
        self._command: tuple[str, ...] = (sys.executable, "-m", module, argument)
        self._errors = errors
        self._on_line = on_line
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._pause_s: float | None = None
        self.lives = 0
        self.is_done = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def run(self) -> None:
        """Until it ends by itself. Raises ProcessFailed if it says that something is wrong."""
        while True:
            self.lives += 1
            await self._start()
            process = self._process
            assert process is not None
            assert process.stdout is not None
            while line := await process.stdout.readline():
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    # Anything else is a library's remark, or was cut off by a kill.
                    self._on_line(line.decode())
            code = await process.wait()
            if self._pause_s is None:
                break
            await asyncio.sleep(self._pause_s)
            self._pause_s = None
        if code != 0:
            raise ProcessFailed(f"{self.name} ended with code {code}: {self._complaints()}")
        self.is_done = True

    def kill(self, pause_s: float) -> None:
        """SIGKILL, and a new life after a pause."""
        assert self.is_running
        self._pause_s = pause_s
        self._signal()

    def end(self) -> None:
        """SIGTERM, to a process that ends well when it is asked to."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def discard(self) -> None:
        """End it in any state."""
        if self.is_running:
            self._signal()

    async def gone(self) -> None:
        """Until nothing of it is left; after `discard`."""
        if self._process is not None:
            await self._process.wait()
            await session_gone(self._process.pid)

    def _signal(self) -> None:
        assert self._process is not None
        kill_session(self._process.pid)

    async def _start(self) -> None:
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env=self._environment,
                limit=LINE_BYTES_MAX,
            )

    def _complaints(self) -> str:
        """The last line: of a traceback, and of what a program says before it leaves, the one that matters."""
        text = self._errors.read_bytes()[-_STDERR_SHOWN_BYTES:].decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "it did not say why"


def kill_session(session: int) -> None:
    """SIGKILL to the process that leads it, and to all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)
    # Spark's Python workers form a group of their own, but stay in the session.
    for pid in session_members(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def session_gone(session: int) -> None:
    """Until nobody of it is left."""
    while session_members(session):
        kill_session(session)
        await asyncio.sleep(GONE_LOOK_S)


def session_members(session: int) -> list[int]:
    """The processes of a session, where the system shows them; elsewhere Spark's workers end with their driver."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
    return found
