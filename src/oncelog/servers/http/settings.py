"""Settings of the HTTP face."""

from typing import Annotated, Final

from msgspec import Meta

from oncelog import limits
from oncelog.limits import KIB, MIB
from oncelog.servers.face_settings import ADDRESS, HOUR_MS, MINUTE_MS, FaceSettings

BODY_BYTES_MAX: Final = limits.BATCH_BYTES_MAX - 4 * KIB
"""The largest body: what stands around the records of a batch must still fit beside it."""


class HttpSettings(FaceSettings, frozen=True, kw_only=True):
    """The HTTP face: where it listens, and how long and how much it grants a client."""

    address: Annotated[str, ADDRESS] = "127.0.0.1:4437"
    long_poll_ms: Annotated[
        int, Meta(ge=1, le=HOUR_MS, description="How long a long-poll waits for a record before it is answered 204")
    ] = 30_000
    sse_ms: Annotated[
        int, Meta(ge=1_000, le=24 * HOUR_MS, description="How long an SSE connection lives; the client connects again")
    ] = 60_000
    sse_comment_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=HOUR_MS,
            description="How often an SSE connection carries a comment, so that no proxy takes it for dead",
        ),
    ] = 15_000
    header_bytes_max: Annotated[
        int, Meta(ge=1 * KIB, le=1 * MIB, description="Request line and headers of one request; more is 431")
    ] = 32 * KIB
    header_deadline_ms: Annotated[
        int,
        Meta(ge=100, le=10 * MINUTE_MS, description="From the first byte of a request to the end of its headers; 408"),
    ] = 10_000
    body_bytes_max: Annotated[
        int,
        Meta(ge=1 * KIB, le=BODY_BYTES_MAX, description="Body of one request; more is 413. A batch must fit an entry"),
    ] = BODY_BYTES_MAX
    body_rate_min: Annotated[
        int,
        Meta(ge=1, le=1 << 30, description="Bytes per second: a body that comes more slowly is cut after the grace"),
    ] = 10_000
    body_grace_ms: Annotated[
        int, Meta(ge=100, le=HOUR_MS, description="How long a body may come at any speed before its rate counts")
    ] = 10_000
    read_bytes_max: Annotated[
        int,
        Meta(ge=1 * KIB, le=64 * MIB, description="Bytes of one catch-up answer; one batch comes even if it is larger"),
    ] = 1 * MIB
    early_hold_ms: Annotated[
        int,
        Meta(ge=0, le=MINUTE_MS, description="How long a request that came before its turn waits for those before it"),
    ] = 500
    x_producer_strict: Annotated[
        bool, Meta(description="Refuse `X-Producer-*` requests that name neither a session nor an epoch")
    ] = False
    browser_writes: Annotated[
        bool,
        Meta(
            description="Take writes that carry an `Origin`, as browsers send it. Nobody is asked who they are, so "
            "with this any page that is open on a machine which reaches the server can append and delete"
        ),
    ] = False
    pipelined_max: Annotated[
        int, Meta(ge=1, le=10_000, description="Requests in progress on one connection; reading pauses at it")
    ] = 64

    @property
    def shortest_deadline_ms(self) -> int:
        return min(super().shortest_deadline_ms, self.header_deadline_ms, self.body_grace_ms)
