"""The judges judged: bugs are put in one at a time, and the programme of this folder must find each of them.

A test that no bug can fail proves nothing. Each case names a bug that an engine like this could have, how it is put
in, and which part of the programme finds it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import pytest

from oncelog.core.apply import apply
from oncelog.core.command import Append, Columns
from oncelog.core.entry import Entry
from oncelog.core.flat import Stream
from oncelog.core.outcome import Outcome
from oncelog.core.state import State
from oncelog.engine import read_view
from oncelog.engine.commit_loop import CommitLoop
from oncelog.engine.generations import Generations
from oncelog.engine.group import Group, Reply
from oncelog.engine.read_view import StreamView, view_of
from oncelog.errors import OncelogError
from oncelog.storage import entry_codec, frame, journal, recovery, replay, segment
from oncelog.storage.index.places import Places
from oncelog.testing.sim_disk import SimDisk, SimFile
from tests.crash import test_sim_crash as crash
from tests.crash.sim_explorer import Explorer, nothing_cached
from tests.crash.sim_operations import BY_NAME

Patch = Callable[[], Any]


def explore(*names: str, near_end: bool = False, together: bool = False) -> Callable[[], None]:
    """The explorer on one workload."""

    def find() -> None:
        base = crash.NEAR_END if near_end else crash.FRESH
        with nothing_cached():
            Explorer(base, tuple(BY_NAME[name] for name in names), together=together).explore()

    return find


# --- bugs ----------------------------------------------------------------------------------------------------------


def _no_sync(file: SimFile) -> None:
    file._disk._enter("fdatasync")


def _no_directory_sync(disk: SimDisk) -> None:
    disk._enter("sync_directory")


def _answer_at_once(_loop: CommitLoop, reply: Reply, outcome: Outcome) -> None:
    reply(outcome)


@contextmanager
def _confirm_when_sealed() -> Iterator[None]:
    seal = CommitLoop.next_group

    def next_group(loop: CommitLoop) -> Group | None:
        group = seal(loop)
        if group is not None:
            answers, group.answers = group.answers, []
            for reply, outcome in answers:
                reply(outcome)
        return group

    with mock.patch.object(CommitLoop, "next_group", next_group):
        yield


@contextmanager
def _reveal_when_applied() -> Iterator[None]:
    append = CommitLoop._append

    def _append(loop: CommitLoop, group: Group, entry: Entry, buffers: list[bytes], size: int) -> None:
        append(loop, group, entry, buffers, size)
        for stream_id in loop.state.changed_streams:
            row = loop.state.streams[stream_id]
            assert row is not None
            loop.view.streams[stream_id] = view_of(row)

    with mock.patch.object(CommitLoop, "_append", _append):
        yield


def _replay_without_ids(state: State, entry: Entry) -> None:
    apply(state, entry)
    state.ids.clear()


def _replay_without_producers(state: State, entry: Entry) -> None:
    apply(state, entry)
    state.producers.update(dict.fromkeys(state.producers))


@contextmanager
def _ids_dropped_when_sealed() -> Iterator[None]:
    seal = Generations.seal

    def sealed(generations: Generations) -> None:
        seal(generations)
        generations._commits.state.ids_sealing = {}

    with mock.patch.object(Generations, "seal", sealed):
        yield


@contextmanager
def _built_before_it_is() -> Iterator[None]:
    durable = Generations.group_durable

    def group_durable(generations: Generations) -> None:
        durable(generations)
        if generations._boundary is not None:
            generations.built(generations._boundary)

    with mock.patch.object(Generations, "group_durable", group_durable):
        yield


@contextmanager
def _places_dropped_beyond_the_index() -> Iterator[None]:
    drop = Places.drop_through
    with mock.patch.object(Places, "drop_through", lambda places, group, count: drop(places, group + 100, count)):
        yield


def _stable_one_too_far(row: Stream) -> StreamView:
    view = view_of(row)
    return view.replaced(stable=view.stable + 1) if row.open_txns else view


def _torn_frames_stand(data: Any, identity_crc: int) -> frame.Frame | None:
    _, payload_bytes, incarnation, group, previous_crc, _ = frame.FRAME_HEADER.unpack_from(memoryview(data))
    header = memoryview(data)[: frame.FRAME_HEADER_BYTES]
    return frame.Frame(group, incarnation, payload_bytes, previous_crc, frame.header_crc(header))


@contextmanager
def _last_entry_of_a_group_skipped() -> Iterator[None]:
    decode = entry_codec.decode_group

    def decode_group(payload: bytes) -> Any:
        entries = list(decode(payload))
        return entries[:-1] if len(entries) > 1 else entries

    with mock.patch.object(replay, "decode_group", decode_group):
        yield


class Bug(NamedTuple):
    name: str
    patch: Patch
    find: Callable[[], None]


BUGS = (
    Bug("fdatasync skipped", lambda: mock.patch.object(SimFile, "fdatasync", _no_sync), explore("append by id")),
    Bug(
        "directory not synced after a rename",
        lambda: mock.patch.object(SimDisk, "sync_directory", _no_directory_sync),
        explore("append by sequence", "append by id", near_end=True),
    ),
    Bug(
        "duplicates, refusals and queries answered before durable",
        lambda: mock.patch.object(CommitLoop, "_answer", _answer_at_once),
        explore("append by id"),
    ),
    Bug("confirmed before durable", _confirm_when_sealed, explore("append by id")),
    Bug("revealed when applied", _reveal_when_applied, explore("append by id")),
    Bug(
        "ids forgotten by replay",
        lambda: mock.patch.object(replay, "apply", _replay_without_ids),
        explore("append by id"),
    ),
    Bug(
        "producers forgotten by replay",
        lambda: mock.patch.object(replay, "apply", _replay_without_producers),
        explore("append by sequence"),
    ),
    Bug("last entry of a group not replayed", _last_entry_of_a_group_skipped, explore("trim", "trim", together=True)),
    Bug(
        "last group not written again by recovery",
        lambda: mock.patch.object(recovery, "write_all", return_value=None),
        crash.test_fdatasync_failed_restart_power_cut,
    ),
    Bug(
        "link to the previous header unchecked",
        lambda: mock.patch.object(recovery.Place, "_links", return_value=True),
        crash.test_a_write_that_the_device_lost_is_found_by_the_chain_of_headers,
    ),
    Bug(
        "torn frames accepted",
        lambda: mock.patch.object(segment, "unpack_frame", _torn_frames_stand),
        explore("commit over three", "append each", together=True),
    ),
    Bug(
        "generation dropped before it is indexed",
        _built_before_it_is,
        explore("append by id", "checkpoint left behind", "trim"),
    ),
    Bug("sealed ids dropped", _ids_dropped_when_sealed, explore("append by id", "checkpoint left behind", "trim")),
    Bug(
        "places dropped that the index does not have",
        _places_dropped_beyond_the_index,
        explore("append by id", "checkpoint left behind", "append by id", "checkpoint"),
    ),
    Bug(
        "stable offset one too far",
        lambda: mock.patch.object(read_view, "view_of", _stable_one_too_far),
        explore("txn commit"),
    ),
    Bug(
        "batches served without their checksum",
        lambda: mock.patch("oncelog.engine.reader.codec.check_crc", return_value=True),
        crash.test_a_flipped_byte_in_any_sector_is_found_or_changes_nothing,
    ),
    Bug(
        "a journal that failed goes on",
        lambda: mock.patch.object(journal.Journal, "_refuse_if_poisoned", return_value=None),
        crash.test_fdatasync_failed_restart_power_cut,
    ),
)


@pytest.mark.from_source
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_found(bug: Bug) -> None:
    bug.find()
    # KeyError: the explorer never saw the entry that a survivor stands at.
    with bug.patch(), pytest.raises((AssertionError, OncelogError, KeyError, pytest.fail.Exception)):
        bug.find()


def test_every_append_in_the_list_carries_a_claim() -> None:
    """What the clients retry blindly must be safe to retry, or the programme would blame the engine for them."""
    for operation in BY_NAME.values():
        step = operation.script(0).send(None)
        if isinstance(step, Append):
            assert step.claim is not None or step.message_id
        if isinstance(step, Columns):
            assert step.claims is not None or step.message_ids is not None
