"""Answers that say no become the exception that a caller would look for, with the numbers in it."""

import pytest

from oncelog.client import errors as e
from oncelog.client.wire import AnswerParser
from oncelog.core import outcome
from oncelog.protocols.http import refusal_map
from tests.client.peer import answer, problem


def refusal(raw: bytes) -> e.Refused:
    (parsed,) = AnswerParser().feed(raw)
    return e.refusal_of(parsed)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (problem(403, "fenced", current=4), e.Fenced),
        (problem(403, "application_fenced", current=4), e.Fenced),
        (problem(409, "sequence_gap", expected=1, received=3), e.SequenceGap),
        (problem(409, "sequence_conflict"), e.SequenceConflict),
        (problem(409, "id_conflict"), e.IdConflict),
        (problem(409, "claim_conflict"), e.IdConflict),
        (problem(409, "condition_failed"), e.ConditionFailed),
        (problem(412, "tail_mismatch"), e.ConditionFailed),
        (problem(409, "stream_closed"), e.StreamClosed),
        (problem(409, "topic_exists"), e.Conflict),
        (problem(404, "topic_missing"), e.NotFound),
        (problem(410, "offset_gone", floor=9), e.OffsetGone),
        (problem(413, "too_large"), e.TooLarge),
        (problem(400, "json_invalid"), e.Malformed),
        (problem(503, "overloaded", retryable=True), e.Overloaded),
        (problem(507, "no_room", retryable=True), e.Overloaded),
        (answer(502, b"<html>"), e.Overloaded),
        (answer(418), e.Refused),
        (answer(409, Producer_Expected_Seq=1, Producer_Received_Seq=3), e.SequenceGap),
        (answer(409, Stream_Closed="true"), e.StreamClosed),
        (answer(403, Producer_Epoch=4), e.Fenced),
    ],
)
def test_an_answer_becomes_its_exception(raw: bytes, kind: type[e.Refused]) -> None:
    error = refusal(raw)
    assert type(error) is kind
    assert isinstance(error, e.ClientError)


def test_numbers_come_from_the_problem_or_from_headers() -> None:
    for raw in (
        problem(409, "sequence_gap", expected=1, received=3),
        answer(409, X_Expected_Seq=1, X_Received_Seq=3),
    ):
        gap = refusal(raw)
        assert isinstance(gap, e.SequenceGap)
        assert (gap.expected, gap.received) == (1, 3)
    fenced = refusal(answer(403, X_Current_Epoch=4, X_Error="stale-epoch"))
    assert isinstance(fenced, e.Fenced)
    assert fenced.current == 4
    gone = refusal(answer(410, Stream_Floor="0000000000000009"))
    assert isinstance(gone, e.OffsetGone)
    assert gone.floor == 9


@pytest.mark.parametrize(
    ("raw", "retryable"),
    [
        (problem(503, "overloaded", retryable=True), True),
        (problem(500, "bug", retryable=False), False),
        (answer(500), True),
        (answer(501), False),
        (answer(429), True),
        (problem(409, "sequence_gap"), False),
        (answer(400), False),
    ],
)
def test_retryable_is_what_the_server_says_else_what_the_status_means(raw: bytes, retryable: bool) -> None:
    assert refusal(raw).retryable is retryable


def test_retry_after_is_kept() -> None:
    assert refusal(answer(503, Retry_After=3)).retry_after_s == 3.0
    assert refusal(answer(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")).retry_after_s == 0.0


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"code": 7, "detail": 8}', b"\xff"])
def test_a_broken_problem_document_is_still_a_refusal(body: bytes) -> None:
    error = refusal(answer(400, body, Content_Type="application/problem+json"))
    assert (type(error), error.code) == (e.Malformed, "http_400")


@pytest.mark.parametrize("kind", refusal_map.RULES)
def test_every_refusal_of_the_server_is_known_here(kind: type[outcome.Refusal]) -> None:
    # What only the server's own faces can cause, and what a caller handles by its status alone.
    by_status = {"refused"} | {
        rule.code for rule in refusal_map.RULES if refusal_map.RULES[rule].status in (400, 404, 409)
    }
    error = refusal(problem(refusal_map.RULES[kind].status, kind.code, retryable=kind.retryable))
    assert error.retryable is kind.retryable
    assert type(error) is not e.Refused
    assert kind.code in by_status or kind.code in e._BY_CODE
