"""The fixed list of operations that are carried out against oncelog and against the real server, in this order.

An operation is a name and a request; its result is what a client sees, without times and without what names a server.
Operations of one group share a connection and go on from what those before them left.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.errors import Error, NoRespondersError
from nats.errors import TimeoutError as NothingCame

TIMES: Final = frozenset(
    ("ts", "created", "first_ts", "last_ts", "time", "last_active", "timestamp", "id", "pause_until", "active")
)
LEFT_OUT: Final = frozenset(("lag", "cluster", "domain", "_nats.ver", "_nats.level", "pause_remaining"))
HEADERS_LEFT_OUT: Final = frozenset(("Nats-Time-Stamp",))

ACKS_TAKE_S: Final = 0.3
"""The real server works off acks beside everything else, and says nowhere when it has."""

Results = dict[str, Any]


def clean(value: Any) -> Any:
    """Without times and without what names the server."""
    if isinstance(value, str) and value.startswith("invalid JSON: "):
        return "invalid JSON: …"  # the words are those of whoever parses it
    if isinstance(value, dict):
        kept = {key: "T" if key in TIMES else clean(each) for key, each in value.items() if key not in LEFT_OUT}
        return dict(sorted(kept.items()))
    return [clean(each) for each in value] if isinstance(value, list) else value


class Session:
    """One connection and the results so far."""

    def __init__(self, client: Client, results: Results, group: str) -> None:
        self.client = client
        self.results = results
        self.group = group

    def note(self, name: str, result: Any) -> Any:
        """The result of an operation."""
        key = f"{self.group}: {name}"
        assert key not in self.results, key
        self.results[key] = clean(result)
        return result

    async def silence(self, seconds: float) -> None:
        """Listen where nobody speaks: another process has no event that could be waited for."""
        subscription = await self.client.subscribe(self.client.new_inbox())
        try:
            await subscription.next_msg(timeout=seconds)
        except NothingCame:
            await subscription.unsubscribe()

    async def ask(self, subject: str, body: Any = b"", headers: dict[str, str] | None = None) -> Any:
        """A request; its answer as JSON, text, or the status of its header block."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            message = await self.client.request(subject, payload, timeout=3, headers=headers)
        except NoRespondersError:
            return "no responders"
        except NothingCame:
            return "no answer"
        if message.headers and not message.data:
            return {name: value for name, value in message.headers.items() if name not in HEADERS_LEFT_OUT}
        if not message.data:
            return "empty"
        try:
            return json.loads(message.data)
        except ValueError:
            fields = {name: value for name, value in (message.headers or {}).items() if name not in HEADERS_LEFT_OUT}
            return [message.data.decode(), fields]

    async def api(self, name: str, subject: str, body: Any = b"", headers: dict[str, str] | None = None) -> Any:
        """A JetStream request, noted."""
        return self.note(name, await self.ask(f"$JS.API.{subject}", body, headers))

    async def put(self, name: str, subject: str, body: bytes = b"x", **headers: str) -> Any:
        """A publish that is acknowledged, noted. `_` in the name of a header stands for `-`."""
        fields = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.note(name, await self.ask(subject, body, fields or None))

    async def fetch(
        self, name: str, stream: str, consumer: str, body: dict[str, Any], *, ack: bytes | None = None
    ) -> list[Any]:
        """A pull request: every message and status that comes, until a status, the batch or silence."""
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox)
        await self.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(body).encode(), reply=inbox
        )
        found: list[Any] = []
        try:
            while len(found) < body.get("batch", 1):
                message = await subscription.next_msg(timeout=1.5)
                if not message.reply:
                    status = dict(message.headers or {})
                    found.append(status)
                    if status.get("Status") != "100":
                        break
                    continue
                tokens = message.reply.split(".")
                found.append([message.subject, message.data.decode(), tokens[4], tokens[5], tokens[6], tokens[8]])
                if ack is not None:
                    await self.client.publish(message.reply, ack)
        except NothingCame:
            found.append("silence")
        await subscription.unsubscribe()
        await self.client.flush()
        if ack is not None:
            await self.silence(ACKS_TAKE_S)
        return self.note(name, found)  # type: ignore[no-any-return]


