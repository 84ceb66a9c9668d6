"""What a stream's state says to a message before it is stored: expectations, and limits that refuse the new.

`Staged` is the state as it will be once the messages before it in the same write are stored. In an atomic batch the
expectations compare with the state before the batch (seed 000), so a subject that an earlier member writes cannot be
expected any more (10164).
"""

from oncelog.protocols.nats import errors
from oncelog.protocols.nats.errors import ApiError, store_failed
from oncelog.protocols.nats.index import Index
from oncelog.protocols.nats.publishing import Wishes
from oncelog.protocols.nats.stream_config import StreamConfig
from oncelog.protocols.nats.subject import is_literal, matches


class Staged:
    """The stream's index, and what is written before the message that is looked at."""

    def __init__(self, index: Index, last_msg_id: str) -> None:
        self.index = index
        self.added = 0
        self.bytes = 0
        self.last: dict[str, int] = {}
        """Subject -> sequence, of what is staged."""
        self.counts: dict[str, int] = {}
        self.last_msg_id = last_msg_id

    @property
    def last_sequence(self) -> int:
        return self.index.next + self.added

    def add(self, subject: str, size: int, msg_id: str) -> None:
        """One more message will be stored."""
        self.added += 1
        self.bytes += size
        self.last[subject] = self.last_sequence
        self.counts[subject] = self.counts.get(subject, 0) + 1
        self.last_msg_id = msg_id

    def last_of(self, subject: str) -> int:
        """The last sequence of a subject, or of those that a pattern stands for; 0 if there is none."""
        if is_literal(subject):
            staged = self.last.get(subject)
            if staged is not None:
                return staged
            row = self.index.rows.get(subject)
            return row.last + 1 if row is not None else 0
        staged = max((last for name, last in self.last.items() if matches(subject, name)), default=0)
        row = self.index.last_matching([subject])
        return max(staged, row.last + 1 if row is not None else 0)

    def writes(self, subject: str) -> bool:
        """Whether something that is staged has that subject."""
        if is_literal(subject):
            return subject in self.last
        return any(matches(subject, name) for name in self.last)


def expectation_fails(staged: Staged, subject: str, wishes: Wishes) -> ApiError | None:
    """Of a message alone."""
    if wishes.last_sequence is not None and wishes.last_sequence != staged.last_sequence:
        return errors.wrong_last_sequence(staged.last_sequence)
    if wishes.last_msg_id is not None and wishes.last_msg_id != staged.last_msg_id:
        return errors.wrong_last_msg_id(staged.last_msg_id)
    if wishes.subject_sequence is not None:
        last = staged.last_of(wishes.subject or subject)
        if last != wishes.subject_sequence:
            return errors.wrong_last_sequence(last)
    return None


def member_fails(staged: Staged, number: int, subject: str, wishes: Wishes) -> ApiError | None:
    """Of a member of an atomic batch, counted from 0."""
    if wishes.last_sequence is not None:
        if number:
            return errors.WRONG_LAST_SEQUENCE_CONSTANT
        if wishes.last_sequence != staged.last_sequence:
            return errors.wrong_last_sequence(staged.last_sequence)
    if wishes.subject_sequence is not None:
        expected = wishes.subject or subject
        if staged.writes(expected):
            return errors.WRONG_LAST_SEQUENCE_CONSTANT
        last = staged.last_of(expected)
        if last != wishes.subject_sequence:
            return errors.wrong_last_sequence(last)
    if wishes.rollup == "all" and number:
        return errors.rollup_failed("batch rollup all invalid")
    if wishes.rollup == "sub" and staged.writes(subject):
        return errors.rollup_failed("batch rollup sub invalid")
    return None


def limit_refuses(staged: Staged, config: StreamConfig, subject: str, size: int) -> ApiError | None:
    """Of a stream that discards the new."""
    if config.discard != "new":
        return None
    index = staged.index
    if config.discard_new_per_subject and config.max_msgs_per_subject > 0:
        row = index.rows.get(subject)
        have = (row.count if row is not None else 0) + staged.counts.get(subject, 0)
        if have >= config.max_msgs_per_subject:
            return store_failed("maximum messages per subject exceeded")
    if config.max_msgs > 0 and index.count + staged.added >= config.max_msgs:
        row = index.rows.get(subject)
        if not (row is not None and 0 < config.max_msgs_per_subject <= row.count):
            return store_failed("maximum messages exceeded")
    if config.max_bytes > 0 and index.bytes + staged.bytes + size > config.max_bytes:
        return store_failed("maximum bytes exceeded")
    return None


def rollup_refused(config: StreamConfig, rollup: str) -> ApiError | None:
    """`Nats-Rollup`."""
    if not rollup:
        return None
    if not config.allow_rollup_hdrs or config.deny_purge:
        return errors.rollup_failed("rollup not permitted")
    if rollup not in ("sub", "all"):
        return errors.rollup_failed(f"rollup value invalid: {rollup!r}".replace("'", '"'))
    return None
