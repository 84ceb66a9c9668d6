"""The other end of the pipe: start an engine process, talk to it, kill it, and know what is left running.

Every process runs in a session of its own, so that an interrupt from the keyboard reaches only us.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from oncelog.testing.kill.messages import READY, packed, take_messages

PATIENCE_S: Final = 60
"""Longer than any start or answer on a busy machine: whoever waits this long has found a hang."""

_READ_BYTES: Final = 1 << 18
_STDERR_SHOWN_BYTES: Final = 4_000


class EngineDied(AssertionError):
    """The engine ended, or answered nothing, although nobody had killed it."""


class EngineProcess:
    """One life of an engine."""

    def __init__(
        self, directory: Path, segment_bytes: int, checkpoint_bytes: int, *, arguments: Sequence[str] = ()
    ) -> None:
        """`arguments` stand in for `-m <module>`: a script that breaks something and then runs the module, say."""
        self._errors = directory.with_name(f"{directory.name}.stderr")
        # What is put in would change nothing where it was compiled.
        environment = os.environ | ({"ONCELOG_PURE": "1"} if arguments else {})
        arguments = arguments or ("-m", "oncelog.testing.kill.engine_process")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *arguments, os.fspath(directory), str(segment_bytes), str(checkpoint_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        self._in = bytearray()
        self._out = bytearray()
        self._messages: list[tuple[int, object]] = []
        self._ended = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """The end of what the engine complained about."""
        return self._errors.read_bytes()[-_STDERR_SHOWN_BYTES:].decode(errors="replace")

    def send(self, number: int, command: object) -> None:
        """Queue a command; `receive` pushes it out."""
        self._out += packed(number, command)

    def receive(self, until: float) -> list[tuple[int, object]]:
        """Answers, as soon as there are any; none if `until` (monotonic) comes first. Raises EngineDied."""
        while not self._messages and not self._ended and (left := until - time.monotonic()) > 0:
            self._exchange(left)
        messages, self._messages = self._messages, []
        if self._ended and not messages:
            raise EngineDied(f"the engine ended with code {self._process.wait()} by itself: {self.stderr}")
        return messages

    def wait_ready(self, until: float) -> bool:
        """Whether the engine has recovered by then."""
        answers = self.receive(until)
        assert not answers or answers == [(0, READY)], answers
        return bool(answers)

    def ask(self, command: object) -> object:
        """One command and its answer, while nothing else is in flight."""
        self.send(1, command)
        answers = self.receive(time.monotonic() + PATIENCE_S)
        if not answers:
            raise EngineDied(f"no answer to {command} for {PATIENCE_S} s: {self.stderr}")
        assert [number for number, _ in answers] == [1], answers
        return answers[0][1]

    def kill(self) -> list[tuple[int, object]]:
        """SIGKILL. Returns the answers that had left by then: their senders do know."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._out.clear()
        while not self._ended:
            self._exchange(PATIENCE_S)
        return self._closed()

    def stop(self) -> int:
        """A clean stop; returns the exit code."""
        while self._out and not self._ended:
            self._exchange(PATIENCE_S)
        self._stdin.close()
        code = self._process.wait(PATIENCE_S)
        self._closed()
        return code

    def wait(self) -> int:
        """The exit code of an engine that is about to end by itself."""
        while not self._ended:
            self._exchange(PATIENCE_S)
        code = self._process.wait(PATIENCE_S)
        self._closed()
        return code

    def discard(self) -> None:
        """End it in any state. Its index builder then ends by itself."""
        self._process.kill()
        self._process.wait()
        self._closed()

    def _closed(self) -> list[tuple[int, object]]:
        self._stdin.close()
        self._stdout.close()
        self._ended = True
        messages, self._messages = self._messages, []
        return messages

    def _exchange(self, timeout_s: float) -> None:
        """Wait until something can be read or written, and do it."""
        writing = [self._stdin.fileno()] if self._out else []
        readable, writable, _ = select.select([self._stdout.fileno()], writing, [], timeout_s)
        if readable:
            data = os.read(self._stdout.fileno(), _READ_BYTES)
            self._ended = not data
            self._in += data
            self._messages += take_messages(self._in)
        if writable:
            # An engine that has just ended is noticed by the end of its output.
            with contextlib.suppress(BrokenPipeError):
                del self._out[: os.write(self._stdin.fileno(), self._out)]


def processes_of(directory: Path) -> Iterator[int]:
    """Engines and index builders of a directory that still run, by their arguments: a builder outlives a killed engine
    for a moment, as nobody's child. One that only waits to be reaped has no arguments any more."""
    wanted = os.fsencode(directory)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if wanted in (entry / "cmdline").read_bytes().split(b"\0"):
                    yield int(entry.name)


def wait_for_processes(directory: Path) -> bool:
    """Whether everything that engines of this directory have started has ended, now or shortly."""
    until = time.monotonic() + PATIENCE_S
    while left := list(processes_of(directory)):
        if time.monotonic() > until:
            return False
        for pid in left:
            _wait_for_exit(pid, until)
    return True


def _wait_for_exit(pid: int, until: float) -> None:
    """Return when a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
    finally:
        os.close(descriptor)
