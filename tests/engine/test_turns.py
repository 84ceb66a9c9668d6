"""Appends of one record that come in one turn of the loop: what they share, and that nobody can tell."""

from unittest import mock

import pytest

from oncelog import limits
from oncelog.core.columns import decide_columns
from oncelog.core.command import Columns, Command, CreateTopic, DeleteTopic, GetStream, Trim, one_value
from oncelog.core.entry import Operation
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest, id_hash
from oncelog.core.outcome import Confirmed, Damaged, NoRoom, Outcome, StreamDone
from oncelog.core.rows import Key, Table, TopicConfig
from oncelog.core.state import Row, State
from oncelog.engine import commit_loop
from oncelog.errors import Corruption
from oncelog.testing.core_harness import requests
from oncelog.testing.sim_disk import lose_all
from oncelog.testing.sim_engine import Pending, SimEngine, WatchedDisk
from tests.engine.sim_steps import append, firsts, opened


def record(value: bytes, *, id_: bytes = b"", claim: ProducerClaim | None = None, topic: str = "a") -> Columns:
    return one_value(topic, 0, value, content_digest(value), claim, id_)


def test_appends_of_one_turn_are_one_entry_per_stream_in_their_order() -> None:
    engine = opened()
    engine.execute(CreateTopic("b"))
    before = engine.commits.state.entry_number
    pendings: dict[str, list[Pending]] = {"a": [], "b": []}
    for number in range(6):
        name = "ab"[number % 2]
        pendings[name].append(engine.submit(record(b"%d" % number, topic=name)))
    assert engine.commits.state.entry_number == before, "they wait for the end of the turn"
    assert not engine.commits.idle
    engine.flush()
    assert engine.commits.state.entry_number == before + 2
    assert (firsts(pendings["a"]), firsts(pendings["b"])) == ([0, 1, 2], [0, 1, 2])
    contents = engine.contents()
    assert [value for _, value in contents["a", 0].records] == [b"0", b"2", b"4"]
    assert [value for _, value in contents["b", 0].records] == [b"1", b"3", b"5"]
    assert engine.crash(lose_all).contents() == contents


@pytest.mark.parametrize("command", [GetStream("a"), append(b"batch"), Trim("a", 0, 0)], ids=["query", "batch", "trim"])
def test_nothing_overtakes_the_appends_of_its_turn(command: Command) -> None:
    engine = opened()
    earlier = engine.submit(record(b"earlier"))
    between = engine.submit(command)
    later = engine.submit(record(b"later"))
    engine.flush()
    assert isinstance(earlier.outcome, Confirmed)
    assert isinstance(later.outcome, Confirmed)
    assert earlier.outcome.first == 0
    match between.outcome:
        case StreamDone():
            assert (between.outcome.tail, later.outcome.first) == (1, 1)
        case Confirmed():
            assert (between.outcome.first, later.outcome.first) == (1, 2)
        case _:
            pytest.fail(f"{between.outcome}")


def test_who_is_answered_in_the_middle_of_a_turn_finds_no_turn_half_done() -> None:
    """1. Two appends come in one turn; the first is refused, at once, since nothing holds its answer back. 2. Whoever
    gets it deletes the topic and makes it anew. 3. The second append had its id hashed for the old stream. Had it been
    written to the new one under that hash, nobody would have known it again."""
    engine = opened()
    refused = engine.submit(one_value("a", 0, b"x", b"no digest", None, b"bad"))
    behind = engine.submit(record(b"v", id_=b"m"))

    def make_anew(_outcome: Outcome) -> None:
        engine.submit(DeleteTopic("a"))
        engine.submit(CreateTopic("a"))

    refused.then(make_anew)
    engine.flush()
    assert isinstance(behind.outcome, Confirmed)
    first = engine.execute(record(b"v", id_=b"m"))
    again = engine.execute(record(b"v", id_=b"m"))
    assert isinstance(first, Confirmed)
    assert not first.duplicate, "the topic was made anew behind the append, and its ids are forgotten with it"
    assert again == first.replaced(duplicate=True, time_ns=again.time_ns)  # type: ignore[union-attr]
    assert engine.contents()["a", 0].tail == 1


def test_nothing_is_stamped_earlier_than_it_came_while_its_group_waits() -> None:
    """A group stays open while the one before it is written, which may take long: what joins it later is later."""
    engine = opened()
    engine.submit(append(b"in flight"))
    engine.seal()
    opens = engine.submit(record(b"opens the group"))
    engine.commits.take_queued()
    engine.clock.advance_ms(50)
    joins = [engine.submit(record(b"joins")), engine.submit(append(b"joins too"))]
    engine.flush()
    times = [pending.outcome.time_ns for pending in (opens, *joins) if isinstance(pending.outcome, Confirmed)]
    assert times == [times[0], times[0] + 50_000_000, times[0] + 50_000_000]


