"""`bench cold_reads`: the memory of a server while clients read a log that has left memory long ago.

Writes so many gigabytes, restarts the server, lets it come to rest, then reads everything from the start with one and
with two readers, raw batches and JSON. Prints the rate and how far the memory rose above rest; fails if that is more
than `--above-mb`. `tests/servers/test_read_memory.py` runs a small one.
"""

import argparse
import http.client
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from bench.http_server import Server, start_ours

MIB: Final = 1024 * 1024
LOOK_S: Final = 0.02
PATH: Final = "/v1/stream/cold"
RAW: Final = "application/vnd.oncelog.batches"
RECORD: Final = b'"' + b"x" * 998 + b'"'


class Row(NamedTuple):
    """One way to read, and what it took."""

    form: str
    readers: int
    seconds: float
    bytes_read: int
    above_rest: int


def write(server: Server, size: int) -> None:
    """Append `size` bytes in JSON arrays of a megabyte."""
    connection = http.client.HTTPConnection(server.host, server.port)
    _ask(connection, "PUT", PATH, b"", {"Content-Type": "application/json"})
    body = b"[" + b",".join([RECORD] * 1000) + b"]"
    for _ in range(size // len(body) + 1):
        _ask(connection, "POST", PATH, body, {"Content-Type": "application/json"})
    connection.close()


def _ask(
    connection: http.client.HTTPConnection, method: str, target: str, body: bytes, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, int]:
    connection.request(method, target, body, headers)
    response = connection.getresponse()
    taken = 0
    while part := response.read(256 * 1024):
        taken += len(part)
    if response.status >= 300:
        raise RuntimeError(f"{method} {target} was answered {response.status}")
    return response, taken


def read_all(server: Server, form: str, taken: list[int]) -> None:
    """Read the stream from its start to its end; add the count of bytes to `taken`."""
    connection = http.client.HTTPConnection(server.host, server.port)
    offset, total = "-1", 0
    headers = {"Accept": RAW} if form == "raw" else {}
    while True:
        response, size = _ask(connection, "GET", f"{PATH}?offset={offset}", b"", headers)
        total += size
        offset = response.headers["Stream-Next-Offset"]
        if response.headers.get("Stream-Up-To-Date") == "true":
            break
    connection.close()
    taken.append(total)


def measure(server: Server, form: str, readers: int) -> Row:
    """Read with so many readers, and look at the server's memory all the while."""
    rest = server.memory_bytes()
    taken: list[int] = []
    threads = [threading.Thread(target=read_all, args=(server, form, taken)) for _ in range(readers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    highest = rest
    while any(thread.is_alive() for thread in threads):
        highest = max(highest, server.memory_bytes())
        time.sleep(LOOK_S)
    if len(taken) < readers:
        raise RuntimeError("a reader failed")
    return Row(form, readers, time.perf_counter() - began, sum(taken), highest - rest)


def run(directory: Path, size: int) -> list[Row]:
    """All four ways, each on a server that was just started."""
    server = start_ours(directory)
    try:
        write(server, size)
    finally:
        server.close()
    rows = []
    for form in ("raw", "json"):
        for readers in (1, 2):
            server = start_ours(directory)
            try:
                server.wait_quiet(10.0)
                rows.append(measure(server, form, readers))
            finally:
                server.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench cold_reads", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--above-mb", type=int, default=150, help="how far memory may rise above rest")
    parser.add_argument("--directory", type=Path, help="where the log is made; a temporary folder if not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        rows = run(Path(name) / "log", int(arguments.gigabytes * 1024 * MIB))
    table = Table("form", "readers", "MB/s", "MB above rest", title=f"cold reads of {arguments.gigabytes:g} GB")
    for row in rows:
        rate = row.bytes_read / row.seconds / MIB
        table.add_row(row.form, str(row.readers), f"{rate:.0f}", f"{row.above_rest / MIB:.0f}")
    Console().print(table)
    console = psutil.virtual_memory()
    print(f"machine: {psutil.cpu_count()} cores, {console.total / 1024 / MIB:.0f} GB")
    if any(row.above_rest > arguments.above_mb * MIB for row in rows):
        sys.exit(f"memory rose more than {arguments.above_mb} MB above rest")
