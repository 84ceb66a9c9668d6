"""Subjects: what is valid, what matches, held against a model that lists all subjects of a small alphabet."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.sublist import Sublist

LITERALS = [".".join(each) for size in (1, 2, 3) for each in itertools.product("ab", repeat=size)]
TOKENS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
PATTERNS = st.tuples(TOKENS, st.booleans()).map(lambda each: ".".join(each[0] + [">"] * each[1]))


@pytest.mark.parametrize("text", ["a", "a.b", "$JS.API", "é.ü", "a.>", "*", ">", "a*b", "a.b>c"])
def test_valid(text: str) -> None:
    assert subjects.is_valid(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a b", "a\tb", ">.a", "a.>.b", "a\r\nb", "a\0"])
def test_invalid(text: str) -> None:
    assert not subjects.is_valid(text)


def model(pattern: str) -> set[str]:
    def fits(tokens: list[str], have: list[str]) -> bool:
        if tokens[0] == ">":
            return bool(have)
        if not have or tokens[0] not in ("*", have[0]):
            return False
        return len(have) == 1 if len(tokens) == 1 else fits(tokens[1:], have[1:])

    return {each for each in LITERALS if fits(pattern.split("."), each.split("."))}


@given(PATTERNS, PATTERNS)
def test_matches_overlaps_and_subsets_are_those_of_the_model(one: str, other: str) -> None:
    assert {each for each in LITERALS if subjects.matches(one, each)} == model(one)
    assert subjects.overlaps(one, other) >= bool(model(one) & model(other))
    assert subjects.overlaps(one, other) == subjects.overlaps(other, one)
    if subjects.is_subset(one, other):
        assert model(one) <= model(other)


@given(st.lists(st.tuples(PATTERNS, st.sampled_from(["", "q", "r"])), max_size=12), st.data())
def test_sublist_finds_what_the_model_finds_also_after_removals(
    added: list[tuple[str, str]], data: st.DataObject
) -> None:
    found: Sublist[int] = Sublist()
    for number, (pattern, queue) in enumerate(added):
        found.add(pattern, queue, number)
    gone = data.draw(st.sets(st.integers(0, max(0, len(added) - 1)))) if added else set()
    for number in gone:
        found.remove(*added[number], number)
    left = {number for number in range(len(added)) if number not in gone}
    assert found.count == len(left)
    for subject in LITERALS:
        matched = found.match(subject)
        queued = {each for members in matched.queues for each in members}
        hits = {number for number in left if subject in model(added[number][0])}
        assert set(matched.plain) == {number for number in hits if not added[number][1]}
        assert queued == {number for number in hits if added[number][1]}
        assert len(matched.queues) == len({added[number][1] for number in hits if added[number][1]})
