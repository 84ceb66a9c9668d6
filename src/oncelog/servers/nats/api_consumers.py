"""`$JS.API.CONSUMER.*`: create, info, listings, delete, pause, reset."""

import secrets
from typing import Any

import msgspec

from oncelog import limits as bounds
from oncelog.core.outcome import CursorDone, Outcome
from oncelog.protocols.nats import consumer_config, errors
from oncelog.protocols.nats import subject as subjects
from oncelog.protocols.nats.consumer_config import ConsumerConfig
from oncelog.protocols.nats.delivery import DeliveryState
from oncelog.protocols.nats.errors import ApiError
from oncelog.protocols.nats.times import json_time
from oncelog.servers.nats.api_streams import Answer
from oncelog.servers.nats.consumer import Consumer
from oncelog.servers.nats.jetstream import JetStream, consumer_text, consumers_of
from oncelog.servers.nats.publisher import error_of
from oncelog.servers.nats.stream import LiveStream


class CreateRequest(msgspec.Struct, kw_only=True):
    """CONSUMER.CREATE."""

    stream_name: str = ""
    config: ConsumerConfig | None = None
    action: str = ""
    pedantic: bool = False


class PageRequest(msgspec.Struct, kw_only=True):
    """CONSUMER.LIST, CONSUMER.NAMES."""

    offset: int = 0


class PauseRequest(msgspec.Struct, kw_only=True):
    """CONSUMER.PAUSE."""

    pause_until: str | None = None


class ResetRequest(msgspec.Struct, kw_only=True):
    """CONSUMER.RESET."""

    seq: int = 0


def create(js: JetStream, name: str, request: CreateRequest, path: list[str], answer: Answer, *, durable: bool) -> None:
    """CONSUMER.CREATE.<stream>[.<name>[.<filter>]] and CONSUMER.DURABLE.CREATE.<stream>.<name>."""
    if request.stream_name != name:
        answer(errors.STREAM_MISMATCH)
        return
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return
    if request.action not in ("", "create", "update"):
        answer(errors.json_invalid(f'unknown action "{request.action}"'))
        return
    config = request.config or ConsumerConfig()
    wrong = _path_refused(config, path, durable=durable)
    if wrong is not None:
        answer(wrong)
        return
    checked = consumer_config.checked(config, stream.config)
    if isinstance(checked, ApiError):
        answer(checked)
        return
    stream.when_current(lambda: _create(js, stream, checked, request.action, answer))


def _path_refused(config: ConsumerConfig, path: list[str], *, durable: bool) -> ApiError | None:
    """The subject of the request names the consumer and its filter as well as its body does."""
    if durable:
        if not config.durable_name:
            return errors.DURABLE_NOT_SET
        return None if path == [config.durable_name] else errors.DURABLE_MISMATCH
    if not path:
        return errors.EPHEMERAL_WITH_DURABLE if config.durable_name else None
    config.name = config.name or config.durable_name
    if not config.name:
        config.name = path[0]
    if config.name != path[0]:
        return errors.DURABLE_MISMATCH if config.durable_name else errors.BAD_REQUEST
    if len(path) > 1:
        if config.filter_subjects:
            return errors.FILTERS_IN_SUBJECT
        if ".".join(path[1:]) != config.filter_subject:
            return errors.FILTER_MISMATCH
    return None


def _create(js: JetStream, stream: LiveStream, config: ConsumerConfig, action: str, answer: Answer) -> None:
    name = config.durable_name or config.name or secrets.token_urlsafe(6).replace("-", "a").replace("_", "b")
    config.name = name
    known = consumers_of(stream).get(name)
    if known is not None:
        _update(js, known, config, action, answer)
        return
    if action == "update":
        answer(errors.CONSUMER_MISSING)
        return
    if 0 < stream.config.max_consumers <= len(stream.consumers):
        answer(errors.CONSUMER_LIMIT)
        return
    wrong = _work_queue_refuses(stream, config)
    if wrong is not None:
        answer(wrong)
        return
    state, skip, resume = first_place(stream, config)
    consumer = Consumer(stream, name, config, state, js.log.now_ns(), skip, resume)
    _store(js, consumer, answer, is_new=True)


