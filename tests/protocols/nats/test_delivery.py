"""Deliveries: acks of every policy, redelivery, backoff, limits, and what comes back after a restart."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocols.nats.consumer_config import ConsumerConfig
from oncelog.protocols.nats.delivery import DeliveryState

SECOND = 10**9


def state(**config: object) -> DeliveryState:
    fields: dict[str, object] = {"ack_policy": "explicit", "ack_wait": SECOND, "max_deliver": -1, **config}
    return DeliveryState(ConsumerConfig(**fields), 0)  # type: ignore[arg-type]


def test_acked_out_of_order_the_floor_waits_for_the_gap() -> None:
    found = state()
    for sequence in (1, 2, 3):
        found.deliver(sequence, 0)
    assert found.ack(3) == [3]
    assert found.raise_floor() == (0, 0)
    assert found.ack(1) == [1]
    assert found.raise_floor() == (0, 1)
    assert found.ack(2) == [2]
    assert found.raise_floor() == (1, 3)
    assert found.ack(2) == []


def test_ack_all_settles_everything_before() -> None:
    found = state(ack_policy="all")
    for sequence in (1, 2, 3):
        found.deliver(sequence, 0)
    assert found.ack(2) == [1, 2]
    assert list(found.pending) == [3]


def test_what_is_not_acked_comes_again_and_is_given_up_at_its_limit() -> None:
    found = state(max_deliver=2)
    found.deliver(1, 0)
    assert found.expire(SECOND - 1) == []
    assert found.next_due() is None
    assert found.expire(SECOND) == []
    assert found.next_due() == 1
    assert found.deliver(1, SECOND).deliveries == 2
    assert found.next_due() is None
    assert found.expire(2 * SECOND) == [(1, 1, 2)]
    assert found.expire(3 * SECOND) == []
    assert found.ack(1) == [1]
    assert not found.pending


def test_backoff_stands_for_the_wait_of_each_delivery() -> None:
    found = state(backoff=[SECOND, 5 * SECOND], max_deliver=9)
    found.deliver(1, 0)
    found.expire(SECOND)
    assert found.next_due() == 1
    found.deliver(1, SECOND)
    found.expire(5 * SECOND)
    assert found.next_due() is None
    found.expire(6 * SECOND)
    assert found.next_due() == 1


def test_nak_at_once_nak_later_and_progress() -> None:
    found = state()
    found.deliver(1, 0)
    assert found.nak(1, 0)
    assert (found.next_due(), found.nak(1, 0)) == (1, False)
    found.deliver(1, 0)
    assert found.nak(1, 0, 3 * SECOND)
    found.expire(2 * SECOND)
    assert found.due_count == 0
    found.expire(3 * SECOND)
    assert found.due_count == 1
    found.deliver(1, 3 * SECOND)
    assert found.progress(1, 4 * SECOND)
    found.expire(4 * SECOND)
    assert found.due_count == 0
    assert not found.nak(9, 0)


def test_pending_is_bounded() -> None:
    found = state(max_ack_pending=2)
    room = []
    for sequence in (1, 2):
        found.deliver(sequence, 0)
        room.append(found.has_room)
    found.ack(1)
    assert [*room, found.has_room] == [True, False, True]


def test_restart_skips_what_was_acked_and_takes_acks_of_deliveries_before_it() -> None:
    config = ConsumerConfig(ack_policy="explicit", ack_wait=SECOND)
    found = DeliveryState(config, 2, [5, 7], 10)
    assert [sequence for sequence in range(1, 10) if found.is_settled(sequence)] == [1, 2, 5, 6]
    assert found.ack(4) == [4]
    assert found.ack(4) == []
    assert found.ack(12) == []
    assert found.is_settled(4)
    found.deliver(3, 0)
    found.ack(3)
    assert found.raise_floor() == (2, 3)


@given(st.lists(st.tuples(st.sampled_from("dankx"), st.integers(1, 12)), max_size=60))
def test_floor_is_under_the_first_pending_and_never_falls(steps: list[tuple[str, int]]) -> None:
    found, now, acked = state(), 0, set()
    for kind, number in steps:
        now += SECOND // 3
        if kind == "d":
            due = found.next_due()
            found.deliver(found.next_sequence if due is None else due, now)
        elif kind == "a":
            acked.update(found.ack(number))
        elif kind == "n":
            found.nak(number, now)
        elif kind == "k":
            found.progress(number, now)
        else:
            found.expire(now)
        before, floor = found.raise_floor()
        assert before <= floor < found.next_sequence
        assert all(each > floor for each in found.pending)
        assert all(each in acked for each in range(1, floor + 1))
        assert found.due_count == sum(held.is_due for held in found.pending.values())
        assert list(found.pending) == sorted(found.pending)
