"""The audit stream of refusals: who was refused what, as JSON records of `bsfg.refusals`.

Recorded are refusals that an operator must hear of: callers that are not known, rights that are missing, conflicts. At
most `PER_SECOND` of them are written in a second, so that a caller who is refused in a loop does not fill the disk; how
many were left out stands in the next record.
"""

from typing import Final

import msgspec

from oncelog.core import batch as codec
from oncelog.core.command import Append, CreateTopic
from oncelog.core.content_type import JSON
from oncelog.core.outcome import Outcome
from oncelog.core.rows import TopicConfig
from oncelog.engine.engine import Engine
from oncelog.protocols.bsfg.connect import Answer

TOPIC: Final = "bsfg.refusals"
RECORDED: Final = frozenset(("unauthenticated", "permission_denied", "already_exists", "resource_exhausted"))
PER_SECOND: Final = 100

_encode: Final = msgspec.json.Encoder().encode


class RefusalRecord:
    """Writes what was refused."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._second = 0
        self._written = 0
        self._omitted = 0
        self._is_made = False

    def note(self, method: str, caller: str, answer: Answer) -> None:
        """One call was refused."""
        if answer.code not in RECORDED:
            return
        now_ms = self._engine.now_ns() // 1_000_000
        if now_ms // 1_000 != self._second:
            self._second, self._written = now_ms // 1_000, 0
        if self._written >= PER_SECOND:
            self._omitted += 1
            return
        self._written += 1
        told = msgspec.json.decode(answer.body)
        record = {
            "time_ms": now_ms,
            "method": method,
            "caller": caller,
            "code": answer.code,
            "message": told["message"],
            "omitted": self._omitted,
        }
        self._omitted = 0
        if not self._is_made:
            self._is_made = True
            self._engine.submit(CreateTopic(TOPIC, config=TopicConfig(content_type=JSON)), _ignore)
        batch = codec.encode_one(_encode(record), now_ms)
        self._engine.submit(Append(TOPIC, 0, batch, 1, content_type=JSON), _ignore)


def _ignore(_outcome: Outcome) -> None:
    """Nobody waits for it: the refusal itself was answered."""
