"""Runs of message ids: equal to a dict, through merges, crashes, removals under a reader, and damage."""

import errno
import os
import re
import threading
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core import message_id
from oncelog.errors import Corruption, DiskFault, DiskFull
from oncelog.limits import ID_RUN_IDS_MAX, ID_RUNS_MAX
from oncelog.storage.index import id_merge
from oncelog.storage.index.id_merge import merge, plan_merge, remove_unnamed, write_run
from oncelog.storage.index.id_run_file import (
    BLOCK_ROWS,
    PAGE_BYTES,
    ROW,
    VALUE,
    RunFile,
    RunInfo,
    RunMissing,
    check_run,
    file_of,
)
from oncelog.storage.index.id_runs import IdRuns


def value(number: int) -> bytes:
    return VALUE.pack(number.to_bytes(16, "big"), number, number + 1, number + 2)


def random_rows(seed: int, count: int) -> dict[bytes, bytes]:
    data = np.random.default_rng(seed).bytes(16 * count)
    return {data[16 * n : 16 * n + 16]: value(seed * 1_000_000 + n) for n in range(count)}


def info_of(number: int, count: int, ages: tuple[int, int] | None = None) -> RunInfo:
    oldest, newest = ages or (number, number)
    return RunInfo(number, oldest, newest, count, 0, oldest, 0, 0)


def opened(directory: Path, infos: list[RunInfo]) -> IdRuns:
    runs = IdRuns(directory)
    runs.refresh(infos)
    return runs


def assert_equals(runs: IdRuns, model: dict[bytes, bytes], strangers: list[bytes]) -> None:
    assert dict(runs.rows()) == model
    assert [key for key, _ in runs.rows()] == sorted(model)
    assert sum(len(rows) for rows in runs.iter_arrays()) == len(model)
    asked = [*model, *strangers]
    expected = {key: model[key] for key in asked if key in model}
    assert runs.get_many(asked) == expected
    assert {key: found for key in asked if (found := runs.get(key)) is not None} == expected


# --- the model ---------------------------------------------------------------------------------------------------

# Few distinct first halves and repeated patterns: equal prefixes over several blocks, hashes that spell others.
crowded_key = st.builds(
    lambda high, low: high + low,
    st.sampled_from([bytes(8), b"\0" * 7 + b"\1", b"\xff" * 8, b"ab" * 4]),
    st.sampled_from([bytes(8), b"\xff" * 8, b"ab" * 4]) | st.integers(0, 300).map(lambda n: n.to_bytes(8, "big")),
)
any_key = crowded_key | st.binary(min_size=16, max_size=16)
checkpoint = st.dictionaries(any_key, st.integers(0, 2**63).map(value), max_size=200)
step = st.tuples(st.just("write"), checkpoint) | st.tuples(st.just("merge"), st.tuples(st.integers(0), st.integers(0)))


@settings(max_examples=60)
@given(steps=st.lists(step, max_size=8), strangers=st.lists(any_key, max_size=40), span=st.booleans())
def test_runs_equal_a_dict(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, dict[bytes, bytes] | tuple[int, int]]],
    strangers: list[bytes],
    span: bool,
) -> None:
    directory = tmp_path_factory.mktemp("runs")
    model: dict[bytes, bytes] = {}
    live: list[RunInfo] = []
    reader = IdRuns(directory)
    for number, (_, what) in enumerate(steps, start=1):
        if isinstance(what, dict):
            live.append(write_run(directory, number, what, live if span else ()))
            model.update(what)
        elif live:
            first, last = sorted(choice % len(live) for choice in what)
            live[first : last + 1] = [merge(directory, live[first : last + 1], number, None, live if span else ())]
        reader.refresh(live)
        remove_unnamed(directory, live)
        assert_equals(reader, model, strangers)
    for info in live:
        assert check_run(file_of(directory, info.number, "run")) == info.count


