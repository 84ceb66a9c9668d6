"""What clients do in simulated runs: short scripts, each of them retried by its client until it is answered.

A script yields commands and is sent their outcomes. A client that was cut off runs the same script again with the
answers that it had got, and sends the command that was never answered once more, with the same claim. That is all
that exactly-once asks of a client.

Each operation says which values it writes as one: they are visible all or none (P4), or never (P6).
"""

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    AppendStage,
    Columns,
    Command,
    Commit,
    CommitAppend,
    ConfirmCursor,
    CreateTopic,
    CursorMove,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    ExpectCursor,
    ExpectEpoch,
    ExpectId,
    ExpectNew,
    InitProducer,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
    Trim,
    TxnCursors,
    one_value,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    ApplicationDone,
    CommitConfirmed,
    Confirmed,
    Outcome,
    Refusal,
    StageDone,
    TxnDone,
    each_outcome,
)
from oncelog.core.producer import SequenceMode
from oncelog.testing.sim_engine import Contents, SimEngine

TIME_MS = 1_700_000_000_000
SETUP_RECORDS = 6
"""Records that every topic begins with, so that trims and deletes have something to take."""


class Checkpoint(NamedTuple):
    """Stands in a script for "the index is brought up now"."""

    lags: bool = False
    """The builder is asked and does not get to it: the generation stays sealed until the next checkpoint."""


Step = Command | Checkpoint
Script = Generator[Step, Outcome | None, None]


class Written(NamedTuple):
    """Values that one operation writes into several topics at one instant."""

    values: tuple[tuple[str, bytes], ...]
    """(topic, value)."""
    never: bool = False
    """An aborted txn's: nobody may ever see one of them."""


class Operation(NamedTuple):
    name: str
    script: Callable[[int], Script]
    written: Callable[[int], list[Written]]


VALUE_BYTES = (1_100, 1_500, 600, 1_300)
"""Of the parts of an operation, in turn: most groups then span three sectors or more, and a power cut may tear them in
more ways than whole or not at all."""


def _value(number: int, part: int) -> bytes:
    return (b"op%d.%d " % (number, part)).ljust(VALUE_BYTES[part % len(VALUE_BYTES)], b"x")


def _batch(*values: bytes) -> bytes:
    return codec.encode_values(values, TIME_MS)


def _id(number: int, part: int = 0) -> bytes:
    return b"id-%d-%d" % (number, part)


def _append_id(topic: str, number: int, part: int) -> Append:
    value = _value(number, part)
    return Append(topic, 0, _batch(value), 1, digest=content_digest(value), message_id=_id(number, part))


# --- scripts -------------------------------------------------------------------------------------------------------


def create_and_append(number: int) -> Script:
    yield CreateTopic(f"new{number}", 2)
    yield _append_id(f"new{number}", number, 0)


def append_by_sequence(number: int) -> Script:
    for sequence in range(2):
        claim = ProducerClaim(f"http:p{number}", 0, sequence, sequence, int(SequenceMode.REQUESTS))
        yield one_value("a", 0, _value(number, sequence), claim=claim)


def append_by_id(number: int) -> Script:
    value = _value(number, 0)
    yield one_value("a", 0, value, content_digest(value), message_id=_id(number, 0))


def append_each(number: int) -> Script:
    parts = [0, 1, 2, 0]
    values, ids = [_value(number, part) for part in parts], [_id(number, part) for part in parts]
    yield Columns("b", 0, values, message_ids=ids)


def commit_over_three(number: int) -> Script:
    yield Commit(
        appends=[
            CommitAppend("a", 0, _batch(_value(number, 0), _value(number, 1)), 2),
            CommitAppend("b", 0, _batch(_value(number, 2)), 1),
            CommitAppend("c", 0, _batch(_value(number, 3)), 1),
        ],
        conditions=[
            ExpectNew(f"unborn{number}"),
            ExpectId("b", 0, b"absent", present=False),
            ExpectCursor(f"commit{number}", "a", 0, 0),
            ExpectEpoch("a", 0, "http:nobody", -1),
        ],
        cursors=[CursorMove(f"commit{number}", "a", 0, 3, "moved with the commit")],
        commit_id=f"commit-{number}",
    )


