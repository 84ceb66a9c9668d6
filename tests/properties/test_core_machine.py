"""Random commands of every kind: every answer of the core equals the dumb model's, before and after restarts.

The harness checks on the way that `decide` changes nothing, that entries survive their bytes, and that replaying them
gives the same rows; here the answers themselves are judged, and after every step the whole content of every stream.
"""

import os
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.core import batch as codec
from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.message_id import content_digest, values_digest
from oncelog.core.producer import SequenceMode
from oncelog.core.row_codec import decode_key, decode_row, encode_key
from oncelog.core.rows import FOREVER, Cause, HoleChunk, Table, TopicConfig
from oncelog.testing.core_harness import CoreHarness
from oncelog.testing.model import Model

CONFIGS = {
    "a": TopicConfig(dedupe_floor_ms=10_000),
    "b": TopicConfig(duplicate_window_ms=5_000),
    "y": TopicConfig(id_zone="z", dedupe_floor_ms=10_000),
    "z": TopicConfig(id_zone="z", dedupe_floor_ms=FOREVER),
}
CAUSES = {
    Cause.CONTROL: "control",
    Cause.ABORTED: "aborted",
    Cause.DELETED: "deleted",
    Cause.DUPLICATE: "duplicate",
}

topics = st.sampled_from(["a", "a", "a", "b", "y", "z"])  # most of it meets on one stream
ids = st.sampled_from([b"", b"", b"m1", b"m2", b"m3"])
values = st.sampled_from([b"x", b"x", b"x", b"y"])
counts = st.integers(1, 3)
cursors = st.sampled_from(["c", "d"])
txn_ids = st.sampled_from(["x", "y"])
seldom = st.sampled_from([False, False, False, False, True])
nearby = st.integers(-3, 2)
applications = st.sampled_from(["app", "app", "other"])
MODES = {"http:p": SequenceMode.REQUESTS, "x:r": SequenceMode.RISING, "commit:p": SequenceMode.REQUESTS}


def same(ours: object, models: object) -> bool:
    """Equal; the model keeps whole contents instead of digests, so those are not compared where it has none."""
    for kind in (o.SequenceConflict, o.ClaimConflict):
        if isinstance(ours, kind) and isinstance(models, kind):
            ours, models = (msgspec.structs.replace(x, stored_digest=b"", claimed_digest=b"") for x in (ours, models))
    return ours == models


