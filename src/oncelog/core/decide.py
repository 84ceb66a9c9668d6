"""`decide`: from a command and the state to an entry and an answer. Mutates nothing; no I/O, no clock, no chance.

The caller has loaded what `core.needs` asked for, gives the time, and afterwards appends the entry, applies it, and
holds the answer back until everything that it was decided on is durable.
"""

from collections.abc import Callable
from typing import Any, Final

from oncelog.core import append, columns, commit, consumer, cursor, query, stage, stream, subjects, txn_commands
from oncelog.core import command as c
from oncelog.core.entry import Entry
from oncelog.core.fact_columns import as_columns
from oncelog.core.names import command_refused
from oncelog.core.outcome import Outcome, Refusal
from oncelog.core.rows import JCS
from oncelog.core.state import State


def decide(state: State, command: c.Command, now_ns: int) -> tuple[Entry | None, Outcome]:
    """What the command brings about, if anything, and what its sender is told. Raises KeyError if a row that it needs
    was not loaded; the caller may load what `needs` lists and ask again."""
    # Rules and entries use one time, which never runs backwards.
    if now_ns < state.time_ns:
        now_ns = state.time_ns
    kind = type(command)
    if kind is c.Append or kind is c.Columns:  # nearly all traffic: its names are looked at only where one is new
        try:
            return _DECIDE[kind](state, command, now_ns)
        except KeyError:
            # `needs` loads nothing for a command with a name that no table holds.
            if (refusal := command_refused(command)) is None:
                raise
            return None, refusal
    refusal = command_refused(command)
    return _DECIDE[kind](state, command, now_ns) if refusal is None else (None, refusal)


def _ready(state: State, command: c.Append, now_ns: int) -> tuple[Entry | None, Outcome]:
    """A ready batch; for a fact topic, the facts in it."""
    topic = state.topics[command.topic]
    if topic is None or topic.config.digest != JCS:
        return append.decide_append(state, command, now_ns)
    asked = as_columns(command)
    return (None, asked) if isinstance(asked, Refusal) else columns.decide_one(state, asked, now_ns)


_DECIDE: Final[dict[type[c.Command], Callable[[State, Any, int], tuple[Entry | None, Outcome]]]] = {
    c.Append: _ready,
    c.Columns: columns.decide_one,
    c.Commit: commit.decide_commit,
    c.CreateTopic: stream.decide_create,
    c.AddPartitions: stream.decide_add_partitions,
    c.ConfigureTopic: stream.decide_configure,
    c.DeleteTopic: stream.decide_delete,
    c.CloseStream: stream.decide_close,
    c.Trim: stream.decide_trim,
    c.DeleteRecords: stream.decide_delete_records,
    c.BeginSubjects: subjects.decide_begin,
    c.IndexSubjects: subjects.decide_index,
    c.GetSubject: subjects.decide_subject,
    c.OpenApplication: stage.decide_open_application,
    c.OpenStage: stage.decide_open_stage,
    c.AppendStage: stage.decide_append_stage,
    c.DropStages: stage.decide_drop_stages,
    c.Publish: stage.decide_publish,
    c.MoveCursors: cursor.decide_moves,
    c.CommitOffsets: cursor.decide_offsets,
    c.ConfirmCursor: consumer.decide_confirm,
    c.SetConsumer: consumer.decide_set,
    c.UpdateConsumers: consumer.decide_update,
    c.DeleteConsumer: consumer.decide_delete_consumer,
    c.DeleteCursor: cursor.decide_delete_cursor,
    c.InitProducer: txn_commands.decide_init,
    c.AddToTxn: txn_commands.decide_add,
    c.TxnCursors: txn_commands.decide_cursors,
    c.EndTxn: txn_commands.decide_end,
    c.WriteMarker: txn_commands.decide_marker,
    c.ExpireTxn: txn_commands.decide_expire,
    c.ExpireStages: stage.decide_expire_stages,
    c.GetTopic: query.decide_topic,
    c.GetStream: query.decide_stream,
    c.GetReceipt: query.decide_receipt,
    c.GetProducer: query.decide_producer,
    c.GetCursor: query.decide_cursor,
    c.GetTxn: query.decide_txn,
    c.GetApplication: query.decide_application,
}