def stage_and_publish(number: int) -> Script:
    application = yield OpenApplication(f"app{number}")
    assert isinstance(application, ApplicationDone)
    stages = []
    for part in range(2):
        stage = yield OpenStage(f"app{number}", application.fence)
        assert isinstance(stage, StageDone)
        value = _value(number, part)
        yield AppendStage(stage.stage_id, 0, _batch(value, value + b"+"), 2, content_digest(value))
        stages.append(stage.stage_id)
    items = [PublishItem(stages[0], "a", 0, 2), PublishItem(stages[1], "b", 0, 2)]
    yield Publish(items, f"app{number}", application.fence, "query", 0, b"", b"end")


def _txn(number: int, *, commit: bool) -> Script:
    txn_id = f"txn{number}"
    producer = yield InitProducer(txn_id)
    assert isinstance(producer, TxnDone)
    identity = (txn_id, producer.producer_id, producer.epoch)
    yield AddToTxn(*identity, [("a", 0), ("b", 0)], ["group"])
    for sequence, topic in enumerate("aab"):
        first = sequence if topic == "a" else 0
        mode = int(SequenceMode.RECORDS)
        claim = ProducerClaim(f"kafka:{producer.producer_id}", producer.epoch, first, first, mode)
        yield Append(topic, 0, _batch(_value(number, sequence)), 1, claim=claim, txn_id=txn_id)
    yield TxnCursors(*identity, "group", [CursorMove(f"group{number}", "a", 0, 2)])
    yield EndTxn(*identity, commit)


def txn_commit(number: int) -> Script:
    return _txn(number, commit=True)


def txn_abort(number: int) -> Script:
    return _txn(number, commit=False)


def trim(number: int) -> Script:
    yield Trim("a", 0, 1 + number % 4)


def delete_record(number: int) -> Script:
    first = number % 3  # only records of the set-up: others are counted
    yield DeleteRecords("b", 0, [first, first + 1, first + 2, first + 3])


def confirm_cursor(number: int) -> Script:
    yield ConfirmCursor("reader", "a", 0, [1 + number, 2 + number], pinned=False)
    yield ConfirmCursor("reader", "a", 0, [0, 1])


def delete_topic(number: int) -> Script:
    yield DeleteTopic("c")


def checkpoint(number: int) -> Script:
    yield Checkpoint()


def checkpoint_left_behind(number: int) -> Script:
    yield Checkpoint(lags=True)


def _nothing(number: int) -> list[Written]:
    return []


def _each_alone(count: int, topic: str = "a") -> Callable[[int], list[Written]]:
    return lambda number: [Written(((topic, _value(number, part)),)) for part in range(count)]


def _each_of_one_entry(number: int) -> list[Written]:
    return [Written(tuple(("b", _value(number, part)) for part in range(3)))]


def _in_new_topic(number: int) -> list[Written]:
    return [Written(((f"new{number}", _value(number, 0)),))]


def _commit_values(number: int) -> list[Written]:
    return [Written(tuple((topic, _value(number, part)) for part, topic in enumerate("aabc")))]


def _published_values(number: int) -> list[Written]:
    values = [(topic, _value(number, part)) for part, topic in enumerate("ab")]
    return [Written((*values, *((topic, value + b"+") for topic, value in values)))]


def _txn_values(*, never: bool) -> Callable[[int], list[Written]]:
    return lambda number: [Written(tuple((topic, _value(number, part)) for part, topic in enumerate("aab")), never)]


