"""Runs of message ids: what a look-up, a write and a merge cost, and how many bytes an id takes.

`python -m bench.id_runs [--ids N ...]` fills a temporary directory through the merge policy, one checkpoint after
another, and looks ids up. Times are CPU-µs of this process, look-ups the best of several rounds: wall time says little
on a shared machine.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from oncelog.storage.index.id_merge import merge, plan_merge, remove_unnamed, write_run
from oncelog.storage.index.id_run_file import HASH_BYTES, VALUE, RunInfo
from oncelog.storage.index.id_runs import IdRuns

ROUNDS = 5
LOOKUPS = 64 * 1_000


class Store:
    """A directory filled as the index builder does it, with the time that took."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.live: list[RunInfo] = []
        self.sample: list[bytes] = []
        self.written = self.merged = 0
        self.write_s = self.merge_s = 0.0
        self._number = 0
        self._generator = np.random.default_rng(seed)

    def fill(self, ids: int, checkpoint_ids: int) -> None:
        for first in range(0, ids, checkpoint_ids):
            rows = fresh_rows(self._generator, min(checkpoint_ids, ids - first))
            self.sample += list(rows)[:: max(1, ids // LOOKUPS)]
            self._number += 1
            start = time.process_time()
            self.live.append(write_run(self.directory, self._number, rows, self.live))
            self.write_s += time.process_time() - start
            self.written += len(rows)
            self._merge()

    def _merge(self) -> None:
        while planned := plan_merge(self.live):
            chosen = [info for info in self.live if info.number in planned]
            at = self.live.index(chosen[0])
            self._number += 1
            start = time.process_time()
            self.live[at : at + len(chosen)] = [merge(self.directory, chosen, self._number, None, self.live)]
            self.merge_s += time.process_time() - start
            self.merged += sum(info.count for info in chosen)
        remove_unnamed(self.directory, self.live)


def fresh_rows(generator: np.random.Generator, count: int) -> dict[bytes, bytes]:
    data = generator.bytes(HASH_BYTES * count)
    value = VALUE.pack(bytes(16), 1, 2, 3)
    return dict.fromkeys((data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)), value)


def best_us(work: Callable[[], object], count: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def measure_lookups(runs: IdRuns, known: list[bytes]) -> dict[str, float]:
    fresh = list(fresh_rows(np.random.default_rng(), LOOKUPS))

    def single(keys: list[bytes]) -> None:
        get = runs.get
        for key in keys:
            get(key)

    def blocks(keys: list[bytes], size: int) -> None:
        for first in range(0, len(keys), size):
            runs.get_many(keys[first : first + size])

    return {
        "fresh, single": best_us(lambda: single(fresh), len(fresh)),
        "fresh, blocks of 64": best_us(lambda: blocks(fresh, 64), len(fresh)),
        "fresh, blocks of 1,024": best_us(lambda: blocks(fresh, 1024), len(fresh)),
        "known, single": best_us(lambda: single(known[:20_000]), len(known[:20_000])),
    }


def measure(ids: int, checkpoint_ids: int) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name:
        store = Store(Path(name), seed=1)
        store.fill(ids, checkpoint_ids)
        runs = IdRuns(store.directory)
        start = time.process_time()
        runs.refresh(store.live)
        refresh_ms = (time.process_time() - start) * 1e3
        assert len(runs.get_many(store.sample[:1024])) == len(store.sample[:1024]), "every id written is found"
        sizes = ", ".join(f"{info.count / 1e6:.2f}" for info in store.live)
        print(f"{ids:,} ids in checkpoints of {checkpoint_ids:,}: {len(store.live)} runs (millions: {sizes})")
        for what, cost_us in measure_lookups(runs, store.sample).items():
            print(f"  {what:<24} {cost_us:6.2f} µs per id")
        print(f"  {'write':<24} {store.write_s / store.written * 1e6:6.2f} µs per id")
        if store.merged:
            print(f"  {'merge':<24} {store.merge_s / store.merged * 1e6:6.2f} µs per id and merge")
        print(f"  {'rewritten':<24} {store.merged / store.written:6.2f} times")
        on_disk = sum(info.bytes_total for info in store.live)
        print(f"  {'on disk':<24} {on_disk / ids:6.1f} bytes per id")
        print(f"  {'open everything':<24} {refresh_ms:6.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--checkpoint-ids", type=int, default=250_000)
    arguments = parser.parse_args()
    for ids in arguments.ids:
        measure(ids, arguments.checkpoint_ids)


if __name__ == "__main__":
    main()
