"""A consumer's configuration: JetStream's fields, defaults and checks, in the real server's order and words."""

from datetime import datetime
from typing import Any, Final

import msgspec

from oncelog import limits as bounds
from oncelog.protocols.nats import errors
from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.errors import ApiError, policy_invalid, stream_invalid
from oncelog.protocols.nats.stream_config import DYNAMIC, MS_NS, REQUIRED_LEVEL, SECOND_NS, StreamConfig

ACK_WAIT_NS: Final = 30 * SECOND_NS
ACK_PENDING_MAX: Final = 1_000
WAITING_MAX: Final = 512
INACTIVE_NS: Final = 5 * SECOND_NS
"""An ephemeral consumer without a listener is removed after this."""


class ConsumerConfig(msgspec.Struct, kw_only=True):
    """As JSON."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    ack_policy: str = "none"
    ack_wait: int = 0
    max_deliver: int = 0
    backoff: list[int] | None = None
    filter_subject: str = ""
    filter_subjects: list[str] | None = None
    replay_policy: str = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    metadata: dict[str, str] | None = None
    pause_until: str | None = None
    priority_groups: list[str] | None = None
    priority_policy: str = ""
    priority_timeout: int = 0

    @property
    def filters(self) -> list[str]:
        """The subjects that it receives; none for all."""
        return self.filter_subjects or ([self.filter_subject] if self.filter_subject else [])

    @property
    def is_push(self) -> bool:
        return bool(self.deliver_subject)


_ALWAYS: Final = frozenset(("deliver_policy", "ack_policy", "replay_policy", "num_replicas"))


def as_json(config: ConsumerConfig) -> dict[str, Any]:
    """Only what is set, as the real server spells it."""
    fields = {name: value for name in config.__struct_fields__ if (value := getattr(config, name)) or name in _ALWAYS}
    level = "1" if config.pause_until else "0"
    fields["metadata"] = {**(config.metadata or {}), REQUIRED_LEVEL: level, **DYNAMIC}
    return fields


def time_ns(text: str) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time; None if it is none."""
    try:
        whole, _, rest = text.partition(".")
        fraction = ""
        if rest:
            digits = len(rest) - len(rest.lstrip("0123456789"))
            fraction, whole = rest[:digits], whole + rest[digits:]
        moment = datetime.fromisoformat(whole.replace("Z", "+00:00"))
        if moment.tzinfo is None:
            return None
        return int(moment.timestamp()) * SECOND_NS + int((fraction + "000000000")[:9])
    except (ValueError, OverflowError):
        return None


def duration_text(nanoseconds: int) -> str:
    """As Go writes a duration, for the whole numbers that people configure."""
    for scale, unit in ((SECOND_NS, "s"), (MS_NS, "ms"), (1_000, "µs")):
        if nanoseconds % scale == 0:
            return f"{nanoseconds // scale}{unit}"
    return f"{nanoseconds}ns"


def checked(config: ConsumerConfig, stream: StreamConfig) -> ConsumerConfig | ApiError:
    """The configuration with its defaults, or why it cannot be used."""
    config = msgspec.structs.replace(config)
    _set_defaults(config, stream)
    wrong = (
        _names(config, stream) or _times(config) or (_push(config, stream) if config.is_push else _pull(config, stream))
    )
    wrong = wrong or _filters(config) or _start(config) or _rest(config)
    return wrong or _work_queue(config, stream) or config


