"""The plan of a run: the same for the same seed, and full of kills for every seed."""

import pytest

from oncelog.demo.faces import FACES, shares_of
from oncelog.demo.orders import TOPICS, order_of
from oncelog.demo.plan import DRIVER, SERVER, Moment, Plan, planned


def plan(seed: int, scale: float = 1.0) -> Plan:
    return planned(seed, scale, shares_of(scale))


def test_same_seed_gives_same_plan() -> None:
    assert plan(7) == plan(7)


def test_other_seed_gives_other_plan() -> None:
    assert plan(7).strikes != plan(8).strikes


@pytest.mark.parametrize("scale", [0.05, 0.1, 1.0, 20.0])
def test_every_plan_kills_everybody_while_there_is_work_left(scale: float) -> None:
    for seed in range(100):
        made = plan(seed, scale)
        victims = [strike.victim for strike in made.strikes]
        assert victims.count(SERVER) == 6
        assert victims.count(DRIVER) == 1
        producers = {share.producer for share in made.shares}
        assert len(producers & set(victims)) == len(FACES)
        for strike in made.strikes:
            if strike.moment is Moment.ORDERS:
                assert 0 < strike.at < made.orders, f"seed {seed} waits for a moment that does not come: {strike}"


def test_scale_changes_how_much_is_written_and_not_how_often_it_is_struck() -> None:
    small, large = plan(3, 0.1), plan(3, 2.0)
    assert small.orders * 20 == large.orders
    assert len(small.strikes) == len(large.strikes)


def test_every_face_has_producers_in_the_plan() -> None:
    assert {share.face for share in plan(1).shares} == {face.name for face in FACES}


def test_producer_makes_the_same_records_in_every_life() -> None:
    first, second = ([order_of(5, "ids-0", number, 50) for number in range(50)] for _ in range(2))
    assert first == second
    assert len({order.value(topic) for order in first for topic in TOPICS}) == 150
    assert 0 < sum(order.paid for order in first) < 50, "some are paid and some are not, or the join proves nothing"
