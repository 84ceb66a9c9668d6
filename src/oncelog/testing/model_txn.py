"""The dumb model, txns: who holds an id, whether a txn is open, and what its end does to every record of it."""

from oncelog import limits
from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.producer import SequenceMode
from oncelog.testing.model_cursor import CursorModel
from oncelog.testing.model_memory import MS, Thing


def refuse(why: str, txn: Thing | None) -> o.TxnRefused:
    """A refusal names the holder, if there is one."""
    return o.TxnRefused(why, *((txn["pid"], txn["epoch"]) if txn is not None else (-1, -1)))


class TxnModel(CursorModel):
    """States: "empty", "open", "committed", "aborted", and "unseen" for an abort that the client has not learned of."""

    def init_producer(self, command: c.InitProducer) -> o.Outcome:
        """A producer id; with a txn id, the end of whoever held it."""
        if not command.txn_id:
            return o.TxnDone(self.take_producer_id(), 0)
        timeout = command.timeout_ms or limits.TXN_TIMEOUT_MS_DEFAULT
        timeout = min(max(timeout, limits.TXN_TIMEOUT_MS_MIN), limits.TXN_TIMEOUT_MS_MAX)
        txn = self.txns.get(command.txn_id)
        if txn is None:
            pid = self.take_producer_id()
            fresh: Thing = {"pid": pid, "epoch": 0, "state": "empty", "timeout": timeout, "before": None}
            self.txns[command.txn_id] = {**fresh, "started": self.now, "updated": self.now, **nothing_open()}
            return o.TxnDone(pid, 0)
        holder = (command.producer_id, command.epoch)
        if command.producer_id != -1 and holder != (txn["pid"], txn["epoch"]):
            return o.TxnDone(txn["pid"], txn["epoch"]) if holder == txn["before"] else refuse("FENCED", txn)
        was_open = txn["state"] == "open"
        if was_open:
            self.end(command.txn_id, commit=False, fence=True, markers=True)
        else:
            txn["epoch"] += 1
            txn["state"] = "empty"
        txn["before"] = holder if command.producer_id != -1 else None
        txn["timeout"] = timeout
        txn["updated"] = self.now
        return refuse("CONCURRENT", txn) if was_open else o.TxnDone(txn["pid"], txn["epoch"])

    def take_producer_id(self) -> int:
        """The next producer id."""
        self.producer_ids_given += 1
        return self.producer_ids_given

    def identity_refused(self, txn: Thing | None, producer_id: int, epoch: int) -> o.Refusal | None:
        """Whether the caller holds the txn id."""
        if txn is None or txn["pid"] != producer_id:
            return refuse("MAPPING", txn)
        return refuse("FENCED", txn) if txn["epoch"] != epoch else None

    def add_to_txn(self, command: c.AddToTxn) -> o.Outcome:
        """Streams and groups: all or none."""
        found = {name: self.stream(*name) for name in command.streams}
        missing = [name for name, stream in found.items() if stream is None]
        if missing:
            return o.TopicMissing(*missing[0], also=tuple(missing[1:]) or None)
        stream_ids = [stream["id"] for stream in found.values() if stream is not None]
        txn = self.txns.get(command.txn_id)
        refusal = self.identity_refused(txn, command.producer_id, command.epoch)
        if refusal is not None or txn is None:
            return refusal or refuse("MAPPING", None)
        if command.verify_only:
            inside = set(stream_ids) <= set(txn["streams"]) and set(command.groups) <= txn["groups"]
            return o.TxnDone(txn["pid"], txn["epoch"]) if inside else refuse("NOT_IN_TXN", txn)
        if txn["state"] == "unseen":
            return refuse("INVALID_STATE", txn)
        if txn["state"] == "open":
            if set(stream_ids) <= set(txn["streams"]) and set(command.groups) <= txn["groups"]:
                return o.TxnDone(txn["pid"], txn["epoch"])
        else:
            txn["state"] = "open"
            txn["started"] = self.now
        txn["streams"] += [stream_id for stream_id in dict.fromkeys(stream_ids) if stream_id not in txn["streams"]]
        txn["groups"] |= set(command.groups)
        txn["updated"] = self.now
        return o.TxnDone(txn["pid"], txn["epoch"])

    def txn_refuses(self, stream: Thing, command: c.Append) -> o.Refusal | None:
        """Inside a txn or outside, never both."""
        if not command.txn_id:
            open_here = {record["txn"] for record in stream["records"] if record["status"] == "open"}
            names = {f"kafka:{self.txns[txn_id]['pid']}" for txn_id in open_here}
            if command.claim is not None and command.claim.name in names:
                return o.TxnRefused("INVALID_STATE")
            return None
        txn = self.txns.get(command.txn_id)
        if command.claim is None:
            return o.TxnRefused("MAPPING")
        if txn is None or command.claim.name != f"kafka:{txn['pid']}":
            return refuse("MAPPING", txn)
        if command.claim.epoch != txn["epoch"]:
            return refuse("FENCED", txn)
        if txn["state"] != "open" or stream["id"] not in txn["streams"]:
            return refuse("NOT_IN_TXN", txn)
        return None

    def txn_cursors(self, command: c.TxnCursors) -> o.Outcome:
        """Moves that wait for the commit."""
        txn = self.txns.get(command.txn_id)
        refusal = self.identity_refused(txn, command.producer_id, command.epoch)
        if refusal is not None or txn is None:
            return refusal or refuse("MAPPING", None)
        if txn["state"] != "open" or command.group not in txn["groups"]:
            return refuse("NOT_IN_TXN", txn)
        answers: list[o.Refusal | None] = []
        for move in command.moves:
            stream = self.stream(move.topic, move.partition)
            answers.append(None if stream is not None else o.TopicMissing(move.topic, move.partition))
            if stream is not None:
                key = (move.name, stream["id"])
                self.moves_given += 1
                order = txn["pending"].pop(key, (0, "", self.moves_given))[2]
                txn["pending"][key] = (move.frontier, move.metadata, order)
                txn["updated"] = self.now
        return o.OffsetsCommitted(answers)

    def commit_offsets(self, command: c.CommitOffsets) -> o.Outcome:
        """Each as it is given; what waits in a txn was said before."""
        answers: list[o.Refusal | None] = []
        for move in command.moves:
            stream = self.stream(move.topic, move.partition)
            answers.append(None if stream is not None else o.TopicMissing(move.topic, move.partition))
            if stream is not None:
                self.set_cursor(
                    move.name, move.topic, move.partition, move.frontier, move.metadata, move.pinned, given=True
                )
                for txn in self.txns.values():
                    txn["pending"].pop((move.name, stream["id"]), None)
        return o.OffsetsCommitted(answers)

    def write_marker(self, command: c.WriteMarker) -> o.Outcome:
        """An administrator's abort ends the whole txn; an open txn is committed by its producer alone."""
        if command.coordinator_epoch == 0:
            return o.TxnRefused("COORDINATOR_FENCED", command.producer_id, command.epoch)
        streams = [(name, self.stream(*name)) for name in command.streams]
        missing = [name for name, stream in streams if stream is None]
        if missing:
            return o.TopicMissing(*missing[0], also=tuple(missing[1:]) or None)
        found = [txn_id for txn_id, txn in self.txns.items() if txn["pid"] == command.producer_id]
        done = o.TxnDone(command.producer_id, command.epoch)
        if not found:
            return done
        txn = self.txns[found[0]]
        is_open = txn["state"] == "open"
        if is_open and not any(stream is not None and stream["id"] in txn["streams"] for _, stream in streams):
            return done
        if command.commit:
            return done if txn["state"] == "committed" else refuse("INVALID_STATE", txn)
        if txn["epoch"] != command.epoch:
            return refuse("FENCED", txn)
        if is_open:
            self.end(found[0], commit=False, fence=True, markers=True)
            txn["before"] = None
        return o.TxnDone(txn["pid"], txn["epoch"])

    def waiting_txns(self, name: str, stream_id: int) -> tuple[str, ...]:
        """The open txns that will move a cursor."""
        key = (name, stream_id)
        waiting = {txn["pending"][key][2]: txn_id for txn_id, txn in self.txns.items() if key in txn["pending"]}
        return tuple(waiting[order] for order in sorted(waiting))

    def end_txn(self, command: c.EndTxn) -> o.Outcome:
        """Commit or abort; the same end again succeeds."""
        txn = self.txns.get(command.txn_id)
        refusal = self.identity_refused(txn, command.producer_id, command.epoch)
        if refusal is not None or txn is None:
            return refusal or refuse("MAPPING", None)
        done = o.TxnDone(txn["pid"], txn["epoch"])
        if txn["state"] == "open":
            self.end(command.txn_id, commit=command.commit, fence=False, markers=True)
            return done
        if txn["state"] == "unseen" and not command.commit:
            txn["state"] = "aborted"
            txn["updated"] = self.now
            return done
        return done if txn["state"] == ("committed" if command.commit else "aborted") else refuse("INVALID_STATE", txn)

    def expire_txn(self, command: c.ExpireTxn) -> o.Outcome:
        """A timer."""
        txn = self.txns.get(command.txn_id)
        if txn is None:
            return o.CommitConfirmed([])
        if txn["state"] == "open":
            if self.now - txn["started"] < txn["timeout"] * MS:
                return o.CommitConfirmed([])
            self.end(command.txn_id, commit=False, fence=command.fence, markers=command.markers)
            txn["before"] = None if command.fence else txn["before"]
            txn["state"] = "aborted" if command.fence else "unseen"
        elif self.now - txn["updated"] >= limits.TXN_ID_EXPIRY_MS * MS:
            del self.txns[command.txn_id]
        else:
            return o.CommitConfirmed([])
        return o.TxnDone(txn["pid"], txn["epoch"])

    def end(self, txn_id: str, *, commit: bool, fence: bool, markers: bool) -> None:
        """Every record of the txn, every stream it named, every cursor: at one instant."""
        txn = self.txns[txn_id]
        name = f"kafka:{txn['pid']}"
        if fence:
            txn["epoch"] += 1
        for stream_id in txn["streams"]:
            stream = self.streams[stream_id]
            written = [r for r in stream["records"] if r["status"] == "open" and r["txn"] == txn_id]
            for record in written:
                record["status"] = "committed" if commit else "aborted"
            if stream["deleted"] is not None:
                continue
            row = self.producers.get((stream_id, name))
            if fence and (row is None or row["epoch"] < txn["epoch"]):
                fenced = {"epoch": txn["epoch"], "history": [], "mode": SequenceMode.RECORDS, "used": self.now}
                self.producers[(stream_id, name)] = fenced
            if written and markers:
                stream["records"].append({"status": "control"})
        for (cursor, stream_id), (frontier, metadata, _) in txn["pending"].items() if commit else ():
            if self.streams[stream_id]["deleted"] is None:
                row = self.cursors.setdefault((cursor, stream_id), self.new_consumer(frontier))
                row |= {"frontier": frontier, "confirmed": set(), "metadata": metadata, "used": self.now}
                row |= {"given": True, "delivered": frontier, "waiting": {}}
        txn.update(state="committed" if commit else "aborted", updated=self.now, **nothing_open())


def nothing_open() -> Thing:
    """What only an open txn has."""
    return {"streams": [], "groups": set(), "pending": {}}