# --- groups --------------------------------------------------------------------------------------------------------


async def streams(s: Session) -> None:
    create = "STREAM.CREATE.A"
    await s.api("info of nothing", "STREAM.INFO.A")
    await s.api("create", create, {"name": "A", "subjects": ["a.>"]})
    await s.api("create again", create, {"name": "A", "subjects": ["a.>"]})
    await s.api("create otherwise", create, {"name": "A", "subjects": ["a.>"], "max_msgs": 5})
    await s.api("create under another name", create, {"name": "B", "subjects": ["b"]})
    await s.api("create with overlapping subjects", "STREAM.CREATE.B", {"name": "B", "subjects": ["a.b"]})
    await s.api("create without subjects", "STREAM.CREATE.plain", {"name": "plain"})
    configs: dict[str, dict[str, Any]] = {
        "no name": {"name": ""},
        "a name with a dot": {"name": "a.b"},
        "a bad subject": {"subjects": ["a..b"]},
        "a subject twice": {"subjects": ["x", "x"]},
        "subjects that overlap": {"subjects": ["x.*", "x.y"]},
        "every subject": {"subjects": [">"]},
        "the API's subjects": {"subjects": ["$JS.API.>"]},
        "a negative age": {"subjects": ["x"], "max_age": -1},
        "a short age": {"subjects": ["x"], "max_age": 1000},
        "a negative window": {"subjects": ["x"], "duplicate_window": -1},
        "a short window": {"subjects": ["x"], "duplicate_window": 1000},
        "a window above the age": {"subjects": ["x"], "max_age": 10**9, "duplicate_window": 2 * 10**9},
        "per subject without discard new": {
            "subjects": ["x"],
            "discard_new_per_subject": True,
            "max_msgs_per_subject": 1,
        },
        "per subject without a limit": {"subjects": ["x"], "discard_new_per_subject": True, "discard": "new"},
        "rollup and deny purge": {"subjects": ["x"], "allow_rollup_hdrs": True, "deny_purge": True},
        "three replicas": {"subjects": ["x"], "num_replicas": 3},
        "nine replicas": {"subjects": ["x"], "num_replicas": 9},
        "minus one replica": {"subjects": ["x"], "num_replicas": -1},
        "async and atomic": {"subjects": ["x"], "persist_mode": "async", "allow_atomic": True},
        "a mirror with subjects": {"subjects": ["x"], "mirror": {"name": "A"}},
        "an atomic mirror": {"mirror": {"name": "A"}, "allow_atomic": True},
        "a long description": {"subjects": ["x"], "description": "d" * 5000},
        "no retention that exists": {"subjects": ["x"], "retention": "maybe"},
    }
    for what, config in configs.items():
        name = config.get("name", "X")
        await s.api(f"create with {what}", f"STREAM.CREATE.{name or 'X'}", {"name": name, **config})
    await s.api("create from garbage", create, b"{not json")
    await s.api("update", "STREAM.UPDATE.A", {"name": "A", "subjects": ["a.>", "c"], "max_msgs": 100})
    await s.api("update of nothing", "STREAM.UPDATE.none", {"name": "none", "subjects": ["n"]})
    await s.api("update of the storage", "STREAM.UPDATE.A", {"name": "A", "subjects": ["a.>"], "storage": "memory"})
    await s.api(
        "update to a work queue", "STREAM.UPDATE.A", {"name": "A", "subjects": ["a.>"], "retention": "workqueue"}
    )
    await s.api("info", "STREAM.INFO.A")
    await s.api("names", "STREAM.NAMES")
    await s.api("names by subject", "STREAM.NAMES", {"subject": "a.b"})
    await s.api("names behind the end", "STREAM.NAMES", {"offset": 5})
    await s.api("list", "STREAM.LIST")
    await s.api("required level", "STREAM.INFO.A", b"", {"Nats-Required-Api-Level": "9"})
    await s.api("delete with a body", "STREAM.DELETE.plain", {"x": 1})
    await s.api("delete", "STREAM.DELETE.plain")
    await s.api("delete again", "STREAM.DELETE.plain")
    await s.api("an unknown request", "STREAM.FROB.A")


