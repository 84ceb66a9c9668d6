"""The dumb model, stages and Spark applications: an application is the list of all batches it ever published."""

from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.rows import Application
from oncelog.core.staged_ids import told_id
from oncelog.testing.model_memory import MS, Thing
from oncelog.testing.model_txn import TxnModel


class StageModel(TxnModel):
    """Stages, and who may publish them."""

    def open_application(self, command: c.OpenApplication) -> o.Outcome:
        """A new driver."""
        row = self.applications.setdefault(command.application, {"fence": 0, "batches": [], "used": 0})
        row["fence"] += 1
        row["used"] = self.now
        query, batch, end, _ = row["batches"][-1] if row["batches"] else ("", -1, b"", [])
        return o.ApplicationDone(row["fence"], query, batch, end)

    def fenced(self, application: str, fence: int) -> o.Refusal | None:
        """Only the newest driver."""
        current = self.applications.get(application, {"fence": 0})["fence"]
        return o.ApplicationFenced(application, current, fence) if fence != current or current == 0 else None

    def open_stage(self, command: c.OpenStage) -> o.Outcome:
        """An empty stage."""
        refusal = self.fenced(command.application, command.fence)
        if refusal is not None:
            return refusal
        stage_id = self.take_id()
        expires = self.now + command.ttl_ms * MS
        row = {"appends": [], "application": command.application, "fence": command.fence}
        self.stages[stage_id] = {**row, "ttl": command.ttl_ms, "expires": expires}
        return o.StageDone(stage_id, 0, expires)

    def stage(self, stage_id: int) -> Thing | None:
        """A stage that still lives."""
        stage = self.stages.get(stage_id)
        return stage if stage is not None and self.now < stage["expires"] else None

    def append_stage(self, command: c.AppendStage) -> o.Outcome:
        """At the end, or the newest one again."""
        stage = self.stage(command.stage_id)
        if stage is None:
            return o.StageMissing(command.stage_id)
        refusal = self.fenced(stage["application"], stage["fence"])
        if refusal is not None:
            return refusal
        count = sum(n for _, n, _ in stage["appends"])
        if stage["appends"] and stage["appends"][-1][:2] == (command.at, command.count):
            if stage["appends"][-1][2] != command.digest:
                return o.ClaimInvalid("the stage holds other content at this place", count, command.at)
            return o.StageDone(command.stage_id, count, stage["expires"], True)
        if command.at != count:
            return o.StageCountMismatch(command.stage_id, command.at, count)
        stage["appends"].append((command.at, command.count, command.digest))
        stage["expires"] = self.now + stage["ttl"] * MS
        return o.StageDone(command.stage_id, count + command.count, stage["expires"])

    def drop_stages(self, command: c.DropStages) -> o.Outcome:
        """Let go."""
        for stage_id in command.stage_ids:
            self.stages.pop(stage_id, None)
        return o.CommitConfirmed([])

    def expire_stages(self, command: c.ExpireStages) -> o.Outcome:
        """Those whose time is up."""
        for stage_id in command.stage_ids:
            if stage_id in self.stages and self.now >= self.stages[stage_id]["expires"]:
                del self.stages[stage_id]
        return o.CommitConfirmed([])

    def publish(self, command: c.Publish) -> o.Outcome:
        """All stages, in one instant, once."""
        refusal = self.fenced(command.application, command.fence)
        if refusal is not None:
            return refusal
        row = self.applications[command.application]
        query, batch, end, outcome = row["batches"][-1] if row["batches"] else ("", -1, b"", [])
        if command.query == query and command.batch <= batch:
            return o.CommitConfirmed(list(outcome) if command.batch == batch else [], True)
        follows = command.batch == batch + 1
        if command.query != query:
            follows = not query or command.accept_new_query or (end != b"" and command.source_start == end)
        if not follows:
            reason = "a batch is missing before this one"
            if command.query != query:
                reason = "another query published for this application and this one does not start where it ended"
            return o.ApplicationBatchRefused(command.application, query, batch + 1, command.batch, reason)
        refusal = self.publish_refused(command)
        if refusal is not None:
            return refusal
        ranges: dict[int, list[int]] = {}
        for item in command.stages:
            del self.stages[item.stage_id]
            stream = self.stream(item.topic, item.partition)
            assert stream is not None
            if item.count:
                first, next_ = self.add_records(stream, item.count, "")
                self.take_ids(stream, first, item)
                ranges.setdefault(stream["id"], [first, next_])[1] = next_
        outcome = [number for stream_id, place in ranges.items() for number in (stream_id, *place)]
        row["batches"].append((command.query, command.batch, command.source_end, outcome))
        row["used"] = self.now
        return o.CommitConfirmed(list(outcome))

    def take_ids(self, stream: Thing, first: int, item: c.PublishItem) -> None:
        """A known id hides the record that came with it; a fresh one is taken."""
        for number, message_id, digest in item.ids or ():
            known = self.known_id(stream, message_id)
            if known is None:
                self.remember_id(stream, message_id, digest, first + number, 1)
            else:
                stream["records"][first + number]["status"] = "duplicate"
                self.use_id(stream, known)

    def publish_refused(self, command: c.Publish) -> o.Refusal | None:
        """The first thing that is wrong with any stage."""
        used: list[int] = []
        taken: dict[object, tuple[int, int, bytes]] = {}
        tails: dict[int, int] = {}
        for item in command.stages:
            stream = self.stream(item.topic, item.partition)
            if stream is None:
                return o.TopicMissing(item.topic, item.partition)
            if stream["closed"]:
                return o.StreamClosedRefusal(stream["id"], len(stream["records"]))
            stage = self.stage(item.stage_id)
            if stage is None or item.stage_id in used or stage["application"] != command.application:
                return o.StageMissing(item.stage_id)
            used.append(item.stage_id)
            count = sum(n for _, n, _ in stage["appends"])
            if count != item.count:
                return o.StageCountMismatch(item.stage_id, item.count, count)
            first = tails.get(stream["id"], len(stream["records"]))
            tails[stream["id"]] = first + count
            for number, message_id, digest in (item.ids or ()) if count else ():
                known = self.known_id(stream, message_id)
                place = (stream["id"], first + number, digest)
                if known is not None:
                    place = (known["stream"], known["first"], known["digest"])
                place = taken.setdefault(self.id_key(stream, message_id), place)
                if place[2] != digest:
                    return o.IdConflict(*place, digest, told_id(message_id), item.topic, item.partition)
        return None

    def get_application(self, command: c.GetApplication) -> o.Outcome:
        """How far an application came."""
        row = self.applications.get(command.application)
        if row is None:
            return o.NotFound("application")
        query, batch, end, outcome = row["batches"][-1] if row["batches"] else ("", -1, b"", [])
        return o.ApplicationFound(Application(row["fence"], query, batch, end, list(outcome), row["used"]))
