"""Both servers, for the tests here; `python -m tests.conformance.nats.run` shows the differences."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.http_node import find_node, install
from tests.conformance.nats.operations import carried_out
from tests.servers.running import running

REAL: Final = Path(sys.executable).with_name("nats-server")
JAVASCRIPT: Final = Path(__file__).parent.parent / "nats_js"
PATIENCE_S: Final = 20.0


@contextlib.contextmanager
def real_server(*lines: str) -> Iterator[int]:
    """The real server on a free port, its data in a folder that goes with it; `lines` go into its configuration."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        config = Path(folder) / "server.conf"
        more = "\n".join(lines)
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data"\n {more} }}\n')
        with subprocess.Popen([REAL, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait(port)
                yield port
            finally:
                process.terminate()
                process.wait(PATIENCE_S)


def _wait(port: int) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < give_up, "the real server does not listen"


def in_javascript(port: int) -> dict[str, Any]:
    """The operations of nats.js."""
    folder = install(JAVASCRIPT)
    command = [*find_node().node, "operations.mjs", str(port)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def both() -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of oncelog and of the real server."""
    with running() as server:
        port = server.addresses["nats"].port
        ours = {**asyncio.run(carried_out(port)), **in_javascript(port)}
    with real_server() as port:
        theirs = {**asyncio.run(carried_out(port)), **in_javascript(port)}
    return ours, theirs


def documented(page: str) -> dict[str, str]:
    """Operation and class of every difference that docs/protocols/nats.md names."""
    return dict(
        re.findall(r"^\| `([^`]+)` \| (stronger promise|as seed 000|documented refusal|missing) \|", page, re.MULTILINE)
    )


def main() -> None:
    ours, theirs = both()
    print(len(ours), "operations")
    for name in theirs:
        if ours.get(name) != theirs[name]:
            print(f"\n{name}\n  ours   {json.dumps(ours.get(name))}\n  theirs {json.dumps(theirs[name])}")


if __name__ == "__main__":
    main()
