"""Two plants with a forwarder each way; the south is killed while the north goes on; then both are compared.

python examples/bsfg/two_plants.py
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ONCELOG = str(Path(sys.executable).with_name("oncelog"))


class Plant:
    """One zone: a log of its own, on a port that it keeps."""

    def __init__(self, zone: str, folder: Path) -> None:
        self.zone = zone
        self._folder = folder / zone
        self._address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        arguments = ["serve", "--data", str(self._folder), "--zone", self.zone, "--any-port", "--http", self._address]
        self.process = subprocess.Popen([ONCELOG, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        self._address = ready.split("http=")[1].split()[0]
        self.url = f"http://{self._address}"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def call(self, method: str, message: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}/bsfg.v1.BoundaryService/{method}",
            json.dumps(message).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def tell(self, to_zone: str, lot: int) -> None:
        """Append a fact about a lot. The id is that of the business event, so a retry is never a second fact."""
        envelope = {
            "message_id": f"{self.zone}/lot-{lot}/shipped",
            "from_zone": self.zone,
            "to_zone": to_zone,
            "produced_at_unix_ms": time.time_ns() // 1_000_000,
        }
        fact = {
            "subject": f"lot:{self.zone}/{lot}",
            "predicate": "was_shipped",
            "object_json": {"pallets": lot % 9 + 1},
        }
        answers = [self.call("AppendFact", {"envelope": envelope, "fact": fact}) for _ in range(2)]
        assert answers[0]["sequence"] == answers[1]["sequence"], "the second one is a retry"

    def unconfirmed(self, peer: str) -> int:
        """How many facts the forwarder to a peer has not confirmed yet; -1 before it has begun."""
        with urllib.request.urlopen(f"{self.url}/bsfg/status", timeout=30) as answer:
            rows = [row for row in json.load(answer)["consumers"] if row["consumer_name"] == f"forward:{peer}"]
        return max((row["unconfirmed"] for row in rows), default=-1)


def forward(source: Plant, target: Plant) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([ONCELOG, "forward", "--from", source.url, "--to", target.url], stderr=subprocess.DEVNULL)


def wait_until_carried(source: Plant, target: Plant) -> None:
    while source.unconfirmed(target.zone) != 0:
        time.sleep(0.05)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        north, south = (Plant(zone, Path(name)) for zone in ("north", "south"))
        forwarders = [forward(north, south), forward(south, north)]
        try:
            for lot in range(20):
                north.tell("south", lot)
                south.tell("north", lot)
            print("20 facts each way, every one sent twice")
            south.kill()
            for lot in range(20, 40):
                north.tell("south", lot)
            print("the south was killed, and the north has gone on")
            south.start()
            wait_until_carried(north, south)
            wait_until_carried(south, north)
            codes = [
                subprocess.run([ONCELOG, "verify", one.url, "--against", other.url], check=False).returncode
                for one, other in ((north, south), (south, north))
            ]
        finally:
            for forwarder in forwarders:
                forwarder.terminate()
                forwarder.wait()
            north.kill()
            south.kill()
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
