"""examples/nats_batch.py does what it says."""

import subprocess
import sys
from pathlib import Path

from tests.servers.running import running

EXAMPLE = Path(__file__).parents[3] / "examples" / "nats_batch.py"


def test_example_stores_two_batches_once() -> None:
    with running() as server:
        url = f"nats://127.0.0.1:{server.addresses['nats'].port}"
        said = subprocess.run([sys.executable, EXAMPLE, url], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.splitlines() == [
        "{'stream': 'users', 'seq': 5, 'batch': 'move-in', 'count': 5}",
        "{'stream': 'users', 'seq': 10, 'batch': 'move-out', 'count': 5}",
        "{'stream': 'users', 'seq': 10, 'duplicate': True, 'batch': 'move-out', 'count': 5}",
        "10 messages in the stream",
    ]