async def publishing(s: Session) -> None:
    await s.api("stream", "STREAM.CREATE.P", {"name": "P", "subjects": ["p.>"], "max_msg_size": 100})
    await s.put("plain", "p.a")
    await s.put("empty", "p.a", b"")
    await s.put("nowhere", "q.a")
    await s.put("with an id", "p.a", Nats_Msg_Id="m1")
    await s.put("with the same id", "p.a", Nats_Msg_Id="m1")
    await s.put("with the same id and other content", "p.b", b"other", Nats_Msg_Id="m1")
    await s.put("for the right stream", "p.a", Nats_Expected_Stream="P")
    await s.put("for another stream", "p.a", Nats_Expected_Stream="Q")
    await s.put("after the right sequence", "p.a", Nats_Expected_Last_Sequence="4")
    await s.put("after a wrong sequence", "p.a", Nats_Expected_Last_Sequence="4")
    await s.put("after no number", "p.a", Nats_Expected_Last_Sequence="x")
    await s.put("after the right subject sequence", "p.c", Nats_Expected_Last_Subject_Sequence="0")
    await s.put("after a wrong subject sequence", "p.c", Nats_Expected_Last_Subject_Sequence="0")
    await s.put(
        "after the sequence of another subject", "p.d",
        Nats_Expected_Last_Subject_Sequence="6", Nats_Expected_Last_Subject_Sequence_Subject="p.c",
    )  # fmt: skip
    await s.put(
        "after the sequence of a pattern", "p.d",
        Nats_Expected_Last_Subject_Sequence="7", Nats_Expected_Last_Subject_Sequence_Subject="p.*",
    )  # fmt: skip
    await s.put("after a subject without a sequence", "p.d", Nats_Expected_Last_Subject_Sequence_Subject="p.c")
    await s.put("after a wrong id", "p.a", Nats_Expected_Last_Msg_Id="m9")
    await s.put("with an id to expect", "p.a", Nats_Msg_Id="m2")
    await s.put("after the right id", "p.a", Nats_Expected_Last_Msg_Id="m2")
    await s.put("an id and an expectation that holds no more", "p.a", Nats_Msg_Id="m1", Nats_Expected_Last_Sequence="3")
    await s.put("too large", "p.a", b"x" * 101)
    await s.put("with a time to live", "p.a", Nats_TTL="5s")
    await s.put("with a rollup", "p.a", Nats_Rollup="sub")
    await s.put("a header of its own", "p.h", b"x", X_Mine="1")
    await s.api("get it back", "STREAM.MSG.GET.P", {"last_by_subj": "p.h"})
    await s.api("state", "STREAM.INFO.P", {"subjects_filter": ">"})
    await s.put("with a level that is too high", "p.a", Nats_Required_Api_Level="9")


