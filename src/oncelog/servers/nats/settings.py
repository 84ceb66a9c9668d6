"""The settings of the NATS face."""

from typing import Annotated

from msgspec import Meta

from oncelog import limits as bounds
from oncelog.servers.face_settings import ADDRESS, HOUR_MS, MINUTE_MS, AdvertisingSettings


class NatsSettings(AdvertisingSettings, frozen=True, kw_only=True):
    """The NATS face: where it listens, and what it grants a client."""

    address: Annotated[str, ADDRESS] = "127.0.0.1:4222"
    payload_bytes_max: Annotated[
        int, Meta(ge=1024, le=3 * bounds.MIB, description="Headers and payload of one message (`max_payload`)")
    ] = bounds.NATS_PAYLOAD_BYTES_MAX_DEFAULT
    slow_bytes: Annotated[
        int,
        Meta(ge=64 * bounds.KIB, le=1024 * bounds.MIB, description="A client that leaves so much unread is cut off"),
    ] = 64 * bounds.MIB
    ping_ms: Annotated[
        int, Meta(ge=100, le=HOUR_MS, description="A silent client is asked after this, and cut after two unanswered")
    ] = 2 * MINUTE_MS
    batch_messages_max: Annotated[int, Meta(ge=1, le=100_000, description="Messages of one atomic batch")] = (
        bounds.NATS_BATCH_MESSAGES_MAX
    )
    batches_per_stream: Annotated[int, Meta(ge=1, le=100_000, description="Atomic batches open on one stream")] = (
        bounds.NATS_BATCHES_PER_STREAM_MAX
    )
    batches_max: Annotated[int, Meta(ge=1, le=100_000, description="Atomic batches open on the server")] = (
        bounds.NATS_BATCHES_MAX
    )
    batch_timeout_ms: Annotated[
        int, Meta(ge=10, le=HOUR_MS, description="An atomic batch without a message for this long is abandoned")
    ] = bounds.NATS_BATCH_TIMEOUT_MS
    batch_msg_id: Annotated[
        str,
        Meta(
            pattern="^(accept|refuse)$",
            title="accept or refuse",
            description="`Nats-Msg-Id` in atomic batches: `refuse` answers error 10177, as their first release did. A "
            "stream can ask for that too, with the metadata `oncelog.batch_msg_id=refuse`",
        ),
    ] = "accept"
