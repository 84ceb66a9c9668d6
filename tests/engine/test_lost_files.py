"""Files that are lost: what is left is served, what is lost is named, and a reader gets over it in one step."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from oncelog.core import batch as codec
from oncelog.core.outcome import Damaged, Refusal
from oncelog.engine.engine import Engine
from oncelog.engine.reads import ReadResult
from oncelog.errors import Corruption
from oncelog.limits import MIB
from oncelog.storage.index.child import index_directory, journal_directory
from oncelog.storage.index.lmdb_index import open_environment
from tests.engine.opening import append, make_topic, opened

RECORDS = 100


async def fill(directory: Path) -> None:
    async with opened(directory) as engine:
        await make_topic(engine, "a")
        for number in range(RECORDS):
            await append(engine, "a", b"%03d" % number * 3_000)


async def read_over(engine: Engine, offset: int = 0) -> tuple[list[int], list[Damaged]]:
    """The offsets that can be read, and what a reader is told on its way."""
    offsets: list[int] = []
    damages: list[Damaged] = []
    while offset < RECORDS:
        future: asyncio.Future[ReadResult | Refusal] = asyncio.get_running_loop().create_future()
        engine.read("a", 0, offset, 50_000, future.set_result)
        result = await future
        if isinstance(result, Damaged):
            damages.append(result)
            assert result.next > offset
            offset = result.next
            continue
        assert isinstance(result, ReadResult), result
        for base_offset, batch in result.batches:
            values = codec.decode_values(batch)
            assert values == [b"%03d" % base_offset * 3_000]
            offsets.append(base_offset)
        offset = result.next_offset
    return offsets, damages


def segments(directory: Path) -> list[Path]:
    found = sorted(journal_directory(directory).glob("segment-*"))
    assert len(found) >= 4
    return found


def lose_second(directory: Path) -> None:
    segments(directory)[1].unlink()


def lose_first(directory: Path) -> None:
    segments(directory)[0].unlink()


def cut_second(directory: Path) -> None:
    os.truncate(segments(directory)[1], 100_000)


@pytest.mark.parametrize(
    ("lose", "what", "missing"),
    [
        (lose_second, "segment missing", 1),
        (lose_first, "lies before the first segment", 0),
        (cut_second, "the file is shorter than a segment", 0),
    ],
)
def test_the_rest_is_served_and_the_loss_is_passed_in_one_step(
    tmp_path: Path, lose: Callable[[Path], None], what: str, missing: int
) -> None:
    async def scenario() -> None:
        directory = tmp_path / "log"
        await fill(directory)
        lose(directory)
        async with opened(directory) as engine:
            assert len(engine.statistics().missing_segments) == missing
            offsets, (damage,) = await read_over(engine)
            lost = sorted(set(range(RECORDS)) - set(offsets))
            assert 20 < len(lost) < 40
            assert lost == list(range(lost[0], lost[-1] + 1))
            assert damage.next == lost[-1] + 1
            assert what in damage.what
            assert "put the file back" in damage.what, "it says what to do"
            assert (await append(engine, "a", b"still written")).first == RECORDS

    asyncio.run(scenario())


def test_a_segment_that_nobody_has_seen_yet_is_not_done_without(tmp_path: Path) -> None:
    """The index is gone too, so that the whole journal has to be read: it cannot be."""
    directory = tmp_path / "log"
    asyncio.run(fill(directory))
    lose_second(directory)
    for file in index_directory(directory).iterdir():
        file.unlink()
    with pytest.raises(Corruption, match="segment missing") as raised:
        asyncio.run(fill(directory))
    assert raised.value.hint


def filled_environment(directory: Path) -> Path:
    directory.mkdir()
    environment = open_environment(directory, write=True)
    with environment.begin(write=True) as writing:
        for number in range(2_000):
            writing.put(b"%06d" % number, b"x" * 2_000)
    environment.close()
    return directory / "data.mdb"


@pytest.mark.parametrize("length", [100, 4_096, 5_000, 8_192, 2 * MIB])
def test_an_index_that_is_cut_short_is_refused_before_it_is_mapped(tmp_path: Path, length: int) -> None:
    """LMDB maps its file without a look at its length. An access behind its end would be SIGBUS."""
    data = filled_environment(tmp_path / "index")
    assert data.stat().st_size > 4 * MIB
    os.truncate(data, length)
    with pytest.raises(Corruption, match="cut short") as raised:
        open_environment(tmp_path / "index", write=False)
    assert "remove the index directory" in raised.value.hint


def test_an_index_that_lacks_its_last_pages_can_be_mapped_without_harm(tmp_path: Path) -> None:
    data = filled_environment(tmp_path / "index")
    whole = data.stat().st_size
    os.truncate(data, whole - 3 * 4_096)
    environment = open_environment(tmp_path / "index", write=False)
    assert data.stat().st_size == whole
    with environment.begin() as reading, contextlib.suppress(lmdb.Error):
        assert all(reading.get(b"%06d" % number) is not None for number in range(1_000))
    environment.close()