async def atomic(s: Session) -> None:
    await s.api("stream", "STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], "allow_atomic": True})
    await s.api("stream without", "STREAM.CREATE.U", {"name": "U", "subjects": ["u.>"]})

    async def member(
        name: str, sequence: object, batch: str = "one", subject: str = "t.a", commit: str = "", **more: str
    ) -> None:
        headers = {"Nats_Batch_Id": batch, "Nats_Batch_Sequence": str(sequence), **more}
        if commit:
            headers["Nats_Batch_Commit"] = commit
        await s.put(name, subject, b"x", **headers)

    await member("where it is off", 1, subject="u.a")
    await member("first", 1)
    await member("second", 2)
    await member("commit", 3, commit="1")
    await member("first of two", 1, "two")
    await member("end of batch", 2, "two", commit="eob")
    await member("a batch of one", 1, "three", commit="1")
    await member("a lone end", 1, "four", commit="eob")
    await member("an unknown batch", 2, "five")
    await member("before a gap", 1, "six")
    await member("a gap", 3, "six")
    await member("behind a gap", 4, "six", commit="1")
    await member("no number", "x", "seven")
    await member("a long id", 1, "i" * 65)
    await member("an id of 64", 1, "i" * 64, commit="1")
    await member("too many", 1001, "eight")
    await member("a commit that is no word", 1, "nine", commit="yes")
    await member("a level too high", 1, "ten", Nats_Required_Api_Level="9")
    await member("the last id expected", 1, "eleven", commit="1", Nats_Expected_Last_Msg_Id="m")
    await member("a wrong sequence", 1, "twelve", commit="1", Nats_Expected_Last_Sequence="3")
    await member("a right sequence", 1, "thirteen", commit="1", Nats_Expected_Last_Sequence="6")
    await member("first without expectation", 1, "fourteen")
    await member("second with expectation", 2, "fourteen", commit="1", Nats_Expected_Last_Sequence="7")
    await member("subject first", 1, "fifteen", Nats_Expected_Last_Subject_Sequence="7")
    await member("subject again", 2, "fifteen", commit="1", Nats_Expected_Last_Subject_Sequence="7")
    await member("an id", 1, "sixteen", commit="1", Nats_Msg_Id="m1")
    await member("the id again", 1, "seventeen", commit="1", Nats_Msg_Id="m1")
    await member("two equal ids, first", 1, "eighteen", Nats_Msg_Id="m2")
    await member("two equal ids", 2, "eighteen", commit="1", Nats_Msg_Id="m2")
    await s.api("state", "STREAM.INFO.T")
    await s.api("a member as it is stored", "STREAM.MSG.GET.T", {"seq": 3})
    await s.api("turned off", "STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"]})
    await member("while it is off", 1, "nineteen")


async def messages(s: Session) -> None:
    config = {"name": "M", "subjects": ["m.>"], "allow_direct": True}
    await s.api("stream", "STREAM.CREATE.M", config)
    for number in range(1, 11):
        await s.put(f"message {number}", f"m.{number % 3}", b"%d" % number)
    await s.api("get", "STREAM.MSG.GET.M", {"seq": 4})
    await s.api("get the last of a subject", "STREAM.MSG.GET.M", {"last_by_subj": "m.1"})
    await s.api("get the last of a pattern", "STREAM.MSG.GET.M", {"last_by_subj": "m.*"})
    await s.api("get the next of a subject", "STREAM.MSG.GET.M", {"seq": 5, "next_by_subj": "m.1"})
    await s.api("get nothing", "STREAM.MSG.GET.M", {"seq": 99})
    await s.api("get without a wish", "STREAM.MSG.GET.M", {})
    await s.api("direct get", "DIRECT.GET.M", {"seq": 4})
    await s.api("direct get of a subject", "DIRECT.GET.M.m.1")
    await s.api("direct get of the last", "DIRECT.GET.M", {"last_by_subj": "m.2"})
    await s.api("direct get of the next", "DIRECT.GET.M", {"seq": 5, "next_by_subj": "m.2"})
    await s.api("direct get of nothing", "DIRECT.GET.M", {"seq": 99})
    await s.api("direct get without a wish", "DIRECT.GET.M", {})
    await s.api("delete", "STREAM.MSG.DELETE.M", {"seq": 4})
    await s.api("delete again", "STREAM.MSG.DELETE.M", {"seq": 4})
    await s.api("state after a delete", "STREAM.INFO.M", {"deleted_details": True})
    await s.api("purge a subject", "STREAM.PURGE.M", {"filter": "m.0"})
    await s.api("purge below", "STREAM.PURGE.M", {"seq": 3})
    await s.api("purge but two", "STREAM.PURGE.M", {"keep": 2})
    await s.api("purge with both", "STREAM.PURGE.M", {"keep": 2, "seq": 3})
    await s.api("state after purges", "STREAM.INFO.M", {"subjects_filter": "m.>"})
    await s.api("purge", "STREAM.PURGE.M")
    await s.api("state after all", "STREAM.INFO.M")
    await s.put("after a purge", "m.1")
    await s.api("purge of nothing", "STREAM.PURGE.none")
    await s.api("denied", "STREAM.CREATE.N", {"name": "N", "subjects": ["n"], "deny_delete": True, "deny_purge": True})
    await s.put("into it", "n")
    await s.api("denied delete", "STREAM.MSG.DELETE.N", {"seq": 1})
    await s.api("denied purge", "STREAM.PURGE.N")
    await s.api(
        "sealed",
        "STREAM.UPDATE.N",
        {"name": "N", "subjects": ["n"], "deny_delete": True, "deny_purge": True, "sealed": True},
    )
    await s.put("into a sealed stream", "n")


