"""CPU time of the record-batch codec, pure Python beside compiled: `python -m bench.codec`.

The rows are those of the prototypes from which the design's numbers come: one record of 1 KB, and 64 of 128 bytes.
Best of several rounds, process time, so that a busy machine disturbs little.
"""

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from crc32c import crc32c

from oncelog.core import batch, batch_arrow

ROUNDS = 20
ROUND_SECONDS = 0.02
TIMESTAMP_MS = 1_700_000_000_000


def load_pure(name: str) -> ModuleType:
    """A codec module run from its source, even if a compiled one stands beside it."""
    source = Path(batch.__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"pure_{name}", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pure_modules() -> tuple[ModuleType, ModuleType]:
    """Both modules from source; the second must find the first, not the compiled one, under its usual name."""
    pure_batch = load_pure("batch")
    usual = sys.modules["oncelog.core.batch"]
    sys.modules["oncelog.core.batch"] = pure_batch
    try:
        return pure_batch, load_pure("batch_arrow")
    finally:
        sys.modules["oncelog.core.batch"] = usual


def cpu_us(work: Callable[[], object]) -> float:
    """Process microseconds per call, the best round."""
    calls = 1
    while True:
        started = time.process_time()
        for _ in range(calls):
            work()
        if time.process_time() - started > ROUND_SECONDS:
            break
        calls *= 2
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time() - started) / calls)
    return best * 1e6


def rows(codec: ModuleType, arrow: ModuleType) -> list[tuple[str, int, Callable[[], object]]]:
    """(what, records per call, the call)."""
    large = bytes(range(256)) * 4
    equal = [bytes([row]) * 128 for row in range(64)]
    mixed = [bytes([row]) * (96 + row) for row in range(64)]
    keyed = [
        (row, TIMESTAMP_MS, b"orders.eu.new", value, (("id", b"0123456789abcdef"),)) for row, value in enumerate(equal)
    ]
    plain = [(row, TIMESTAMP_MS, None, value, ()) for row, value in enumerate(equal)]
    one = codec.encode_one(large, TIMESTAMP_MS)
    many = codec.encode_values(equal, TIMESTAMP_MS)
    many_keyed = codec.encode(keyed)

    def to_arrow(encoded: bytes, headers: bool) -> object:
        columns = arrow.ArrowColumns(timestamp_unit="us", headers=headers)
        for base_offset in range(0, 16 * 64, 64):
            columns.add(encoded, base_offset)
        return columns.finish()

    return [
        # The same in both columns; 0.13 on the quiet machine of the prototypes. It says how busy this one is.
        ("crc32c of 1 KB, for comparison", 1, lambda: crc32c(large)),
        ("encode_one, 1 KB", 1, lambda: codec.encode_one(large, TIMESTAMP_MS)),
        ("encode, 1 KB", 1, lambda: codec.encode([(0, TIMESTAMP_MS, None, large, ())])),
        ("encode_values, 64 x 128 B", 64, lambda: codec.encode_values(equal, TIMESTAMP_MS)),
        ("encode_values, 64 of mixed length", 64, lambda: codec.encode_values(mixed, TIMESTAMP_MS)),
        ("encode, 64 x 128 B", 64, lambda: codec.encode(plain)),
        ("encode, 64 x 128 B, key and header", 64, lambda: codec.encode(keyed)),
        ("read_header", 1, lambda: codec.read_header(one)),
        ("stamp", 1, lambda: codec.stamp(many, 12345)),
        ("check_crc, 1 KB", 1, lambda: codec.check_crc(one)),
        ("skim, 1 KB", 1, lambda: codec.skim(one)),
        ("skim, 64 x 128 B", 64, lambda: codec.skim(many)),
        ("skim, 64 x 128 B, key and header", 64, lambda: codec.skim(many_keyed)),
        ("decode, 1 KB", 1, lambda: codec.decode(one)),
        ("decode_values, 1 KB", 1, lambda: codec.decode_values(one)),
        ("decode, 64 x 128 B", 64, lambda: codec.decode(many)),
        ("decode, 64 x 128 B, key and header", 64, lambda: codec.decode(many_keyed)),
        ("decode_values, 64 x 128 B", 64, lambda: codec.decode_values(many)),
        ("without, every second of 64", 64, lambda: codec.without(many, [(row, row + 1) for row in range(0, 64, 2)])),
        ("to Arrow, 16 batches of 64 x 128 B", 16 * 64, lambda: to_arrow(many, False)),
        ("to Arrow, the same with key and header", 16 * 64, lambda: to_arrow(many_keyed, True)),
    ]


def main() -> None:
    measured = [[(what, cpu_us(work) / records) for what, records, work in rows(*pure_modules())]]
    if not str(batch.__file__).endswith(".py"):
        measured.append([(what, cpu_us(work) / records) for what, records, work in rows(batch, batch_arrow)])
    print(f"{'CPU us per record':42}{'pure':>10}" + (f"{'compiled':>10}" if len(measured) == 2 else ""))
    for columns in zip(*measured, strict=True):
        print(f"{columns[0][0]:42}" + "".join(f"{us:10.3f}" for _, us in columns))


if __name__ == "__main__":
    main()
