"""What a producer can be told, with defaults and bounds. One place: both producers read it, `docs/client.md` lists it.

`ProducerOptions` is the shape of the keyword arguments, `ProducerSettings` what they become after the checks.
"""

import os
import socket
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from oncelog.client.batches import BatchResult, PendingBatch
from oncelog.client.errors import ClientError
from oncelog.client.packing import RECORD_BYTES_MAX
from oncelog.limits import BATCH_RECORDS_MAX, KIB, MIB

DialectName = Literal["x", "durable-streams"]

IN_FLIGHT_MAX: Final = 64
"""As many requests of one connection as the server works on at once; more would only wait in its socket."""

PRODUCER_ID_VARIABLE: Final = "PRODUCER_ID"


class ProducerOptions(TypedDict, total=False):
    """Keyword arguments of a producer. Each is explained at `ProducerSettings`."""

    producer_id: str | None
    dialect: DialectName
    session: str | None
    epoch: int
    max_in_flight: int
    max_batch_bytes: int
    max_batch_records: int
    linger_ms: float
    raw_batches: bool
    max_pending_bytes: int
    delivery_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    dead_letter: str | None
    on_batch_ack: Callable[[BatchResult], object] | None
    on_error: Callable[[ClientError, PendingBatch], object] | None


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Options of a producer. ValueError if one is out of bounds."""

    producer_id: str | None = None
    """The name under which the server knows this producer, kept over restarts. Else `PRODUCER_ID`, else a guess."""
    dialect: DialectName = "x"
    """`x`: the server counts epochs. `durable-streams`: `epoch` does, for servers of that protocol."""
    session: str | None = None
    """One run of the producer; random. Given only to adopt the session of an earlier object."""
    epoch: int = 0
    """The epoch in the durable-streams dialect. A restarted producer must come with a higher one, or `resume`."""
    max_in_flight: int = 5
    """Batches per partition that wait for their answer."""
    max_batch_bytes: int = 1 * MIB
    """Records of one batch, with 48 bytes added for each."""
    max_batch_records: int = 100_000
    """Records of one batch. 1 makes the sequence the number of the record, which `resume` can rely on."""
    linger_ms: float = 0
    """How long a record may wait for company. 0: a batch leaves as soon as there is a free place."""
    raw_batches: bool = False
    """Send record batches whatever the content type: many records per request where it would be one."""
    max_pending_bytes: int = 32 * MIB
    """Records taken and not yet confirmed, counted as in `max_batch_bytes`."""
    delivery_timeout_ms: float = 120_000
    """From the first attempt of a batch; afterwards its outcome is unknown and the producer stops."""
    retry_backoff_ms: float = 50
    """The first pause before a retry; it doubles each time."""
    retry_backoff_max_ms: float = 2_000
    """The longest pause before a retry, unless the server asks for a longer one."""
    dead_letter: str | None = None
    """A stream that takes the records of a batch whose content is refused; the producer then goes on."""
    on_batch_ack: Callable[[BatchResult], object] | None = None
    """Called for every confirmed batch, per partition in order."""
    on_error: Callable[[ClientError, PendingBatch], object] | None = None
    """Called for every batch that will not be confirmed, per partition in order."""

    def __post_init__(self) -> None:
        bounds: tuple[tuple[str, float, float], ...] = (
            ("max_in_flight", 1, IN_FLIGHT_MAX),
            ("max_batch_bytes", 1 * KIB, RECORD_BYTES_MAX),
            ("max_batch_records", 1, BATCH_RECORDS_MAX),
            ("linger_ms", 0, 60_000),
            ("max_pending_bytes", 1 * KIB, 1 << 40),
            ("delivery_timeout_ms", 1, 1e12),
            ("retry_backoff_ms", 0, 1e6),
            ("retry_backoff_max_ms", self.retry_backoff_ms, 1e6),
            ("epoch", 0, 2**53 - 1),
        )
        for name, low, high in bounds:
            value: float = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is between {low:g} and {high:g}, not {value:g}")
        for name in ("producer_id", "session", "dead_letter"):
            if getattr(self, name) == "":
                raise ValueError(f"{name} is not empty: leave it out, or give None")
        if self.dialect not in ("x", "durable-streams"):
            raise ValueError(f"dialect is 'x' or 'durable-streams', not {self.dialect!r}")
        if self.dialect != "x" and self.session is not None:
            raise ValueError("only the x dialect has sessions")

    def name(self) -> str:
        """The producer's id: the argument, else the environment, else a guess that a restart will not find again."""
        if self.producer_id:
            return self.producer_id
        if told := os.environ.get(PRODUCER_ID_VARIABLE):
            return told
        guess = f"{socket.gethostname()}-{os.getpid()}"
        warnings.warn(
            f"no producer_id and no {PRODUCER_ID_VARIABLE}: using {guess!r}. A restart comes under another name, so "
            "what it sends again is not recognised; two containers may even share one. Give a stable id.",
            RuntimeWarning,
            stacklevel=4,
        )
        return guess


def new_session() -> str:
    """A name for one run; 122 random bits."""
    return uuid.uuid4().hex