class CoreMachine(RuleBasedStateMachine):
    """The core and the model, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.log = CoreHarness()
        self.model = Model()
        self.past: list[c.Command] = []

    def both(self, command: c.Command) -> o.Outcome:
        now_ns = max(self.log.now_ns, self.log.state.time_ns)
        ours = self.log.run(command)
        models = self.model.run(command, now_ns)
        assert same(ours, models), f"{command}\n  core:  {ours}\n  model: {models}"
        if not type(command).__name__.startswith("Get"):
            self.past.append(command)
        return ours

    def tail(self, topic: str) -> int:
        stream = self.model.stream(topic, 0)
        return 0 if stream is None else len(stream["records"])

    def floor(self, topic: str) -> int:
        stream = self.model.stream(topic, 0)
        return 0 if stream is None else int(stream["floor"])

    def claim(self, stream_id: int, name: str, offset: int, epoch: int, mode: int, count: int) -> ProducerClaim:
        """A claim somewhere around the producer's next sequence."""
        row = self.model.producers.get((stream_id, name))
        current = row["epoch"] if row else 0
        after = row["history"][-1]["last"] + 1 if row and row["history"] else 0
        first = max(0, after + offset) if epoch == 0 else max(0, offset)
        last = first + count - 1 if mode == SequenceMode.RECORDS else first
        return ProducerClaim(name, max(0, current + epoch), first, last, int(mode))

    # --- topics and streams ------------------------------------------------------------------------------------------

    @initialize(keep=st.booleans())
    def start(self, keep: bool) -> None:
        self.log.keep_loaded = keep
        for name, config in CONFIGS.items():
            self.both(c.CreateTopic(name, 1, config))
            self.both(self.append_of(name, [b"x"] * 4))

    @precondition(lambda self: len(self.model.topics) < len(CONFIGS))
    @rule(partitions=st.integers(1, 2))
    def create_again(self, partitions: int) -> None:
        """A name that was deleted: nothing of the old stream may meet the new one."""
        for name in CONFIGS:
            self.both(c.CreateTopic(name, partitions, CONFIGS[name]))

    @precondition(lambda self: self.tail("b") > 6)
    @rule(topic=topics)
    def grow(self, topic: str) -> None:
        here = self.model.topics.get(topic, {"streams": []})["streams"]
        self.both(c.AddPartitions(topic, min(len(here) + 1, 3)))

    @rule(pick=st.integers(0, 7))
    def retry(self, pick: int) -> None:
        """The heart of it: what was asked before is asked again, word for word."""
        self.both(self.past[-1 - pick % len(self.past)])

    @precondition(lambda self: self.tail("a") > 12)
    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.both(c.DeleteTopic(topic))

    @precondition(lambda self: self.tail("a") > 10)
    @rule(topic=topics, name=st.sampled_from(["", "http:p"]), offset=nearby)
    def close(self, topic: str, name: str, offset: int) -> None:
        stream = self.model.stream(topic, 0)
        claim = None
        if name and stream is not None:
            claim = self.claim(stream["id"], name, offset, 0, SequenceMode.REQUESTS, 1)
        self.both(c.CloseStream(topic, 0, claim))

    @rule(topic=topics, back=st.integers(-1, 6), force=seldom)
    def trim(self, topic: str, back: int, force: bool) -> None:
        self.both(c.Trim(topic, 0, self.tail(topic) - back, force))

    @rule(topic=topics, after=st.integers(-1, 4), count=counts, more=seldom)
    def delete_records(self, topic: str, after: int, count: int, more: bool) -> None:
        first = max(0, self.floor(topic) + after)
        ranges = [first, first + count, *([first + count + 1, first + count + 2] if more else [])]
        self.both(c.DeleteRecords(topic, 0, ranges))

    # --- appends -----------------------------------------------------------------------------------------------------

    @rule(topic=topics, value=values, count=counts, message_id=ids, partition=st.sampled_from([0, 0, 0, 1]))
    def append(self, topic: str, value: bytes, count: int, message_id: bytes, partition: int) -> None:
        self.both(self.append_of(topic, [value] * count, message_id, partition))

    def append_of(self, topic: str, batch: list[bytes], message_id: bytes = b"", partition: int = 0) -> c.Append:
        encoded = codec.encode_values(batch, 1)
        return c.Append(topic, partition, encoded, len(batch), values_digest(batch), message_id=message_id)

    @rule(topic=topics, value=values, tail=nearby, key=st.sampled_from(["", "k1", "k2", "k3"]), close=seldom)
    def append_with_conditions(self, topic: str, value: bytes, tail: int, key: str, close: bool) -> None:
        command = self.append_of(topic, [value])
        command.expected_tail = max(-1, self.tail(topic) + tail) if tail < 0 else self.tail(topic)
        command.order_key = key
        command.close = close and self.tail(topic) > 9
        self.both(command)

    @rule(
        topic=topics,
        value=values,
        message_id=ids,
        name=st.sampled_from(["http:p", "x:r", "kafka:1", "kafka:2"]),
        offset=nearby,
        epoch=st.sampled_from([0, 0, 0, 0, 1, -1]),
        count=counts,
    )
    def append_with_claim(
        self, topic: str, value: bytes, message_id: bytes, name: str, offset: int, epoch: int, count: int
    ) -> None:
        stream = self.model.stream(topic, 0)
        command = self.append_of(topic, [value] * count, message_id)
        mode = MODES.get(name, SequenceMode.RECORDS)
        command.claim = self.claim(0 if stream is None else stream["id"], name, min(offset, 1), epoch, mode, count)
        if mode != SequenceMode.RECORDS:
            command.claim.digest = command.digest
        self.both(command)

    @rule(
        topic=topics,
        appends=st.lists(
            st.tuples(
                values, ids, st.sampled_from(["", "http:p", "http:q", "x:r"]), st.sampled_from([1, 1, 1, 0, -1, 2])
            ),
            min_size=1,
            max_size=6,
        ),
    )
    def append_together(self, topic: str, appends: list[tuple[bytes, bytes, str, int]]) -> None:
        """Appends of one turn: each is answered as if it had come alone, in its order."""
        commands = []
        stream = self.model.stream(topic, 0)
        following: dict[str, int] = {}
        for value, message_id, name, offset in appends:
            command = c.one_value(topic, 0, value, content_digest(value), None, message_id)
            if name:
                mode = MODES.get(name, SequenceMode.REQUESTS)
                claim = self.claim(0 if stream is None else stream["id"], name, 0, 0, mode, 1)
                sequence = max(0, following.get(name, claim.first) + offset - 1)
                claim.first = claim.last = sequence
                claim.digest = content_digest(value)
                following[name] = sequence + 1
                command.claims = (claim,)
            commands.append(command)
        now_ns = max(self.log.now_ns, self.log.state.time_ns)
        ours = self.log.run_columns(commands)
        models = [self.model.run(command, now_ns) for command in commands]
        for command, our, models_ in zip(commands, ours, models, strict=True):
            assert same(our, models_), f"{command}\n  core:  {our}\n  model: {models_}"
        self.past += commands

    @rule(topic=topics, records=st.lists(st.tuples(values, ids), max_size=5))
    def append_each(self, topic: str, records: list[tuple[bytes, bytes]]) -> None:
        named = [id_ for _, id_ in records]
        self.both(c.Columns(topic, 0, [value for value, _ in records], message_ids=named))

    # --- commits -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), commit_id=st.sampled_from(["", "", "c1", "c2"]), claimed=seldom, offset=nearby)
    def commit(self, data: st.DataObject, commit_id: str, claimed: bool, offset: int) -> None:
        appends = []
        for topic, value, id_ in data.draw(st.lists(st.tuples(topics, values, ids), max_size=3)):
            batch = codec.encode_values([value], 1)
            appends.append(c.CommitAppend(topic, 0, batch, 1, content_digest(value), id_))
        moves = self.moves(data, 1)
        if not appends and not moves:
            return
        claim = self.claim(0, "commit:p", min(offset, 1), 0, SequenceMode.REQUESTS, 1) if claimed else None
        conditions = data.draw(st.lists(self.conditions(), max_size=2))
        self.both(c.Commit(appends, conditions, moves, commit_id, claim))

    @rule(data=st.data(), commit_id=st.sampled_from(["", "", "c1", "c2", "c3"]), claimed=seldom, offset=nearby)
    def commit_of_known_records(self, data: st.DataObject, commit_id: str, claimed: bool, offset: int) -> None:
        """Another consumer that derived the same records, or the same one again."""
        known = [
            (name, id_, row["digest"])
            for name in sorted(CONFIGS)
            for id_ in (b"m1", b"m2")
            if (stream := self.model.stream(name, 0)) is not None
            and (row := self.model.known_id(stream, id_)) is not None
        ]
        if not known:
            return
        chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
        batch = codec.encode_values([b"known"], 1)
        appends = [c.CommitAppend(name, 0, batch, 1, digest, id_) for name, id_, digest in chosen]
        claim = self.claim(0, "commit:p", min(offset, 1), 0, SequenceMode.REQUESTS, 1) if claimed else None
        conditions = data.draw(st.lists(self.conditions(), max_size=2))
        self.both(c.Commit(appends, conditions, self.moves(data, 3), commit_id, claim))

    def moves(self, data: st.DataObject, count_max: int) -> list[c.CursorMove]:
        return [
            c.CursorMove(name, topic, 0, max(0, self.tail(topic) + shift), "", pinned)
            for name, topic, shift, pinned in data.draw(
                st.lists(st.tuples(cursors, topics, nearby, seldom), max_size=count_max)
            )
        ]

    def conditions(self) -> st.SearchStrategy[c.Condition]:
        """Every kind; most of them hold."""

        def tail(topic: str, off: bool) -> c.Condition:
            return c.ExpectTail(topic, 0, self.tail(topic) + off)

        def cursor(name: str, topic: str, shift: int) -> c.Condition:
            stream = self.model.stream(topic, 0)
            row = self.model.cursors.get((name, stream["id"])) if stream else None
            return c.ExpectCursor(name, topic, 0, (row["frontier"] if row else 0) + shift)

        def known(topic: str, id_: bytes, off: bool) -> c.Condition:
            stream = self.model.stream(topic, 0)
            present = stream is not None and self.model.known_id(stream, id_) is not None
            return c.ExpectId(topic, 0, id_, present != off)

        return st.one_of(
            st.builds(tail, topics, seldom),
            st.builds(c.ExpectNew, st.sampled_from([*sorted(CONFIGS), "never made"])),
            st.builds(cursor, cursors, topics, st.sampled_from([0, 0, 1])),
            st.builds(known, topics, st.sampled_from([b"m1", b"m2"]), seldom),
            st.builds(c.ExpectEpoch, topics, st.just(0), st.just("http:p"), st.integers(-1, 1)),
        )

    # --- cursors -----------------------------------------------------------------------------------------------------

    @rule(name=cursors, topic=topics, shift=st.integers(-4, 1), pinned=seldom, uncommitted=seldom)
    def move(self, name: str, topic: str, shift: int, pinned: bool, uncommitted: bool) -> None:
        place = max(0, self.tail(topic) + shift)
        self.both(c.MoveCursors([c.CursorMove(name, topic, 0, place, "note", pinned)], uncommitted))

    @rule(name=cursors, topic=topics, after=st.integers(0, 4), count=counts, gap=st.integers(0, 2), pinned=seldom)
    def confirm(self, name: str, topic: str, after: int, count: int, gap: int, pinned: bool) -> None:
        first = self.floor(topic) + after
        ranges = [first, first + count]
        if gap:
            ranges += [first + count + gap, first + count + gap + 1]
        self.both(c.ConfirmCursor(name, topic, 0, ranges, pinned))
        self.both(c.GetCursor(name, topic, 0))

    @precondition(lambda self: len(self.model.cursors) > 2)
    @rule(name=cursors, topic=topics)
    def delete_cursor(self, name: str, topic: str) -> None:
        self.both(c.DeleteCursor(name, topic, 0))

    @rule(
        name=cursors,
        topic=st.sampled_from(["a", "a", "b", "z", ""]),
        config=st.sampled_from([None, b"1", b"2"]),
        gate=st.sampled_from([None, "open", "closed"]),
        pinned=st.sampled_from([None, None, True, False]),
        how=st.sampled_from(["set", "set", "create", "update"]),
        start=st.sampled_from([0, 0, 2, 5]),
    )
    def set_consumer(
        self, name: str, topic: str, config: bytes | None, gate: str | None, pinned: bool | None, how: Any, start: int
    ) -> None:
        self.both(c.SetConsumer(name, topic, 0, config, gate, None, None if not topic else pinned, start, how))
        self.both(c.GetCursor(name, topic, 0))

    @rule(data=st.data())
    def update_consumers(self, data: st.DataObject) -> None:
        """Deliveries and confirms of one read, often of one consumer."""
        updates = []
        for name, topic, at, count, times, gap in data.draw(
            st.lists(st.tuples(cursors, topics, st.integers(0, 5), counts, st.integers(0, 3), nearby), max_size=4)
        ):
            first = self.floor(topic) + at
            row = self.model.cursors.get((name, (self.model.stream(topic, 0) or {"id": 0})["id"]), {"sequence": 0})
            deliver = []
            for number in range(count):
                deliver += [first + number, times, 1_000 * number, row["sequence"] + number + 1]
            confirm = [first + 1 + gap, first + 2 + gap] if first + 1 + gap >= 0 and gap != 2 else []
            updates.append(c.ConsumerUpdate(name, topic, 0, confirm, deliver if times != 3 else []))
        self.both(c.UpdateConsumers(updates))

    @precondition(lambda self: len(self.model.cursors) > 2)
    @rule(name=cursors, names=st.lists(st.tuples(st.sampled_from(["", "a", "b", "y"]), st.just(0)), max_size=3))
    def delete_consumer(self, name: str, names: list[tuple[str, int]]) -> None:
        self.both(c.DeleteConsumer(name, names))

    # --- txns --------------------------------------------------------------------------------------------------------

    def holder(self, txn_id: str, off: int) -> tuple[int, int]:
        """The pair that holds a txn id, or one beside it."""
        txn = self.model.txns.get(txn_id, {"pid": 1, "epoch": 0})
        return txn["pid"], max(0, txn["epoch"] + off)

    off = st.sampled_from([0, 0, 0, 0, 0, -1])

    @rule(txn_id=st.sampled_from(["", "x", "y"]), named=st.booleans(), off=off, timeout=st.sampled_from([None, 5_000]))
    def init_producer(self, txn_id: str, named: bool, off: int, timeout: int | None) -> None:
        producer_id, epoch = self.holder(txn_id, off) if named and txn_id else (-1, -1)
        self.both(c.InitProducer(txn_id, timeout, producer_id, epoch))

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, names=st.lists(topics, min_size=1, max_size=2), off=off)
    def add_to_txn(self, txn_id: str, names: list[str], off: int) -> None:
        self.both(c.AddToTxn(txn_id, *self.holder(txn_id, off), [(name, 0) for name in names], ["g"]))

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, topic=topics, count=counts, offset=st.sampled_from([0, 0, 0, -1, 1]), off=off)
    def late_write(self, txn_id: str, topic: str, count: int, offset: int, off: int) -> None:
        self.write_in_txn(txn_id, topic, count, offset, off)

    def write_in_txn(self, txn_id: str, topic: str, count: int, offset: int, off: int) -> None:
        txn = self.model.txns.get(txn_id)
        stream = self.model.stream(topic, 0)
        if txn is not None and txn["state"] == "open" and txn["streams"] and off == 0:
            named = [name for name in CONFIGS if (s := self.model.stream(name, 0)) and s["id"] in txn["streams"]]
            topic = named[count % len(named)] if named else topic
            stream = self.model.stream(topic, 0)
        producer_id, epoch = self.holder(txn_id, off)
        stream_id = 0 if stream is None else stream["id"]
        command = self.append_of(topic, [b"x"] * count)
        command.txn_id = txn_id
        row = self.model.producers.get((stream_id, f"kafka:{producer_id}"))
        beside = 0 if row is None else epoch - row["epoch"]
        command.claim = self.claim(stream_id, f"kafka:{producer_id}", offset, beside, SequenceMode.RECORDS, count)
        self.both(command)

    @rule(txn_id=txn_ids, topic=topics, count=counts)
    def open_txn(self, txn_id: str, topic: str, count: int) -> None:
        """The usual beginning, so that there is something open most of the time."""
        if txn_id not in self.model.txns:
            self.both(c.InitProducer(txn_id))
        self.both(c.AddToTxn(txn_id, *self.holder(txn_id, 0), [(topic, 0)], ["g"]))
        self.write_in_txn(txn_id, topic, count, 0, 0)

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, topic=topics, shift=st.integers(-2, 0), off=off, group=st.sampled_from(["g", "g", "h"]))
    def txn_cursors(self, txn_id: str, topic: str, shift: int, off: int, group: str) -> None:
        move = c.CursorMove("c", topic, 0, max(0, self.tail(topic) + shift), "in txn")
        self.both(c.TxnCursors(txn_id, *self.holder(txn_id, off), group, [move]))

    @rule(names=st.lists(st.tuples(cursors, topics), min_size=1, max_size=3), shift=st.integers(-2, 90))
    def commit_offsets(self, names: list[tuple[str, str]], shift: int) -> None:
        """Any offset, also beyond the tail; `c` is also moved by txns."""
        moves = [c.CursorMove(name, topic, 0, max(0, self.tail(topic) + shift), "own word") for name, topic in names]
        self.both(c.CommitOffsets(moves))

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, topic=topics, commit=seldom, off=off, coordinator=st.sampled_from([-1, -1, -1, 0]))
    def write_marker(self, txn_id: str, topic: str, commit: bool, off: int, coordinator: int) -> None:
        producer_id, epoch = self.holder(txn_id, off)
        self.both(c.WriteMarker(producer_id, epoch, commit, [(topic, 0)], coordinator))

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, topic=topics, off=off)
    def verify_in_txn(self, txn_id: str, topic: str, off: int) -> None:
        self.both(c.AddToTxn(txn_id, *self.holder(txn_id, off), [(topic, 0)], ["g"], verify_only=True))

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, commit=st.booleans(), off=off)
    def end_txn(self, txn_id: str, commit: bool, off: int) -> None:
        self.both(c.EndTxn(txn_id, *self.holder(txn_id, off), commit))

    @precondition(lambda self: self.model.txns)
    @rule(txn_id=txn_ids, fence=st.booleans(), markers=st.booleans(), wait=st.sampled_from([0, 5_000, 60_000]))
    def expire_txn(self, txn_id: str, fence: bool, markers: bool, wait: int) -> None:
        self.log.pass_ms(wait)
        self.both(c.ExpireTxn(txn_id, fence, markers))

    # --- stages ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.stages)
    @rule(name=applications)
    def open_application(self, name: str) -> None:
        self.both(c.OpenApplication(name))

    def fence(self, name: str) -> int:
        return int(self.model.applications.get(name, {"fence": 0})["fence"])

    @rule(name=applications, stale=seldom, count=st.integers(0, 3))
    def open_stage(self, name: str, stale: bool, count: int) -> None:
        if name not in self.model.applications:
            self.both(c.OpenApplication(name))
        opened = self.both(c.OpenStage(name, self.fence(name) - stale, 6_000))
        if isinstance(opened, o.StageDone) and count:
            self.append_stage(opened.stage_id, 0, count)

    def append_stage(self, stage_id: int, at: int, count: int) -> None:
        batch = codec.encode_values([b"s"] * count, 1)
        self.both(c.AppendStage(stage_id, at, batch, count, content_digest(b"%d" % count)))

    def any_stage(self, pick: int) -> int:
        return sorted(self.model.stages)[pick % len(self.model.stages)] if self.model.stages else 1

    @precondition(lambda self: self.model.stages)
    @rule(pick=st.integers(0, 5), at=st.integers(0, 4), count=counts)
    def append_more(self, pick: int, at: int, count: int) -> None:
        self.append_stage(self.any_stage(pick), at, count)

    @precondition(lambda self: self.model.stages)
    @rule(
        name=applications,
        picks=st.lists(st.tuples(st.integers(0, 5), topics), max_size=2),
        wrong=seldom,
        batch=st.sampled_from([1, 1, 1, 0, 2]),
        query=st.sampled_from(["q", "q", "q", "r"]),
        accept=seldom,
        start=st.sampled_from([b"", b"s1", b"s2"]),
        end=st.sampled_from([b"", b"s1", b"s2"]),
        names=st.lists(st.tuples(ids, values), max_size=3),
    )
    def publish(
        self,
        name: str,
        picks: list[tuple[int, str]],
        wrong: bool,
        batch: int,
        query: str,
        accept: bool,
        start: bytes,
        end: bytes,
        names: list[tuple[bytes, bytes]],
    ) -> None:
        items = []
        for pick, topic in picks:
            stage_id = self.any_stage(pick)
            stage = self.model.stages.get(stage_id, {"appends": []})
            count = sum(n for _, n, _ in stage["appends"]) + wrong
            name = stage.get("application", name)
            staged = [(number, id_, content_digest(value)) for number, (id_, value) in enumerate(names[:count]) if id_]
            items.append(c.PublishItem(stage_id, topic, 0, count, True, staged))
        published = self.model.applications.get(name, {"batches": []})["batches"]
        number = max(0, (published[-1][1] if published else -1) + batch)
        self.both(c.Publish(items, name, self.fence(name), query, number, start, end, accept))

    @precondition(lambda self: self.model.stages)
    @rule(pick=st.integers(0, 5), drop=seldom)
    def let_stages_go(self, pick: int, drop: bool) -> None:
        self.both(c.ExpireStages([*sorted(self.model.stages), 1]))
        if drop:
            self.both(c.DropStages([self.any_stage(pick)]))

    # --- time, restarts, questions -----------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([0, 1, 999, 4_999, 5_000, 9_999, 10_000, 60_000, 8 * 24 * 3600 * 1000]))
    def pass_time(self, ms: int) -> None:
        self.log.pass_ms(ms)

    @precondition(lambda self: self.model.ids or self.model.producers)
    @rule(topic=topics, short=st.sampled_from([0, 0, 1]))
    def outlive(self, topic: str, short: int) -> None:
        """Remove what is there and wait until it is forgotten, or just not yet."""
        stream = self.model.stream(topic, 0)
        if stream is not None:
            self.both(c.Trim(topic, 0, self.model.stable(stream), True))
            self.log.pass_ms(10_000 - short)

    @rule(ms=st.integers(1, 5_000))
    def clock_runs_back(self, ms: int) -> None:
        self.log.pass_ms(-ms)

    @rule()
    def restart(self) -> None:
        self.log.restart()

    @rule()
    def rebuild(self) -> None:
        self.log.replay_all()

    @rule(topic=topics, id_=st.sampled_from([b"m1", b"m2", b"m3"]), name=cursors, application=applications)
    def ask(self, topic: str, id_: bytes, name: str, application: str) -> None:
        self.both(c.GetStream(topic, 0))
        self.both(c.GetReceipt(topic, 0, id_))
        self.both(c.GetCursor(name, topic, 0))
        self.both(c.GetApplication(application))
        self.both(c.GetProducer("", 0, "commit:p"))
        for producer in ("http:p", "x:r", "kafka:1", "kafka:2"):
            self.both(c.GetProducer(topic, 0, producer))

    @rule(txn_id=txn_ids)
    def ask_for_txn(self, txn_id: str) -> None:
        ours = self.log.run(c.GetTxn(txn_id))
        txn = self.model.txns.get(txn_id)
        if txn is None:
            assert ours == o.NotFound("txn")
            return
        assert isinstance(ours, o.TxnFound)
        row = ours.txn
        assert (row.producer_id, row.epoch, row.timeout_ms) == (txn["pid"], txn["epoch"], txn["timeout"])
        assert sorted(row.streams) == sorted(txn["streams"])
        assert len(row.pending) == len(txn["pending"])

    @invariant()
    def every_stream_holds_what_the_model_holds(self) -> None:
        holes: dict[int, dict[int, str]] = {}
        for key, data in self.log.rows.tables[Table.HOLES].items():
            stream_key: Any = decode_key(Table.HOLES, key)
            chunk = decode_row(Table.HOLES, data)
            assert isinstance(chunk, HoleChunk)
            for at in range(0, len(chunk.holes), 4):
                first, next_, cause = chunk.holes[at : at + 3]
                dead = dict.fromkeys(range(first, next_), CAUSES[Cause(cause)])
                holes.setdefault(stream_key[0], {}).update(dead)
        for stream_id, stream in self.model.streams.items():
            row = decode_row(Table.STREAM, self.log.rows.tables[Table.STREAM][encode_key(Table.STREAM, stream_id)])
            assert isinstance(row, Stream)
            assert row.tail == len(stream["records"])
            if stream["deleted"] is None:
                assert (row.floor, row.stable) == (stream["floor"], self.model.stable(stream))
                expected = {n: r["status"] for n, r in enumerate(stream["records"]) if r["status"] in CAUSES.values()}
                assert holes.get(stream_id, {}) == expected


EXAMPLES = int(os.environ.get("CORE_MACHINE_EXAMPLES", "60"))
"""More in a long run: 1,000 take a minute and a half."""

CoreMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=60)
TestCoreMachine = CoreMachine.TestCase
