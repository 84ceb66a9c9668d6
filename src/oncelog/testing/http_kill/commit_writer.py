"""The writer that commits over three streams at once: by commit id, by a producer's sequence, or by both."""

from typing import Any, ClassVar

import msgspec

from oncelog.testing.http_kill.lanes import Network, Request, Writer
from oncelog.testing.http_kill.ledger import COMMITS, STREAM_IDS
from oncelog.testing.http_kill.wire import JSON, Answer, request_bytes
from oncelog.testing.kill.ledger import CursorMoved, Identity, Unit


class CommitWriter(Writer):
    """Each commit moves a cursor, and expects it where the one before has put it."""

    label = "/v1/commit, 3 streams"
    again_share: ClassVar[float] = 0.1
    doomed_share: ClassVar[float] = 0.08
    cursor: ClassVar[tuple[str, str, int]] = ("committer", COMMITS[0].name, 0)

    def __init__(self, name: str, network: Network) -> None:
        super().__init__(name, network)
        self._frontier = 0
        self._sequence = 0
        self._last: Request | None = None

    def next_request(self) -> Request | None:
        if self.finishing:
            return None
        if self._last is not None and self.random.random() < self.again_share:
            again = Request(self._last.data, self._last.unit, self._last.topic)
            again.again = True
            return again
        counts = [self.random.randint(1, 2) for _ in COMMITS]
        identities = self.identities(sum(counts))
        if self.random.random() < self.doomed_share:
            unit = self.doomed_unit("a commit with a false condition", identities)
            condition = {"kind": "expected_tail", "topic": COMMITS[1].name, "tail": 1 << 40}
            body = self._appends(unit, counts) | {"conditions": [condition], "commit_id": f"doomed-{self.number}"}
            request = self._request(body, unit)
            request.refusal = "condition_failed"
            return request
        unit = self.ledger.unit(f"{self.name} {self.number}", identities)
        return self._request(self._appends(unit, counts) | self._claim() | self._move(unit, counts[0]), unit)

    def _appends(self, unit: Unit, counts: list[int]) -> dict[str, Any]:
        identities = iter(unit.identities)
        return {
            "appends": [
                {"topic": topic.name, "records": [self._record(next(identities)) for _ in range(count)]}
                for topic, count in zip(COMMITS, counts, strict=True)
            ]
        }

    def _record(self, identity: Identity) -> dict[str, Any]:
        value = self.ledger.value(COMMITS[0], identity)
        # The same bytes by each of the two ways.
        return {"json": msgspec.Raw(value)} if self.random.random() < 0.5 else {"value": value.decode()}

    def _claim(self) -> dict[str, Any]:
        kind = self.random.randrange(3)
        claim: dict[str, Any] = {"commit_id": f"{self.name}-{self.number}"} if kind != 1 else {}
        if kind != 0:
            claim["producer"] = {"name": self.name, "epoch": 0, "sequence": self._sequence}
            self._sequence += 1
        return claim

    def _move(self, unit: Unit, count: int) -> dict[str, Any]:
        name, topic, _ = self.cursor
        expected = {"kind": "cursor_equals", "name": name, "topic": topic, "frontier": self._frontier}
        # Nobody else writes to this stream, so the writer knows where its records will end.
        self._frontier += count
        self.ledger.cursor_moves.append(CursorMoved(self.cursor, self._frontier, unit))
        return {"conditions": [expected], "cursors": [{"name": name, "topic": topic, "frontier": self._frontier}]}

    def _request(self, body: dict[str, Any], unit: Unit) -> Request:
        data = request_bytes("POST", "/v1/commit", {"Content-Type": JSON}, msgspec.json.encode(body))
        return Request(data, unit, COMMITS[0])

    def confirmed(self, request: Request, answer: Answer) -> None:
        unit = request.unit
        assert unit is not None
        told = answer.json()
        self.ledger.succeeded(self.name, unit, duplicate=told["duplicate"], again=request.again)
        identities = list(unit.identities)
        for place in told["outcome"]:
            stream_id = STREAM_IDS[place["topic"], place["partition"]]
            count = place["next"] - place["first"]
            self.ledger.placed(unit, identities[:count], stream_id, place["first"], place["next"])
            del identities[:count]
        # By its sequence alone, one that is sent again behind five others is known, and its place forgotten.
        if identities and not (request.again and not told["outcome"]):
            self.ledger.findings.add("lost", f"{unit.name}: no place was told for {identities}")
        if not request.again:
            self._last = request
