"""Steps of a simulated engine that several test files take."""

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import Append, CreateTopic
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import Confirmed
from oncelog.testing.sim_engine import Pending, SimEngine, WatchedDisk


def opened(segment_bytes: int = limits.SEGMENT_BYTES_MIN) -> SimEngine:
    """An engine with the topic a. The smallest segments hold turns of a dozen records."""
    engine = SimEngine(WatchedDisk(), segment_bytes=segment_bytes)
    engine.execute(CreateTopic("a"))
    return engine


def append(value: bytes, *, id_: bytes = b"", expected_tail: int = -1) -> Append:
    return Append(
        "a",
        0,
        codec.encode_values([value], 1),
        1,
        digest=content_digest(value),
        message_id=id_,
        expected_tail=expected_tail,
    )


def step(engine: SimEngine) -> None:
    engine.write()
    engine.written()
    engine.answer()


def firsts(pendings: list[Pending]) -> list[int]:
    """The offsets that were confirmed."""
    return [pending.outcome.first for pending in pendings if isinstance(pending.outcome, Confirmed)]
