"""JetStream names of topics are unique, also between a topic and the partitions of another."""

import itertools

import pytest

from oncelog.core.command import AddPartitions, ConfigureTopic, CreateTopic, DeleteTopic
from oncelog.core.jetstream_name import base_name, is_spelled, numbered, partition_name, spelled
from oncelog.core.outcome import NameInvalid, NatsNameTaken, Outcome, TopicDone
from oncelog.core.rows import TopicConfig
from oncelog.testing.core_harness import CoreHarness


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    return harness


def make(log: CoreHarness, name: str, partitions: int = 1, nats_name: str = "") -> Outcome:
    return log.run(CreateTopic(name, partitions, TopicConfig(nats_name=nats_name)))


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("facts.operational", "facts_operational"),
        ("a/b c>d*e\\f", "a_b_c_d_e_f"),
        ("größe", "größe"),
        ("x" * 255, "x" * 255),
    ],
)
def test_name_is_the_topics_as_far_as_it_can_be_spelled(topic: str, name: str) -> None:
    assert spelled(topic) == name
    assert is_spelled(name)


def test_long_names_stay_apart() -> None:
    one, other = spelled("x" * 300 + "1"), spelled("x" * 300 + "2")
    assert one != other
    assert len(one) == len(other) == 255
    assert is_spelled(one)


def test_second_topic_of_one_name_is_refused_and_may_choose_another(log: CoreHarness) -> None:
    make(log, "a.b")
    assert make(log, "a_b") == NatsNameTaken("a_b", "a_b", "a.b")
    assert isinstance(make(log, "a_b", nats_name="second"), TopicDone)
    assert isinstance(make(log, "a_b", nats_name="second"), TopicDone), "a retry agrees"
    assert make(log, "second") == NatsNameTaken("second", "second", "a_b")
    assert isinstance(make(log, "x", nats_name="a.b"), NameInvalid)
    log.replay_all()


def test_deleting_and_renaming_give_a_name_back(log: CoreHarness) -> None:
    make(log, "a.b")
    log.run(DeleteTopic("a.b"))
    assert isinstance(make(log, "a_b"), TopicDone)
    assert isinstance(log.run(ConfigureTopic("a_b", changes={"nats_name": "other"})), TopicDone)
    assert isinstance(make(log, "a.b"), TopicDone)
    assert log.run(ConfigureTopic("a_b", changes={"nats_name": ""})) == NatsNameTaken("a_b", "a_b", "a.b")
    assert log.run(ConfigureTopic("a_b", changes={"nats_name": "a_b"})) == NatsNameTaken("a_b", "a_b", "a.b")
    assert isinstance(log.run(ConfigureTopic("a_b", changes={"retention_ms": 5})), TopicDone)
    log.replay_all()


def test_names_of_partitions_count_too(log: CoreHarness) -> None:
    make(log, "a", 3)
    assert make(log, "a-1") == NatsNameTaken("a-1", "a-1", "a")
    assert isinstance(make(log, "a-3"), TopicDone)
    assert isinstance(make(log, "a-01"), TopicDone)
    assert log.run(AddPartitions("a", 4)) == NatsNameTaken("a", "a-3", "a-3")
    log.run(DeleteTopic("a-3"))
    assert isinstance(log.run(AddPartitions("a", 4)), TopicDone)
    make(log, "b-0")
    assert make(log, "b", 2) == NatsNameTaken("b", "b-0", "b-0")
    assert isinstance(make(log, "b"), TopicDone)
    assert log.run(AddPartitions("b", 2)) == NatsNameTaken("b", "b-0", "b-0")
    log.replay_all()


def names_of(topics: dict[str, int]) -> list[str]:
    return [
        partition_name(base_name(name, TopicConfig()), partition, count)
        for name, count in topics.items()
        for partition in range(count)
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "a-1", "a-1-0", "a.1-0"])), ids="/".join)
@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (2, 2, 1, 1), (3, 1, 2, 1), (2, 2, 2, 2)], ids=str)
def test_no_two_streams_ever_share_a_name(order: tuple[str, ...], counts: tuple[int, ...]) -> None:
    """Whatever is made in whatever order: exactly what would give a name twice is refused, apart from equal bases."""
    log = CoreHarness()
    there: dict[str, int] = {}
    for name, count in zip(order, counts, strict=True):
        outcome = make(log, name, count)
        wanted = names_of({**there, name: count})
        bases = [base_name(one, TopicConfig()) for one in (*there, name)]
        clash = len(set(wanted)) < len(wanted) or len(set(bases)) < len(bases)
        assert isinstance(outcome, NatsNameTaken if clash else TopicDone), (name, count, there)
        if not clash:
            there[name] = count
    assert len(set(names_of(there))) == len(names_of(there))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-1", ("a", 1)), ("a-b-0", ("a-b", 0)), ("a-01", None), ("-1", None), ("a-", None), ("a1", None), ("a-x", None)],
)
def test_name_that_may_be_a_partitions(name: str, expected: tuple[str, int] | None) -> None:
    assert numbered(name) == expected
