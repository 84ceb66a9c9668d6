"""Zones in memory, for the carrier: what a boundary answers, and links that are cut where a test says."""

from collections.abc import Sequence
from typing import Any

from oncelog.client.errors import ConnectionLost
from oncelog.forward.link import CallRefused, Link


class ZoneInMemory(Link):
    """A boundary without a network. `cut_after` answers, the connection ends; what was sent by then is carried out."""

    def __init__(self, facts: int = 0, to_zone: str = "b") -> None:
        self.facts: list[dict[str, Any]] = []
        self.sequences: dict[str, int] = {}
        self.confirmed: set[int] = set()
        self.conflicts: set[str] = set()
        self.exhausted: set[str] = set()
        self.is_gate_closed = False
        self.cut_after = -1
        self.is_down = False
        for number in range(facts):
            self.append(fact(number, to_zone=to_zone))

    @property
    def ids(self) -> list[str]:
        return [one["envelope"]["message_id"] for one in self.facts]

    @property
    def frontier(self) -> int:
        return next((at for at in range(len(self.facts)) if at + 1 not in self.confirmed), len(self.facts))

    def append(self, request: dict[str, Any]) -> dict[str, Any]:
        message_id = request["envelope"]["message_id"]
        if message_id in self.conflicts:
            raise CallRefused("already_exists", "conflicting_duplicate")
        if message_id in self.exhausted:
            raise CallRefused("resource_exhausted", "full")
        duplicate = message_id in self.sequences
        if not duplicate:
            self.facts.append(request)
            self.sequences[message_id] = len(self.facts)
        return {"stream": "facts.operational", "sequence": str(self.sequences[message_id]), "duplicate": duplicate}

    async def call(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        if self.is_down:
            raise ConnectionLost("cut", sent=True)
        if method == "FetchFacts":
            if self.is_gate_closed:
                raise CallRefused("failed_precondition", "the gate of the consumer is closed")
            open_ = [number for number in range(1, len(self.facts) + 1) if number not in self.confirmed]
            page = [{"sequence": str(number), **self.facts[number - 1]} for number in open_[: message["limit"]]]
            return {"facts": page}
        assert method == "ConfirmReceipt"
        self.confirmed |= {int(sequence) for sequence in message["sequences"]}
        return {"frontier": str(self.frontier)}

    async def call_each(
        self, method: str, messages: Sequence[dict[str, Any]]
    ) -> tuple[list[dict[str, Any] | CallRefused], ConnectionLost | None]:
        assert method == "AppendFact"
        if self.is_down:
            raise ConnectionLost("cut", sent=True)
        answers: list[dict[str, Any] | CallRefused] = []
        for message in messages:
            if 0 <= self.cut_after == len(answers):
                self.append(message)  # carried out; its answer is lost
                self.cut_after = -1
                return answers, ConnectionLost("cut", sent=True)
            try:
                answers.append(self.append(message))
            except CallRefused as refused:
                answers.append(refused)
        return answers, None


def fact(number: int, *, from_zone: str = "a", to_zone: str = "b") -> dict[str, Any]:
    envelope = {"message_id": f"m{number}", "from_zone": from_zone, "to_zone": to_zone}
    return {"envelope": envelope, "fact": {"subject": "pump:1", "predicate": "is_on", "object_json": "true"}}
