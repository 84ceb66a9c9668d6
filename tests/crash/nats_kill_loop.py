"""Kill a real server under writers and a reader that speak NATS, many times, and audit the streams. Exit code 1 on any
finding.

python -m tests.crash.nats_kill_loop --rounds 100 --seed 7

Each writer sends in turn: single messages with ids, atomic batches with ids, atomic batches without. What got no answer
when the server was killed is sent again, the same, after the restart. At the end every acknowledged message must be in
its stream once, each batch side by side, and the durable consumer must have been given each of them.
"""

import argparse
import base64
import json
import random
import secrets
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.servers.nats.client import RawClient, Received
from tests.servers.process import Process

WRITERS: Final = 3
BATCH: Final = 7
ROUND_S: Final = (0.05, 0.5)


class Writer(threading.Thread):
    """One life of one writer: it goes on where the one before stopped."""

    def __init__(self, number: int, port: int, done: dict[str, Any], begin: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.next = begin
        self._port = port
        self._done = done

    def run(self) -> None:
        try:
            with RawClient(self._port) as client:
                while True:
                    self._one(client)
                    self.next += 1
        except (OSError, AssertionError, ValueError):
            return  # the server was killed

    def _one(self, client: RawClient) -> None:
        name = f"{self.number}-{self.next}"
        kind = self.next % 3
        if kind == 0:
            answer = client.request(f"S.{self.number}", name.encode(), Nats_Msg_Id=name).json
            self._note(name, [name], answer)
            return
        parts = [f"{name}.{part}" for part in range(BATCH)]
        for place, part in enumerate(parts, start=1):
            more = {"Nats_Msg_Id": part} if kind == 1 else {}
            if place < BATCH:
                client.publish(
                    f"S.{self.number}", part.encode(), Nats_Batch_Id=name, Nats_Batch_Sequence=str(place), **more
                )
            else:
                answer = client.member(f"S.{self.number}", name, place, part.encode(), commit="1", **more).json
                self._note(name, parts, answer)

    def _note(self, name: str, parts: list[str], answer: Any) -> None:
        assert "error" not in answer or answer["error"]["err_code"] == 10176, answer
        if "error" in answer:
            self.next -= 1  # the members before were sent to the server that was killed: all of it again
        else:
            self._done[name] = (parts, answer["seq"])


class Reader(threading.Thread):
    """A durable pull consumer: acks are confirmed before they count."""

    def __init__(self, port: int, given: Counter[int]) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._given = given

    def run(self) -> None:
        try:
            with RawClient(self._port) as client:
                while True:
                    self._fetch(client)
        except (OSError, AssertionError, ValueError):
            return

    def _fetch(self, client: RawClient) -> None:
        body = b'{"batch":20,"expires":100000000}'
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.D", body, f"{client.inbox}.fetch")
        got: list[Received] = []
        while len(got) < 20:
            received = client.receive()
            if received.status:
                break
            self._given[int(received.reply.split(".")[5])] += 1
            got.append(received)
        for each in got:
            assert client.request(each.reply).payload == b""


def run(rounds: int, seed: int, folder: Path) -> list[str]:
    """What was found wrong."""
    chance = random.Random(seed)
    done: dict[str, Any] = {}
    given: Counter[int] = Counter()
    places = [0] * WRITERS
    for number in range(rounds + 1):
        settings: dict[str, Any] = {
            "data": str(folder),
            "storage.segment_bytes": 1 << 20,
            "storage.checkpoint_bytes": 1 << 16,
        }
        server = Process(**settings)
        try:
            port = int(server.addresses["nats"].rpartition(":")[2])
            if number == 0:
                prepare(port)
            if number == rounds:
                return audit(port, done, given)
            writers = [Writer(each, port, done, places[each]) for each in range(WRITERS)]
            threads: list[threading.Thread] = [*writers, Reader(port, given)]
            for thread in threads:
                thread.start()
            threads[0].join(chance.uniform(*ROUND_S))
            server.popen.kill()
            for thread in threads:
                thread.join(30)
            places = [writer.next for writer in writers]
        finally:
            server.popen.kill()
            server.popen.communicate()
    raise AssertionError("the last round audits")


def prepare(port: int) -> None:
    """The stream and its consumer."""
    with RawClient(port) as client:
        client.stream("S", allow_atomic=True)
        config = {"durable_name": "D", "ack_policy": "explicit", "ack_wait": 10**9}
        client.api("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})


def audit(port: int, done: dict[str, Any], given: Counter[int]) -> list[str]:
    """Every acknowledged message once, batches whole and in line, and the consumer given all of them."""
    wrong: list[str] = []
    with RawClient(port) as client:
        last = client.api("STREAM.INFO.S")["state"]["last_seq"]
        found: dict[str, list[int]] = {}
        for sequence in range(1, last + 1):
            message = client.api("STREAM.MSG.GET.S", {"seq": sequence})["message"]
            found.setdefault(base64.b64decode(message["data"]).decode(), []).append(sequence)
        for part, sequences in found.items():
            if len(sequences) != 1:
                wrong.append(f"{part} is stored {len(sequences)} times: {sequences}")
        for name, (parts, sequence) in done.items():
            expected = list(range(sequence - len(parts) + 1, sequence + 1))
            stored = [found.get(part, [0])[0] for part in parts]
            if stored != expected:
                wrong.append(f"{name} was acknowledged at {expected} and is at {stored}")
        whole = Counter(part.rpartition(".")[0] for part in found if "." in part)
        wrong += [f"batch {name} has {count} of {BATCH} messages" for name, count in whole.items() if count != BATCH]
        info = client.api("CONSUMER.INFO.S.D")
        floor = info["ack_floor"]["stream_seq"]
        wrong += [
            f"sequence {each} is below the floor and was never given" for each in range(1, floor + 1) if not given[each]
        ]
        print(json.dumps({"acknowledged": len(done), "stored": last, "floor": floor, "given": sum(given.values())}))
    return wrong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nats_kill_loop", description="kill a server again and again, then audit")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"{options.rounds} rounds, seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(options.rounds, seed, Path(folder) / "log")
    for line in wrong[:20]:
        print(line)
    print("nothing lost, nothing doubled" if not wrong else f"{len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
