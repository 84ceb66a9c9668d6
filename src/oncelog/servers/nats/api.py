"""`$JS.>`: which request a subject is, its body, and the answer around what a handler says."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from oncelog import limits as bounds
from oncelog.protocols.nats import batch as batches
from oncelog.protocols.nats import errors
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats.errors import ApiError
from oncelog.protocols.nats.parser import Message
from oncelog.protocols.nats.requests import ACK_PREFIX, ack_of, ack_place, pull_of
from oncelog.protocols.nats.stream_config import StreamConfig
from oncelog.servers.nats import api_consumers, api_streams
from oncelog.servers.nats.direct import direct_get
from oncelog.servers.nats.jetstream import JetStream, consumers_of

API: Final = "$JS.API."
FLOW: Final = "$JS.FC."
DIRECT: Final = "DIRECT.GET."
NEXT: Final = "CONSUMER.MSG.NEXT."
T = TypeVar("T")

ALWAYS: Final = {"stream_info": {"total": 0, "offset": 0, "limit": 0}, "stream_purge": {"purged": 0}}
"""Fields of answers that are there also if they say nothing, and in errors."""

Handler = Callable[[JetStream, list[str], bytes, api_streams.Answer], None]


def take(js: JetStream, message: Message) -> bool:
    """Carry out a request; False if the subject is none."""
    subject = message.subject
    if subject.startswith(ACK_PREFIX):
        return _ack(js, message)
    if subject.startswith(FLOW):
        return _flow(js, subject)
    if not subject.startswith(API):
        return False
    name = subject[len(API) :]
    if name.startswith(NEXT):
        return _next(js, name[len(NEXT) :].split("."), message)
    if name.startswith(DIRECT):
        return _direct(js, name[len(DIRECT) :].split("."), message)
    tokens = name.split(".")
    for words, least, most, kind, handler in REQUESTS:
        if tokens[: len(words)] == words and least <= len(tokens) - len(words) <= most:
            _answered(js, message, kind, tokens[len(words) :], handler)
            return True
    return True  # as the real server, which listens to the whole space and answers nothing


def _answered(js: JetStream, message: Message, kind: str, path: list[str], handler: Handler) -> None:
    reply = message.reply

    def answer(fields: dict[str, Any] | ApiError) -> None:
        if not reply:
            return
        body: dict[str, Any] = {"type": f"io.nats.jetstream.api.v1.{kind}_response"}
        body |= ALWAYS.get(kind, {})
        if isinstance(fields, ApiError):
            body["error"] = fields.fields()
        else:
            body |= fields
        js.router.send(reply, msgspec.json.encode(body))

    if message.header:
        fields = header_blocks.parse(message.header)
        if fields is not None and not batches.level_suffices(fields):
            answer(errors.API_LEVEL)
            return
    if len(message.payload) > bounds.NATS_API_REQUEST_BYTES_MAX:
        answer(
            ApiError(
                400, 10003, f"bad request: {len(message.payload)} bytes, at most {bounds.NATS_API_REQUEST_BYTES_MAX}"
            )
        )
        return
    handler(js, path, message.payload, answer)


def _body(body: bytes, kind: type[T], answer: api_streams.Answer) -> T | None:
    """The request, or None once the client was told what is wrong with it. No body is an empty request."""
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        answer(errors.json_invalid(str(error)))
        return None


# --- streams -------------------------------------------------------------------------------------------------------


def _account(js: JetStream, _path: list[str], _: bytes, answer: api_streams.Answer) -> None:
    api_streams.account(js, answer)


def _create(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    config = _body(body, StreamConfig, answer)
    if config is not None:
        api_streams.create(js, path[0], config, answer)


def _update(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    config = _body(body, StreamConfig, answer)
    if config is not None:
        api_streams.update(js, path[0], config, answer)


def _delete(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    if body.strip():
        answer(errors.REQUEST_NOT_EMPTY)
    else:
        api_streams.delete(js, path[0], answer)


def _info(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_streams.InfoRequest, answer)
    if request is not None:
        api_streams.info(js, path[0], request, answer)


def _names(js: JetStream, _path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_streams.ListRequest, answer)
    if request is not None:
        api_streams.names(js, request, answer)


def _list(js: JetStream, _path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_streams.ListRequest, answer)
    if request is not None:
        api_streams.listing(js, request, answer)


def _purge(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_streams.PurgeRequest, answer)
    if request is not None:
        api_streams.purge(js, path[0], request, answer)


def _message_get(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_streams.GetRequest, answer)
    if request is not None:
        api_streams.get_message(js, path[0], request, answer)


def _message_delete(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_streams.DeleteRequest, answer)
    if request is not None:
        api_streams.delete_message(js, path[0], request, answer)


def _unsupported(_js: JetStream, _path: list[str], _: bytes, answer: api_streams.Answer) -> None:
    """Snapshots, restores, leaders and peers: one server without a cluster."""
    answer(errors.CLUSTER_REQUIRED)


# --- consumers -----------------------------------------------------------------------------------------------------


def _consumer_create(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_consumers.CreateRequest, answer)
    if request is not None:
        api_consumers.create(js, path[0], request, path[1:], answer, durable=False)


def _durable_create(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_consumers.CreateRequest, answer)
    if request is not None:
        api_consumers.create(js, path[0], request, path[1:], answer, durable=True)


def _consumer_info(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    if body.strip():
        answer(errors.REQUEST_NOT_EMPTY)
    else:
        api_consumers.info(js, path[0], path[1], answer)


def _consumer_names(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_consumers.PageRequest, answer)
    if request is not None:
        api_consumers.names(js, path[0], request, answer, details=False)


def _consumer_list(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_consumers.PageRequest, answer)
    if request is not None:
        api_consumers.names(js, path[0], request, answer, details=True)


def _consumer_delete(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    if body.strip():
        answer(errors.REQUEST_NOT_EMPTY)
    else:
        api_consumers.delete(js, path[0], path[1], answer)


def _consumer_pause(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_consumers.PauseRequest, answer)
    if request is not None:
        api_consumers.pause(js, path[0], path[1], request, answer)


def _consumer_reset(js: JetStream, path: list[str], body: bytes, answer: api_streams.Answer) -> None:
    request = _body(body, api_consumers.ResetRequest, answer)
    if request is not None:
        api_consumers.reset(js, path[0], path[1], request, answer)


REQUESTS: Final[list[tuple[list[str], int, int, str, Handler]]] = [
    (["INFO"], 0, 0, "account_info", _account),
    (["STREAM", "CREATE"], 1, 1, "stream_create", _create),
    (["STREAM", "UPDATE"], 1, 1, "stream_update", _update),
    (["STREAM", "DELETE"], 1, 1, "stream_delete", _delete),
    (["STREAM", "INFO"], 1, 1, "stream_info", _info),
    (["STREAM", "NAMES"], 0, 0, "stream_names", _names),
    (["STREAM", "LIST"], 0, 0, "stream_list", _list),
    (["STREAM", "PURGE"], 1, 1, "stream_purge", _purge),
    (["STREAM", "MSG", "GET"], 1, 1, "stream_msg_get", _message_get),
    (["STREAM", "MSG", "DELETE"], 1, 1, "stream_msg_delete", _message_delete),
    (["STREAM", "SNAPSHOT"], 1, 1, "stream_snapshot", _unsupported),
    (["STREAM", "RESTORE"], 1, 1, "stream_restore", _unsupported),
    (["STREAM", "LEADER", "STEPDOWN"], 1, 1, "stream_leader_stepdown", _unsupported),
    (["STREAM", "PEER", "REMOVE"], 1, 1, "stream_remove_peer", _unsupported),
    (["CONSUMER", "LEADER", "STEPDOWN"], 2, 2, "consumer_leader_stepdown", _unsupported),
    (["META", "LEADER", "STEPDOWN"], 0, 0, "meta_leader_stepdown", _unsupported),
    (["CONSUMER", "CREATE"], 1, 64, "consumer_create", _consumer_create),
    (["CONSUMER", "DURABLE", "CREATE"], 2, 2, "consumer_create", _durable_create),
    (["CONSUMER", "INFO"], 2, 2, "consumer_info", _consumer_info),
    (["CONSUMER", "NAMES"], 1, 1, "consumer_names", _consumer_names),
    (["CONSUMER", "LIST"], 1, 1, "consumer_list", _consumer_list),
    (["CONSUMER", "DELETE"], 2, 2, "consumer_delete", _consumer_delete),
    (["CONSUMER", "PAUSE"], 2, 2, "consumer_pause", _consumer_pause),
    (["CONSUMER", "RESET"], 2, 2, "consumer_reset", _consumer_reset),
]
"""First tokens, how many may follow, the name of the answer's type, and who carries it out."""


