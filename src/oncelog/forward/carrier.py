"""Carries the facts of one stream from a zone to another, in their order, each once.

The only state that counts is the consumer at the source. One step is: fetch a page after the consumer's frontier,
append it to the target, confirm at the source what the target has confirmed. Whatever is cut between two of them is
done again: the target answers the first sequence to a fact that it has.

Order: the appends of a page go through one connection, one behind the other, and the target takes them in their order.
What a cut leaves of them in the target is a prefix, and the next attempt begins with the first one without an answer;
so what is new in the target is always the next fact of the source.

A fact that the target refuses for good (a conflict) is left unconfirmed: it is a gap at the source, listed there, and
tried again after `REFUSED_RETRY_S`. The facts behind it go on.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from oncelog.client.errors import ConnectionLost
from oncelog.forward.link import CallRefused, Link
from oncelog.forward.objects import carry_objects

PAGE_FACTS: Final = 500
"""Facts of one step: the least a step can cost is one durable confirm at the source."""

REFUSED_RETRY_S: Final = 30.0
"""A conflict does not go away by itself; an operator may remove the cause."""


class Progress(msgspec.Struct):
    """What one stream's carrier has done since the forwarder started."""

    stream: str
    carried: int = 0
    duplicates: int = 0
    """Facts that the target had already."""
    passed_by: int = 0
    """Facts for other zones: confirmed without being carried."""
    refused: dict[str, str] = {}
    """Source sequence of each fact that the target refuses, and why."""
    frontier: int = 0
    """The source's, by its last answer."""
    target_sequence: int = 0
    """The target's, of the fact that was carried last."""
    backlog: int = 0
    """Facts of the source that its consumer has not confirmed; this one and the next two as it told last."""
    lag_s: float = 0.0
    """Age of the oldest of them."""
    gap_count: int = 0
    is_gate_closed: bool = False
    cut: str = ""
    """What keeps the carrier from going on; empty while it goes on."""


Carry = Callable[[Link, Link, dict[str, Any]], Awaitable[CallRefused | None]]
"""Carries the objects of a fact; returns a refusal for good."""


def _runs(facts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The facts in their order, each one with attachments alone."""
    runs: list[list[dict[str, Any]]] = []
    for fact in facts:
        if runs and "attachments" not in fact and "attachments" not in runs[-1][0]:
            runs[-1].append(fact)
        else:
            runs.append([fact])
    return runs


class Carrier:
    """One stream from one zone to another."""

    def __init__(
        self,
        source: Link,
        target: Link,
        consumer: str,
        stream: str,
        carries: Callable[[dict[str, Any]], bool],
        *,
        carry: Carry = carry_objects,
        page_facts: int = PAGE_FACTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._target = target
        self._consumer = consumer
        self._carries = carries
        """Whether a fact, by its envelope, is for the target."""
        self._carry_objects = carry
        self._page_facts = page_facts
        self._clock = clock
        self._retry_at: dict[str, float] = {}
        """Source sequence of a refused fact, and when it is tried again."""
        self.progress = Progress(stream, refused={})

    async def step(self) -> int:
        """Carry one page; how many facts were confirmed at the source. Raises ConnectionLost, CallRefused."""
        progress = self.progress
        asked = {"consumer_name": self._consumer, "limit": self._page_facts, "stream": progress.stream}
        try:
            page = (await self._source.call("FetchFacts", asked))["facts"]
        except CallRefused as refused:
            progress.is_gate_closed = refused.code == "failed_precondition" and "gate" in refused.message
            if progress.is_gate_closed:
                return 0
            raise
        progress.is_gate_closed = False
        now = self._clock()
        page = [fact for fact in page if self._retry_at.get(fact["sequence"], 0.0) <= now]
        mine = [fact for fact in page if self._carries(fact["envelope"])]
        confirmed = {fact["sequence"] for fact in page} - {fact["sequence"] for fact in mine}
        progress.passed_by += len(confirmed)
        cut: ConnectionLost | CallRefused | None = None
        if mine:
            try:
                cut = await self._append(mine, confirmed)
            except (ConnectionLost, CallRefused) as error:
                cut = error  # what was answered before is confirmed all the same
        if confirmed:
            done = await self._source.call(
                "ConfirmReceipt",
                {
                    "consumer_name": self._consumer,
                    "sequences": sorted(confirmed, key=int),
                    "stream": progress.stream,
                },
            )
            progress.frontier = int(done["frontier"])
        if cut is not None:
            raise cut
        return len(confirmed)

    async def _append(self, facts: list[dict[str, Any]], confirmed: set[str]) -> ConnectionLost | CallRefused | None:
        """Append to the target, in order; what it has goes into `confirmed`. Returns what cut it short."""
        cut: ConnectionLost | CallRefused | None = None
        for run in _runs(facts):
            if "attachments" in run[0]:
                # Alone: the facts before it are answered, and those behind it wait until its objects are there.
                refused = await self._carry_objects(self._source, self._target, run[0])
                if refused is not None:
                    self._refused(run[0]["sequence"], refused)
                    continue
            cut = await self._append_run(run, confirmed)
            if cut is not None:
                break
        return cut

    def _refused(self, sequence: str, refusal: CallRefused) -> None:
        self.progress.refused[sequence] = str(refusal)
        self._retry_at[sequence] = self._clock() + REFUSED_RETRY_S

    async def _append_run(
        self, facts: list[dict[str, Any]], confirmed: set[str]
    ) -> ConnectionLost | CallRefused | None:
        """As `_append`, of facts that are sent one behind the other."""
        progress = self.progress
        requests = [{name: part for name, part in fact.items() if name != "sequence"} for fact in facts]
        answers, cut = await self._target.call_each("AppendFact", requests)
        again: CallRefused | None = None
        for fact, answer in zip(facts, answers, strict=False):
            sequence = fact["sequence"]
            if isinstance(answer, CallRefused):
                if answer.is_retryable:
                    again = again or answer
                else:
                    self._refused(sequence, answer)
                continue
            confirmed.add(sequence)
            progress.refused.pop(sequence, None)
            self._retry_at.pop(sequence, None)
            progress.target_sequence = int(answer["sequence"])
            if answer["duplicate"]:
                progress.duplicates += 1
            else:
                progress.carried += 1
        return cut or again
