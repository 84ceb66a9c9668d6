"""`$JS.API.STREAM.*` and `$JS.API.INFO`: account, streams, single messages."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from oncelog import limits as bounds
from oncelog.core.command import ConfigureTopic, CreateTopic, DeleteTopic
from oncelog.core.outcome import NameInvalid, Outcome, TooLarge, TopicDone, TopicExists
from oncelog.protocols.nats import errors, stream_config
from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.bounds import API_LEVEL
from oncelog.protocols.nats.errors import ApiError, stream_invalid
from oncelog.protocols.nats.stored import Stored
from oncelog.protocols.nats.stream_config import StreamConfig
from oncelog.protocols.nats.times import json_time
from oncelog.servers.nats.jetstream import JetStream, foreign_config, sources_of, topic_config
from oncelog.servers.nats.publisher import error_of
from oncelog.servers.nats.stream import LiveStream

Answer = Callable[[dict[str, Any] | ApiError], None]


class InfoRequest(msgspec.Struct, kw_only=True):
    """STREAM.INFO."""

    offset: int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class ListRequest(msgspec.Struct, kw_only=True):
    """STREAM.LIST, STREAM.NAMES."""

    offset: int = 0
    subject: str = ""


class PurgeRequest(msgspec.Struct, kw_only=True):
    """STREAM.PURGE."""

    filter: str = ""
    seq: int = 0
    keep: int = 0


class GetRequest(msgspec.Struct, kw_only=True):
    """STREAM.MSG.GET."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: str | None = None


class DeleteRequest(msgspec.Struct, kw_only=True):
    """STREAM.MSG.DELETE."""

    seq: int = 0
    no_erase: bool = False


def account(js: JetStream, answer: Answer) -> None:
    """$JS.API.INFO."""
    streams = list(js.streams.values())
    limits = {
        "max_memory": -1,
        "max_storage": -1,
        "max_streams": -1,
        "max_consumers": -1,
        "max_ack_pending": -1,
        "memory_max_stream_bytes": -1,
        "storage_max_stream_bytes": -1,
        "max_bytes_required": False,
    }
    answer(
        {
            "memory": 0,
            "storage": sum(stream.index.bytes for stream in streams),
            "reserved_memory": 0,
            "reserved_storage": 0,
            "streams": len(streams),
            "consumers": sum(len(stream.consumers) for stream in streams),
            "limits": limits,
            "api": {"level": API_LEVEL, "total": 0, "errors": 0},
        }
    )


def create(js: JetStream, name: str, config: StreamConfig, answer: Answer) -> None:
    """STREAM.CREATE."""
    if config.name != name:
        answer(errors.STREAM_MISMATCH)
        return
    checked = stream_config.checked(config)
    if isinstance(checked, ApiError):
        answer(checked)
        return
    wrong = _others_refuse(js, checked, None)
    known = js.streams.get(name)
    if known is not None and js.find(name) is known:
        if known.is_native and known.config == checked:
            known.when_current(lambda: answer({**info_fields(js, known), "did_create": True}))
        else:
            answer(errors.STREAM_NAME_IN_USE)
        return
    if wrong is not None:
        answer(wrong)
        return
    # What it was created with is what a second creation compares with.
    checked_ = checked

    def told(outcome: Outcome) -> None:
        if isinstance(outcome, TopicDone):
            row = js.log.topic(name)
            if row is None:
                answer(errors.STREAM_NOT_FOUND)
                return
            stream = js.adopt(row, checked_)
            stream.when_current(lambda: answer({**info_fields(js, stream), "did_create": True}))
        elif isinstance(outcome, TopicExists):
            answer(errors.STREAM_NAME_IN_USE)
        else:
            answer(_config_error(outcome))

    js.log.submit(CreateTopic(name, 1, topic_config(checked)), told)


def _config_error(outcome: Outcome) -> ApiError:
    match outcome:
        case NameInvalid(name=text, reason=reason):
            return stream_invalid(f"{text!r} is no name that the log can hold: {reason}")
        case TooLarge(what=what, limit=limit, received=received):
            return stream_invalid(f"{what} {received}, at most {limit}")
    return error_of(outcome)


def _others_refuse(js: JetStream, config: StreamConfig, stream: LiveStream | None) -> ApiError | None:
    if config.num_replicas > 1:
        return errors.REPLICAS_NOT_SUPPORTED
    if js.overlapping(config.subjects or [], stream) is not None:
        return errors.SUBJECT_OVERLAP
    return None


