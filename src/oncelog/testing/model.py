"""The dumb model: what the log means, in plain lists and dicts, obviously correct and slow.

It shares no rule and no structure with the core. A stream is a list of records, one dict each, that are never taken
out; a status says what became of them. Whatever the core keeps in a clever way (frontiers as ranges, holes in chunks,
five batches of a producer, marks of past trims) is found here by looking at every record. Only answers are the core's,
so that they can be compared.

Left out: epochs owned by the server (`core.producer` has its own test against literal tables), names, sizes, shards.
"""

import re
from typing import Any

import msgspec

from oncelog import limits
from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.rows import TopicConfig
from oncelog.testing.model_memory import FOREVER, MS, Thing, offsets_of
from oncelog.testing.model_stage import StageModel


class Model(StageModel):
    """One log. Each method named after a command takes the command and returns the answer."""

    def run(self, command: c.Command, now_ns: int) -> o.Outcome:
        """The answer to a command. The caller sees to it that time does not run back past an entry."""
        self.now = now_ns
        name = re.sub("(?<!^)(?=[A-Z])", "_", type(command).__name__).lower()
        answer: o.Outcome = getattr(self, name)(command)
        return answer

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, command: c.CreateTopic) -> o.Outcome:
        """A new topic, or agreement."""
        topic = self.topics.get(command.name)
        if topic is not None:
            if topic["config"] != command.config:
                there, asked = (msgspec.structs.asdict(one) for one in (topic["config"], command.config))
                differ = [name for name in asked if asked[name] != there[name]]
                has, wants = (", ".join(f"{name} {one[name]!r}" for name in differ) for one in (there, asked))
                return o.TopicExists(command.name, f"it has {has}, not {wants}")
            if len(topic["streams"]) != command.partitions:
                return o.TopicExists(command.name, f"it has {len(topic['streams'])} partitions")
            first = self.streams[topic["streams"][0]]
            if first["closed"] != command.close:
                return o.TopicExists(command.name, "it is closed" if first["closed"] else "it is not closed")
            return o.TopicDone(topic["id"], list(topic["streams"]), False, len(first["records"]), first["closed"])
        topic_id = self.take_id()
        streams = [self.new_stream(command.config) for _ in range(command.partitions)]
        self.topics[command.name] = {"id": topic_id, "streams": streams, "config": command.config}
        self.add_records(self.streams[streams[0]], command.count, "")
        for stream_id in streams:
            self.streams[stream_id]["closed"] = command.close
        return o.TopicDone(topic_id, list(streams), True, command.count, command.close)

    def new_stream(self, config: TopicConfig) -> int:
        """An empty stream."""
        stream_id = self.take_id()
        self.streams[stream_id] = {
            "id": stream_id,
            "config": config,
            "records": [],
            "floor": 0,
            "closed": False,
            "deleted": None,
            "order_key": "",
        }
        return stream_id

    def add_partitions(self, command: c.AddPartitions) -> o.Outcome:
        """Only grows."""
        topic = self.topics.get(command.name)
        if topic is None:
            return o.TopicMissing(command.name)
        before = len(topic["streams"])
        if command.partitions < before:
            what = f"partitions (it has {before}; a topic only grows)"
            return o.TooLarge(what, limits.PARTITIONS_MAX, command.partitions, before)
        while len(topic["streams"]) < command.partitions:
            topic["streams"].append(self.new_stream(topic["config"]))
        return o.TopicDone(topic["id"], list(topic["streams"]), len(topic["streams"]) > before)

    def delete_topic(self, command: c.DeleteTopic) -> o.Outcome:
        """The name goes at once; what was written to it is still remembered."""
        topic = self.topics.pop(command.name, None)
        if topic is None:
            return o.TopicMissing(command.name)
        for stream_id in topic["streams"]:
            self.streams[stream_id]["deleted"] = self.now
            self.streams[stream_id]["closed"] = True
        return o.TopicDone(topic["id"], list(topic["streams"]), True)

    def close_stream(self, command: c.CloseStream) -> o.Outcome:
        """Closing twice succeeds; a claim is used up."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        was_closed = stream["closed"]
        changed = not was_closed
        numbers: Any = None
        epoch = sequence = -1
        if command.claim is not None:
            verdict, numbers = self.judge(stream["id"], command.claim)
            if verdict == "accept":
                tail = len(stream["records"])
                self.claim(stream["id"], command.claim, [stream["id"], tail, tail])
                epoch, sequence = command.claim.epoch, command.claim.last
                changed = True
            elif verdict == "duplicate":
                epoch, sequence = numbers["epoch"], numbers["last"]
                changed = False
            elif not was_closed:
                assert isinstance(numbers, o.Refusal)
                return numbers
            else:
                changed = False
        stream["closed"] = was_closed or changed
        answer = self.stands(stream, changed)
        answer.epoch, answer.sequence = epoch, sequence
        return answer

    def trim(self, command: c.Trim) -> o.Outcome:
        """Raise the floor, over holes."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        if command.floor > self.stable(stream):
            return o.OffsetAhead(stream["id"], command.floor, self.stable(stream))
        if command.floor <= stream["floor"]:
            return self.stands(stream, False)
        pinned = [
            (row["frontier"], name)
            for (name, id_), row in self.cursors.items()
            if id_ == stream["id"] and row["pinned"]
        ]
        if pinned and not command.force:
            frontier, name = min(pinned)
            frontier = self.past_holes(stream, max(frontier, stream["floor"]))
            if frontier < command.floor:
                return o.CursorPinned(name, frontier, command.floor)
        stream["floor"] = self.past_holes(stream, command.floor)
        for record in stream["records"][: stream["floor"]]:
            record.setdefault("removed", self.now)
        return self.stands(stream, True)

    def delete_records(self, command: c.DeleteRecords) -> o.Outcome:
        """Single records become holes."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        if command.ranges[-1] > self.stable(stream):
            return o.OffsetAhead(stream["id"], command.ranges[-1], self.stable(stream))
        if command.ranges[0] < stream["floor"]:
            return o.OffsetGone(stream["id"], command.ranges[0], stream["floor"])
        changed = False
        for offset in offsets_of(command.ranges):
            record = stream["records"][offset]
            if record["status"] in ("committed", "aborted"):
                record["status"] = "deleted"
                changed = True
        return self.stands(stream, changed)

    def stands(self, stream: Thing, changed: bool) -> o.StreamDone:
        """Where a stream stands."""
        tail = len(stream["records"])
        return o.StreamDone(stream["id"], stream["floor"], self.stable(stream), tail, stream["closed"], changed)

    def get_stream(self, command: c.GetStream) -> o.Outcome:
        """Where a stream stands."""
        stream = self.stream(command.topic, command.partition)
        return o.TopicMissing(command.topic, command.partition) if stream is None else self.stands(stream, False)

    # --- appends -----------------------------------------------------------------------------------------------------

    def append(self, command: c.Append) -> o.Outcome:
        """Duplicates, then the stream, then the sequence, then the txn."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        if command.txn_id and (command.message_id or command.order_key or command.close):
            return o.ClaimInvalid("a write inside a txn carries no message id, no order key and closes nothing")
        if command.message_id:
            known = self.known_id(stream, command.message_id)
            if known is not None:
                return self.append_known(stream, command, known)
        verdict, numbers = unclaimed()
        if command.claim is not None:
            verdict, numbers = self.judge(stream["id"], command.claim)
            if verdict == "duplicate":
                answer = self.duplicate_by_sequence(stream, numbers)
                if command.message_id and 0 <= answer.first < answer.next:
                    self.remember_id(
                        stream, command.message_id, command.digest, answer.first, answer.next - answer.first
                    )
                    self.ids[self.id_key(stream, command.message_id)]["stream"] = answer.stream_id
                return answer
        tail = len(stream["records"])
        if stream["closed"]:
            return o.StreamClosedRefusal(stream["id"], tail)
        if verdict == "refuse":
            assert isinstance(numbers, o.Refusal)
            return numbers
        if 0 <= command.expected_tail != tail:
            return o.TailMismatch(stream["id"], command.expected_tail, tail)
        if command.order_key and command.order_key <= stream["order_key"]:
            return o.OrderKeyNotRising(stream["order_key"], command.order_key)
        refusal = self.txn_refuses(stream, command)
        if refusal is not None:
            return refusal
        first, next_ = self.add_records(stream, command.count, command.txn_id)
        epoch = sequence = -1
        if command.claim is not None:
            self.claim(stream["id"], command.claim, [stream["id"], first, next_])
            epoch, sequence = command.claim.epoch, command.claim.last
        if command.message_id:
            self.remember_id(stream, command.message_id, command.digest, first, command.count)
        stream["order_key"] = command.order_key or stream["order_key"]
        stream["closed"] = command.close
        return o.Confirmed(stream["id"], first, next_, self.now, False, False, epoch, sequence, command.close)

    def columns(self, command: c.Columns) -> o.Outcome:
        """As batches of one record, or as one batch of all."""
        count = len(command.values)
        if command.together or count == 1:
            return self.append(self.batch_of(command, 0, count))
        if (stream := self.stream(command.topic, command.partition)) is None:
            return o.TopicMissing(command.topic, command.partition)
        first = len(stream["records"])
        exceptions: dict[int, o.Outcome] = {}
        for number in range(count):
            outcome = self.append(self.batch_of(command, number, 1))
            if not isinstance(outcome, o.Confirmed) or outcome.duplicate:
                exceptions[number] = outcome
            else:
                epoch, sequence = outcome.epoch, outcome.sequence
        if len(exceptions) == count:
            epoch = sequence = -1
        return o.Confirmed(
            stream["id"],
            first,
            len(stream["records"]),
            self.now,
            False,
            False,
            epoch,
            sequence,
            command.close and count - 1 not in exceptions,
            exceptions or None,
        )

    def batch_of(self, command: c.Columns, number: int, count: int) -> c.Append:
        """Some values as a ready batch; nobody looks at its bytes."""
        append = c.Append(command.topic, command.partition, b"", count)
        append.claim = None if command.claims is None else command.claims[number]
        append.message_id = b"" if command.message_ids is None else command.message_ids[number]
        append.digest = self.digest(command.values[number] or b"")
        if command.digests is not None:
            append.digest = command.digests[number]
        append.close = command.close and number + count == len(command.values)
        return append

    def append_known(self, stream: Thing, command: c.Append, known: Thing) -> o.Outcome:
        """The id is known: the first outcome, and the sequence is used up."""
        if known["digest"] != command.digest:
            return o.IdConflict(known["stream"], known["first"], known["digest"], command.digest)
        answer = self.duplicate_by_id(stream, known)
        is_there = self.streams[known["stream"]]["deleted"] is None
        if command.claim is not None and is_there and self.is_early(stream["id"], command.claim):
            refusal: o.Refusal = self.judge(stream["id"], command.claim)[1]
            return refusal
        self.use_id(stream, known)
        if command.claim is not None:
            verdict, numbers = self.judge(stream["id"], command.claim)
            if verdict == "accept":
                self.claim(stream["id"], command.claim, [known["stream"], answer.first, answer.next])
                answer.epoch, answer.sequence = command.claim.epoch, command.claim.last
            elif verdict == "duplicate":
                answer.epoch, answer.sequence = numbers["epoch"], numbers["last"]
        return answer

    def duplicate_by_id(self, asked: Thing, known: Thing) -> o.Confirmed:
        """The first outcome of an id, and whether its record is gone."""
        stream = self.streams[known["stream"]]
        first, next_ = known["first"], known["first"] + known["count"]
        closed = stream is asked and stream["closed"] and next_ == len(stream["records"])
        return o.Confirmed(known["stream"], first, next_, known["ms"] * MS, True, self.is_gone(known), closed=closed)

    def duplicate_by_sequence(self, stream: Thing, numbers: Thing) -> o.Confirmed:
        """The first outcome of a sequence."""
        stream_id, first, next_ = numbers["place"]
        here = stream_id == stream["id"]
        gone = here and 0 <= first < stream["floor"]
        closed = here and stream["closed"] and next_ == len(stream["records"])
        return o.Confirmed(stream_id, first, next_, 0, True, gone, numbers["epoch"], numbers["last"], closed)

    def get_receipt(self, command: c.GetReceipt) -> o.Outcome:
        """What became of an id."""
        stream = self.stream(command.topic, command.partition)
        if stream is None:
            return o.TopicMissing(command.topic, command.partition)
        known = self.known_id(stream, command.message_id)
        if known is None:
            return o.NotFound("message id")
        first = known["first"]
        next_ = first + known["count"]
        return o.ReceiptFound(known["stream"], first, next_, known["digest"], known["ms"], self.is_gone(known))

    def get_producer(self, command: c.GetProducer) -> o.Outcome:
        """Where a producer stands."""
        stream = self.stream(command.topic, command.partition) if command.topic else None
        if command.topic and stream is None:
            return o.TopicMissing(command.topic, command.partition)
        row = self.known_producer(0 if stream is None else stream["id"], command.name)
        if row is None:
            return o.NotFound("producer")
        place = row["history"][-1]["place"] if row["history"] else []
        first, next_ = place[1:3] if len(place) == 3 else (-1, -1)
        last = row["history"][-1]["last"] if row["history"] else -1
        return o.ProducerFound(row["epoch"], last, first, next_, row["used"])

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, command: c.Commit) -> o.Outcome:
        """All of it, or none."""
        named = [append for append in command.appends if append.message_id]
        if named and len(named) < len(command.appends) and not command.commit_id and command.claim is None:
            return o.ClaimInvalid(
                "some appends carry a message id and others do not: "
                "give every one an id, or the commit an id or a producer"
            )
        contents = [append.digest for append in command.appends]
        content = (
            [(append.topic, append.partition, append.count, append.digest) for append in command.appends],
            [
                (move.name, move.topic, move.partition, move.frontier, move.metadata, move.pinned)
                for move in command.cursors
            ],
        )
        verdict, numbers = unclaimed()
        if command.claim is not None:
            verdict, numbers = self.judge(0, command.claim, content)
            if self.is_early(0, command.claim, content):
                assert isinstance(numbers, o.Refusal)
                return numbers
        known = self.known_commit(command)
        if known is not None:
            if known["content"] != content:
                return o.ClaimConflict(command.commit_id, list(known["outcome"]), b"", b"")
            self.use_commit(known)
            again = self.commit_again(command, verdict, known["outcome"], content)
            if verdict == "duplicate":
                again.epoch, again.sequence = numbers["epoch"], numbers["last"]
            return again
        if verdict == "duplicate":
            return o.CommitConfirmed(list(numbers["place"]), True, numbers["epoch"], numbers["last"])
        streams: list[Thing] = []
        for number, append in enumerate(command.appends):
            stream = self.stream(append.topic, append.partition)
            if stream is None:
                return o.TopicMissing(append.topic, append.partition, append_number=number)
            streams.append(stream)
        refusal, ids = self.commit_ids(command, streams)
        if refusal is not None:
            return numbers if verdict == "refuse" else refusal
        if ids:
            outcome = [n for known in ids for n in (known["stream"], known["first"], known["first"] + known["count"])]
            refusal = self.follow_known(command, numbers if verdict == "refuse" else None)
            if refusal is not None:
                return refusal
            for append_stream, known in zip(streams, ids, strict=True):
                self.use_id(append_stream, known)
            self.remember_commit(command, outcome, content)
            return self.commit_again(command, verdict, outcome, content)
        if verdict == "refuse":
            assert isinstance(numbers, o.Refusal)
            return numbers
        refusal = self.commit_refused(command, streams)
        if refusal is not None:
            return refusal
        return self.commit_now(command, streams, contents, content)

    def commit_again(self, command: c.Commit, verdict: str, outcome: list[int], content: object) -> o.CommitConfirmed:
        """The first outcome; a new sequence is used up."""
        epoch = sequence = -1
        if command.claim is not None and verdict == "accept":
            self.claim(0, command.claim, outcome, content)
            epoch, sequence = command.claim.epoch, command.claim.last
        return o.CommitConfirmed(list(outcome), True, epoch, sequence)

    def commit_ids(self, command: c.Commit, streams: list[Thing]) -> tuple[o.Refusal | None, list[Thing]]:
        """(why the ids forbid the commit, what is known if all of them are)."""
        found: list[Thing] = []
        seen: list[object] = []
        numbers: list[int] = []
        for number, (append, stream) in enumerate(zip(command.appends, streams, strict=True)):
            if not append.message_id:
                continue
            key = self.id_key(stream, append.message_id)
            if key in seen:
                return o.ClaimInvalid("one message id stands twice in one commit", append_number=number), []
            seen.append(key)
            known = self.known_id(stream, append.message_id)
            if known is not None:
                if known["digest"] != append.digest:
                    place = known["stream"], known["first"]
                    return o.IdConflict(*place, known["digest"], append.digest, append_number=number), []
                found.append(known)
                numbers.append(number)
        if found and len(found) < len(command.appends):
            rest = len(command.appends) - len(found)
            place = found[0]["stream"], found[0]["first"]
            return o.PartlyDuplicate(len(found), rest, *place, append_number=numbers[0]), []
        return None, found

    def follow_known(self, command: c.Commit, refused: o.Refusal | None) -> o.Refusal | None:
        """The records of a commit are all there. If it says who it is, it is a new one, and its cursors follow, none of
        them backwards; else it may be a retry, and only those follow that stand where it expects them to. `refused` is
        what is wrong with its producer: that and the conditions count if there is anything to move."""
        says_who = bool(command.commit_id) or command.claim is not None
        behind: dict[tuple[str, int], int] = {}
        for cursor_number, move in enumerate(command.cursors):
            stream = self.stream(move.topic, move.partition)
            if stream is None:
                continue
            expected = any(
                isinstance(condition, c.ExpectCursor)
                and (condition.name, condition.topic, condition.partition) == (move.name, move.topic, move.partition)
                for condition in command.conditions
            )
            behind.pop((move.name, stream["id"]), None)  # the last of several counts
            row = self.cursors.get((move.name, stream["id"]))
            is_behind = row is None or (row["frontier"] < move.frontier and stream["floor"] < move.frontier)
            if is_behind and (says_who or expected):
                behind[move.name, stream["id"]] = cursor_number
        if not behind:
            return None
        fails = (self.condition_fails(number, condition) for number, condition in enumerate(command.conditions))
        refusal = refused or next((failed for failed in fails if failed is not None), None)
        for cursor_number in behind.values():
            refusal = refusal or self.cursor_refused(command, cursor_number, {})
        if refusal is not None:
            return refusal if says_who else None
        for cursor_number in behind.values():
            move = command.cursors[cursor_number]
            self.set_cursor(move.name, move.topic, move.partition, move.frontier, move.metadata, move.pinned)
        return None

    def commit_refused(self, command: c.Commit, streams: list[Thing]) -> o.Refusal | None:
        """Closed streams, conditions, cursors."""
        for number, stream in enumerate(streams):
            if stream["closed"]:
                return o.StreamClosedRefusal(stream["id"], len(stream["records"]), append_number=number)
        for number, condition in enumerate(command.conditions):
            refusal = self.condition_fails(number, condition)
            if refusal is not None:
                return refusal
        added: dict[int, int] = {}
        for append, stream in zip(command.appends, streams, strict=True):
            added[stream["id"]] = added.get(stream["id"], 0) + append.count
        for number in range(len(command.cursors)):
            refusal = self.cursor_refused(command, number, added)
            if refusal is not None:
                return refusal
        return None

    def cursor_refused(self, command: c.Commit, number: int, added: dict[int, int]) -> o.Refusal | None:
        """Why one of a commit's cursors cannot go there."""
        refusal = self.move_refused(command.cursors[number], added)
        if refusal is not None:
            refusal.cursor_number = number
        return refusal

    def commit_now(self, command: c.Commit, streams: list[Thing], digests: list[bytes], content: object) -> o.Outcome:
        """Everything is checked: make it true."""
        outcome: list[int] = []
        for append, stream, digest in zip(command.appends, streams, digests, strict=True):
            first, next_ = self.add_records(stream, append.count, "")
            outcome += [stream["id"], first, next_]
            if append.message_id:
                self.remember_id(stream, append.message_id, digest, first, append.count)
        for move in command.cursors:
            self.set_cursor(move.name, move.topic, move.partition, move.frontier, move.metadata, move.pinned)
        self.remember_commit(command, outcome, content)
        epoch = sequence = -1
        if command.claim is not None:
            self.claim(0, command.claim, outcome, content)
            epoch, sequence = command.claim.epoch, command.claim.last
        return o.CommitConfirmed(outcome, False, epoch, sequence)

    def condition_fails(self, number: int, condition: c.Condition) -> o.Refusal | None:
        """Compare with what is there before the commit."""
        if isinstance(condition, c.ExpectNew):
            topic = self.topics.get(condition.topic, {"streams": []})
            written = any(self.streams[stream_id]["records"] for stream_id in topic["streams"])
            return o.ConditionFailed(condition.kind, number, "new", "written") if written else None
        stream = self.stream(condition.topic, condition.partition)
        if stream is None:
            return o.TopicMissing(condition.topic, condition.partition)
        expected: int | str
        actual: int | str
        if isinstance(condition, c.ExpectTail):
            expected, actual = condition.tail, len(stream["records"])
        elif isinstance(condition, c.ExpectId):
            known = self.known_id(stream, condition.message_id)
            expected, actual = ("present" if there else "absent" for there in (condition.present, known is not None))
        elif isinstance(condition, c.ExpectEpoch):
            row = self.known_producer(stream["id"], condition.producer)
            expected, actual = condition.epoch, -1 if row is None else row["epoch"]
        else:
            stored = self.cursors.get((condition.name, stream["id"]), {"frontier": 0})["frontier"]
            actual = self.past_holes(stream, max(stored, stream["floor"]))
            expected = condition.frontier
            if stored <= expected <= actual:
                return None
        return None if expected == actual else o.ConditionFailed(condition.kind, number, str(expected), str(actual))

    def known_commit(self, command: c.Commit) -> Thing | None:
        """What is remembered of a commit id."""
        known = self.commits.get((command.scope, command.commit_id)) if command.commit_id else None
        if known is None or known["floor"] == FOREVER:
            return known
        removed = self.removed(known["outcome"])
        if removed is None or self.now - max(removed, known["used"]) < known["floor"] * MS:
            return known
        return None

    def use_commit(self, known: Thing) -> None:
        """Once its records are gone, every use starts its memory anew."""
        if self.removed(known["outcome"]) is not None and known["floor"] != FOREVER:
            known["used"] = self.now

    def remember_commit(self, command: c.Commit, outcome: list[int], content: object) -> None:
        """Keep the commit id as long as the most careful stream asks."""
        if command.commit_id:
            floor = self.floor_of(outcome)
            row = {"content": content, "outcome": list(outcome), "used": self.now, "floor": floor}
            self.commits[(command.scope, command.commit_id)] = row


def unclaimed() -> tuple[str, Any]:
    """What a command without a claim starts from: nothing against it."""
    return "accept", None