def test_an_id_of_a_zone_belongs_to_whoever_came_first() -> None:
    engine = SimEngine(WatchedDisk())
    for name in "ab":
        engine.execute(CreateTopic(name, 1, TopicConfig(id_zone="zone")))
    turn = [record(b"0"), record(b"v", id_=b"m", topic="b"), record(b"v", id_=b"m")]
    _, first, second = [engine.submit(command) for command in turn]
    engine.flush()
    assert isinstance(first.outcome, Confirmed)
    assert isinstance(second.outcome, Confirmed)
    assert (first.outcome.duplicate, second.outcome.duplicate) == (False, True)
    assert second.outcome.stream_id == first.outcome.stream_id
    assert [engine.contents()[name, 0].tail for name in "ab"] == [1, 1]


def test_a_turn_is_in_one_group_or_is_taken_as_it_came() -> None:
    """1. a1, b, a2 come in one turn, and there is not room for all of them. 2. Had a1 and a2 been taken together and b
    left for the next group, a power cut between the two would leave the third request done and the second not."""
    engine = opened()
    engine.execute(CreateTopic("b"))
    engine.submit(append(b"f" * 12_500))  # most of a segment
    for number, topic in enumerate("aba"):
        engine.submit(record(b"%d" % number * 1_000, topic=topic))
    assert engine.seal()
    engine.write()
    survivor = engine.crash(lose_all).contents()
    kept = [
        value for name in "ab" for _, value in survivor[name, 0].records if value is not None and len(value) == 1_000
    ]
    assert 0 < len(kept) < 3, "the case that this is about"
    assert sorted(kept) == [b"%d" % number * 1_000 for number in range(len(kept))]


@pytest.mark.from_source
def test_a_turn_that_has_grown_too_large_is_decided_before_its_end() -> None:
    engine = opened()
    with mock.patch.object(limits, "TURN_BYTES_MAX", 3 * limits.TURN_RECORD_BYTES):
        pendings = [engine.submit(record(b"%d" % number)) for number in range(9)]
        assert engine.commits.state.entry_number > 1
        assert len(engine.commits._queued) <= 3
    engine.flush()
    assert firsts(pendings) == list(range(9))


@pytest.mark.from_source
def test_appends_for_which_there_is_no_room_cost_no_more_than_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that did not fit, tried anew after each append that it was made of, would cost the square of its length."""
    engine = opened()
    engine.submit(append(b"f" * 12_500))
    tried: list[int] = []

    def counted(
        state: State, commands: list[Columns], hashes: list[list[bytes]] | None, now_ns: int
    ) -> tuple[list[Operation], list[Outcome]]:
        tried.append(len(commands))
        return decide_columns(state, commands, hashes, now_ns)

    monkeypatch.setattr(commit_loop, "decide_columns", counted)
    pendings = [engine.submit(record(b"%d" % number * 50)) for number in range(50)]
    engine.flush()
    assert firsts(pendings) == list(range(1, 51))
    assert sum(tried) <= 50


def test_appends_of_a_turn_that_do_not_fit_wait_in_their_order_and_nothing_passes_them() -> None:
    engine = opened()
    pendings = [engine.submit(record(b"%d" % number * 3000)) for number in range(9)]
    asked = engine.submit(GetStream("a"))
    engine.flush()
    assert firsts(pendings) == list(range(9))
    assert isinstance(asked.outcome, StreamDone)
    assert asked.outcome.tail == 9
    assert engine.crash(lose_all).contents() == engine.contents()


def test_appends_of_a_turn_wait_while_the_index_is_behind_and_are_refused_when_it_is_full() -> None:
    engine = opened()
    engine.commits.held = True
    pendings = [engine.submit(record(b"%d" % number)) for number in range(3)]
    engine.flush()
    assert [pending.outcome for pending in pendings] == [None] * 3
    assert engine.commits.waiting == 3
    engine.commits.index_full = True
    engine.flush()
    assert all(isinstance(pending.outcome, NoRoom) for pending in pendings)
    engine.commits.held = engine.commits.index_full = False
    assert isinstance(engine.execute(record(b"x")), Confirmed)


def test_a_long_line_of_known_ids_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them ends a run. Asking the index anew for all behind it would take the square of the line's length."""
    engine = opened(limits.MIB)
    taken(engine, [record(b"%d" % number, id_=b"%d" % number) for number in range(40)])
    engine.checkpoint()
    asked: list[int] = []
    find_ids = engine.index.find_ids

    def counted(hashes: list[bytes]) -> dict[bytes, bytes]:
        asked.append(len(hashes))
        return find_ids(hashes)

    monkeypatch.setattr(engine.index, "find_ids", counted)
    runs = mock.Mock(wraps=engine.commits._take_run)
    monkeypatch.setattr(engine.commits, "_take_run", runs)
    commands = [record(b"%d" % number, id_=b"%d" % number) for number in range(40)]
    found = taken(engine, [*commands, record(b"new", id_=b"new")])
    assert runs.call_count == 1, "they are a turn, and not taken one by one"
    assert found == [(number, True) for number in range(40)] + [(40, False)]
    assert sum(asked) <= 2 * 41


