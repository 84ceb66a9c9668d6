"""A Spark driver of its own, for tests that kill it: copies one topic to another and ends.

    python -m tests.spark.driver '{"url": …, "source": …, "sink": …, "checkpoint": …, "application": …, "how": "sink"}'

It says `started` when the session is there, and `done` or `failed <why>` at the end.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


class Driver:
    """The program below, in a process group with its JVM and its Python workers."""

    command: tuple[str, ...] = ("-m", "tests.spark.driver")

    def __init__(self, **told: object) -> None:
        command = [sys.executable, *self.command, json.dumps(told)]
        self._process = Popen(command, cwd=ROOT, stdout=PIPE, text=True, start_new_session=True)

    def line(self) -> str:
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            if not line or line.startswith(("started", "done", "failed")):
                return line.strip()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def executors(self) -> list[int]:
        """The JVMs of its executors, on a `local-cluster`."""
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and os.getpgid(int(folder.name)) == self._process.pid:
                    if b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
        return found

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def driving(**told: object) -> Iterator[Driver]:
    driver = Driver(**told)
    try:
        yield driver
    finally:
        driver.kill()


def run(told: dict[str, Any]) -> None:
    from tests.spark.conftest import started_session
    from tests.spark.flowing import reading, write, writing

    session = started_session(told.get("master", "local[2,4]"))
    print("started", flush=True)
    url, checkpoint = told["url"], Path(told["checkpoint"])
    rows = reading(
        session,
        url,
        told["source"],
        maxOffsetsPerTrigger=told.get("per_batch", 1000),
        startingOffsets=told.get("start", "earliest"),
    ).selectExpr("key", "value")
    if told.get("how", "sink") == "sink":
        writer = writing(rows, url, told["sink"], checkpoint, told["application"])
    else:

        def each(batch: Any, number: int) -> None:
            write(batch, url, told["sink"], txnAppId=told["application"], txnVersion=number)

        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


def main() -> None:
    from pyspark.errors import PySparkException

    try:
        run(json.loads(sys.argv[1]))
    except PySparkException as error:
        print("failed", " ".join(str(error).split()), flush=True)
        return
    print("done", flush=True)


if __name__ == "__main__":
    main()
