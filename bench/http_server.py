"""Starts the servers that are measured or tested, as processes of their own, and reads what CPU they take.

All of them print `ready http=HOST:PORT` once they listen: ours by itself, the peers by `peers/serve.mjs`.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.http_node import ROOT, find_node, install

START_S = 30.0
STOP_S = 20.0

# A server counts as quiet when it takes less than this share of a core for one look.
QUIET_SHARE = 0.05
QUIET_LOOK_S = 0.1

READY = re.compile(rb"^ready\b.*\bhttp=([\w.\-]+):(\d+)", re.MULTILINE)


class Cpu(NamedTuple):
    """Seconds taken so far; `children_s` is the index builder in ours, nothing in the peers."""

    main_s: float
    children_s: float


class Server:
    """A running server. `close` asks it to stop and waits; what it wrote to stderr is in `<directory>.err`."""

    def __init__(self, name: str, command: Sequence[str], errors: Path, extra: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT, env=os.environ | dict(extra or {})
            )
        self._psutil = psutil.Process(self._process.pid)
        self.host, self.port = self._wait_ready()

    def _wait_ready(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        seen = b""
        until = time.monotonic() + START_S
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while poll.poll(max(0.0, until - time.monotonic()) * 1e3):
            part = os.read(self._process.stdout.fileno(), 65536)
            seen += part
            if b"\n" in part and (found := READY.search(seen)):
                return found[1].decode(), int(found[2])
            if not part:
                break
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        raise RuntimeError(f"{self.name} did not become ready; it said {seen!r} and {self._errors.read_text()!r}")

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu(self) -> Cpu:
        times = self._psutil.cpu_times()
        children = [child.cpu_times() for child in self._psutil.children(recursive=True)]
        return Cpu(times.user + times.system, sum(child.user + child.system for child in children))

    def memory_bytes(self) -> int:
        return int(self._psutil.memory_info().rss)

    def wait_quiet(self, seconds_max: float) -> None:
        """Until what the last load left to do is done: indexing, garbage, background flushes."""
        until = time.monotonic() + seconds_max
        before = sum(self.cpu())
        while time.monotonic() < until:
            time.sleep(QUIET_LOOK_S)
            now = sum(self.cpu())
            if now - before < QUIET_SHARE * QUIET_LOOK_S:
                return
            before = now

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def start_ours(directory: Path, long_poll_ms: int | None = None) -> Server:
    command = [str(Path(sys.executable).parent / "oncelog"), "serve", "--data", str(directory), "--any-port"]
    if long_poll_ms is not None:
        config = directory.with_suffix(".toml")
        config.write_text(f"[http]\nlong_poll_ms = {long_poll_ms}\n")
        command += ["--config", str(config)]
    return Server("oncelog", command, directory.with_suffix(".err"))


def start_node(directory: Path, *, file_store: bool, long_poll_ms: int = 30_000) -> Server:
    serve = install(ROOT / "bench" / "peers") / "serve.mjs"
    command = [*find_node().node, str(serve), *([str(directory)] if file_store else [])]
    name = "node file" if file_store else "node memory"
    return Server(name, command, directory.with_suffix(".err"), {"LONG_POLL_MS": str(long_poll_ms)})


def start_bare(directory: Path) -> Server:
    return Server("bare loop", [sys.executable, "-m", "bench.bare_server"], directory.with_suffix(".err"))
