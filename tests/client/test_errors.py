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
        (answer(403, b"<html>", Content_Type="text/html"), e.Refused),
        (answer(524, b"<html>"), e.Overloaded),
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
        (answer(501), True),
        (answer(505), True),
        (answer(524), True),
        (problem(501, "not_built", retryable=False), False),
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


CLASSES: dict[type[outcome.Refusal], type[e.Refused]] = {
    outcome.NameInvalid: e.Malformed,
    outcome.TopicMissing: e.NotFound,
    outcome.TopicExists: e.Conflict,
    outcome.ContentTypeMismatch: e.Conflict,
    outcome.StreamClosedRefusal: e.StreamClosed,
    outcome.SequenceGap: e.SequenceGap,
    outcome.EpochNotAtZero: e.Malformed,
    outcome.Fenced: e.Fenced,
    outcome.SequenceConflict: e.SequenceConflict,
    outcome.ClaimInvalid: e.Malformed,
    outcome.IdConflict: e.IdConflict,
    outcome.ClaimConflict: e.IdConflict,
    outcome.PartlyDuplicate: e.Conflict,
    outcome.TailMismatch: e.ConditionFailed,
    outcome.OrderKeyNotRising: e.Conflict,
    outcome.ConditionFailed: e.ConditionFailed,
    outcome.TooLarge: e.TooLarge,
    outcome.BatchRefused: e.Malformed,
    outcome.NoRoom: e.Overloaded,
    outcome.Overloaded: e.Overloaded,
    outcome.Damaged: e.Damaged,
    outcome.Stopping: e.Overloaded,
    outcome.OffsetAhead: e.Malformed,
    outcome.EntryAhead: e.Malformed,
    outcome.NotACut: e.Conflict,
    outcome.OffsetGone: e.OffsetGone,
    outcome.CursorPinned: e.Conflict,
    outcome.NatsNameTaken: e.Conflict,
    outcome.SubjectMismatch: e.ConditionFailed,
    outcome.SubjectsBehind: e.Overloaded,
    outcome.EnvelopeInvalid: e.Conflict,
    outcome.ConsumerExists: e.Conflict,
    outcome.StageMissing: e.NotFound,
    outcome.StageBusy: e.Overloaded,
    outcome.StageCountMismatch: e.Conflict,
    outcome.ApplicationFenced: e.Fenced,
    outcome.ApplicationBatchRefused: e.Conflict,
    outcome.TxnRefused: e.Conflict,
    outcome.NotFound: e.NotFound,
    outcome.ShardMismatch: e.Conflict,
}

BEFORE_COMMANDS: tuple[tuple[int, str], ...] = (
    (400, "json_invalid"),
    (400, "batch_invalid"),
    (400, "empty_array"),
    (400, "empty_body"),
    (400, "header_invalid"),
    (400, "content_type_missing"),
    (400, "target_invalid"),
    (400, "malformed_request"),
    (413, "body_too_large"),
    (413, "too_many_records"),
    (415, "encoding_unsupported"),
    (431, "headers_too_large"),
)
"""What the server's HTTP face refuses before anybody decides."""


def test_every_refusal_of_the_server_has_its_class() -> None:
    assert CLASSES.keys() == refusal_map.RULES.keys()


@pytest.mark.parametrize("kind", refusal_map.RULES)
def test_a_refusal_becomes_its_class_whatever_numbers_it_has(kind: type[outcome.Refusal]) -> None:
    status = refusal_map.RULES[kind].status
    members = dict.fromkeys(kind.__struct_fields__, 7)
    error = refusal(problem(status, kind.code, retryable=kind.retryable, **members))
    assert type(error) is CLASSES[kind]
    assert (error.retryable, error.has_code) == (kind.retryable, True)


@pytest.mark.parametrize(("status", "code"), BEFORE_COMMANDS)
def test_a_request_that_cannot_be_read_is_malformed_or_too_large(status: int, code: str) -> None:
    assert type(refusal(problem(status, code))) is (e.TooLarge if status == 413 else e.Malformed)


def test_a_page_is_told_on_one_line() -> None:
    page = refusal(answer(404, b"<!DOCTYPE HTML>\n<html>\n", Content_Type="text/html;charset=utf-8"))
    assert "a page, such as no server of this protocol sends" in str(page)
    assert "DOCTYPE" not in str(page)
    assert "two lines" in str(refusal(answer(404, b"two\r\nlines", Content_Type="text/plain")))


def test_a_status_alone_is_no_code() -> None:
    assert not refusal(answer(400)).has_code