def _work_queue_refuses(stream: LiveStream, config: ConsumerConfig) -> ApiError | None:
    if not stream.config.is_work_queue:
        return None
    mine = config.filters
    for other in consumers_of(stream).values():
        theirs = other.config.filters
        if not mine or not theirs:
            return errors.WORK_QUEUE_UNFILTERED
        if any(subjects.overlaps(one, another) for one in mine for another in theirs):
            return errors.WORK_QUEUE_NOT_UNIQUE
    return None


def first_place(stream: LiveStream, config: ConsumerConfig) -> tuple[DeliveryState, list[int], int]:
    """Where a new consumer begins: its state, offsets to deliver first, and the sequence to go on with after them."""
    index, filters = stream.index, config.filters
    begin = index.floor if index.count else index.next
    match config.deliver_policy:
        case "new":
            begin = index.next
        case "last":
            row = index.last_matching(filters)
            begin = index.next if row is None else row.last
        case "by_start_sequence":
            begin = max(begin, min(config.opt_start_seq - 1, index.next))
        case "by_start_time":
            begin = index.first_at_time(consumer_config.time_ns(config.opt_start_time or "") or 0)
        case "last_per_subject":
            skip = index.last_per_subject(filters)
            if skip:
                return DeliveryState(config, skip[0]), skip, index.next + 1
            begin = index.next
    return DeliveryState(config, begin), [], 0


def _store(js: JetStream, consumer: Consumer, answer: Answer, *, is_new: bool) -> None:
    """Make a consumer durable, then tell."""
    stream, name = consumer.stream, consumer.name

    def tell() -> None:
        answer(consumer.info())
        consumer.pump()

    def told(outcome: Outcome) -> None:
        if isinstance(outcome, CursorDone):
            tell()
        else:
            if is_new:
                stream.consumers.pop(name, None)
            answer(error_of(outcome))

    text = consumer_text(consumer.config, consumer.created_ns)
    if is_new:
        stream.consumers[name] = consumer
        created = {"stream": stream.name, "consumer": name, "action": "create"}
        js.advise(f"$JS.EVENT.ADVISORY.CONSUMER.CREATED.{stream.name}.{name}", _ACTION, created)
    if not consumer.is_stored:
        tell()
        return
    frontier = min(consumer.state.floor_stream, stream.index.next)
    stream.log.set_consumer(name, stream.topic, stream.partition, frontier, text, told)


_ACTION = "io.nats.jetstream.advisory.v1.consumer_action"


def _update(js: JetStream, known: Consumer, config: ConsumerConfig, action: str, answer: Answer) -> None:
    is_same = _told(known.config) == _told(config)
    if action == "create" and not is_same:
        answer(errors.CONSUMER_EXISTS)
        return
    if is_same:
        answer(known.info())
        return
    checked = consumer_config.updated(known.config, config)
    if isinstance(checked, ApiError):
        answer(checked)
        return
    others = [each for each in consumers_of(known.stream).values() if each is not known]
    if known.stream.config.is_work_queue and any(
        subjects.overlaps(one, two) for other in others for one in other.config.filters for two in checked.filters
    ):
        answer(errors.WORK_QUEUE_NOT_UNIQUE)
        return
    known.config = known.state.config = checked
    known.recount()
    _store_text(js, known, answer)


def _store_text(js: JetStream, consumer: Consumer, answer: Answer) -> None:
    """The new configuration, beside the place that the log knows."""

    def told(outcome: Outcome) -> None:
        if isinstance(outcome, CursorDone):
            answer(consumer.info())
            consumer.pump()
        else:
            answer(error_of(outcome))

    if not consumer.is_stored:
        answer(consumer.info())
        consumer.pump()
        return
    stream = consumer.stream
    text = consumer_text(consumer.config, consumer.created_ns)
    frontier = min(consumer.state.floor_stream, stream.index.next)
    js.log.set_consumer(consumer.name, stream.topic, stream.partition, frontier, text, told)