def update(js: JetStream, name: str, config: StreamConfig, answer: Answer) -> None:
    """STREAM.UPDATE."""
    if config.name != name:
        answer(errors.STREAM_MISMATCH)
        return
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return
    if not stream.is_native:
        answer(stream_invalid("the stream was not made through NATS; configure the topic through its own interface"))
        return
    checked = stream_config.updated(stream.config, config)
    if isinstance(checked, ApiError):
        answer(checked)
        return
    wrong = _others_refuse(js, checked, stream)
    if wrong is not None:
        answer(wrong)
        return

    def told(outcome: Outcome) -> None:
        if not isinstance(outcome, TopicDone):
            answer(_config_error(outcome))
            return
        js.reconfigure(stream, checked)
        stream.when_current(lambda: answer(info_fields(js, stream)))

    js.log.submit(ConfigureTopic(stream.topic, topic_config(checked)), told)


def delete(js: JetStream, name: str, answer: Answer) -> None:
    """STREAM.DELETE."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return

    def told(outcome: Outcome) -> None:
        if not isinstance(outcome, TopicDone):
            answer(errors.STREAM_NOT_FOUND)
            return
        js.vanished(stream)
        answer({"success": True})

    js.log.submit(DeleteTopic(stream.topic), told)


def info(js: JetStream, name: str, request: InfoRequest, answer: Answer) -> None:
    """STREAM.INFO."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return
    stream.when_current(lambda: answer(_detailed(js, stream, request)))


def _detailed(js: JetStream, stream: LiveStream, request: InfoRequest) -> dict[str, Any]:
    fields = info_fields(js, stream)
    state = fields["state"]
    if request.deleted_details and stream.index.count:
        dead = stream.index.dead_between(stream.index.floor, stream.index.next)
        if dead:
            state["deleted"] = [offset + 1 for offset in dead[: bounds.NATS_SUBJECTS_PAGE]]
    if request.subjects_filter:
        rows = sorted(stream.index.matching([request.subjects_filter]), key=lambda row: row.name)
        page = rows[request.offset : request.offset + bounds.NATS_SUBJECTS_PAGE]
        if page:
            state["subjects"] = {row.name: row.count for row in page}
        if rows:
            fields |= {"total": len(rows), "offset": request.offset, "limit": bounds.NATS_SUBJECTS_PAGE}
    return fields


def info_fields(js: JetStream, stream: LiveStream) -> dict[str, Any]:
    """StreamInfo."""
    index = stream.index
    first = index.floor + 1 if index.count else (index.next + 1 if index.next else 0)
    state: dict[str, Any] = {
        "messages": index.count,
        "bytes": index.bytes,
        "first_seq": first,
        "first_ts": json_time(index.time_at(index.floor) if index.count else 0),
        "last_seq": index.next,
        "last_ts": json_time(stream.last_time_ns),
    }
    if index.rows:
        state["num_subjects"] = len(index.rows)
    if index.count:
        dead = index.next - index.floor - index.count
        if dead:
            state["num_deleted"] = dead
    state["consumer_count"] = len(stream.consumers)
    fields: dict[str, Any] = {
        "config": stream_config.as_json(stream.config),
        "created": json_time(stream.created_ns),
        "state": state,
        "ts": json_time(stream.log.now_ns()),
    }
    return {**fields, **_transfers(js, stream)}


def _transfers(js: JetStream, stream: LiveStream) -> dict[str, Any]:
    """How far the copies are."""
    told: list[dict[str, Any]] = []
    for source in sources_of(stream.config):
        transfer = js.transfers.get(stream.stream_id, {}).get((source.name, source.filter_subject))
        one: dict[str, Any] = {"name": source.name, "lag": 0 if transfer is None else transfer.lag, "active": -1}
        if source.filter_subject:
            one["filter_subject"] = source.filter_subject
        told.append(one)
    if not told:
        return {}
    return {"mirror": told[0]} if stream.config.mirror is not None else {"sources": told}


def _chosen(js: JetStream, subject: str) -> list[str]:
    """Names of streams that store something of a subject, in order."""
    names = {name for name, stream in js.streams.items() if stream.is_native}
    names |= {name for _, _, name in js.foreign()}
    if subject:
        names = {name for name in names if _stores(js, name, subject)}
    return sorted(names)