async def limits(s: Session) -> None:
    await s.api("three at most", "STREAM.CREATE.L", {"name": "L", "subjects": ["l.*"], "max_msgs": 3})
    for number in range(5):
        await s.put(f"old goes {number}", f"l.{number}")
    await s.api("state", "STREAM.INFO.L")
    await s.api(
        "refuse the new", "STREAM.CREATE.R", {"name": "R", "subjects": ["r.*"], "max_msgs": 2, "discard": "new"}
    )
    for number in range(3):
        await s.put(f"new goes {number}", f"r.{number}")
    await s.api("one per subject", "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], "max_msgs_per_subject": 1})
    for number in range(4):
        await s.put(f"per subject {number}", f"o.{number % 2}")
    await s.api("state per subject", "STREAM.INFO.O", {"subjects_filter": ">", "deleted_details": True})
    refuse = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}
    await s.api("refuse per subject", "STREAM.CREATE.Q", {"name": "Q", "subjects": ["qq.*"], **refuse})
    for number in range(3):
        await s.put(f"refused per subject {number}", f"qq.{number % 2}")
    await s.api("rollups", "STREAM.CREATE.Y", {"name": "Y", "subjects": ["y.*"], "allow_rollup_hdrs": True})
    for number in range(4):
        await s.put(f"before the rollup {number}", f"y.{number % 2}")
    await s.put("rollup of a subject", "y.0", Nats_Rollup="sub")
    await s.api("state after it", "STREAM.INFO.Y", {"subjects_filter": ">"})
    await s.put("rollup of all", "y.1", Nats_Rollup="all")
    await s.put("rollup of what", "y.1", Nats_Rollup="what")
    await s.api("state after both", "STREAM.INFO.Y", {"subjects_filter": ">"})
    await s.api("few bytes", "STREAM.CREATE.Z", {"name": "Z", "subjects": ["z"], "max_bytes": 100})
    for number in range(4):
        await s.put(f"bytes {number}", "z", b"x" * 10)
    await s.api("state of few bytes", "STREAM.INFO.Z")


