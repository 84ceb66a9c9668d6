"""The faces that exist, one module each. Others join here with a line each."""

from typing import Final

from oncelog.demo.faces.face import Face
from oncelog.demo.faces.http_commits import HttpCommits
from oncelog.demo.faces.http_ids import HttpIds
from oncelog.demo.faces.http_producers import ClientProducers, HeaderProducers
from oncelog.demo.faces.kafka_transactions import KafkaTransactions
from oncelog.demo.faces.nats_batches import NatsBatches
from oncelog.demo.plan import Share

FACES: Final[tuple[Face, ...]] = (
    HttpCommits(),
    ClientProducers(),
    HeaderProducers(),
    HttpIds(),
    KafkaTransactions(),
    NatsBatches(),
)


def face_of(name: str) -> Face:
    """The face of that name."""
    return next(face for face in FACES if face.name == name)


def shares_of(scale: float) -> tuple[Share, ...]:
    """What each producer has to write."""
    return tuple(
        Share(face.name, f"{face.name}-{number}", number, max(1, round(face.orders * scale)))
        for face in FACES
        for number in range(face.producers)
    )
