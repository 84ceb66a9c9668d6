"""Filters: never a false negative, few false positives, every damaged byte found."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import Corruption
from oncelog.storage.index import id_filter
from oncelog.storage.index.id_filter import Filter, FilterWriter, Words


def sorted_halves(generator: np.random.Generator, count: int) -> tuple[Words, Words]:
    high = np.sort(generator.integers(0, 2**64, count, dtype=np.uint64))
    return high, generator.integers(0, 2**64, count, dtype=np.uint64)


def write(path: Path, parts: list[tuple[Words, Words]], capacity: int, base: Path | None = None) -> Path:
    writer = FilterWriter(path, 1, capacity, base)
    for high, low in parts:
        writer.add(high, low)
    assert writer.finish(1, 1) == path.stat().st_size
    return path


def test_masks_are_those_of_the_format() -> None:
    # The first, from an independent reading of docs/format/id-runs.md; the table must never change.
    x = 0x9E3779B97F4A7C15
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    x ^= x >> 31
    bits: list[int] = []
    for field in range(10):
        bit = x >> 6 * field & 63
        if len(bits) < 5 and bit not in bits:
            bits.append(bit)
    assert id_filter.MASKS[0] == sum(1 << bit for bit in bits)
    assert {mask.bit_count() for mask in id_filter.MASKS} == {5}
    assert id_filter.MASK_ARRAY.tolist() == id_filter.MASKS


def test_filter_of_two_bytes_per_id_knows_every_id_and_few_others(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    high, low = sorted_halves(generator, 200_000)
    # In uneven slices, since a word may be shared by the end of one and the start of the next.
    cuts = [0, 1, 2, 500, 77_777, 77_777, 200_000]
    parts = [(high[a:b], low[a:b]) for a, b in pairwise(cuts)]
    opened = Filter(write(tmp_path / "f", parts, 200_000))
    assert (tmp_path / "f").stat().st_size == id_filter.HEADER_BYTES + 2 * 200_000
    assert opened.may_hold(high, low).all()
    assert 0.001 < opened.may_hold(*sorted_halves(generator, 400_000)).mean() < 0.02


def test_extended_filter_knows_the_ids_of_both(tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    first, second = sorted_halves(generator, 5_000), sorted_halves(generator, 3_000)
    base = write(tmp_path / "base", [first], 10_000)
    opened = Filter(write(tmp_path / "f", [second], 0, base))
    assert opened.may_hold(*first).all()
    assert opened.may_hold(*second).all()
    assert opened.header.id_count == 8_000
    assert opened.word_count == 2_500
    assert not Filter(base).may_hold(*second).all()


@given(st.sets(st.binary(min_size=16, max_size=16), max_size=40), st.integers(0, 100), st.integers(1, 41))
def test_any_hashes_are_found_by_the_scalar_test(
    tmp_path_factory: pytest.TempPathFactory, keys: set[bytes], capacity: int, step: int
) -> None:
    path = tmp_path_factory.mktemp("filter") / "f"
    ordered = sorted(keys)
    halves = np.frombuffer(b"".join(ordered), ">u8").reshape(-1, 2).astype(np.uint64)
    write(path, [(part[:, 0], part[:, 1]) for part in np.split(halves, range(step, len(halves), step))], capacity)
    opened = Filter(path)
    for key in ordered:
        prefix, pattern = id_filter.split_hash(key)
        mask = id_filter.MASKS[pattern & id_filter.PATTERN_MASK]
        assert opened.words[prefix * opened.word_count >> 32] & mask == mask


def test_every_flipped_or_missing_byte_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "f", [sorted_halves(np.random.default_rng(9), 20)], 20)
    whole = path.read_bytes()
    Filter(path)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(Corruption, match=str(path)):
            Filter(path)
        path.write_bytes(whole[:at])
        with pytest.raises(Corruption, match=str(path)):
            Filter(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(Corruption, match=str(path)):
        Filter(path)


def test_damaged_base_is_not_carried_on(tmp_path: Path) -> None:
    halves = sorted_halves(np.random.default_rng(10), 100)
    base = write(tmp_path / "base", [halves], 100)
    data = bytearray(base.read_bytes())
    data[-1] ^= 0x80
    base.write_bytes(data)
    writer = FilterWriter(tmp_path / "f", 2, 100, base)
    writer.add(*halves)
    with pytest.raises(Corruption, match=str(base)):
        writer.finish(1, 2)
    writer.abandon()
    assert list(tmp_path.iterdir()) == [base]


def test_filter_stays_usable_when_its_file_is_removed(tmp_path: Path) -> None:
    high, low = sorted_halves(np.random.default_rng(11), 1_000)
    opened = Filter(write(tmp_path / "f", [(high, low)], 1_000))
    (tmp_path / "f").unlink()
    assert opened.may_hold(high, low).all()
