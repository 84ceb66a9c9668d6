"""Every refusal of the core has its answer on this face, with its numbers in it."""

import typing
from collections.abc import Iterator
from http import HTTPStatus

import msgspec
import pytest

from oncelog.core import outcome as o
from oncelog.protocols.http import answers
from oncelog.protocols.http.claims import Dialect
from oncelog.protocols.http.refusal_map import RULES, problem_of
from oncelog.protocols.http.write_answers import refused

MEMBERS = {"type", "title", "status", "code", "detail", "hint", "retryable"}
"""What every problem has; the numbers of a refusal stand beside them."""

SAMPLES: dict[object, object] = {
    int: 4711, int | None: 7, str: "sample", str | None: "sample", bytes: b"\x00\xfe", bool: True, list[int]: [1, 2, 3],
    tuple[tuple[str, int], ...] | None: [["other", 1]],
}  # fmt: skip

INSIDE = {"stream_id", "first_known_stream_id", "outcome"}
"""Numbers that mean nothing to a client."""


def every_refusal(base: type[o.Refusal] = o.Refusal) -> Iterator[type[o.Refusal]]:
    for kind in base.__subclasses__():
        yield kind
        yield from every_refusal(kind)


def sample(kind: type[o.Refusal]) -> o.Refusal:
    return kind(**{name: value_of(kind, name) for name in kind.__struct_fields__})


def value_of(kind: type[o.Refusal], name: str) -> typing.Any:
    """Another number for each field, rising, so that what is asked for is above a limit, and above a lower bound."""
    value = SAMPLES[typing.get_type_hints(kind)[name]]
    return value + kind.__struct_fields__.index(name) if type(value) is int else value


