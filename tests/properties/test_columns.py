"""Columns mean what their values mean one by one.

Two logs get the same values: one as commands of columns, several of which are decided together, the other as ready
batches of one record, each decided and applied before the next. Every answer and every row must be equal.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Append, CloseStream, Columns, Trim
from oncelog.core.entry import Appended, Compound
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.message_id import content_digest, values_digest
from oncelog.core.outcome import Confirmed, Outcome, each_outcome
from oncelog.core.producer import SequenceMode
from oncelog.core.row_codec import decode_row
from oncelog.core.rows import Table, TopicConfig
from oncelog.testing.core_harness import CoreHarness, decode_one

MS = 1_000_000
LARGE = bytes(limits.RUN_VALUE_BYTES_MAX + 1)
TOO_LONG = "http:" + "n" * limits.PRODUCER_NAME_BYTES_MAX

contents = st.sampled_from([b"", b"1", b"[2]", b"{", b"large"])
ids = st.sampled_from([b"", b"", b"a", b"b", b"c", b"d"])


@st.composite
def claims(draw: st.DrawFn, content: bytes) -> ProducerClaim | None:
    kind = draw(st.sampled_from(["none", "requests", "rising", "managed", "records", "bad"]))
    name = draw(st.sampled_from("pq"))
    sequence = draw(st.integers(0, 4))
    digest = content_digest(content)
    match kind:
        case "requests":
            epoch = draw(st.integers(0, 1))
            return ProducerClaim(f"http:{name}", epoch, sequence, sequence, int(SequenceMode.REQUESTS), digest)
        case "rising":
            return ProducerClaim(f"http:r{name}", 0, sequence, sequence, int(SequenceMode.RISING), digest)
        case "managed":
            session = draw(st.sampled_from(["", "s", "t"]))
            epoch = draw(st.sampled_from([-1, -1, 1]))
            mode = int(SequenceMode.REQUESTS)
            anywhere = not session
            return ProducerClaim(f"x:{name}", epoch, sequence, sequence, mode, digest, True, session, anywhere)
        case "records":
            return ProducerClaim(f"kafka:{ord(name)}", 0, sequence, sequence, int(SequenceMode.RECORDS))
        case "bad":
            return ProducerClaim(TOO_LONG, 0, sequence, sequence, int(SequenceMode.REQUESTS), digest)
    return None


@st.composite
def each_alone(draw: st.DrawFn) -> Columns:
    values = draw(st.lists(contents, min_size=1, max_size=6))
    count = len(values)

    def maybe(column: Callable[[], list[Any]], chance: int = 2) -> list[Any] | None:
        return column() if draw(st.integers(0, chance)) == 0 else None

    claimed = maybe(lambda: [draw(claims(value)) for value in values], 1)
    named = maybe(lambda: [draw(ids) for _ in values], 1)
    digests = None if named is None else [content_digest(value) for value in values]
    content_type = draw(st.sampled_from(["", "", "text/plain", "application/json"]))
    command = Columns("t", 0, values, digests, claimed, named, content_type)
    command.keys = maybe(lambda: draw(st.lists(st.sampled_from([None, b"k"]), min_size=count, max_size=count)))
    command.headers = maybe(
        lambda: draw(st.lists(st.sampled_from([(), (("h", b"v"),)]), min_size=count, max_size=count))
    )
    command.timestamps_ms = maybe(
        lambda: draw(st.lists(st.sampled_from([0, 5, -7]), min_size=count, max_size=count)), 4
    )
    command.expected_tails = maybe(lambda: draw(st.lists(st.integers(-1, 6), min_size=count, max_size=count)), 4)
    command.order_keys = maybe(
        lambda: draw(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=count, max_size=count)), 4
    )
    command.close = draw(st.integers(0, 15)) == 0
    return command


@st.composite
def together(draw: st.DrawFn) -> Columns:
    values = draw(st.lists(contents, min_size=2, max_size=4))
    digest = values_digest(values)
    claim = draw(claims(b""))
    if claim is not None and claim.digest:
        claim = claim.replaced(digest=digest)
    id_ = draw(ids)
    command = Columns("t", 0, values, [digest], None if claim is None else [claim], [id_] if id_ else None)
    command.together = True
    tail = draw(st.integers(-1, 6))
    command.expected_tails = None if tail < 0 else [tail]
    command.close = draw(st.integers(0, 15)) == 0
    return command


def without_sizes(log: CoreHarness) -> list[dict[bytes, object]]:
    """All rows, but for how many bytes of batches a stream has."""
    tables: list[dict[bytes, object]] = [dict(table) for table in log.rows.tables]
    for key, data in log.rows.tables[Table.STREAM].items():
        row = decode_row(Table.STREAM, data)
        assert isinstance(row, Stream)
        row.stored_bytes, row.byte_marks = 0, None
        tables[Table.STREAM][key] = row
    return tables


Step = list[Columns] | Trim | CloseStream | int
"""Commands that are decided together; another command; or so many milliseconds."""

steps = st.one_of(
    st.lists(st.one_of(each_alone(), each_alone(), together()), min_size=1, max_size=4),
    st.lists(st.one_of(each_alone(), each_alone(), together()), min_size=1, max_size=4),
    st.builds(lambda floor: Trim("t", 0, floor), st.integers(0, 6)),
    st.sampled_from([1, limits.DEDUPE_FLOOR_MS_DEFAULT + 1]),
)


def one_by_one(log: CoreHarness, command: Columns) -> list[Outcome]:
    """The same values as ready batches."""
    return [log.run(one) for one in parts(log, command)]


def parts(log: CoreHarness, command: Columns) -> list[Append]:
    values = command.values
    ranges = [(0, len(values))] if command.together else [(at, at + 1) for at in range(len(values))]
    found: list[Append] = []
    for unit, (first, next_) in enumerate(ranges):
        now_ms = log.now_ns // MS
        records = [
            (
                at - first,
                now_ms if command.timestamps_ms is None else command.timestamps_ms[at] or now_ms,
                None if command.keys is None else command.keys[at],
                values[at],
                () if command.headers is None else command.headers[at],
            )
            for at in range(first, next_)
        ]
        batch = codec.encode(records)
        append = Append("t", 0, batch, next_ - first)
        append.digest = b"" if command.digests is None else command.digests[unit]
        append.claim = None if command.claims is None else command.claims[unit]
        append.message_id = b"" if command.message_ids is None else command.message_ids[unit]
        append.expected_tail = -1 if command.expected_tails is None else command.expected_tails[unit]
        append.order_key = "" if command.order_keys is None else command.order_keys[unit]
        append.content_type = command.content_type
        append.close = command.close and unit == len(ranges) - 1
        found.append(append)
    return found


def same(found: Outcome, expected: Outcome, detail: str) -> None:
    if isinstance(found, Confirmed) and isinstance(expected, Confirmed) and not found.duplicate:
        assert found.replaced(exceptions=None) == expected, detail
        return
    assert found == expected, detail


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(steps, min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(["application/octet-stream", "application/json"]),
)
def test_columns_mean_what_their_values_mean_one_by_one(run: list[Step], keep: bool, holds: str) -> None:
    joined, single = CoreHarness(), CoreHarness()
    joined.keep_loaded = keep
    for log in (joined, single):
        log.create("t", config=TopicConfig(holds))
    for step in run:
        if isinstance(step, int):
            joined.pass_ms(step)
            single.pass_ms(step)
        elif isinstance(step, list):
            for command in step:
                command.values = [LARGE if value == b"large" else value for value in command.values]
            answers = joined.run_columns(step)
            for command, answer in zip(step, answers, strict=True):
                expected = one_by_one(single, command)
                found = [answer] if command.together else each_outcome(answer, command)
                assert len(found) == len(expected)
                for one, other in zip(found, expected, strict=True):
                    same(one, other, "see the step")
        else:
            assert joined.run(step) == single.run(step)
    assert without_sizes(joined) == without_sizes(single), "they share batches, so only the bytes differ"
    assert joined.rows.ids == single.rows.ids
    joined.replay_all()
    assert records_in(joined) == records_in(single)


def records_in(log: CoreHarness) -> list[tuple[Any, ...]]:
    """All records that were written, whatever batches they came in."""
    found: list[tuple[Any, ...]] = []
    for number, data in enumerate(log.journal, start=1):
        entry = decode_one(data, number)
        for operation in entry.operations if isinstance(entry, Compound) else [entry]:
            if isinstance(operation, Appended):
                for delta, time_ms, key, value, headers in codec.decode(operation.batch):
                    found.append((operation.first + delta, time_ms, key, value, tuple(headers)))
    return found