async def consumers(s: Session) -> None:
    await s.api("stream", "STREAM.CREATE.C", {"name": "C", "subjects": ["c.>"]})
    for number in range(1, 7):
        await s.put(f"message {number}", f"c.{number % 2}", b"%d" % number)
    config: dict[str, Any] = {"durable_name": "D", "ack_policy": "explicit"}

    async def create(name: str, consumer: str, *, action: str = "", **fields: Any) -> None:
        body = {
            "stream_name": "C",
            "config": {**config, "durable_name": consumer, "name": consumer, **fields},
            "action": action,
        }
        await s.api(name, f"CONSUMER.CREATE.C.{consumer}", body)

    await create("create", "D")
    await create("create again", "D", action="create")
    await create("create otherwise", "D", action="create", max_deliver=3)
    await create("update", "D", action="update", max_deliver=3)
    await create("update of nothing", "E", action="update")
    wrong: dict[str, dict[str, Any]] = {
        "no ack policy that exists": {"ack_policy": "maybe"},
        "a wildcard to deliver to": {"deliver_subject": "x.*"},
        "a cycle": {"deliver_subject": "c.x"},
        "a start without a policy": {"opt_start_seq": 5},
        "a policy without a start": {"deliver_policy": "by_start_sequence"},
        "last per subject without a filter": {"deliver_policy": "last_per_subject"},
        "a foreign filter": {"filter_subject": "x.y"},
        "both filters": {"filter_subject": "c.1", "filter_subjects": ["c.0"]},
        "filters that overlap": {"filter_subjects": ["c.*", "c.1"]},
        "an empty filter": {"filter_subjects": [""]},
        "a heartbeat for pull": {"idle_heartbeat": 10**9},
        "flow control for pull": {"flow_control": True},
        "flow control without a heartbeat": {"deliver_subject": "d", "flow_control": True},
        "a small heartbeat": {"deliver_subject": "d", "idle_heartbeat": 1000},
        "more waits than deliveries": {"backoff": [1, 2, 3], "max_deliver": 2},
        "a negative wait": {"ack_wait": -1},
        "three replicas": {"num_replicas": 3},
    }
    for what, fields in wrong.items():
        await create(f"create with {what}", "F", **fields)
    await s.api("create in no stream", "CONSUMER.CREATE.none.D", {"stream_name": "none", "config": config})
    await s.api("create without a configuration", "CONSUMER.CREATE.C.G", {"stream_name": "C"})
    await s.api("info", "CONSUMER.INFO.C.D")
    await s.api("info of nothing", "CONSUMER.INFO.C.none")
    await s.fetch("fetch two and ack", "C", "D", {"batch": 2, "expires": 10**9}, ack=b"+ACK")
    await s.fetch("fetch one and leave it", "C", "D", {"batch": 1, "expires": 10**9})
    await s.fetch("fetch one and nak it", "C", "D", {"batch": 1, "expires": 10**9}, ack=b"-NAK")
    await s.fetch("fetch it again and end it", "C", "D", {"batch": 1, "expires": 10**9}, ack=b"+TERM")
    await s.api("info between", "CONSUMER.INFO.C.D")
    await s.fetch("fetch the rest without waiting", "C", "D", {"batch": 10, "no_wait": True}, ack=b"")
    await s.fetch("fetch nothing without waiting", "C", "D", {"batch": 1, "no_wait": True})
    await s.fetch("fetch nothing with a wait", "C", "D", {"batch": 1, "expires": 3 * 10**8})
    await s.fetch("fetch with a heartbeat", "C", "D", {"batch": 2, "expires": 6 * 10**8, "idle_heartbeat": 2 * 10**8})
    await s.fetch("fetch of nobody", "C", "none", {"batch": 1, "no_wait": True})
    await s.api("info after all", "CONSUMER.INFO.C.D")
    await create("filtered", "FF", filter_subject="c.1")
    await s.fetch("fetch what is filtered", "C", "FF", {"batch": 5, "no_wait": True}, ack=b"+ACK")
    await create("from the last", "H", deliver_policy="last")
    await s.fetch("fetch the last", "C", "H", {"batch": 5, "no_wait": True}, ack=b"+ACK")
    await create("from a sequence", "I", deliver_policy="by_start_sequence", opt_start_seq=4)
    await s.fetch("fetch from a sequence", "C", "I", {"batch": 5, "no_wait": True}, ack=b"+ACK")
    await create("the last of each", "J", deliver_policy="last_per_subject", filter_subject="c.>")
    await s.fetch("fetch the last of each", "C", "J", {"batch": 5, "no_wait": True}, ack=b"+ACK")
    await create("only new", "K", deliver_policy="new")
    await s.fetch("fetch what is new", "C", "K", {"batch": 5, "no_wait": True})
    await create("ack all", "L", ack_policy="all")
    await s.fetch("fetch three", "C", "L", {"batch": 3, "no_wait": True})
    await create("headers only", "M", headers_only=True)
    await s.fetch("fetch headers", "C", "M", {"batch": 2, "no_wait": True})
    await create("two pending", "N", max_ack_pending=2)
    await s.fetch("fetch more than may be pending", "C", "N", {"batch": 5, "expires": 3 * 10**8})
    await s.fetch("fetch few bytes", "C", "G", {"batch": 5, "max_bytes": 10, "expires": 3 * 10**8})
    await s.api("names", "CONSUMER.NAMES.C")
    await s.api("pause", "CONSUMER.PAUSE.C.K", {"pause_until": "2100-01-01T00:00:00Z"})
    await s.api("go on", "CONSUMER.PAUSE.C.K", {})
    await s.api("delete", "CONSUMER.DELETE.C.D")
    await s.api("delete again", "CONSUMER.DELETE.C.D")


