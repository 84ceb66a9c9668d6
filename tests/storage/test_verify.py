"""`verify`: a sound log is sound; every changed byte is found or changes nothing; every broken promise is named.

`ONCELOG_EXHAUSTIVE=1` flips every byte with several masks instead of a sample.
"""

import contextlib
import errno
import faulthandler
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import msgspec
import pytest
from typer.testing import CliRunner

from oncelog.cli import exits
from oncelog.cli.main import app
from oncelog.core import batch as codec
from oncelog.core.command import CreateTopic, DeleteRecords
from oncelog.core.entry import Appended, Claimed, Compound, Entry, HolesAdded, Moved, Operation, StagePublished
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest, id_hash
from oncelog.core.producer import SequenceMode
from oncelog.core.rows import Cause
from oncelog.errors import DirectoryInUse, StorageError
from oncelog.storage import verify as verify_module
from oncelog.storage.disk import MemoryDisk, PosixDisk
from oncelog.storage.frame import frame_bytes
from oncelog.storage.index.builder import Builder
from oncelog.storage.index.child import index_directory, journal_directory
from oncelog.storage.index.compare import WholeIndex, differences, whole_items
from oncelog.storage.index.dump import Kind, items_of
from oncelog.storage.index.interface import REBUILD_HINT, Position
from oncelog.storage.index.lmdb_index import MAP_BYTES
from oncelog.storage.index.lmdb_writer import LmdbWriter
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.verify import Report, verify, verify_journal
from tests.storage.log_writer import (
    START_NS,
    LogWriter,
    append,
    append_id,
    batch_of,
    claimed,
    write_appends,
    write_everything,
    write_topics,
)

EXHAUSTIVE = bool(os.environ.get("ONCELOG_EXHAUSTIVE"))
SEGMENT = "segment-000000000000"


def built(directory: Path, *, until: int = -1, steps: int = 5) -> None:
    """The index of a log on disk, up to the group of that number in order."""
    index_directory(directory).mkdir(exist_ok=True)
    writer = LmdbWriter(index_directory(directory), durable=False)
    reader = JournalReader(PosixDisk(journal_directory(directory), read_only=True))
    last = reader.last_group()
    assert last is not None
    groups = [group for group, _ in reader.groups(None, last)]
    groups = groups[: until if until >= 0 else None]
    builder = Builder(reader, writer.index(), writer)
    for group in [*groups[::steps], groups[-1]]:
        builder.advance(group)
    writer.close()


def stopped_log(directory: Path) -> Path:
    disk = PosixDisk(journal_directory(directory))
    log = LogWriter(disk)
    write_everything(log)
    log.stop()
    disk.close()
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    stopped_log(tmp_path)
    built(tmp_path)
    return tmp_path


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ mask]))


# --- a whole directory -----------------------------------------------------------------------------------------------