OPERATIONS = (
    Operation("create and append", create_and_append, _in_new_topic),
    Operation("append by sequence", append_by_sequence, _each_alone(2)),
    Operation("append by id", append_by_id, _each_alone(1)),
    Operation("append each", append_each, _each_of_one_entry),
    Operation("commit over three", commit_over_three, _commit_values),
    Operation("stage and publish", stage_and_publish, _published_values),
    Operation("txn commit", txn_commit, _txn_values(never=False)),
    Operation("txn abort", txn_abort, _txn_values(never=True)),
    Operation("trim", trim, _nothing),
    Operation("delete record", delete_record, _nothing),
    Operation("confirm cursor", confirm_cursor, _nothing),
    Operation("delete topic", delete_topic, _nothing),
    Operation("checkpoint", checkpoint, _nothing),
    Operation("checkpoint left behind", checkpoint_left_behind, _nothing),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def set_up(engine: SimEngine) -> None:
    """Topics a, b and c with a few records each."""
    for topic in "abc":
        engine.execute(CreateTopic(topic))
        for part in range(SETUP_RECORDS):
            engine.execute(Append(topic, 0, _batch(b"setup.%d" % part), 1))


# --- clients -------------------------------------------------------------------------------------------------------


class Client:
    """One script and what it was told so far: all that a client keeps across a crash of the server."""

    def __init__(self, operation: Operation, number: int, told: Iterable[Outcome | None] = ()) -> None:
        self.operation = operation
        self.number = number
        self.told: list[Outcome | None] = []
        self._script = operation.script(number)
        self.next_step: Step | None = next(self._script)
        for outcome in told:
            self.tell(outcome)

    def tell(self, outcome: Outcome | None) -> None:
        """The command was answered. A refusal ends a script that needs what it was refused."""
        self.told.append(outcome)
        if isinstance(outcome, Refusal):
            self.next_step = None
            return
        try:
            self.next_step = self._script.send(outcome)
        except StopIteration:
            self.next_step = None

    def fork(self) -> "Client":
        return Client(self.operation, self.number, self.told)


def run_step(engine: SimEngine, client: Client) -> None:
    """Hand in the client's next command. It is told when it is answered."""
    step = client.next_step
    assert step is not None
    if isinstance(step, Checkpoint):
        engine.builds_at_once = not step.lags
        if not step.lags:
            engine.build()
        engine.checkpoint()
        client.tell(None)
    else:
        engine.submit(step).then(client.tell)


def run(engine: SimEngine, clients: list[Client], *, together: bool) -> None:
    """Every script to its end: one after the other with a group per command, or side by side in shared groups."""
    if together:
        while active := [client for client in clients if client.next_step is not None]:
            # Whoever a crash left behind catches up first: a round may have been torn where its segment ended, and
            # records must come in the same order as in a run without a crash.
            steps_done = min(len(client.told) for client in active)
            for client in active:
                if len(client.told) == steps_done:
                    run_step(engine, client)
            engine.flush()
        return
    for client in clients:
        while client.next_step is not None:
            run_step(engine, client)
            engine.flush()


# --- what must be true ---------------------------------------------------------------------------------------------


def check_whole(contents: Contents, clients: list[Client]) -> None:
    """P4 and P6: what was written as one is seen whole or not at all, and once; what was aborted is never seen."""
    seen: dict[tuple[str, bytes | None], int] = {}
    for (topic, _), partition in contents.items():
        for _, value in partition.records:
            seen[topic, value] = seen.get((topic, value), 0) + 1
    topics = {topic for topic, _ in contents}
    held_back = {topic for (topic, _), partition in contents.items() if partition.stable < partition.tail}
    for client in clients:
        # Somebody else's open txn holds back everything behind its first record, in its streams and in no other.
        others = any(other is not client and other.operation.name.startswith("txn") for other in clients)
        for written in client.operation.written(client.number):
            looked_at = topics - held_back if others and not written.never else topics
            counts = [seen.get(place, 0) for place in written.values if place[0] in looked_at]
            allowed = ({0},) if written.never else ({0}, {1})
            assert not counts or set(counts) in allowed, f"{client.operation.name}: {written} is there {counts} times"


def is_retried_safely(command: Command) -> bool:
    """Does the command carry a claim, so that its retry must get the first outcome?"""
    match command:
        case Append():
            return command.claim is not None or command.message_id != b""
        case Columns():
            return command.claims is not None or command.message_ids is not None
        case Publish() | EndTxn():
            return True
        case Commit():
            return command.commit_id != ""
        case _:
            return False


def places_of(command: Command, outcome: Outcome) -> list[int]:
    """Where the records went: flat (stream, first, next)."""
    if isinstance(command, Columns) and len(command.values) > 1 and not command.together:
        one = Columns(command.topic, command.partition, [b""])
        return [number for each in each_outcome(outcome, command) for number in places_of(one, each)]
    match outcome:
        case Confirmed():
            return [outcome.stream_id, outcome.first, outcome.next]
        case CommitConfirmed():
            return list(outcome.outcome)
        case TxnDone():
            return [outcome.producer_id, outcome.epoch]
        case _:
            return []