async def queues(s: Session) -> None:
    await s.api("work queue", "STREAM.CREATE.W", {"name": "W", "subjects": ["w.*"], "retention": "workqueue"})
    for number in range(1, 5):
        await s.put(f"job {number}", f"w.{number % 2}", Nats_Msg_Id=f"j{number}")
    explicit = {"durable_name": "A", "name": "A", "ack_policy": "explicit"}
    await s.api("consumer", "CONSUMER.CREATE.W.A", {"stream_name": "W", "config": explicit})
    other = {"durable_name": "B", "name": "B", "ack_policy": "explicit"}
    await s.api("a second consumer", "CONSUMER.CREATE.W.B", {"stream_name": "W", "config": other})
    await s.api(
        "one without acks", "CONSUMER.CREATE.W.B", {"stream_name": "W", "config": {**other, "ack_policy": "none"}}
    )
    await s.api(
        "one from the new", "CONSUMER.CREATE.W.B", {"stream_name": "W", "config": {**other, "deliver_policy": "new"}}
    )
    await s.fetch("two jobs", "W", "A", {"batch": 2, "no_wait": True}, ack=b"+ACK")
    await s.ask("$JS.API.CONSUMER.INFO.W.A")
    await s.api("what is left", "STREAM.INFO.W")
    await s.put("a job that was done", "w.1", Nats_Msg_Id="j1")
    await s.api("interest", "STREAM.CREATE.V", {"name": "V", "subjects": ["v.*"], "retention": "interest"})
    await s.put("without interest", "v.1")
    await s.api("nothing is kept", "STREAM.INFO.V")
    await s.api("interested", "CONSUMER.CREATE.V.A", {"stream_name": "V", "config": explicit})
    await s.put("with interest", "v.1")
    await s.api("it is kept", "STREAM.INFO.V")
    await s.fetch("read it", "V", "A", {"batch": 1, "no_wait": True}, ack=b"+ACK")
    await s.ask("$JS.API.CONSUMER.INFO.V.A")
    await s.api("it is gone", "STREAM.INFO.V")


async def core(s: Session) -> None:
    client = s.client

    async def received(name: str, pattern: str, subjects: list[str], *, most: int = 0) -> None:
        subscription = await client.subscribe(pattern)
        if most:
            await subscription.unsubscribe(most)
        for subject in subjects:
            await client.publish(subject, subject.encode())
        await client.flush()
        found = []
        try:
            while True:
                found.append((await subscription.next_msg(timeout=0.2)).data.decode())
        except (NothingCame, Error):
            pass
        if not most:
            await subscription.unsubscribe()
        s.note(name, found)

    await received("a literal subject", "x.y", ["x.y", "x.z", "x"])
    await received("a star", "x.*", ["x.y", "x.y.z", "x"])
    await received("a rest", "x.>", ["x.y", "x.y.z", "x"])
    await received("two messages at most", "x", ["x", "x", "x"], most=2)
    s.note("a request that nobody hears", await s.ask("nobody"))
    counts = [0, 0]

    def counting(number: int) -> Callable[[Any], Awaitable[None]]:
        async def count(_message: Any) -> None:
            counts[number] += 1

        return count

    members = [await client.subscribe("work", queue="q", cb=counting(number)) for number in range(2)]
    for _ in range(20):
        await client.publish("work")
    await client.flush()
    await s.silence(0.2)
    s.note("a queue group", sum(counts))
    for member in members:
        await member.unsubscribe()


