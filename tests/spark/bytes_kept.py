"""Many lines of JSON, some of them bad: every byte is in the topic or in the dead letter afterwards, by a checksum.

    python -m tests.spark.bytes_kept --rows 5000000

Lines are compared without their order: their count, their bytes, and the sum of the digests of all of them.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_128_intdigest

from oncelog.client import Client
from tests.spark.serving import served

FILES = 4
BAD_SHARE = 0.01
DIGEST_BITS = 128

BAD = {
    "not_json": b'{"id": %d, "name": "cut',
    "trailing": b'{"id": %d}{"id": 0}',
    "not_schema": b'{"id": "n%d"}',
    "not_utf8": b'{"id": %d, "name": "\xff"}',
}


class Sum(NamedTuple):
    """Of lines, in whatever order they come."""

    lines: int
    size: int
    digest: int

    def __add__(self, other: object) -> "Sum":
        assert isinstance(other, Sum)
        digest = (self.digest + other.digest) % (1 << DIGEST_BITS)
        return Sum(self.lines + other.lines, self.size + other.size, digest)


def sum_of(lines: Iterable[bytes]) -> Sum:
    count = size = digest = 0
    for line in lines:
        count += 1
        size += len(line)
        digest += xxh3_128_intdigest(line)
    return Sum(count, size, digest % (1 << DIGEST_BITS))


def lines_of(rows: int, rng: random.Random, kinds: Counter[str]) -> Iterator[bytes]:
    names = [*BAD]
    for number in range(rows):
        if rng.random() < BAD_SHARE:
            kind = rng.choice(names)
            kinds[kind] += 1
            yield BAD[kind] % number
        else:
            yield b'{"id": %d, "name": "customer %d", "amount": %d.50}' % (number, number % 1009, number % 77)


def written(folder: Path, rows: int, kinds: Counter[str]) -> Sum:
    rng = random.Random(rows)
    total = Sum(0, 0, 0)
    for number in range(FILES):
        with (folder / f"{number}.json").open("wb") as file:

            def lines(file: object = file) -> Iterator[bytes]:
                for line in lines_of(rows // FILES, rng, kinds):
                    file.write(line + b"\n")  # type: ignore[attr-defined]
                    yield line

            total += sum_of(lines())
    return total


def stored(url: str, topic: str) -> Sum:
    def values() -> Iterator[bytes]:
        with Client(url) as client:
            for partition in range(client.topic(topic).partitions):
                with client.reader(topic, partition=partition, live=False) as reader:
                    yield from (record.value or b"" for record in reader)

    return sum_of(values())


def run(rows: int, folder: Path) -> bool:
    from oncelog.pipelines import ingest, session

    source = folder / "in"
    source.mkdir()
    kinds: Counter[str] = Counter()
    began_s = time.monotonic()
    wanted = written(source, rows, kinds)
    print(f"{wanted.lines:,} lines, {wanted.size:,} bytes, {time.monotonic() - began_s:.0f} s to write", flush=True)
    with served(folder / "data") as server:
        spark = session("local[*]", log_level="OFF")
        done = ingest(
            spark,
            url=server.url,
            topic="good",
            source=str(source),
            format="json",
            schema="id bigint, name string, amount double",
            bad="dead-letter:bad",
            partitions=2,
        )
        spark.stop()
        print(f"ingested in {done.duration_s:.0f} s: {done.records:,} records, bad {done.bad}", flush=True)
        good, bad = stored(server.url, "good"), stored(server.url, "bad")
    print(f"topic {good.lines:,} lines, {good.size:,} bytes; dead letter {bad.lines:,} lines, {bad.size:,} bytes")
    equal = good + bad == wanted and done.bad == dict(kinds) and bad.lines == kinds.total() == done.dead_letters
    print("every byte is there" if equal else f"NOT equal: wanted {wanted} and {dict(kinds)}, found {good} and {bad}")
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncelog-bytes-") as folder:
        return 0 if run(options.rows, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