def _stores(js: JetStream, name: str, subject: str) -> bool:
    stream = js.streams.get(name)
    config = stream.config if stream is not None else foreign_config(name, f"{name}.")
    return any(subjects.overlaps(pattern, subject) for pattern in config.subjects or ())


def names(js: JetStream, request: ListRequest, answer: Answer) -> None:
    """STREAM.NAMES."""
    found = _chosen(js, request.subject)
    offset = min(max(0, request.offset), len(found))
    page = found[offset : offset + bounds.NATS_NAMES_PAGE]
    answer({"total": len(found), "offset": offset, "limit": bounds.NATS_NAMES_PAGE, "streams": page or None})


def listing(js: JetStream, request: ListRequest, answer: Answer) -> None:
    """STREAM.LIST."""
    found = _chosen(js, request.subject)
    offset = min(max(0, request.offset), len(found))
    page = found[offset : offset + bounds.NATS_LIST_PAGE]
    streams = [stream for name in page if (stream := js.find(name)) is not None]
    waiting = len(streams) + 1

    def one() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            fields = [info_fields(js, stream) for stream in streams]
            answer({"total": len(found), "offset": offset, "limit": bounds.NATS_LIST_PAGE, "streams": fields})

    for stream in streams:
        stream.when_current(one)
    one()


def purge(js: JetStream, name: str, request: PurgeRequest, answer: Answer) -> None:
    """STREAM.PURGE."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return
    if stream.config.sealed:
        answer(errors.STREAM_SEALED)
        return
    if stream.config.deny_purge:
        answer(errors.purge_failed("stream purge not permitted"))
        return
    if request.keep and request.seq:
        answer(errors.BAD_REQUEST)
        return

    def go() -> None:
        index = stream.index
        until = min(request.seq - 1, index.next) if request.seq else index.next
        filters = [request.filter] if request.filter and request.filter != ">" else []
        offsets = index.live(index.floor, until, filters)
        if request.keep:
            offsets = offsets[: max(0, len(offsets) - request.keep)]
        for offset in offsets:
            stream.remove(offset)
        stream.when_removed(lambda: answer({"success": True, "purged": len(offsets)}))

    stream.when_current(go)


def get_message(js: JetStream, name: str, request: GetRequest, answer: Answer) -> None:
    """STREAM.MSG.GET."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return
    wanted = (request.seq > 0) + bool(request.last_by_subj) + bool(request.next_by_subj)
    both = request.next_by_subj and not request.last_by_subj
    if wanted == 0 or (wanted > 1 and not both):
        answer(errors.BAD_REQUEST)
        return

    def go() -> None:
        offset = find_offset(stream, request.seq, request.last_by_subj, request.next_by_subj)
        if offset < 0:
            answer(errors.NO_MESSAGE)
        else:
            stream.fetch(offset, lambda stored: answer(errors.NO_MESSAGE if stored is None else _message(stored)))

    stream.when_current(go)


def find_offset(stream: LiveStream, seq: int, last_by_subject: str, next_by_subject: str) -> int:
    """The offset that a get asks for; -1 if there is none."""
    index = stream.index
    if last_by_subject:
        row = index.last_matching([last_by_subject])
        return -1 if row is None else row.last
    if next_by_subject:
        offset = index.next_live(max(0, seq - 1), [next_by_subject])
        return offset if offset < index.next else -1
    return seq - 1 if index.subject_at(seq - 1) is not None else -1


def _message(stored: Stored) -> dict[str, Any]:
    message: dict[str, Any] = {"subject": stored.subject, "seq": stored.sequence}
    if stored.header:
        message["hdrs"] = base64.b64encode(stored.header).decode()
    if stored.payload:
        message["data"] = base64.b64encode(stored.payload).decode()
    message["time"] = json_time(stored.time_ns)
    return {"message": message}


def delete_message(js: JetStream, name: str, request: DeleteRequest, answer: Answer) -> None:
    """STREAM.MSG.DELETE."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return
    if stream.config.sealed:
        answer(errors.STREAM_SEALED)
        return
    if stream.config.deny_delete:
        answer(errors.delete_failed("message delete not permitted"))
        return

    def go() -> None:
        if stream.remove(request.seq - 1):
            stream.when_removed(lambda: answer({"success": True}))
        elif request.seq > stream.index.next:
            answer(errors.delete_failed("stream store EOF"))
        elif not stream.index.count or request.seq <= stream.index.floor:
            answer(errors.delete_failed("no message found"))
        else:
            answer(errors.sequence_not_found(request.seq))

    stream.when_current(go)
