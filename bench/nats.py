"""`bench nats`: our server beside nats-server at its default and with `sync_interval: always`, in alternating rounds.

The load generator is raw sockets with pre-built bytes, the same for all. Ours always syncs before it acknowledges; the
default of nats-server syncs every two minutes. CPU counts the server's process, all threads, per message.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

PAYLOAD = b"x" * 128
WINDOW = 10_000
ROOT = Path(__file__).parent.parent


class Peer(NamedTuple):
    name: str
    start: Callable[[Path], "contextlib.AbstractContextManager[tuple[int, psutil.Process]]"]


class Link:
    """One connection of the load generator."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _IN.* 1\r\nPING\r\n')
        self.until(b"PONG\r\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, mark: bytes) -> bytes:
        """Everything up to and with the mark."""
        while mark not in self._buffer:
            self._more()
        at = self._buffer.index(mark) + len(mark)
        taken = bytes(self._buffer[:at])
        del self._buffer[:at]
        return taken

    def count(self, mark: bytes) -> int:
        """Read once; how often the mark came. What was read is thrown away."""
        kept = len(self._buffer)
        self._more()
        found = self._buffer.count(mark, max(0, kept - len(mark) + 1))
        del self._buffer[: max(0, len(self._buffer) - len(mark) + 1)]
        return found

    def count_to(self, mark: bytes, wanted: int) -> None:
        """Until the mark came so often."""
        while wanted > 0:
            wanted -= self.count(mark)
        self._buffer.clear()

    def _more(self) -> None:
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise ConnectionError("the server closed the connection")
        self._buffer += piece

    def api(self, subject: str, body: object) -> bytes:
        data = json.dumps(body).encode()
        self.send(b"PUB $JS.API.%b _IN.a %d\r\n%b\r\n" % (subject.encode(), len(data), data))
        return self.until(b"}\r\n")

    def close(self) -> None:
        self.socket.close()


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    command = [
        sys.executable,
        "-c",
        "from oncelog.cli.main import main; main()",
        "serve",
        "--any-port",
        "--data",
        str(folder),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        words = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
        try:
            yield int(words["nats"].rpartition(":")[2]), psutil.Process(process.pid)
        finally:
            process.terminate()


def theirs(sync: str) -> Callable[[Path], "contextlib.AbstractContextManager[tuple[int, psutil.Process]]"]:
    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder.mkdir()
        config = folder / "server.conf"
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data"\n{sync} }}\n')
        binary = Path(sys.executable).with_name("nats-server")
        with subprocess.Popen([binary, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            give_up = time.monotonic() + 20
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert time.monotonic() < give_up
                time.sleep(0.05)
            try:
                yield port, psutil.Process(process.pid)
            finally:
                process.terminate()

    return start


PEERS = (
    Peer("oncelog", ours),
    Peer("nats default", theirs("")),
    Peer("nats always", theirs('sync_interval: "always"')),
)


# --- loads: each returns (messages, seconds) -----------------------------------------------------------------------


def window(port: int, seconds: float) -> tuple[int, float]:
    """Publishes of 128 B, 10,000 without an answer at most."""
    link = Link(port)
    link.api("STREAM.CREATE.W", {"name": "W", "subjects": ["w"]})
    one = b"PUB w _IN.b %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD)
    half = one * (WINDOW // 2)
    begin, sent, acked = time.perf_counter(), 0, 0
    while acked < sent or time.perf_counter() - begin < seconds:
        while sent - acked <= WINDOW // 2 and time.perf_counter() - begin < seconds:
            link.send(half)
            sent += WINDOW // 2
        if acked < sent:
            acked += link.count(b'"seq":')
    took = time.perf_counter() - begin
    link.close()
    return acked, took


def sync_publish(port: int, seconds: float) -> tuple[int, float]:
    """One message after another."""
    link = Link(port)
    link.api("STREAM.CREATE.Y", {"name": "Y", "subjects": ["y"]})
    one = b"PUB y _IN.b %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD)
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        link.send(one)
        link.until(b"}\r\n")
        done += 1
    took = time.perf_counter() - begin
    link.close()
    return done, took


def atomic(port: int, seconds: float) -> tuple[int, float]:
    """Atomic batches of 1,000, one after another."""
    link = Link(port)
    link.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "allow_atomic": True})
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        pieces = []
        for number in range(1, 1_001):
            commit = "Nats-Batch-Commit: 1\r\n" if number == 1_000 else ""
            head = f"NATS/1.0\r\nNats-Batch-Id: {done}\r\nNats-Batch-Sequence: {number}\r\n{commit}\r\n".encode()
            reply = "_IN.c " if commit else ""
            pieces.append(
                f"HPUB t {reply}{len(head)} {len(head) + len(PAYLOAD)}\r\n".encode() + head + PAYLOAD + b"\r\n"
            )
        link.send(b"".join(pieces))
        answer = link.until(b"}\r\n")
        assert b'"count":1000' in answer, answer
        done += 1_000
    took = time.perf_counter() - begin
    link.close()
    return done, took


def fetch(port: int, seconds: float) -> tuple[int, float]:
    """Pull requests of 500 from what `window` has stored, without acks."""
    link = Link(port)
    config = {"durable_name": "F", "ack_policy": "none"}
    link.api("CONSUMER.CREATE.W.F", {"stream_name": "W", "config": config})
    info = link.api("STREAM.INFO.W", {})
    stored = json.loads(info[info.index(b"{") :])["state"]["messages"]
    request = b'{"batch":500,"expires":2000000000}'
    ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.W.F _IN.d %d\r\n%b\r\n" % (len(request), request)
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds and done + 500 <= stored:
        link.send(ask)
        link.count_to(b"MSG w 1 ", 500)
        done += 500
    took = time.perf_counter() - begin
    link.close()
    return done, took


def fan_out(port: int, seconds: float) -> tuple[int, float]:
    """One publisher, 100 subscribers on one connection: deliveries."""
    link = Link(port)
    link.send(b"".join(b"SUB f %d\r\n" % (100 + number) for number in range(100)) + b"PING\r\n")
    link.until(b"PONG\r\n")
    burst = (b"PUB f %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD)) * 50
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        link.send(burst)
        link.count_to(b"MSG f ", 5_000)
        done += 5_000
    took = time.perf_counter() - begin
    link.close()
    return done, took


LOADS: tuple[tuple[str, Callable[[int, float], tuple[int, float]]], ...] = (
    ("publish, window 10,000", window),
    ("publish, one by one", sync_publish),
    ("atomic batches of 1,000", atomic),
    ("pull fetch 500", fetch),
    ("fan-out to 100", fan_out),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench nats", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    rates: dict[tuple[str, str], list[float]] = {}
    costs: dict[tuple[str, str], list[float]] = {}
    for round_ in range(options.rounds):
        for peer in PEERS[round_ % 3 :] + PEERS[: round_ % 3]:
            with tempfile.TemporaryDirectory() as folder, peer.start(Path(folder) / "log") as (port, process):
                for name, load in LOADS:
                    before = sum(process.cpu_times()[:2])
                    messages, took = load(port, options.seconds)
                    cpu = sum(process.cpu_times()[:2]) - before
                    rates.setdefault((name, peer.name), []).append(messages / took)
                    costs.setdefault((name, peer.name), []).append(cpu / messages * 1e6)
    print(
        f"{'':26}"
        + "".join(f"{peer.name + ' msg/s':>20}{'CPU µs':>9}" for peer in PEERS)
        + f"{'÷ default':>11}{'÷ always':>10}"
    )
    for name, _ in LOADS:
        rate = {peer.name: median(rates[name, peer.name]) for peer in PEERS}
        line = "".join(f"{rate[peer.name]:>20,.0f}{median(costs[name, peer.name]):>9.1f}" for peer in PEERS)
        ours_, default, always = (rate[peer.name] for peer in PEERS)
        print(f"{name:26}{line}{ours_ / default:>11.2f}{ours_ / always:>10.1f}")
    print(f"medians of {options.rounds} rounds; load of the machine at the end: {os.getloadavg()[0]:.1f}")