def test_many_rows_through_the_policy_equal_a_dict_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_merge, "SLICE_ROWS", 1_000)
    model: dict[bytes, bytes] = {}
    live: list[RunInfo] = []
    reader = IdRuns(tmp_path)
    number = merges = spans = 0
    for checkpoint_number in range(70):
        rows = random_rows(checkpoint_number, 150 + checkpoint_number)
        # Some are written again with a later time.
        rows.update({key: value(checkpoint_number) for key in list(model)[::50]})
        number += 1
        live.append(write_run(tmp_path, number, rows, live))
        model.update(rows)
        while planned := plan_merge(live):
            number += 1
            chosen = [info for info in live if info.number in planned]
            at = live.index(chosen[0])
            live[at : at + len(chosen)] = [merge(tmp_path, chosen, number, None, live)]
            merges += 1
        remove_unnamed(tmp_path, live)
        spans += any(info.span_oldest < info.oldest for info in live)
    reader.refresh(live)
    assert_equals(reader, model, list(random_rows(999, 500)))
    assert merges >= 8
    assert spans >= 40
    assert len(live) <= ID_RUNS_MAX


def test_newer_run_wins_although_a_merge_gave_the_older_a_greater_number(tmp_path: Path) -> None:
    key = b"k" * 16
    first, second, third = (write_run(tmp_path, number, {key: value(number)}) for number in (1, 2, 3))
    merged = merge(tmp_path, [first, second], 4)
    assert (merged.oldest, merged.newest, merged.count) == (1, 2, 1)
    assert opened(tmp_path, [merged]).get(key) == value(2)
    assert opened(tmp_path, [merged, third]).get(key) == value(3)
    assert opened(tmp_path, [third, merged]).get_many([key] * 64) == {key: value(3)}


def test_hash_that_two_neighbours_spell_is_not_taken_for_a_row(tmp_path: Path) -> None:
    keys = [b"a" * 8 + b"b" * 8, b"c" * 16]
    across = keys[0][8:] + keys[1][:8]
    info = write_run(tmp_path, 1, {key: value(1) for key in keys})
    assert RunFile(tmp_path, info).find(across) is None
    info = write_run(tmp_path, 2, {key: value(2) for key in (*keys, across)})
    assert RunFile(tmp_path, info).find(across) == value(2)


def test_padding_of_the_last_block_is_no_row(tmp_path: Path) -> None:
    info = write_run(tmp_path, 1, {bytes(15) + b"\1": value(1)})
    # Below the first fence's hash, yet with its first half: the look-up reaches the block.
    assert RunFile(tmp_path, info).find(bytes(16)) is None


def test_keep_drops_rows_after_the_newest_won(tmp_path: Path) -> None:
    old, new = b"o" * 16, b"n" * 16
    infos = [
        write_run(tmp_path, 1, {old: value(10), new: value(10)}),
        write_run(tmp_path, 2, {new: value(20)}),
    ]

    def later_than_15(rows: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        return np.asarray(rows["time_and_count"] > 15)

    merged = merge(tmp_path, infos, 3, later_than_15)
    assert dict(opened(tmp_path, [merged]).rows()) == {new: value(20)}
    nothing = merge(tmp_path, [merged], 4, lambda rows: np.zeros(len(rows), np.bool_))
    assert nothing.count == 0
    assert check_run(file_of(tmp_path, 4, "run")) == 0
    assert_equals(opened(tmp_path, [nothing]), {}, [old, new])


def test_row_has_the_fields_that_core_packs_and_the_page_names(tmp_path: Path) -> None:
    stored = message_id.pack(b"d" * 16, 7, 9, 1_700_000_000_123_000_000, 1_000)
    info = write_run(tmp_path, 1, {b"h" * 16: stored})
    (row,) = (row for rows in opened(tmp_path, [info]).iter_arrays() for row in rows)
    page = (Path(__file__).parents[2] / "docs" / "format" / "id-runs.md").read_text()
    fields = re.findall(r"^\| (\d+) \| (hash|digest|stream id|offset|time and count)\b(.*) \|$", page, re.MULTILINE)
    assert [int(size) for size, _, _ in fields] == [16, *(ROW[name].itemsize for name in (ROW.names or ())[2:])]
    low, high = map(int, re.findall(r"in the (?:low|high) (\d+) bits", fields[-1][2]))
    word = int(row["time_and_count"])
    assert (int(row["stream"]), int(row["offset"]), low + high) == (7, 9, 64)
    assert (word % (1 << low), word >> low) == (1_700_000_000_123, 1_000)


def test_span_covers_a_run_merged_within_it_but_no_run_partly_outside(tmp_path: Path) -> None:
    rows = [random_rows(number, 40) for number in range(7)]
    live: list[RunInfo] = []
    for number in range(1, 7):
        live.append(write_run(tmp_path, number, rows[number], live))
    assert live[-1].span_oldest == 1
    within = [live[0], merge(tmp_path, live[1:4], 7, None, live), *live[4:]]
    runs = opened(tmp_path, within)
    assert len(runs._spans) == 1
    assert_equals(runs, {key: found for part in rows[1:] for key, found in part.items()}, list(rows[0]))
    # A list that starts later: ages 1..3 lie outside of a span that starts at 4.
    later = write_run(tmp_path, 8, rows[0], [])
    assert later.span_oldest == 8
    assert len(opened(tmp_path, [*within, later])._spans) == 2


def test_run_info_survives_storing(tmp_path: Path) -> None:
    info = write_run(tmp_path, 1, random_rows(1, 5))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(info), type=RunInfo) == info
    assert info.bytes_total == sum(path.stat().st_size for path in tmp_path.iterdir())


