"""What will go wrong, and when: a seed and a scale give one list of strikes, the same every time.

A strike waits for a moment of the run, not of the clock: so many orders confirmed, so many Spark batches done. A slow
machine is struck as often as a fast one, and at the same places. What the seed cannot fix is which request is on its
way at that instant; that differs from run to run, as it should.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

SCALE_MIN: Final = 0.05
"""Below, a producer would have ended before it could be killed."""
SCALE_MAX: Final = 100.0
"""The demo keeps what it expects in memory, some 200 bytes for each order: 100 is about 600,000 orders."""

SERVER: Final = "server"
DRIVER: Final = "Spark driver"
PRODUCER: Final = "producer"
"""Whom the strikes are for, in the counts of a plan; a strike itself names its producer."""

SERVER_STRIKES_WRITING: Final = 4
SERVER_STRIKES_SPARK: Final = 2
"""At any scale: a larger run has more writes, not more kills. Each server kill costs two seconds. Of the producers, one
of each face dies."""

DRIVER_STRIKE_BATCH: Final = range(1, 4)
"""When the driver dies: it has published something by then, and every run has so many batches."""


class Moment(Enum):
    """What a strike waits for."""

    ORDERS = "orders confirmed"
    BATCHES = "Spark batches done"


class Strike(NamedTuple):
    """One kill -9."""

    moment: Moment
    at: int
    """How many of them."""
    delay_s: float
    """After that; it makes the place within a request, a sync or a batch a matter of chance."""
    victim: str
    """`SERVER`, `DRIVER`, or the name of a producer."""
    pause_s: float
    """How long it stays down."""


class Share(NamedTuple):
    """What one producer process has to write."""

    face: str
    producer: str
    number: int
    """Among the producers of its face."""
    orders: int


class Plan(NamedTuple):
    """A run before it happens."""

    seed: int
    scale: float
    shares: tuple[Share, ...]
    strikes: tuple[Strike, ...]
    """By moment, earliest first."""
    spark: bool = True
    """Whether pipelines run on Spark; without them there is nothing to derive and no table."""

    @property
    def orders(self) -> int:
        """Of all producers."""
        return sum(share.orders for share in self.shares)

    def orders_of(self, face: str) -> int:
        """Of all producers of a face."""
        return sum(share.orders for share in self.shares if share.face == face)

    @property
    def kills(self) -> Counter[str]:
        """How many servers, drivers and producers die."""
        return Counter(
            strike.victim if strike.victim in (SERVER, DRIVER) else PRODUCER for strike in self.strikes
        )  # fmt: skip


def planned(seed: int, scale: float, shares: Sequence[Share], *, spark: bool = True) -> Plan:
    """The plan of this seed. The faces say the shares. Without Spark its driver is not killed, and all else is as with
    it."""
    chance = random.Random(f"oncelog demo {seed}")
    orders = sum(share.orders for share in shares)
    strikes = [
        Strike(Moment.ORDERS, place, chance.uniform(0, 0.2), SERVER, chance.uniform(0.1, 0.6))
        for place in _spread(chance, orders, SERVER_STRIKES_WRITING)
    ]
    faces = list(dict.fromkeys(share.face for share in shares))
    victims = [chance.choice([share.producer for share in shares if share.face == face]) for face in faces]
    chance.shuffle(victims)
    strikes += [
        Strike(Moment.ORDERS, place, chance.uniform(0, 0.1), victim, chance.uniform(0.0, 0.4))
        # Early enough that the victim still has something to write, whichever it is.
        for victim, place in zip(victims, _spread(chance, orders * 3 // 5, len(victims)), strict=True)
    ]
    if spark:
        strikes += _strikes_of_spark(chance)
    strikes.sort(key=lambda strike: (strike.moment.name, strike.at))
    return Plan(seed, scale, tuple(shares), tuple(strikes), spark)


def _strikes_of_spark(chance: random.Random) -> Iterator[Strike]:
    driver_at = chance.choice(DRIVER_STRIKE_BATCH)
    yield Strike(Moment.BATCHES, driver_at, chance.uniform(0, 1.5), DRIVER, 0.0)
    for number in range(SERVER_STRIKES_SPARK):
        # The first before the driver's death or soon after it, the others while its successor works.
        at = 1 + number * driver_at + chance.randrange(2)
        yield Strike(Moment.BATCHES, at, chance.uniform(0, 0.5), SERVER, chance.uniform(0.1, 0.6))


def _spread(chance: random.Random, total: int, count: int) -> list[int]:
    """One place at random in each of `count` equal pieces of [1, total)."""
    piece = max(1, (total - 1) // max(1, count))
    return [1 + number * piece + chance.randrange(piece) for number in range(count)]
