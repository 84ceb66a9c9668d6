"""A stream's configuration: JetStream's fields, defaults and checks, in the real server's order and words.

What oncelog does not have is refused here by name (`_unsupported`), never ignored.
"""

from typing import Any, Final

import msgspec

from oncelog import limits as bounds
from oncelog.protocols.nats import errors
from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.bounds import API_LEVEL, VERSION
from oncelog.protocols.nats.errors import ApiError, stream_invalid

MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000 * MS_NS
DUPLICATE_WINDOW_NS: Final = 120 * SECOND_NS
"""What clients send unasked: absent, 0 and this mean "not set" (DESIGN section 4)."""

EXACT_WINDOW: Final = "oncelog.duplicate_window"
ON_CONFLICT: Final = "oncelog.on_conflict"
BATCH_MSG_ID: Final = "oncelog.batch_msg_id"
REQUIRED_LEVEL: Final = "_nats.req.level"
DYNAMIC: Final = {"_nats.ver": VERSION, "_nats.level": str(API_LEVEL)}


class Source(msgspec.Struct, kw_only=True):
    """Where a mirror or a stream with sources takes its messages from."""

    name: str
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    filter_subject: str = ""
    subject_transforms: list[Any] | None = None
    external: dict[str, Any] | None = None
    consumer: dict[str, Any] | None = None


