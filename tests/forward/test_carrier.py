"""The carrier: each fact once and in order, whatever is cut between two of its steps."""

import asyncio
import random
from typing import Any

import pytest

from oncelog.client.errors import ConnectionLost
from oncelog.forward.carrier import REFUSED_RETRY_S, Carrier
from oncelog.forward.link import CallRefused
from tests.forward.zones import ZoneInMemory, fact


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def is_for_b(envelope: dict[str, Any]) -> bool:
    return bool(envelope["to_zone"] == "b")


def carrier_of(source: ZoneInMemory, target: ZoneInMemory, clock: Clock | None = None, page: int = 500) -> Carrier:
    return Carrier(
        source, target, "forward:b", "facts.operational", is_for_b, page_facts=page, clock=clock or Clock()
    )  # fmt: skip


def stepped(carrier: Carrier) -> int:
    return asyncio.run(carrier.step())


def test_a_page_is_carried_in_order_and_confirmed() -> None:
    source, target = ZoneInMemory(facts=5), ZoneInMemory()
    carrier = carrier_of(source, target)
    assert stepped(carrier) == 5
    assert target.ids == source.ids
    assert (carrier.progress.frontier, carrier.progress.carried, carrier.progress.target_sequence) == (5, 5, 5)
    assert stepped(carrier) == 0


def test_what_is_for_other_zones_is_confirmed_and_not_carried() -> None:
    source, target = ZoneInMemory(), ZoneInMemory()
    for number, to_zone in enumerate(["b", "c", "b"]):
        source.append(fact(number, to_zone=to_zone))
    carrier = carrier_of(source, target)
    assert stepped(carrier) == 3
    assert target.ids == ["m0", "m2"]
    assert carrier.progress.passed_by == 1
    assert source.frontier == 3


@pytest.mark.parametrize("after", range(5))
def test_a_cut_between_appends_confirms_only_what_was_answered(after: int) -> None:
    source, target = ZoneInMemory(facts=5), ZoneInMemory()
    target.cut_after = after
    carrier = carrier_of(source, target)
    with pytest.raises(ConnectionLost):
        stepped(carrier)
    assert source.confirmed == set(range(1, after + 1))
    assert stepped(carrier) == 5 - after
    assert target.ids == source.ids
    assert carrier.progress.duplicates == 1, "the one whose answer was lost"


def test_a_source_that_is_gone_at_the_confirm_gets_it_again() -> None:
    source, target = ZoneInMemory(facts=3), ZoneInMemory()
    real = source.call

    async def cut_at_confirm(method: str, message: dict[str, Any]) -> dict[str, Any]:
        if method == "ConfirmReceipt":
            source.call = real  # type: ignore[method-assign]
            raise ConnectionLost("cut", sent=True)
        return await real(method, message)

    source.call = cut_at_confirm  # type: ignore[method-assign]
    carrier = carrier_of(source, target)
    with pytest.raises(ConnectionLost):
        stepped(carrier)
    assert source.confirmed == set()
    assert stepped(carrier) == 3
    assert target.ids == source.ids


def test_a_conflict_is_a_gap_that_holds_up_nothing_and_is_tried_again_later() -> None:
    source, target, clock = ZoneInMemory(facts=4), ZoneInMemory(), Clock()
    target.conflicts.add("m1")
    carrier = carrier_of(source, target, clock)
    assert stepped(carrier) == 3
    assert target.ids == ["m0", "m2", "m3"]
    assert source.frontier == 1
    assert list(carrier.progress.refused) == ["2"]
    assert stepped(carrier) == 0
    target.conflicts.clear()
    clock.now = REFUSED_RETRY_S
    assert stepped(carrier) == 1
    assert source.frontier == 4
    assert carrier.progress.refused == {}


def test_a_target_that_is_full_is_waited_for() -> None:
    source, target = ZoneInMemory(facts=2), ZoneInMemory()
    target.exhausted |= {"m0", "m1"}
    carrier = carrier_of(source, target)
    with pytest.raises(CallRefused, match="resource_exhausted"):
        stepped(carrier)
    assert source.confirmed == set()
    target.exhausted.clear()
    assert stepped(carrier) == 2
    assert target.ids == ["m0", "m1"]


def test_a_closed_gate_is_no_cut() -> None:
    source, target = ZoneInMemory(facts=2), ZoneInMemory()
    source.is_gate_closed = True
    carrier = carrier_of(source, target)
    assert stepped(carrier) == 0
    assert carrier.progress.is_gate_closed
    source.is_gate_closed = False
    assert stepped(carrier) == 2
    assert not carrier.progress.is_gate_closed


@pytest.mark.parametrize("seed", range(50))
def test_cuts_anywhere_and_new_forwarders_lose_double_and_reorder_nothing(seed: int) -> None:
    chance = random.Random(seed)
    source, target = ZoneInMemory(facts=200), ZoneInMemory()
    carrier = carrier_of(source, target, page=20)
    for _ in range(2_000):
        source.is_down, target.is_down = chance.random() < 0.1, chance.random() < 0.1
        target.cut_after = chance.randrange(20) if chance.random() < 0.4 else -1
        if chance.random() < 0.1:
            carrier = carrier_of(source, target, page=20)  # the forwarder was killed
        try:
            stepped(carrier)
        except ConnectionLost:
            continue
        if source.frontier == 200:
            break
    assert source.frontier == 200
    assert target.ids == source.ids