def test_sound_log_is_sound_and_counted(directory: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(directory, lambda done, total: seen.append((done, total)))
    assert report.damages == []
    assert report.notes == []
    assert (report.entries, report.topics, report.streams, report.records, report.ids) == (42, 2, 4, 19, 4)
    assert report.groups == len(seen)
    assert seen[-1][0] == report.journal_bytes <= seen[-1][1]
    assert report.index_group > 0


@pytest.mark.parametrize("until", [0, 1, 9])
def test_index_behind_the_journal_is_compared_where_it_stands(tmp_path: Path, until: int) -> None:
    stopped_log(tmp_path)
    if until:
        built(tmp_path, until=until)
    else:
        index_directory(tmp_path).mkdir()
        LmdbWriter(index_directory(tmp_path)).close()
    report = verify(tmp_path)
    assert report.damages == []
    assert report.entries == 42
    assert (report.index_group >= 0) == bool(until)


def test_log_without_index_is_sound_with_a_note(tmp_path: Path) -> None:
    report = verify(stopped_log(tmp_path))
    assert report.is_sound
    assert "no index" in report.notes[0]
    assert not index_directory(tmp_path).exists()


@pytest.mark.from_source
def test_large_log_is_rebuilt_on_disk_and_nothing_is_left(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path for path in directory.rglob("*"))
    monkeypatch.setattr(verify_module, "IN_MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr("oncelog.storage.index.builder.INDEX_COMMIT_ENTRIES", 7)
    report = verify(directory)
    assert report.damages == []
    assert report.ids == 4
    assert sorted(path for path in directory.rglob("*")) == before


def read_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """No directory can be made beside the log. Those that were made elsewhere. Modes would not do: root may write."""
    made: list[Path] = []
    make = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        if Path(path).parent == directory:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        make(path, mode)
        made.append(Path(path))

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(verify_module, "IN_MEMORY_BYTES_MAX", 0)
    return made


def test_large_log_that_may_not_be_written_is_rebuilt_elsewhere(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    made = read_only(directory, monkeypatch)
    report = verify(directory)
    assert report.damages == []
    assert report.ids == 4
    assert [path.parent for path in made] == [elsewhere]
    assert list(elsewhere.iterdir()) == []


def test_large_log_that_can_be_rebuilt_nowhere_is_refused_in_one_line(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    read_only(directory, monkeypatch)
    with pytest.raises(StorageError, match="Permission denied"):
        verify(directory)
    result = CliRunner().invoke(app, ["verify", str(directory)])
    assert result.exit_code == exits.REFUSED
    assert result.stderr.startswith(f"oncelog: cannot verify: Permission denied in {directory}/")
    assert result.stderr.count("\n") == 1


def test_log_that_may_not_be_read_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(verify_module, "_locked", refused)
    with pytest.raises(StorageError, match=f"Permission denied in {journal_directory(directory)}"):
        verify(directory)


def test_running_log_is_refused(directory: Path) -> None:
    disk = PosixDisk(journal_directory(directory))
    with pytest.raises(DirectoryInUse):
        verify(directory)
    disk.close()
    writer = LmdbWriter(index_directory(directory))
    with pytest.raises(DirectoryInUse):
        verify(directory)
    writer.close()
    assert verify(directory).is_sound


def test_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a log"):
        verify(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_torn_tail_is_a_note(directory: Path) -> None:
    disk = PosixDisk(journal_directory(directory))
    reader = JournalReader(disk)
    last = reader.last_group()
    assert last is not None
    file = disk.open(SEGMENT)
    # As a crash leaves the next group: its first sector is there, the others are not.
    frame = bytearray(file.pread(512, last * 512))
    frame[4:8] = (3000).to_bytes(4, "little")
    frame[16:24] = (last + 1).to_bytes(8, "little")
    file.pwritev([frame], (last + 1) * 512)
    disk.close()
    report = verify(directory)
    assert report.is_sound
    (note,) = report.notes
    assert note.startswith(f"a torn group follows the last whole one, in {SEGMENT} at byte {(last + 1) * 512}: a crash")


def test_journal_that_lost_its_end_is_damaged(directory: Path) -> None:
    disk = PosixDisk(journal_directory(directory))
    last = JournalReader(disk).last_group()
    assert last is not None
    disk.open(SEGMENT).pwritev([bytes(512)], last * 512)
    disk.close()
    report = verify(directory)
    assert [(damage.file, damage.position) for damage in report.damages] == [(SEGMENT, last * 512)]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda cursor: cursor.set_range(b"\x01") and cursor.delete(), "missing: table STREAM, key 2"),
        (lambda cursor: cursor.put(b"\x04" + b"ghost\0", b""), "does not match its checksum: table TXN, key 'ghost'"),
        (lambda cursor: cursor.set_range(b"\x80") and cursor.delete(), "missing: the place of offset"),
    ],
)
def test_index_that_differs_is_named_with_a_hint(
    directory: Path, change: Callable[[object], object], what: str
) -> None:
    environment = lmdb.open(os.fspath(index_directory(directory)), map_size=MAP_BYTES)
    with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
        change(cursor)
    environment.close()
    report = verify(directory)
    assert what in report.damages[0].what
    assert report.damages[0].hint == REBUILD_HINT


def test_index_that_crashes_its_reader_is_named_with_a_hint(directory: Path) -> None:
    data = index_directory(directory) / "data.mdb"
    os.truncate(data, 8192)
    report = verify(directory)
    assert not report.is_sound
    assert report.damages[0].hint == REBUILD_HINT
    assert report.entries == 42, "the journal is checked all the same"


# --- every byte ------------------------------------------------------------------------------------------------------


def content(index: WholeIndex) -> list[object]:
    return [index.refresh(), *whole_items(index)]


def test_every_changed_byte_of_the_journal_is_found_or_changes_nothing() -> None:
    disk = MemoryDisk()
    log = LogWriter(disk)
    write_everything(log) if EXHAUSTIVE else write_topics(log)
    log.stop()
    report, index = verify_journal(disk)
    assert report.is_sound
    expected = content(index)
    entries = report.entries
    stored = disk.open(SEGMENT)._content
    used = log.journal.stats.used_bytes
    proof = used - frame_bytes(0)
    for mask in (0x01, 0x80, 0xFF, 0x20) if EXHAUSTIVE else (0x40,):
        for position in range(used + 64):
            stored[position] ^= mask
            report, index = verify_journal(disk)
            stored[position] ^= mask
            if position < proof:
                assert not report.is_sound, f"byte {position} ^ {mask:#x} was not found"
                assert report.damages[0].file == SEGMENT
                assert report.damages[0].position <= position
            else:
                # Behind the proof of the last group: nothing there was ever confirmed to anyone.
                assert report.is_sound
                assert report.entries == entries
                assert [index.refresh().entry_number, *content(index)[1:]] == [entries, *expected[1:]]


def flipped_outcomes(path: Path, index: Path, positions: list[int], expected: dict[int, MemoryIndex]) -> Iterator[str]:
    """Per position what reading the index gave: "found", "same" or "wrong". In children, since LMDB may crash."""
    done = 0
    while done < len(positions):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            try:
                for position in positions[done:]:
                    flip(path, position)
                    outcome = _outcome(index, expected)
                    flip(path, position)
                    os.write(write_end, outcome)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            outcomes = pipe.read().decode()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        yield from outcomes
        done += len(outcomes)
        if code != 0:
            # The child ended in the middle of one: `verify` would say that the index cannot be read.
            flip(path, positions[done])
            yield "f"
            done += 1


def _outcome(directory: Path, expected: dict[int, MemoryIndex]) -> bytes:
    items = list(items_of(directory))
    if any(kind is Kind.DAMAGE for kind, _, _ in items):
        return b"f"
    position = msgspec.msgpack.decode(items[0][2], type=Position)
    rebuilt = expected.get(position.group)
    if rebuilt is None or rebuilt.refresh() != position:
        return b"f"
    return b"f" if list(differences(rebuilt, iter(items[1:-1]))) else b"s"


def test_every_changed_byte_of_the_index_is_found_or_changes_nothing(directory: Path) -> None:
    reader = JournalReader(PosixDisk(journal_directory(directory), read_only=True))
    last = reader.last_group()
    assert last is not None
    # A changed meta page can only lead back to the commit before, which is a whole index too.
    expected: dict[int, MemoryIndex] = {-1: MemoryIndex()}
    for group, _ in reader.groups(None, last):
        expected[group] = MemoryIndex()
        Builder(reader, expected[group], expected[group]).advance(group)
    index = index_directory(directory)
    assert _outcome(index, expected) == b"s"
    for path in sorted(path for path in index.iterdir() if not path.name.endswith((".lock", "lock.mdb"))):
        size = path.stat().st_size
        step = 1 if EXHAUSTIVE else max(1, size // 400)
        outcomes = list(flipped_outcomes(path, index, list(range(0, size, step)), expected))
        assert set(outcomes) <= {"f", "s"}
        assert "f" in outcomes, f"no change of {path.name} was found"
    assert _outcome(index, expected) == b"s", "every byte was put back"


# --- promises that an entry breaks -----------------------------------------------------------------------------------


def broken_log(*entries: Entry) -> Report:
    """A log with some history, and then entries that no `decide` would have let in."""
    disk = MemoryDisk()
    log = LogWriter(disk)
    log.write(CreateTopic("a"), append("a", b"0", b"1", b"2"), append_id("a", b"id"), claimed("a", 0), claimed("a", 1))
    for entry in entries:
        log.entries.append(entry)
    if entries:
        log.flush()
    log.stop()
    return verify_journal(disk)[0]


TIME_NS = START_NS + 10**12
TAIL = 6


def entry(first: int = TAIL, count: int = 1, batch: bytes | None = None, **fields: object) -> Appended:
    return Appended(2, first, count, batch or batch_of(b"x"), TIME_NS, **fields)  # type: ignore[arg-type]


def compound(*operations: Operation) -> Compound:
    return Compound(TIME_NS, list(operations))


def id_field(name: bytes, number: int = 0) -> bytes:
    log = LogWriter(MemoryDisk())
    log.ask(CreateTopic("a"))
    stream = log.state.streams[2]
    assert stream is not None
    numbers = number.to_bytes(4, "little") + (1).to_bytes(4, "little")
    return id_hash(stream, name) + content_digest(name) + numbers


def claim(sequence: int) -> ProducerClaim:
    return ProducerClaim("http:p", 0, sequence, sequence, int(SequenceMode.REQUESTS), b"d" * 16)


def test_unbroken_log_is_sound() -> None:
    assert broken_log().is_sound
    assert broken_log(entry(ids=id_field(b"fresh")), entry(TAIL + 1, claim=claim(2), epoch=0)).is_sound


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (entry(TAIL + 1), "appended to at 7 with 1 records, its tail is 6"),
        (entry(TAIL - 1), "appended to at 5 with 1 records, its tail is 6"),
        (entry(ids=id_field(b"id")), "was written again at offset 6"),
        (entry(ids=id_field(b"new") * 2, count=2, batch=batch_of(b"x", b"y")), "uses a message id twice"),
        (entry(claim=claim(1), epoch=0), "counts as Duplicate"),
        (entry(claim=claim(0), epoch=0), "counts as Duplicate"),
        (entry(claim=claim(0), epoch=0, flags=8), "was forgotten too early"),
        (compound(Claimed(2, claim(1), 0, [2, 0, 1])), "counts as Duplicate"),
        (entry(count=2), "a batch of 1 offsets is recorded as 2"),
        (entry(batch=batch_of(b"x")[:-1] + b"?"), "a batch is not readable: checksum does not match"),
        (compound(StagePublished(9, 2, TAIL, 1)), "stage 9 is published with 1 records, it is not there"),
        (compound(HolesAdded(2, [TAIL, TAIL + 1], int(Cause.DELETED))), "has holes at [6, 7], its tail is 6"),
        (
            compound(Moved(2, 0, 3, codec.without(batch_of(b"0", b"1", b"2"), [(1, 2)]) or b"", START_NS)),
            "offset 1 of extent 2 was dropped and is no hole",
        ),
        (Appended(2, TAIL, 1, batch_of(b"x"), START_NS), "is older than the one before it"),
        (Appended(7, 0, 1, batch_of(b"x"), TIME_NS), "stream 7 is not there"),
    ],
)
def test_broken_promise_is_named_with_its_place(bad: Entry, what: str) -> None:
    report = broken_log(bad)
    assert [what in damage.what for damage in report.damages] == [True], report.damages
    assert (report.damages[0].file, report.damages[0].position > 512) == (SEGMENT, True)


def test_moved_batch_without_its_holes_is_sound() -> None:
    disk = MemoryDisk()
    log = LogWriter(disk)
    log.write(CreateTopic("a"), append("a", b"0", b"1", b"2"), DeleteRecords("a", 0, [1, 2]))
    log.add(Compound(log.now_ns, [Moved(2, 0, 3, codec.without(batch_of(b"0", b"1", b"2"), [(1, 2)]) or b"", 1)]))
    log.flush()
    log.stop()
    assert verify_journal(disk)[0].damages == []


def test_log_over_many_segments_is_sound() -> None:
    disk = MemoryDisk()
    log = LogWriter(disk)
    write_appends(log, "abc", rounds=100)
    log.stop()
    report, _ = verify_journal(disk)
    assert report.damages == []
    assert (report.records, report.ids) == (3 * 100 * 4, 300)


# --- the command -----------------------------------------------------------------------------------------------------


def test_command_shows_a_sound_log(directory: Path) -> None:
    result = CliRunner().invoke(app, ["verify", str(directory)])
    assert result.exit_code == 0
    assert "sound" in result.stdout
    result = CliRunner().invoke(app, ["verify", str(directory), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["entries"] == 42


def test_command_names_damage_and_ends_with_4(directory: Path) -> None:
    flip(journal_directory(directory) / SEGMENT, 1024 + 40)
    result = CliRunner().invoke(app, ["verify", str(directory)])
    assert result.exit_code == 4
    segment = str(journal_directory(directory) / SEGMENT)
    assert f"in {segment} at byte 1024 (" in result.stdout, "as a user can open it"
    assert result.stdout.count("not counted") == 4, "what lies behind the damage was not looked at"
    result = CliRunner().invoke(app, ["verify", str(directory), "--json"])
    assert result.exit_code == 4
    report = json.loads(result.stdout)
    assert (report["damages"][0]["file"], report["damages"][0]["position"]) == (segment, 1024)
    assert [report[name] for name in ("topics", "streams", "records", "ids")] == [None] * 4


def test_command_refuses_a_running_log_and_a_wrong_directory(directory: Path, tmp_path: Path) -> None:
    with contextlib.closing(PosixDisk(journal_directory(directory))):
        result = CliRunner().invoke(app, ["verify", str(directory)])
    assert (result.exit_code, "in use" in result.stderr) == (1, True)
    result = CliRunner().invoke(app, ["verify", str(tmp_path / "nothing")])
    assert (result.exit_code, "is not a log" in result.stderr) == (1, True)


# --- damage that is found before the first frame ---------------------------------------------------------------------


def assert_command_ends_with_4(directory: Path, *said: str) -> None:
    result = CliRunner().invoke(app, ["verify", str(directory)])
    assert result.exit_code == 4, result.stderr
    for words in said:
        assert words in result.stdout
    result = CliRunner().invoke(app, ["verify", str(directory), "--json"])
    assert result.exit_code == 4
    assert len(json.loads(result.stdout)["damages"]) == 1


@pytest.mark.parametrize("position", [0, 9, 20])
def test_damaged_header_of_the_only_segment_is_damage(directory: Path, position: int) -> None:
    flip(journal_directory(directory) / SEGMENT, position, 0x01)
    report = verify(directory)
    assert [(damage.file, damage.position) for damage in report.damages] == [(SEGMENT, 0)]
    assert_command_ends_with_4(directory, f"in {journal_directory(directory) / SEGMENT} at byte 0")


def test_missing_segment_is_damage(tmp_path: Path) -> None:
    disk = PosixDisk(journal_directory(tmp_path))
    log = LogWriter(disk)
    write_appends(log, "abc", rounds=100)
    log.stop()
    disk.close()
    assert verify(tmp_path).is_sound
    segments = sorted(journal_directory(tmp_path).glob("segment-*"))
    assert len(segments) > 2
    segments[1].unlink()
    report = verify(tmp_path)
    assert [(damage.what, damage.file) for damage in report.damages] == [("segment missing", segments[1].name)]
    assert_command_ends_with_4(tmp_path, f"segment missing in {segments[1]}")


def test_all_segments_missing_is_damage_if_the_index_knows_better(directory: Path) -> None:
    for segment in journal_directory(directory).glob("segment-*"):
        segment.unlink()
    report = verify(directory)
    assert [damage.what for damage in report.damages] == ["all segments are missing"]


def test_empty_journal_is_sound_with_a_note(tmp_path: Path) -> None:
    journal_directory(tmp_path).mkdir()
    report = verify(tmp_path)
    assert report.is_sound
    assert "the journal is empty: nothing was ever written here" in report.notes
    assert (report.topics, report.streams, report.records, report.ids) == (0, 0, 0, 0)
    result = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert (result.exit_code, "nothing was ever written" in result.stdout) == (0, True)


def test_what_is_not_a_log_is_told_why(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match='is not a log: it has no directory named "journal"'):
        verify(tmp_path)
    with pytest.raises(StorageError, match="is not a log: there is no such directory"):
        verify(tmp_path / "nowhere")