def _told(config: ConsumerConfig) -> dict[str, Any]:
    fields = consumer_config.as_json(config)
    fields.pop("pause_until", None)
    fields.pop("metadata", None)
    return {**fields, "metadata": config.metadata or {}}


def info(js: JetStream, name: str, consumer: str, answer: Answer) -> None:
    """CONSUMER.INFO."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return

    def go() -> None:
        known = consumers_of(stream).get(consumer)
        answer(errors.CONSUMER_NOT_FOUND if known is None else known.info())

    stream.when_current(go)


def names(js: JetStream, name: str, request: PageRequest, answer: Answer, *, details: bool) -> None:
    """CONSUMER.NAMES and CONSUMER.LIST."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return

    def go() -> None:
        limit = bounds.NATS_LIST_PAGE if details else bounds.NATS_NAMES_PAGE
        found = sorted(stream.consumers)
        page = found[max(0, request.offset) :][:limit]
        consumers: list[Any] = [consumers_of(stream)[each].info() for each in page] if details else list(page)
        answer({"total": len(found), "offset": request.offset, "limit": limit, "consumers": consumers})

    stream.when_current(go)


def delete(js: JetStream, name: str, consumer: str, answer: Answer) -> None:
    """CONSUMER.DELETE."""
    stream = js.find(name)
    if stream is None:
        answer(errors.STREAM_NOT_FOUND)
        return

    def go() -> None:
        known = consumers_of(stream).get(consumer)
        if known is None:
            answer(errors.CONSUMER_NOT_FOUND)
        else:
            js.remove_consumer(known, lambda: answer({"success": True}))

    stream.when_current(go)


def pause(js: JetStream, name: str, consumer: str, request: PauseRequest, answer: Answer) -> None:
    """CONSUMER.PAUSE: deliver nothing until a time; without one, or with one that is past, go on."""
    stream = js.find(name)
    known = consumers_of(stream).get(consumer) if stream is not None else None
    if stream is None or known is None:
        answer(errors.STREAM_NOT_FOUND if stream is None else errors.CONSUMER_NOT_FOUND)
        return
    until = consumer_config.time_ns(request.pause_until) if request.pause_until else 0
    if until is None:
        answer(errors.json_invalid("pause_until is no time"))
        return
    known.config.pause_until = json_time(until) if until else None

    def told(fields: dict[str, Any] | ApiError) -> None:
        if isinstance(fields, ApiError):
            answer(fields)
            return
        answer(
            {
                "paused": known.is_paused(),
                "pause_until": known.config.pause_until or json_time(0),
                **({"pause_remaining": fields["pause_remaining"]} if "pause_remaining" in fields else {}),
            }
        )

    _store_text(js, known, told)


def reset(js: JetStream, name: str, consumer: str, request: ResetRequest, answer: Answer) -> None:
    """CONSUMER.RESET: go back to the floor, or to a sequence."""
    stream = js.find(name)
    known = consumers_of(stream).get(consumer) if stream is not None else None
    if stream is None or known is None:
        answer(errors.STREAM_NOT_FOUND if stream is None else errors.CONSUMER_NOT_FOUND)
        return
    if request.seq and known.config.deliver_policy not in ("all", "by_start_sequence", "by_start_time"):
        answer(errors.reset_invalid("deliver policy does not allow a sequence"))
        return
    if request.seq and known.config.deliver_policy == "by_start_sequence" and request.seq < known.config.opt_start_seq:
        answer(errors.reset_invalid("below start seq"))
        return
    floor = max(request.seq - 1, 0) if request.seq else known.state.floor_stream
    known.state = DeliveryState(known.config, min(floor, stream.index.next))
    known.reset()

    def told(fields: dict[str, Any] | ApiError) -> None:
        answer(fields if isinstance(fields, ApiError) else {**fields, "reset_seq": floor + 1})

    if known.is_stored:
        # A place moves only forward: the consumer is made anew. Both commands go into one group of the journal.
        js.log.delete_consumer(known.name, stream.topic, stream.partition, lambda _outcome: None)
    _store_text(js, known, told)