# --- those without JSON around the answer --------------------------------------------------------------------------


def _next(js: JetStream, path: list[str], message: Message) -> bool:
    if len(path) != 2 or not message.reply:
        return len(path) == 2
    stream = js.find(path[0])
    if stream is not None and not stream.is_ready:
        stream.when_current(partial(_next, js, path, message))
        return True
    consumer = consumers_of(stream).get(path[1]) if stream is not None else None
    if consumer is None:
        return False  # nobody listens: the client is told 503
    pull = pull_of(message.payload)
    if isinstance(pull, str):
        text = f"NATS/1.0 400 Bad Request - {pull}".replace("\r", " ").replace("\n", " ")
        js.router.send(message.reply, header=f"{text}\r\n\r\n".encode())
        return True
    consumer.pull(pull, message.reply)
    return True


def _direct(js: JetStream, path: list[str], message: Message) -> bool:
    stream = js.find(path[0])
    if stream is None or not stream.config.allow_direct or not message.reply:
        return False
    direct_get(js, stream, ".".join(path[1:]), message.payload, message.reply)
    return True


def _ack(js: JetStream, message: Message) -> bool:
    place = ack_place(message.subject)
    stream = js.streams.get(place.stream) if place is not None else None
    if stream is not None and not stream.is_ready:
        stream.when_current(partial(_ack, js, message))
        return True
    consumer = consumers_of(stream).get(place.consumer) if stream is not None and place is not None else None
    if place is None or consumer is None:
        return False
    ack = ack_of(message.payload)
    if ack is not None:
        consumer.acked(ack, place.sequence, message.reply)
    return True


def _flow(js: JetStream, subject: str) -> bool:
    tokens = subject.split(".")
    stream = js.streams.get(tokens[2]) if len(tokens) == 5 else None
    consumer = consumers_of(stream).get(tokens[3]) if stream is not None else None
    if consumer is None:
        return False
    consumer.flow_answered(subject)
    return True