# --- policy ------------------------------------------------------------------------------------------------------


def test_policy_takes_eight_neighbours_of_similar_size() -> None:
    runs = [info_of(number, 1_000) for number in range(1, 8)]
    assert plan_merge(runs) is None
    assert plan_merge([*runs, info_of(8, 900)]) == list(range(1, 9))
    large = info_of(9, 100_000, (0, 0))
    assert plan_merge([*runs, large]) is None
    assert plan_merge([*runs, info_of(8, 900), large]) == list(range(1, 9))


def test_policy_never_makes_more_than_a_generation() -> None:
    runs = [info_of(number, ID_RUN_IDS_MAX // 8 + 1) for number in range(1, 12)]
    assert plan_merge(runs) is None
    assert plan_merge([info_of(number, ID_RUN_IDS_MAX // 8) for number in range(1, 9)]) == list(range(1, 9))


@pytest.mark.parametrize("sizes", [(60_000,), (250_000,), (1_000_000,), (60_000, 1_000_000, 100), (1, 900_000)])
def test_policy_keeps_runs_and_rewrites_few_up_to_100_million(sizes: tuple[int, ...]) -> None:
    live: list[RunInfo] = []
    total = rewritten = number = 0
    while total < 100_000_000:
        number += 1
        count = sizes[number % len(sizes)]
        live.append(info_of(number, count))
        total += count
        while planned := plan_merge(live):
            chosen = [info for info in live if info.number in planned]
            number += 1
            at = live.index(chosen[0])
            merged = info_of(number, sum(info.count for info in chosen), (chosen[0].oldest, chosen[-1].newest))
            live[at : at + len(chosen)] = [merged]
            rewritten += merged.count
        assert len(live) <= ID_RUNS_MAX
    assert rewritten <= 4 * total


# --- crashes and faults --------------------------------------------------------------------------------------------


def test_leftovers_of_a_crash_are_removed_and_nothing_else(tmp_path: Path) -> None:
    named = write_run(tmp_path, 1, random_rows(1, 5))
    write_run(tmp_path, 2, random_rows(2, 5))
    file_of(tmp_path, 3, "run").write_bytes(b"torn")
    for foreign in ("data.mdb", "ids-000000000004.run.bak"):
        (tmp_path / foreign).write_bytes(b"")
    removed = remove_unnamed(tmp_path, [named])
    assert removed == [f"ids-00000000000{n}.{kind}" for n, kind in ((2, "filter"), (2, "run"), (2, "span"), (3, "run"))]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"data.mdb", "ids-000000000004.run.bak"} | {
        f"ids-000000000001.{k}" for k in ("run", "filter", "span")
    }
    assert remove_unnamed(tmp_path, [named]) == []


def test_existing_run_is_never_written_over(tmp_path: Path) -> None:
    rows = random_rows(1, 5)
    info = write_run(tmp_path, 1, rows)
    with pytest.raises(DiskFault, match="exists"):
        write_run(tmp_path, 1, random_rows(2, 5))
    assert dict(opened(tmp_path, [info]).rows()) == rows


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, DiskFull), (errno.EIO, DiskFault)])
def test_every_failing_call_leaves_no_file_and_names_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    live = [write_run(tmp_path, 1, random_rows(1, 200))]
    before = sorted(tmp_path.iterdir())
    calls = 0
    fail_at = 0

    def failing(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise OSError(code, os.strerror(code))
            return real(*arguments)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "pwrite", "fdatasync", "fsync"):
        failing(name)
    for number in range(2, 100):
        calls, fail_at = 0, number - 1
        try:
            write_run(tmp_path, number, random_rows(2, 200), live)
        except error:
            assert sorted(tmp_path.iterdir()) == before
        else:
            break
    assert calls == fail_at - 1
    assert fail_at > 10


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, memoryview(data)[:1000]))
    rows = random_rows(1, 500)
    assert dict(opened(tmp_path, [write_run(tmp_path, 1, rows)]).rows()) == rows


