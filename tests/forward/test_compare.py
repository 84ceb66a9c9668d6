"""Two zones against each other: every kind of fault is found and named."""

import pytest

from oncelog.core.facts import Fact
from oncelog.forward.compare import Comparison, ZoneFacts, judge


def fact(message_id: str, text: str = "{}") -> Fact:
    return Fact(message_id, "a", "b", 1, "pump:1", "is_on", text)


def zone_of(*ids: str, stream: int = 0, **contents: str) -> ZoneFacts:
    found = ZoneFacts()
    for number, message_id in enumerate(ids):
        found.add(stream, number + 1, fact(message_id, contents.get(message_id, "{}")))
    return found


def judged(ours: ZoneFacts, theirs: ZoneFacts) -> Comparison:
    found = Comparison("a", "b", "c", examples=[])
    judge(ours, theirs, found)
    return found


def faults(found: Comparison) -> tuple[int, int, int, int]:
    return found.missing, found.doubled, found.different, found.out_of_order


@pytest.mark.parametrize("others", [(), ("x", "y")])
def test_zones_that_agree_are_sound_whatever_else_the_target_has(others: tuple[str, ...]) -> None:
    found = judged(zone_of("m1", "m2", "m3"), zone_of("m1", *others, "m2", "m3"))
    assert faults(found) == (0, 0, 0, 0)
    assert found.is_sound


def test_another_spelling_is_the_same_content() -> None:
    assert judged(zone_of("m1", m1='{"a": 1.0}'), zone_of("m1", m1='{"a":1}')).is_sound


def test_a_fact_that_is_missing_is_named_by_its_place_at_the_source() -> None:
    found = judged(zone_of("m1", "m2", "m3"), zone_of("m1", "m3"))
    assert faults(found) == (1, 0, 0, 0)
    assert "facts.operational 2" in found.examples[0]
    assert faults(judged(zone_of("m1"), ZoneFacts())) == (1, 0, 0, 0)


def test_a_fact_that_is_there_twice_is_named_by_its_place_at_the_target() -> None:
    found = judged(zone_of("m1"), zone_of("m1", "m2", "m1"))
    assert faults(found) == (0, 1, 0, 0)
    assert "facts.operational 3" in found.examples[0]


def test_other_content_is_found() -> None:
    found = judged(zone_of("m1", "m2"), zone_of("m1", "m2", m2='{"a":1}'))
    assert faults(found) == (0, 0, 1, 0)


def test_another_order_is_found_within_a_stream() -> None:
    found = judged(zone_of("m1", "m2", "m3"), zone_of("m2", "m3", "m1"))
    assert faults(found) == (0, 0, 0, 2), "two stand before one that precedes them at the source"


def test_nothing_confirmed_is_nothing_missing() -> None:
    assert judged(ZoneFacts(), zone_of("m1")).is_sound
    assert judged(ZoneFacts(), ZoneFacts()).is_sound
