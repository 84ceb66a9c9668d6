"""FetchFacts and ConfirmReceipt: named consumers with a contiguous frontier."""

import uuid

import pytest

from tests.conformance.bsfg.boundary import Boundary, Refused


def test_a_page_says_all_that_was_appended(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    fact = node.fact(correlation_id="c", causation_id="d", labels={"line": "3"}, object_schema="urn:x")
    sequence = node.call("AppendFact", fact)["sequence"]
    (found,) = node.fetch(consumer)
    assert found == {"sequence": sequence, **fact}


def test_what_is_not_confirmed_comes_again(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    sequences = [node.append() for _ in range(3)]
    for _ in range(2):
        assert [fact["sequence"] for fact in node.fetch(consumer)] == sequences


def test_the_limit_bounds_a_page(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    sequences = [node.append() for _ in range(5)]
    assert [fact["sequence"] for fact in node.fetch(consumer, 2)] == sequences[:2]


def test_confirms_in_order_move_the_frontier(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    for sequence in [node.append() for _ in range(3)]:
        assert node.confirm(consumer, sequence) == sequence
    assert node.fetch(consumer) == []


def test_the_frontier_stays_before_a_gap_and_passes_it_once_it_is_closed(node: Boundary) -> None:
    consumer, frontier = node.caught_up()
    one, two, three, four = [node.append() for _ in range(4)]
    assert node.confirm(consumer, three) == frontier
    assert node.confirm(consumer, one) == one
    assert [fact["sequence"] for fact in node.fetch(consumer)] == [two, four]
    assert node.confirm(consumer, two) == three


def test_confirming_again_changes_nothing(node: Boundary) -> None:
    consumer, _ = node.caught_up()
    one, two = node.append(), node.append()
    assert node.confirm(consumer, one) == one
    assert node.confirm(consumer, two) == two
    assert node.confirm(consumer, one) == two


def test_a_sequence_that_was_never_appended_is_refused(node: Boundary) -> None:
    consumer, frontier = node.caught_up()
    last = node.append()
    with pytest.raises(Refused) as refused:
        node.confirm(consumer, last + 1_000_000)
    assert refused.value.code == "out_of_range"
    assert [fact["sequence"] for fact in node.fetch(consumer)] == [last]
    assert frontier < last


@pytest.mark.parametrize("sequence", [0, None])
def test_a_confirm_without_a_sequence_is_refused(node: Boundary, sequence: int | None) -> None:
    with pytest.raises(Refused) as refused:
        node.call("ConfirmReceipt", {"consumer_name": "c", "sequence": sequence})
    assert refused.value.code == "invalid_argument"


def test_consumers_are_apart(node: Boundary) -> None:
    one, _ = node.caught_up()
    other, _ = node.caught_up()
    sequence = node.append()
    node.confirm(one, sequence)
    assert node.fetch(one) == []
    assert [fact["sequence"] for fact in node.fetch(other)] == [sequence]


@pytest.mark.parametrize("method", ["FetchFacts", "ConfirmReceipt"])
def test_a_call_without_a_consumer_is_refused(node: Boundary, method: str) -> None:
    with pytest.raises(Refused) as refused:
        node.call(method, {"limit": 1} if method == "FetchFacts" else {"sequence": 1})
    assert refused.value.code == "invalid_argument"
    assert "consumer_name" in refused.value.message


def test_a_stream_that_is_none_of_the_zone_s_is_refused(node: Boundary) -> None:
    with pytest.raises(Refused) as refused:
        node.call("FetchFacts", {"consumer_name": uuid.uuid4().hex, "stream": "telemetry.secret"})
    assert refused.value.code == "invalid_argument"