def _set_defaults(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.max_deliver <= 0:
        config.max_deliver = -1
    config.max_waiting = max(0, config.max_waiting)
    config.max_ack_pending = max(-1, config.max_ack_pending)
    for name in ("max_batch", "max_expires", "max_bytes", "idle_heartbeat", "inactive_threshold"):
        setattr(config, name, max(0, getattr(config, name)))
    if not config.deliver_subject and not config.max_waiting:
        config.max_waiting = WAITING_MAX
    if not config.ack_wait and config.ack_policy in ("explicit", "all"):
        config.ack_wait = ACK_WAIT_NS
    if config.backoff:
        config.ack_wait = config.backoff[0]
    limits = stream.consumer_limits
    if limits is not None:
        config.max_ack_pending = config.max_ack_pending or limits.max_ack_pending
        config.inactive_threshold = config.inactive_threshold or limits.inactive_threshold
    if not config.durable_name and not config.inactive_threshold:
        config.inactive_threshold = INACTIVE_NS
    if not config.max_ack_pending and config.ack_policy != "none":
        config.max_ack_pending = ACK_PENDING_MAX
    config.metadata = {key: value for key, value in (config.metadata or {}).items() if not key.startswith("_nats.")}


def _names(config: ConsumerConfig, stream: StreamConfig) -> ApiError | None:
    forbidden = "can not contain '.', '*', '>', '\\', '/'"
    if config.name and not subjects.is_asset_name(config.name):
        return stream_invalid(f"consumer name {forbidden}")
    if config.durable_name and not subjects.is_asset_name(config.durable_name):
        return stream_invalid(f"consumer durable name {forbidden}")
    if max(len(config.name.encode()), len(config.durable_name.encode())) > bounds.NATS_NAME_BYTES_MAX:
        return errors.too_long("name", bounds.NATS_NAME_BYTES_MAX)
    if config.num_replicas > 1:
        return errors.REPLICAS_NOT_SUPPORTED
    if config.num_replicas > stream.num_replicas:
        return errors.CONSUMER_REPLICAS
    if config.num_replicas < 0:
        return errors.REPLICAS_NEGATIVE
    if config.ack_policy not in ("none", "all", "explicit"):
        return errors.json_invalid(f'can not unmarshal "{config.ack_policy}"')
    if config.replay_policy not in ("instant", "original"):
        return errors.json_invalid(f'can not unmarshal "{config.replay_policy}"')
    return None


def _times(config: ConsumerConfig) -> ApiError | None:
    backoff = config.backoff or []
    if any(wait < 0 for wait in backoff):
        return errors.BACKOFF_NEGATIVE
    if config.ack_wait < 0:
        return errors.ACK_WAIT_NEGATIVE
    if backoff and config.max_deliver != -1 and len(backoff) > config.max_deliver:
        return errors.BACKOFF_TOO_LONG
    if len(config.description.encode()) > bounds.NATS_DESCRIPTION_BYTES_MAX:
        return errors.too_long("description", bounds.NATS_DESCRIPTION_BYTES_MAX)
    return None


def _push(config: ConsumerConfig, stream: StreamConfig) -> ApiError | None:
    if not subjects.is_literal(config.deliver_subject):
        return errors.DELIVER_WILDCARDS
    if not subjects.is_valid(config.deliver_subject):
        return errors.DELIVER_INVALID
    if any(subjects.matches(pattern, config.deliver_subject) for pattern in stream.subjects or ()):
        return errors.DELIVER_CYCLE
    if config.max_waiting:
        return errors.PUSH_MAX_WAITING
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        return errors.PENDING_NEEDS_ACK
    if 0 < config.idle_heartbeat < 100 * MS_NS:
        return errors.HEARTBEAT_SMALL
    return None


def _pull(config: ConsumerConfig, stream: StreamConfig) -> ApiError | None:
    if config.ack_policy == "none" and stream.is_work_queue:
        return errors.PULL_REQUIRES_ACK
    if config.rate_limit_bps > 0:
        return errors.PULL_RATE_LIMIT
    if config.idle_heartbeat > 0:
        return errors.HEARTBEAT_NEEDS_PUSH
    if config.flow_control:
        return errors.FLOW_NEEDS_PUSH
    if 0 < config.max_expires < MS_NS:
        return errors.EXPIRES_SMALL
    return None


def _filters(config: ConsumerConfig) -> ApiError | None:
    if config.filter_subject and config.filter_subjects:
        return errors.FILTERS_BOTH
    if any(not each for each in config.filter_subjects or ()):
        return errors.FILTER_EMPTY
    filters = config.filters
    for at, one in enumerate(filters):
        if not subjects.is_valid(one):
            return stream_invalid("bad subject")
        if any(subjects.overlaps(one, other) for other in filters[at + 1 :]):
            return errors.FILTERS_OVERLAP
    return None


def _start(config: ConsumerConfig) -> ApiError | None:
    policy = config.deliver_policy
    words = policy.replace("_", " ")
    if policy in ("all", "last", "new", "last_per_subject"):
        for what, given in (("sequence", config.opt_start_seq > 0), ("time", config.opt_start_time is not None)):
            if given:
                text = f"consumer delivery policy is deliver {words}, but optional start {what} is also set"
                return policy_invalid(text)
        if policy == "last_per_subject" and not config.filters:
            return policy_invalid(
                f"consumer delivery policy is deliver {words}, but optional filter subject is not set"
            )
        return None
    if policy == "by_start_sequence":
        if config.opt_start_seq <= 0:
            return policy_invalid(
                f"consumer delivery policy is deliver {words}, but optional start sequence is not set"
            )
        if config.opt_start_time is not None:
            return policy_invalid(f"consumer delivery policy is deliver {words}, but optional start time is also set")
        return None
    if policy == "by_start_time":
        if config.opt_start_time is None:
            return policy_invalid(f"consumer delivery policy is deliver {words}, but optional start time is not set")
        if config.opt_start_seq > 0:
            text = f"consumer delivery policy is deliver {words}, but optional start sequence is also set"
            return policy_invalid(text)
        return None if time_ns(config.opt_start_time) is not None else errors.json_invalid("opt_start_time is no time")
    return errors.json_invalid(f'can not unmarshal "{policy}"')


def _rest(config: ConsumerConfig) -> ApiError | None:
    if config.flow_control and not config.idle_heartbeat:
        return errors.FLOW_NEEDS_HEARTBEAT
    if config.durable_name and config.name and config.durable_name != config.name:
        return errors.NAME_MISMATCH
    metadata = sum(len(key.encode()) + len(value.encode()) for key, value in (config.metadata or {}).items())
    if metadata > bounds.NATS_METADATA_BYTES_MAX // 4:
        return ApiError(
            400, 10135, f"consumer metadata exceeds maximum size of {bounds.NATS_METADATA_BYTES_MAX // 4096}KB"
        )
    if config.priority_policy not in ("", "none") or config.priority_groups or config.priority_timeout:
        return errors.consumer_create("priority groups are not supported by oncelog; remove them")
    if config.pause_until is not None and time_ns(config.pause_until) is None:
        return errors.json_invalid("pause_until is no time")
    return None


def _work_queue(config: ConsumerConfig, stream: StreamConfig) -> ApiError | None:
    if not stream.is_work_queue:
        return None
    if config.ack_policy != "explicit":
        return errors.WORK_QUEUE_EXPLICIT
    if config.deliver_policy != "all":
        return errors.WORK_QUEUE_DELIVER_ALL
    return None


def updated(old: ConsumerConfig, new: ConsumerConfig) -> ConsumerConfig | ApiError:
    """`new` (checked) in place of `old`: what may change, or why not."""
    for name in ("deliver_policy", "opt_start_seq", "opt_start_time", "ack_policy", "replay_policy", "flow_control"):
        if getattr(new, name) != getattr(old, name):
            words = {"deliver_policy": "deliver policy", "opt_start_seq": "start sequence"}.get(name)
            words = words or {"opt_start_time": "start time"}.get(name) or name.replace("_", " ")
            return errors.consumer_create(f"{words} can not be updated")
    if new.idle_heartbeat != old.idle_heartbeat:
        return errors.consumer_create("heart beats can not be updated")
    if new.is_push != old.is_push:
        what = (
            "can not update push consumer to pull based"
            if old.is_push
            else "can not update pull consumer to push based"
        )
        return errors.consumer_create(what)
    if new.max_waiting != old.max_waiting:
        return errors.consumer_create("max waiting can not be updated")
    return new
