"""Every error that this face can answer says what to do about it.

The codes of refusals come from the core's closed set; all others stand in calls of the sources, where they are looked
for: a new one without a hint is found before anybody meets it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import oncelog
from oncelog.core import outcome as o
from oncelog.protocols.http import answers
from oncelog.protocols.http.hints import HINTS
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.request import RequestRefused
from oncelog.protocols.http.routes import refused_answer
from tests.protocols.http.requests import answer_of, made, routed
from tests.protocols.http.test_refusal_map import KINDS, sample, split

SOURCES = Path(oncelog.__file__).parent
TELLERS = {"problem": 1, "_bad": 0, "RequestRefused": 1}
"""What tells an error, and which of its arguments is the code."""

CASES = (
    o.TooLarge("partitions", 10_000, 0, least=1),
    o.IdConflict(2, 5, b"a", b"b", "order-7", "orders", 3),
    o.TopicMissing("a", 0),
    o.TopicMissing("a", 3),
    o.TopicExists("t", o.TopicExists.CLOSED),
    o.TopicExists("t", o.TopicExists.OPEN),
    o.Damaged("the index is damaged", "", -1),
    o.Damaged("the index is damaged", "index/data.mdb", -1),
    o.NotFound("producer"),
    o.Fenced(2, -1),
)
"""Refusals that are told in words of their own, or not whole."""


class Told(NamedTuple):
    """A call that tells an error."""

    code: str
    has_own_hint: bool
    place: str


def tellers() -> Iterator[Told]:
    for path in sorted([*SOURCES.glob("protocols/http/*.py"), *SOURCES.glob("servers/http/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in TELLERS or len(node.args) <= TELLERS[name]:
                continue
            code = node.args[TELLERS[name]]
            hints = [word.value for word in node.keywords if word.arg == "hint"] + node.args[2:3] * (name == "_bad")
            if isinstance(code, ast.Constant):
                yield Told(str(code.value), bool(hints), f"{path.name}:{node.lineno}")


FOUND = list(tellers())


def hint_of(answer: bytes) -> str:
    hint: str = split(answer)[2]["hint"]
    return hint


def test_every_code_is_found() -> None:
    codes = {told.code for told in FOUND}
    assert {"target_invalid", "empty_body", "too_slow", "malformed_request", "not_built"} <= codes
    assert set(HINTS) <= codes, "a hint of a code that nobody answers"


@pytest.mark.parametrize("told", FOUND, ids=lambda told: f"{told.code}-{told.place}")
def test_error_of_a_request_has_a_hint(told: Told) -> None:
    assert told.has_own_hint or hint_of(answers.problem(400, told.code, "what is so"))
    if not told.has_own_hint:
        assert hint_of(refused_answer(RequestRefused(400, told.code, "what is so")))


@pytest.mark.parametrize(
    "refusal",
    [*map(sample, KINDS), *CASES],
    ids=[kind.code for kind in KINDS] + [f"{case.code}-{number}" for number, case in enumerate(CASES)],
)
def test_refusal_has_a_hint_with_its_numbers_filled_in(refusal: o.Refusal) -> None:
    hint = hint_of(problem_of(refusal))
    assert hint
    assert "{" not in hint


def test_hint_of_who_tells_it_is_stronger_than_that_of_the_code() -> None:
    assert hint_of(answer_of(routed(made("GET", "/v1/stream/__ds/x")))) == "read with ?live=sse or ?live=long-poll"
    assert hint_of(answer_of(routed(made("PUT", "/v1/stream/a", stream_ttl="1")))) == HINTS["not_built"]


def test_hint_names_the_number_to_send() -> None:
    assert hint_of(problem_of(o.TooLarge("partitions", 10_000, 0, least=1))) == "send 1 or more"
    assert "from 0 to 42" in hint_of(problem_of(o.OffsetAhead(1, 50, 42)))
    assert "batch 8 of query 'q'" in hint_of(problem_of(o.ApplicationBatchRefused("a", "q", 8, 9, "one is missing")))