async def buckets(s: Session) -> None:
    from nats.js.errors import APIError, KeyDeletedError, KeyNotFoundError, KeyWrongLastSequenceError

    js = s.client.jetstream()

    async def told(name: str, call: Awaitable[Any]) -> Any:
        try:
            result = await call
        except (APIError, KeyNotFoundError, KeyDeletedError, KeyWrongLastSequenceError) as error:
            result = type(error).__name__
        if hasattr(result, "value"):
            result = [result.key, (result.value or b"").decode(), result.revision, result.operation]
        return s.note(name, result)

    bucket = await js.create_key_value(bucket="B", history=3)
    await told("put", bucket.put("a", b"1"))
    await told("put again", bucket.put("a", b"2"))
    await told("get", bucket.get("a"))
    await told("get nothing", bucket.get("zz"))
    await told("get a revision", bucket.get("a", revision=1))
    await told("create what is there", bucket.create("a", b"3"))
    await told("create", bucket.create("b", b"4"))
    await told("update", bucket.update("b", b"5", last=3))
    await told("update of an old revision", bucket.update("b", b"6", last=3))
    await told("delete", bucket.delete("b"))
    await told("get what was deleted", bucket.get("b"))
    await told("create what was deleted", bucket.create("b", b"7"))
    await told("keys", bucket.keys())
    history = await bucket.history("b")
    s.note("history", [[each.key, (each.value or b"").decode(), each.revision, each.operation] for each in history])
    await told("purge", bucket.purge("a"))
    await told("keys after a purge", bucket.keys())
    watcher = await bucket.watchall()
    seen = []
    async for each in watcher:
        if each is None:
            break
        seen.append([each.key, (each.value or b"").decode(), each.revision, each.operation])
    s.note("watch", sorted(seen, key=lambda each: str(each[2])))
    await watcher.stop()  # type: ignore[no-untyped-call]
    status = await bucket.status()
    s.note("status", [status.values, status.history, status.bucket])


async def transfers(s: Session) -> None:
    await s.api("origin", "STREAM.CREATE.SO", {"name": "SO", "subjects": ["so.*"]})
    for number in range(3):
        await s.put(f"message {number}", f"so.{number}")
    await s.api("mirror", "STREAM.CREATE.MI", {"name": "MI", "mirror": {"name": "SO"}})
    await s.api(
        "sourced",
        "STREAM.CREATE.SU",
        {"name": "SU", "subjects": ["su.*"], "sources": [{"name": "SO", "filter_subject": "so.1"}]},
    )

    async def until(stream: str, messages: int) -> Any:
        for _ in range(100):
            info = await s.ask(f"$JS.API.STREAM.INFO.{stream}")
            if info.get("state", {}).get("messages") == messages:
                return {"messages": messages, "last_seq": info["state"]["last_seq"]}
            await s.silence(0.05)
        return "never"

    s.note("the mirror has all", await until("MI", 3))
    s.note("the sourced has one", await until("SU", 1))
    await s.put("more", "so.1")
    s.note("the mirror follows", await until("MI", 4))
    s.note("the sourced follows", await until("SU", 2))
    await s.api("a message of the mirror", "STREAM.MSG.GET.MI", {"seq": 2})
    await s.put("its own", "su.1")
    s.note("it has its own as well", await until("SU", 3))


GROUPS: Final[dict[str, Callable[[Session], Awaitable[None]]]] = {
    "streams": streams,
    "publishing": publishing,
    "atomic": atomic,
    "messages": messages,
    "limits": limits,
    "consumers": consumers,
    "queues": queues,
    "core": core,
    "buckets": buckets,
    "transfers": transfers,
}


async def _quiet(_error: Exception) -> None:
    """Errors are results here."""


async def carried_out(port: int) -> Results:
    """Every operation, by name."""
    results: Results = {}
    for name, group in GROUPS.items():
        client = await nats.connect(f"nats://127.0.0.1:{port}", error_cb=_quiet, allow_reconnect=False)
        try:
            await group(Session(client, results, name))
        finally:
            await client.close()
    return results