class ConsumerLimits(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What consumers of the stream get if they ask for nothing, and at most."""

    inactive_threshold: int = 0
    max_ack_pending: int = 0


class StreamConfig(msgspec.Struct, kw_only=True):
    """As JSON, with the server's defaults for what the client left out."""

    name: str = ""
    description: str = ""
    subjects: list[str] | None = None
    retention: str = "limits"
    max_consumers: int = 0
    max_msgs: int = 0
    max_bytes: int = 0
    max_age: int = 0
    max_msgs_per_subject: int = 0
    max_msg_size: int = 0
    discard: str = "old"
    storage: str = "file"
    num_replicas: int = 0
    no_ack: bool = False
    duplicate_window: int = 0
    placement: dict[str, Any] | None = None
    mirror: Source | None = None
    sources: list[Source] | None = None
    compression: str = "none"
    first_seq: int = 0
    subject_transform: dict[str, Any] | None = None
    republish: dict[str, Any] | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits | None = None
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str = ""
    allow_batched: bool = False
    metadata: dict[str, str] | None = None

    @property
    def is_work_queue(self) -> bool:
        return self.retention == "workqueue"

    @property
    def required_level(self) -> int:
        """The API level that this configuration needs."""
        if self.allow_atomic or self.persist_mode == "async":
            return 2
        return 1 if self.allow_msg_ttl or self.subject_delete_marker_ttl > 0 else 0

    @property
    def exact_window_ms(self) -> int:
        """The duplicate window that core keeps exactly; 0 = the dedupe floor."""
        exact = (self.metadata or {}).get(EXACT_WINDOW) == "exact"
        if self.duplicate_window == DUPLICATE_WINDOW_NS and not exact:
            return 0
        return max(1, self.duplicate_window // MS_NS) if self.duplicate_window else 0


_OMITTED_IF_EMPTY: Final = frozenset(
    "description subjects max_msg_size no_ack duplicate_window placement mirror sources first_seq subject_transform "
    "republish discard_new_per_subject subject_delete_marker_ttl allow_msg_counter allow_atomic allow_msg_schedules "
    "persist_mode allow_batched metadata".split()
)


def as_json(config: StreamConfig, *, dynamic: bool = True) -> dict[str, Any]:
    """As the real server spells it: some fields only if they are set, the server's own metadata added."""
    fields: dict[str, Any] = {}
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if name in _OMITTED_IF_EMPTY and not value:
            continue
        if isinstance(value, Source):
            value = source_json(value)
        elif name == "sources":
            value = [source_json(source) for source in value]
        elif name == "consumer_limits":
            value = msgspec.to_builtins(value or ConsumerLimits())
        fields[name] = value
    if dynamic:
        fields["metadata"] = {**(config.metadata or {}), REQUIRED_LEVEL: str(config.required_level), **DYNAMIC}
    return fields


def source_json(source: Source) -> dict[str, Any]:
    """Only what is set."""
    return {name: value for name in source.__struct_fields__ if (value := getattr(source, name))}


def checked(config: StreamConfig) -> StreamConfig | ApiError:
    """The configuration with its defaults, or why it cannot be used. Looks at no other stream."""
    wrong = _texts(config) or _policies(config) or _unsupported(config)
    if wrong is not None:
        return wrong
    config = msgspec.structs.replace(config, num_replicas=config.num_replicas or 1)
    for name in ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size", "max_consumers"):
        if getattr(config, name) <= 0:
            setattr(config, name, -1)
    config.metadata = {key: value for key, value in (config.metadata or {}).items() if not key.startswith("_nats.")}
    wrong = _times(config) or _combinations(config) or _mirror(config) or _sources(config)
    if wrong is not None:
        return wrong
    if not config.subjects:
        config.subjects = None if config.mirror or config.sources else [config.name]
    return _subjects(config) or config


def _texts(config: StreamConfig) -> ApiError | None:
    if not subjects.is_asset_name(config.name):
        return stream_invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > bounds.NATS_NAME_BYTES_MAX:
        return stream_invalid(f"stream name is too long, maximum allowed is {bounds.NATS_NAME_BYTES_MAX}")
    if len(config.description.encode()) > bounds.NATS_DESCRIPTION_BYTES_MAX:
        return stream_invalid(f"stream description is too long, maximum allowed is {bounds.NATS_DESCRIPTION_BYTES_MAX}")
    metadata = sum(len(key.encode()) + len(value.encode()) for key, value in (config.metadata or {}).items())
    if metadata > bounds.NATS_METADATA_BYTES_MAX:
        return stream_invalid(f"stream metadata exceeds maximum size of {bounds.NATS_METADATA_BYTES_MAX} bytes")
    return None


def _policies(config: StreamConfig) -> ApiError | None:
    if config.retention not in ("limits", "interest", "workqueue"):
        return _not_known(config.retention)
    if config.discard not in ("old", "new"):
        return _not_known(config.discard)
    if config.compression not in ("none", "s2"):
        return _not_known(config.compression)
    if config.storage not in ("file", "memory"):
        return _not_known(config.storage)
    if config.persist_mode not in ("", "default", "async"):
        return _not_known(config.persist_mode)
    if config.num_replicas > 5:
        return stream_invalid("maximum replicas is 5")
    if config.num_replicas < 0:
        return errors.REPLICAS_NEGATIVE
    return None


def _not_known(value: str) -> ApiError:
    return errors.json_invalid(f'can not unmarshal "{value}"')


def _unsupported(config: StreamConfig) -> ApiError | None:
    """What this server does not have: docs/protocols/nats.md lists it."""
    asked = {
        "placement": config.placement,
        "subject_transform": config.subject_transform,
        "republish": config.republish,
        "allow_msg_counter": config.allow_msg_counter,
        "allow_msg_schedules": config.allow_msg_schedules,
        "allow_batched": config.allow_batched,
        "first_seq": config.first_seq > 1,
        "subject_delete_marker_ttl": config.subject_delete_marker_ttl,
    }
    for name, value in asked.items():
        if value:
            return stream_invalid(f"{name} is not supported by oncelog; remove it")
    for source in (config.mirror, *(config.sources or ())):
        if source is not None and (source.external or source.subject_transforms or source.consumer):
            what = "external, subject_transforms and consumer of a source"
            return stream_invalid(f"{what} are not supported by oncelog; name a stream of this server")
    return None


def _times(config: StreamConfig) -> ApiError | None:
    if config.max_age < 0:
        return stream_invalid("max age can not be negative")
    if 0 < config.max_age < 100 * MS_NS:
        return stream_invalid("max age needs to be >= 100ms")
    if config.duplicate_window == 0 and config.mirror is None and not config.sources:
        shorter = 0 < config.max_age < DUPLICATE_WINDOW_NS
        config.duplicate_window = config.max_age if shorter else DUPLICATE_WINDOW_NS
    if config.duplicate_window < 0:
        return stream_invalid("duplicates window can not be negative")
    if 0 < config.max_age < config.duplicate_window:
        return stream_invalid("duplicates window can not be larger then max age")
    if 0 < config.duplicate_window < 100 * MS_NS:
        return stream_invalid("duplicates window needs to be >= 100ms")
    return None


def _combinations(config: StreamConfig) -> ApiError | None:
    if config.deny_purge and config.allow_rollup_hdrs:
        return stream_invalid("roll-ups require the purge permission")
    if config.discard_new_per_subject:
        if config.discard != "new":
            return stream_invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            return stream_invalid("discard new per subject requires max msgs per subject > 0")
    if config.persist_mode == "async":
        if config.storage != "file":
            return stream_invalid("async persist mode is only supported on file storage")
        if config.num_replicas > 1:
            return stream_invalid("async persist mode is not supported on replicated streams")
        if config.allow_atomic:
            return stream_invalid("async persist mode is not supported with atomic batch publish")
    return None


def _mirror(config: StreamConfig) -> ApiError | None:
    mirror = config.mirror
    if mirror is None:
        return None
    if config.first_seq:
        return errors.MIRROR_WITH_FIRST_SEQUENCE
    if config.subjects:
        return errors.MIRROR_WITH_SUBJECTS
    if config.sources:
        return errors.MIRROR_WITH_SOURCES
    if config.allow_atomic:
        return errors.MIRROR_WITH_ATOMIC
    return None if subjects.is_asset_name(mirror.name) else errors.MIRROR_NAME_INVALID


def _sources(config: StreamConfig) -> ApiError | None:
    seen: set[tuple[str, str]] = set()
    for source in config.sources or ():
        if not subjects.is_asset_name(source.name):
            return errors.SOURCE_NAME_INVALID
        key = (source.name, source.filter_subject)
        if key in seen:
            return errors.SOURCE_DUPLICATE
        seen.add(key)
    return None


def _subjects(config: StreamConfig) -> ApiError | None:
    names = config.subjects or []
    for at, name in enumerate(names):
        if not subjects.is_valid(name) or len(name.encode()) > bounds.NATS_STREAM_SUBJECT_BYTES_MAX:
            return stream_invalid("invalid subject")
        if name == ">" and not config.no_ack:
            return stream_invalid("capturing all subjects requires no-ack to be true")
        wrong = None if config.no_ack else _reserved(name)
        if wrong is not None:
            return wrong
        for other in names[at + 1 :]:
            if subjects.overlaps(other, name):
                return stream_invalid(f'subject "{name}" overlaps with "{other}"')
    return None


def _reserved(name: str) -> ApiError | None:
    for space in ("$JS.>", "$JSC.>", "$NRG.>"):
        if subjects.overlaps(name, space) and not subjects.is_subset(name, "$JS.EVENT.>"):
            return stream_invalid("subjects that overlap with jetstream api require no-ack to be true")
    if subjects.overlaps(name, "$SYS.>") and not subjects.is_subset(name, "$SYS.ACCOUNT.>"):
        return stream_invalid("subjects that overlap with system api require no-ack to be true")
    return None


def updated(old: StreamConfig, new: StreamConfig) -> StreamConfig | ApiError:
    """The configuration after an update, or why it cannot become that."""
    config = checked(new)
    if isinstance(config, ApiError):
        return config
    what = "stream configuration update can not "
    if config.num_replicas > 1:
        return errors.REPLICAS_NOT_SUPPORTED
    if config.storage != old.storage:
        return stream_invalid(what + "change storage type")
    if config.retention != old.retention and "workqueue" in (config.retention, old.retention):
        return stream_invalid(what + "change retention policy to/from workqueue")
    if old.sealed and not config.sealed:
        return stream_invalid(what + "unseal a sealed stream")
    if old.deny_delete and not config.deny_delete:
        return stream_invalid(what + "cancel deny message deletes")
    if old.deny_purge and not config.deny_purge:
        return stream_invalid(what + "cancel deny purge")
    if config.mirror is not None and config.mirror != old.mirror:
        return errors.MIRROR_NOT_UPDATABLE
    if old.allow_msg_ttl and not config.allow_msg_ttl:
        return stream_invalid("message TTL status can not be disabled")
    if (old.persist_mode or "default") != (config.persist_mode or "default"):
        return stream_invalid(what + "change persist mode")
    if config.sealed:
        config.max_age, config.discard = 0, "new"
        config.deny_delete, config.deny_purge, config.allow_rollup_hdrs = True, True, False
    return config