def split(answer: bytes) -> tuple[int, dict[str, str], dict[str, typing.Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["Content-Length"]) == len(body)
    return int(line.split(" ")[1]), headers, msgspec.json.decode(body)


KINDS = sorted(set(every_refusal()), key=lambda kind: kind.__name__)


def test_map_is_total_and_has_nothing_else() -> None:
    assert len(KINDS) > 25
    assert set(RULES) == set(KINDS)


def test_codes_are_stable_names_and_differ() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)
    assert all(code.isidentifier() and code == code.lower() for code in codes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_refusal_is_told_with_its_numbers(kind: type[o.Refusal]) -> None:
    status, headers, problem = split(problem_of(sample(kind)))
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Cache-Control"] == "no-store"
    assert status == problem["status"] == RULES[kind].status
    assert problem["code"] == kind.code
    assert problem["type"] == f"urn:oncelog:{kind.code}"
    assert problem["retryable"] is kind.retryable
    assert ("Retry-After" in headers) is kind.retryable
    assert problem["detail"]
    assert "{" not in problem["detail"]
    fields = set(kind.__struct_fields__) - INSIDE
    assert not fields & MEMBERS, "a number must not hide what every problem has"
    assert set(problem) == MEMBERS | fields
    for name in fields:
        value = value_of(kind, name)
        assert problem[name] == (value.hex() if isinstance(value, bytes) else value)


def test_number_below_its_range_is_a_mistake_and_not_too_large() -> None:
    status, _, problem = split(problem_of(o.TooLarge("partitions", 10_000, 0, least=1)))
    assert (status, problem["code"], problem["limit"], problem["received"]) == (400, "too_small", 10_000, 0)
    assert problem["detail"] == "partitions: 0 is too small; the least is 1, the most 10000"
    assert problem["least"] == 1
    assert "least" not in split(problem_of(o.TooLarge("batch bytes", 10, 11)))[2]


def test_conflict_among_many_ids_names_the_one_it_is_about() -> None:
    of_many = o.IdConflict(2, 5, b"a", b"b", "order-7", "orders", 3)
    said = "the message id 'order-7' of 'orders' partition 3 was used for other content, stored at 5"
    assert split(problem_of(of_many))[2]["detail"] == said
    alone = split(problem_of(o.IdConflict(2, 5, b"a", b"b")))[2]
    assert alone["detail"] == "the message id was used for other content, stored at 5"
    assert not {"message_id", "topic", "partition"} & set(alone)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dialect", list(Dialect))
def test_every_dialect_can_tell_every_refusal(kind: type[o.Refusal], dialect: Dialect) -> None:
    status, _, problem = split(refused(sample(kind), dialect))
    assert (status, problem["code"]) == (RULES[kind].status, kind.code)


@pytest.mark.parametrize(
    ("refusal", "dialect", "headers"),
    [
        (o.SequenceGap(5, 7), Dialect.PRODUCER, {"Producer-Expected-Seq": "5", "Producer-Received-Seq": "7"}),
        (o.SequenceGap(5, 7), Dialect.X, {"X-Expected-Seq": "5", "X-Received-Seq": "7"}),
        (o.Fenced(3, 2), Dialect.PRODUCER, {"Producer-Epoch": "3"}),
        (o.Fenced(3, 2), Dialect.X, {"X-Error": "stale-epoch", "X-Current-Epoch": "3"}),
        (
            o.StreamClosedRefusal(1, 42),
            Dialect.PLAIN,
            {"Stream-Closed": "true", "Stream-Next-Offset": "0000000000000042"},
        ),
        (
            o.TailMismatch(1, 40, 42),
            Dialect.PLAIN,
            {"ETag": '"0000000000000042"', "Stream-Next-Offset": "0000000000000042"},
        ),
    ],
)
def test_dialect_has_its_own_headers(refusal: o.Refusal, dialect: Dialect, headers: dict[str, str]) -> None:
    found = split(refused(refusal, dialect))[1]
    assert {name: found.get(name) for name in headers} == headers


def test_statuses_that_are_used_have_a_line() -> None:
    for rule in RULES.values():
        assert answers.PHRASES[rule.status]
    for status in answers.PHRASES:
        HTTPStatus(status)


def test_answer_with_text_from_outside_stays_one_answer() -> None:
    """Names come back in the body, where a line break is harmless."""
    answer = problem_of(o.TopicMissing("a\r\nEvil: yes\r\n\r\n{}", 0))
    status, headers, problem = split(answer)
    assert status == 404
    assert "Evil" not in headers
    assert problem["topic"] == "a\r\nEvil: yes\r\n\r\n{}"


@pytest.mark.parametrize(
    ("partition", "says", "hints"),
    [(0, "there is no stream 'a'", "PUT"), (3, "there is no partition 3 of 'a'", "PATCH")],
)
def test_missing_first_partition_is_a_missing_stream(partition: int, says: str, hints: str) -> None:
    _, _, problem = split(problem_of(o.TopicMissing("a", partition)))
    assert (problem["detail"], problem["partition"]) == (says, partition)
    assert [word for word in ("PUT", "PATCH") if word in problem["hint"]] == [hints]


@pytest.mark.parametrize(
    ("refusal", "says", "not_this"),
    [
        (o.NotFound("producer"), "scope", ""),
        (o.NotFound("message id"), "exact", "scope"),
        (o.TopicExists("t", "it is closed"), "is closed", "settings"),
        (o.TopicExists("t", "it is not closed"), "is open", "settings"),
        (o.TopicExists("t", "it has 2 partitions"), "settings", "closed"),
    ],
)
def test_hint_is_about_what_was_met(refusal: o.Refusal, says: str, not_this: str) -> None:
    hint = split(problem_of(refusal))[2]["hint"]
    assert says in hint
    assert not not_this or not_this not in hint


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (o.Fenced(2, -1), {"current"}),
        (o.Fenced(2, 1), {"current", "claimed"}),
        (o.TxnRefused("MAPPING"), {"reason"}),
        (o.TxnRefused("FENCED", 7, 0), {"reason", "producer_id", "epoch"}),
        (o.Damaged("the index is damaged", "", -1), {"what"}),
        (o.Damaged("the index is damaged", "index/data.mdb", -1), {"what", "file"}),
        (o.Damaged("a batch is damaged", "segment-0", 0), {"what", "file", "position"}),
    ],
)
def test_number_that_is_not_known_is_left_out(refusal: o.Refusal, told: set[str]) -> None:
    problem = split(problem_of(refusal))[2]
    assert set(problem) == MEMBERS | told
    assert -1 not in problem.values()


def test_reason_that_is_about_no_number_has_none() -> None:
    problem = split(problem_of(o.ClaimInvalid("nothing is named")))[2]
    assert set(problem) == MEMBERS | {"reason"}
    assert problem["detail"] == "this cannot be accepted: nothing is named"
    assert split(problem_of(o.ClaimInvalid("epoch out of range", received=-1)))[2]["received"] == -1
