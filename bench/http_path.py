"""`bench http_path`: where the time of one append goes when its client is alone, step by step.

A server is started with a stamp taken at the border of every step, and one connection appends to it in a closed loop.
The median of each step is shown beside the raw pwrite + fdatasync of the same minute. The stamps themselves cost about
0.3 µs each. What remains of the client's time is the way through the kernel and the client itself. Groups that went by
the writer's thread (`engine/pacing/poller.py` says when) are left out of the steps.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.http import KIB, RAW_SECONDS, call, generate, raw_fdatasync_ms
from bench.http_load import AppendLoad
from bench.http_server import Server
from oncelog.engine.engine import Engine
from oncelog.engine.pacing.poller import Poller
from oncelog.servers.http.connection import Connection
from oncelog.servers.http.line import AppendSlot
from oncelog.storage.kernel_writes import KernelWrites

STEPS = (
    ("the request is read and its command submitted", "read", "submitted"),
    ("the loop comes to the end of its turn", "submitted", "turn"),
    ("decided, encoded, applied, the group sealed", "turn", "sealed"),
    ("checksum, header, laid out in the mirror", "sealed", "laid"),
    ("on the disk, and seen to be there", "laid", "synced"),
    ("revealed", "synced", "revealed"),
    ("the answer is made and sent", "revealed", "sent"),
)
"""What happens between which two stamps."""

PATH = "/v1/stream/path"


class Stamps:
    """When each border was passed, of one append at a time."""

    def __init__(self) -> None:
        self.steps: dict[str, list[float]] = {name: [] for name, _, _ in STEPS}
        self._at: dict[str, int] = {}

    def before(self, owner: type, method: str, name: str) -> None:
        self._patch(owner, method, name, is_before=True)

    def after(self, owner: type, method: str, name: str) -> None:
        self._patch(owner, method, name, is_before=False)

    def _patch(self, owner: type, method: str, name: str, *, is_before: bool) -> None:
        plain: Callable[..., Any] = getattr(owner, method)

        def stamped(*arguments: Any) -> Any:
            if is_before:
                self._stamp(name)
            result = plain(*arguments)
            if not is_before:
                self._stamp(name)
            return result

        setattr(owner, method, stamped)

    def _stamp(self, name: str) -> None:
        self._at[name] = time.perf_counter_ns()
        if name == STEPS[-1][2]:
            if all(begin in self._at for _, begin, _ in STEPS):
                for step, begin, end in STEPS:
                    self.steps[step].append((self._at[end] - self._at[begin]) / 1e3)
            self._at.clear()


def serve(directory: Path) -> None:
    """A server that prints the medians of its steps when it is stopped."""
    stamps = Stamps()
    stamps.before(Connection, "data_received", "read")
    stamps.after(Connection, "data_received", "submitted")
    stamps.before(Engine, "_flush", "turn")
    stamps.before(Poller, "write", "sealed")
    stamps.before(KernelWrites, "start", "laid")
    stamps.before(Poller, "_wrote", "synced")
    stamps.before(AppendSlot, "answered", "revealed")
    stamps.after(AppendSlot, "answered", "sent")
    from oncelog.cli.main import main as command

    sys.argv = ["oncelog", "serve", "--data", str(directory / "log"), "--any-port"]
    try:
        command()
    finally:
        medians = {step: median(times) for step, times in stamps.steps.items() if times}
        (directory / "steps.json").write_text(json.dumps(medians))


def measure(directory: Path, seconds: float, producer: str) -> tuple[dict[str, float], float, float]:
    """(median µs per step, the client's p50 in µs, the raw disk's in µs)."""
    raw = raw_fdatasync_ms(directory, RAW_SECONDS)
    server = Server("oncelog", [sys.executable, "-m", "bench.http_path", "--serve", str(directory)], directory / "err")
    try:
        assert call(server, "PUT", PATH) == 201
        load = generate(AppendLoad(server.host, server.port, [PATH], KIB, seconds, producer))
    finally:
        server.close()
    raw = median([raw, raw_fdatasync_ms(directory, RAW_SECONDS)])
    steps: dict[str, float] = json.loads((directory / "steps.json").read_text())
    return steps, load.p50_ms * 1e3, raw * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench http_path", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--directory", type=Path, help="on the disk to measure; a temporary one if not given")
    parser.add_argument("--producer", action="store_true", help="with producer headers")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    directory = Path(tempfile.mkdtemp(prefix="oncelog-path-", dir=options.directory))
    try:
        steps, p50, raw = measure(directory, options.seconds, "path" if options.producer else "")
    finally:
        shutil.rmtree(directory)
    table = Table("one append of 1 KB on one connection", title="median µs per step")
    table.add_column("µs", justify="right")
    for step, _, _ in STEPS:
        table.add_row(step, f"{steps[step]:.0f}")
    table.add_row("the rest: kernel, client", f"{p50 - sum(steps.values()):.0f}")
    table.add_row("together, the client's p50", f"{p50:.0f}", style="bold")
    table.add_row("raw pwrite + fdatasync", f"{raw:.0f}")
    table.add_row("×", f"{p50 / raw:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
