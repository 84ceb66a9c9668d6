"""A server process for tests, for what only a process has: signals, an exit code, memory of its own.

python -m tests.servers.process '{"in_memory": true, "http.idle_ms": 100}'
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from oncelog.servers.chosen_settings import load
from oncelog.servers.faces import FACES
from oncelog.servers.process import run
from tests.servers.talking import PATIENCE_S, Answer, Client

ROOT: Final = Path(__file__).resolve().parent.parent.parent


class Process:
    """`oncelog.servers.process.run`, started and ready."""

    def __init__(self, files_max: int | None = None, nohup: bool = False, **settings: Any) -> None:
        # So few that no machine has too few descriptors for them.
        chosen: dict[str, Any] = {f"{kind.name}.address": "127.0.0.1:0" for kind in FACES}
        chosen |= {f"{kind.name}.connections_max": 1_000 for kind in FACES}
        chosen |= settings
        command = [sys.executable, "-m", "tests.servers.process", msgspec.json.encode(chosen).decode()]
        if files_max is not None:
            command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(files_max), *command]
        if nohup:
            command = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command]
        self.popen = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line.startswith("ready http=127.0.0.1:"):
            self.popen.kill()
            raise AssertionError(f"not ready: {line!r} {self.popen.communicate()[1]}")
        self.addresses = dict(word.split("=", 1) for word in line.split(" durability=")[0].split(" ")[1:])
        """Where each face listens."""
        self.port = int(self.addresses["http"].rpartition(":")[2])

    def ask(
        self, method: str, target: str, body: bytes = b"", /, headers: Mapping[str, str | int] | None = None
    ) -> Answer:
        with Client(self.port) as client:
            return client.ask(method, target, body, headers)

    def tell_to_stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.popen.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """(exit code, what it wrote to stderr), once it has ended."""
        _, errors = self.popen.communicate(timeout=PATIENCE_S)
        return self.popen.returncode, errors


@contextlib.contextmanager
def process(files_max: int | None = None, nohup: bool = False, **settings: Any) -> Iterator[Process]:
    """A server process for as long as the block; keys as in a settings file, dots as underscores twice. It may open
    `files_max` files, if that is given; `nohup`: it stays when its terminal closes."""
    server = Process(files_max, nohup, **{key.replace("__", "."): value for key, value in settings.items()})
    try:
        yield server
    finally:
        server.popen.kill()
        server.popen.communicate()


def main() -> int:
    settings = load(None, msgspec.json.decode(sys.argv[1]))
    return run(settings, lambda line: print(line, flush=True))


if __name__ == "__main__":
    sys.exit(main())