# --- ids that are known when a turn comes ----------------------------------------------------------------------------


def taken(engine: SimEngine, commands: list[Columns]) -> list[tuple[int, bool]]:
    """(offset, whether it is a duplicate) of commands that come in one turn."""
    pendings = [engine.submit(command) for command in commands]
    engine.flush()
    outcomes = [pending.outcome for pending in pendings]
    assert all(isinstance(outcome, Confirmed) for outcome in outcomes), outcomes
    return [(outcome.first, outcome.duplicate) for outcome in outcomes]  # type: ignore[union-attr]


def numbered(*numbers: int) -> list[Columns]:
    return [record(b"%d" % number, id_=b"%d" % number) for number in numbers]


def test_ids_that_only_the_index_knows_are_duplicates() -> None:
    engine = opened()
    taken(engine, numbered(0, 1, 2, 3))
    engine.checkpoint()
    assert not engine.commits.state.ids
    assert taken(engine, numbered(0, 1, 2, 3)) == [(0, True), (1, True), (2, True), (3, True)]


def test_ids_are_looked_up_also_if_their_stream_was_not_loaded_when_the_turn_began() -> None:
    engine = opened()
    taken(engine, numbered(0, 1, 2, 3))
    engine.checkpoint()
    engine = engine.crash(lose_all)
    assert not engine.commits.state.streams
    assert taken(engine, numbered(9, 0, 1, 2)) == [(4, False), (0, True), (1, True), (2, True)]


def test_ids_are_known_while_the_index_is_being_built() -> None:
    engine = opened()
    engine.builds_at_once = False
    taken(engine, numbered(0, 1, 2, 3))
    engine.checkpoint()
    assert engine.commits.state.ids_sealing
    assert not engine.commits.state.ids
    assert taken(engine, numbered(0, 1, 2, 3)) == [(0, True), (1, True), (2, True), (3, True)]


def test_an_id_behind_the_end_of_a_run_is_stored_under_its_own_name() -> None:
    """The second claim of one producer ends a run: what follows is another one, of the rest of the line."""
    engine = opened()
    taken(engine, [record(b"0", claim=requests("http:p", 0, content=b"0"))])
    claimed = record(b"1", claim=requests("http:p", 1, content=b"1"))
    named = record(b"2", id_=b"m", claim=requests("http:p", 2, content=b"2"))
    assert taken(engine, [claimed, named]) == [(1, False), (2, False)]
    assert taken(engine, [record(b"2", id_=b"m")]) == [(2, True)]


def test_damage_of_the_index_is_told_to_the_one_that_needs_it_and_its_turn_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = opened()
    taken(engine, numbered(0))
    engine.checkpoint()
    find_ids = engine.index.find_ids
    bad = id_hash(engine.commits.state.streams[2], b"1")  # type: ignore[arg-type]

    def damaged(hashes: list[bytes]) -> dict[bytes, bytes]:
        if bad in hashes:
            raise Corruption("a block of ids is damaged", file="ids")
        return find_ids(hashes)

    monkeypatch.setattr(engine.index, "find_ids", damaged)
    pendings = [engine.submit(command) for command in [*numbered(0, 1, 2), record(b"plain")]]
    engine.flush()
    outcomes = [pending.outcome for pending in pendings]
    assert isinstance(outcomes[1], Damaged)
    others = [outcome for outcome in outcomes if isinstance(outcome, Confirmed)]
    assert [(outcome.first, outcome.duplicate) for outcome in others] == [(0, True), (1, False), (2, False)]


def test_damage_of_a_row_refuses_the_command_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    engine.execute(CreateTopic("b"))
    engine.checkpoint()
    engine = engine.crash(lose_all)
    get = engine.index.get

    def damaged(table: Table, key: Key) -> Row | None:
        if (table, key) == (Table.TOPIC, "a"):
            raise Corruption("a row is damaged", file="rows")
        return get(table, key)

    monkeypatch.setattr(engine.index, "get", damaged)
    pendings = [engine.submit(record(b"v", topic=name)) for name in "abab"]
    pendings += [engine.submit(append(b"v")), engine.submit(GetStream("b"))]
    engine.flush()
    kinds = [type(pending.outcome) for pending in pendings]
    assert kinds == [Damaged, Confirmed, Damaged, Confirmed, Damaged, StreamDone]
    assert engine.contents()["b", 0].tail == 2