def test_everything_is_synced_before_a_run_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file written is synced after its last write, and the directory after the last file was made."""
    unsynced: set[str] = set()
    real_write, real_pwrite, real_fdatasync, real_fsync = os.write, os.pwrite, os.fdatasync, os.fsync

    def name_of(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    def write(fd: int, data: memoryview) -> int:
        unsynced.update((name_of(fd), str(tmp_path)))
        return real_write(fd, data)

    def pwrite(fd: int, data: bytes, position: int) -> int:
        unsynced.update((name_of(fd), str(tmp_path)))
        return real_pwrite(fd, data, position)

    def fdatasync(fd: int) -> None:
        real_fdatasync(fd)
        unsynced.discard(name_of(fd))

    def fsync(fd: int) -> None:
        real_fsync(fd)
        unsynced.discard(name_of(fd))

    for call in (write, pwrite, fdatasync, fsync):
        monkeypatch.setattr(os, call.__name__, call)
    infos = [write_run(tmp_path, 1, random_rows(1, 100))]
    assert not unsynced
    infos.append(write_run(tmp_path, 2, random_rows(2, 100), infos))
    assert not unsynced
    merge(tmp_path, infos, 3)
    assert not unsynced


# --- damage --------------------------------------------------------------------------------------------------------


def test_every_flipped_byte_of_a_small_run_is_found(tmp_path: Path) -> None:
    rows = random_rows(1, BLOCK_ROWS + 2)
    live = [write_run(tmp_path, 1, random_rows(2, BLOCK_ROWS + 2))]
    live.append(write_run(tmp_path, 2, rows, live))
    run = file_of(tmp_path, 2, "run")
    assert check_run(run) == len(rows)
    for kind in ("run", "filter", "span"):
        path = file_of(tmp_path, 2, kind)
        whole = path.read_bytes()
        with path.open("r+b", buffering=0) as file:
            for at in range(len(whole)):
                file.seek(at)
                file.write(bytes([whole[at] ^ 1 << at % 8]))
                with pytest.raises(Corruption, match=path.name):
                    check_run(run)
                file.seek(at)
                file.write(whole[at : at + 1])
    assert check_run(run) == len(rows)


def test_damaged_or_displaced_block_is_never_served(tmp_path: Path) -> None:
    rows = random_rows(1, 3 * BLOCK_ROWS)
    info = write_run(tmp_path, 1, rows)
    other = write_run(tmp_path, 2, rows)
    path = file_of(tmp_path, 1, "run")
    whole = path.read_bytes()
    key = sorted(rows)[BLOCK_ROWS]
    runs = opened(tmp_path, [info])
    page = PAGE_BYTES

    def with_second_block(block: bytes) -> None:
        # In place: a replaced file would leave the old one open.
        with path.open("r+b") as file:
            file.seek(2 * page)
            file.write(block)

    second = whole[2 * page : 3 * page]
    for block in (bytes(page), second[:-5] + b"\7" + second[-4:], _pages(tmp_path, other)[2]):
        with_second_block(block)
        with pytest.raises(Corruption) as damage:
            runs.get(key)
        assert (damage.value.file, damage.value.position) == (str(path), 2 * page)
        with pytest.raises(Corruption):
            dict(runs.rows())
    # Another block of the same run is whole in itself, but its number tells.
    with_second_block(whole[3 * page : 4 * page])
    with pytest.raises(Corruption):
        runs.get(key)
    with pytest.raises(Corruption):
        merge(tmp_path, [info], 3)
    assert not file_of(tmp_path, 3, "run").exists()
    os.truncate(path, 2 * page)
    with pytest.raises(Corruption):
        runs.get(key)


def _pages(directory: Path, info: RunInfo) -> list[bytes]:
    data = file_of(directory, info.number, "run").read_bytes()
    return [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]


def test_files_of_another_run_are_refused(tmp_path: Path) -> None:
    infos = [write_run(tmp_path, number, random_rows(number, 10)) for number in (1, 2)]
    for kind in ("run", "filter"):
        path = file_of(tmp_path, 1, kind)
        whole = path.read_bytes()
        path.write_bytes(file_of(tmp_path, 2, kind).read_bytes())
        with pytest.raises(Corruption, match=path.name):
            opened(tmp_path, infos)
        with pytest.raises(Corruption, match=path.name):
            check_run(file_of(tmp_path, 1, "run"))
        path.write_bytes(whole)
    wrong = RunInfo(1, 1, 1, 11, 0, 1, 0, 0)
    with pytest.raises(Corruption, match="named"):
        opened(tmp_path, [wrong])


# --- a reader beside the writer --------------------------------------------------------------------------------------


def test_reader_keeps_runs_that_were_removed_until_it_refreshes(tmp_path: Path) -> None:
    rows = [random_rows(number, 300) for number in (1, 2)]
    live = [write_run(tmp_path, number, rows[number - 1]) for number in (1, 2)]
    model = {**rows[0], **rows[1]}
    runs = opened(tmp_path, live)
    iterator = runs.rows()
    first = next(iterator)
    merged = merge(tmp_path, live, 3)
    remove_unnamed(tmp_path, [merged])
    assert_equals(runs, model, [])
    # The list was read before the merge, the files opened after the removal.
    with pytest.raises(RunMissing):
        IdRuns(tmp_path).refresh(live)
    with pytest.raises(RunMissing):
        runs.refresh([*live, info_of(9, 1)])
    assert_equals(runs, model, [])
    runs.refresh([merged])
    assert_equals(runs, model, [])
    # An iteration begun earlier ends over the runs it began with.
    assert dict([first, *iterator]) == model


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    live = [write_run(tmp_path, number, random_rows(number, 100)) for number in (1, 2, 3)]
    runs = IdRuns(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    runs.refresh(live)
    assert len(os.listdir("/proc/self/fd")) > before
    runs.refresh([])
    assert len(os.listdir("/proc/self/fd")) == before
    assert runs.get(b"k" * 16) is None
    assert runs.get_many([b"k" * 16] * 64) == {}


def test_lookups_beside_refresh_and_removal_never_miss(tmp_path: Path) -> None:
    base = random_rows(1, 2_000)
    live = [write_run(tmp_path, 1, base)]
    runs = opened(tmp_path, live)
    stop = threading.Event()
    wrong: list[bytes] = []
    rounds = 0

    def look_up() -> None:
        nonlocal rounds
        keys = list(base)
        while not stop.is_set() or rounds == 0:
            for key in keys[:200]:
                if runs.get(key) != base[key]:
                    wrong.append(key)
            wrong.extend(base.keys() - runs.get_many(keys).keys())
            rounds += 1

    thread = threading.Thread(target=look_up)
    thread.start()
    try:
        number = 1
        for _ in range(15):
            live = [*live, write_run(tmp_path, number + 1, random_rows(number, 100), live)]
            runs.refresh(live)
            live = [merge(tmp_path, live, number + 2)]
            runs.refresh(live)
            remove_unnamed(tmp_path, live)
            number += 2
    finally:
        stop.set()
        thread.join()
    assert not wrong
    assert rounds


def test_merge_needs_a_slice_of_memory_not_the_runs(tmp_path: Path) -> None:
    count = 100_000
    live = [write_run(tmp_path, number, random_rows(number, count)) for number in range(1, 9)]
    tracemalloc.start()
    try:
        merged = merge(tmp_path, live, 9)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert merged.count == 8 * count
    # The runs hold 45 MB. What is needed depends on the slice (7 MB of rows) and on the fences, 0.11 bytes per id.
    assert peak_bytes < 60 << 20
