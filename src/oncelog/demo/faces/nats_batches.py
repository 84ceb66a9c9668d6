"""NATS through nats-py: atomic batches and single messages, all of them with a message id; and a durable pull consumer
that reads back what was written and acks it.

Orders go in groups of five. A group in a topic is one atomic batch, or five messages by themselves. A group that got no
answer is sent once more, the same in every life: the batch id and the message ids are the claim. The consumer keeps its
place over all lives; at the end it must have acked past the last record, and each record that it received must be the
one that was sent.
"""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oncelog.demo.faces.face import Context, Contradiction
from oncelog.demo.orders import ORDERS, TOPICS, Order, message_id
from oncelog.errors import OncelogError

if TYPE_CHECKING:
    from nats.aio.client import Client

GROUP: Final = 5
AGAIN_EVERY: Final = 7
"""Every so many groups are sent once more although they were confirmed."""

READ_BACK_EVERY: Final = 4
"""Groups between two looks of the consumer: each takes half a second, as nobody else tells it that there is no more."""

ANSWER_WITHIN_S: Final = 0.8
"""Silence after which a request is sent again. An answer takes milliseconds."""

GIVE_UP_S: Final = 90.0
"""No answer at all for so long: the server is gone for good. A restart takes seconds."""

PAUSE_S: Final = 0.05
FETCHED: Final = 200


class NoNats(OncelogError):
    """The server refused something that must succeed, or did not answer for too long."""


class NatsBatches:
    """See the module."""

    name = "nats"
    label = "NATS batches"
    producers = 2
    orders = 250
    tells_retries = True

    def run(self, context: Context) -> None:
        """One group after another, then the consumer to the end."""
        asyncio.run(_Writer(context).run())


class _Writer:
    """One life."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client: Client | None = None
        self._last = 0
        """The sequence of the last record in the topic that the consumer reads."""
        self._orders = {context.order(number).order_id: context.order(number) for number in range(context.orders)}

    async def run(self) -> None:
        context = self._context
        for group in sorted({number // GROUP for number in context.open_orders()}):
            orders = [
                context.order(number) for number in range(group * GROUP, min((group + 1) * GROUP, context.orders))
            ]
            for topic in TOPICS:
                await self._write(group, topic, orders)
                if group % AGAIN_EVERY == 0:
                    await self._again(group, topic, orders)
            if group % READ_BACK_EVERY == 0:
                await self._read_back()
        while await self._read_back():
            pass
        if self._client is not None:
            with contextlib.suppress(asyncio.TimeoutError, OSError):
                await self._client.close()

    # --- writing ---------------------------------------------------------------------------------------------------

    async def _write(self, group: int, topic: str, orders: list[Order]) -> None:
        context = self._context
        is_batch = group % 2 == 0
        commit = f"{context.producer}-{group}-{topic}" if is_batch else ""
        for order in orders:
            context.sending(order, (topic,), commit=commit)
        if is_batch:
            answer, attempts = await self._insist(lambda: self._batch(commit, topic, orders))
            first = answer["seq"] - len(orders)
            for number, order in enumerate(orders):
                again = {topic: first + number}
                context.confirmed(
                    order, again, duplicate=bool(answer.get("duplicate")), attempts=attempts if not number else 1
                )
            self._note(topic, answer["seq"])
            return
        for order in orders:
            answer, attempts = await self._insist(lambda order=order: self._single(topic, order))
            place = {topic: answer["seq"] - 1}
            context.confirmed(order, place, duplicate=bool(answer.get("duplicate")), attempts=attempts)
            self._note(topic, answer["seq"])

    async def _again(self, group: int, topic: str, orders: list[Order]) -> None:
        """What a careless client does: the server must recognise it."""
        if group % 2:
            answer, attempts = await self._insist(lambda: self._single(topic, orders[0]))
        else:
            commit = f"{self._context.producer}-{group}-{topic}"
            answer, attempts = await self._insist(lambda: self._batch(commit, topic, orders))
        self._context.sent_again(attempts)
        if not answer.get("duplicate"):
            raise Contradiction(f"group {group} of {topic}, sent again, was stored again: {answer}")

    def _note(self, topic: str, sequence: int) -> None:
        if topic == ORDERS:
            self._last = max(self._last, sequence)

    def _subject(self, topic: str, order: Order) -> str:
        return f"{topic}-{self._context.partition}.{order.order_id}"

    async def _batch(self, batch: str, topic: str, orders: list[Order]) -> dict[str, Any]:
        client = await self._connected()
        answer = b""
        for number, order in enumerate(orders, start=1):
            headers = {
                "Nats-Batch-Id": batch,
                "Nats-Batch-Sequence": str(number),
                "Nats-Msg-Id": message_id(topic, order.order_id),
            }
            if number < len(orders):
                await client.publish(self._subject(topic, order), order.value(topic), headers=headers)
                continue
            headers["Nats-Batch-Commit"] = "1"
            reply = await client.request(
                self._subject(topic, order), order.value(topic), timeout=ANSWER_WITHIN_S, headers=headers
            )
            answer = reply.data
        return _decoded(answer)

    async def _single(self, topic: str, order: Order) -> dict[str, Any]:
        client = await self._connected()
        headers = {
            "Nats-Msg-Id": message_id(topic, order.order_id),
            "Nats-Expected-Stream": _stream(self._context, topic),
        }
        reply = await client.request(
            self._subject(topic, order), order.value(topic), timeout=ANSWER_WITHIN_S, headers=headers
        )
        return _decoded(reply.data)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def _read_back(self) -> bool:
        """Fetch and ack what is there; True while the consumer has not acked past this producer's last record."""
        floor, _ = await self._insist(self._fetch)
        return bool(floor["floor"] < self._last)

    async def _fetch(self) -> dict[str, Any]:
        from nats.errors import TimeoutError as NothingCame

        client = await self._connected()
        stream = client.jetstream(timeout=ANSWER_WITHIN_S)
        subscription = await stream.pull_subscribe(
            "", durable=f"{self._context.producer}-reader", stream=_stream(self._context, ORDERS)
        )
        try:
            with contextlib.suppress(NothingCame):
                for message in await subscription.fetch(FETCHED, timeout=0.5):
                    self._check(message)
                    await message.ack()
            info = await subscription.consumer_info()
        finally:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await subscription.unsubscribe()
        assert info.ack_floor is not None
        return {"floor": info.ack_floor.stream_seq}

    def _check(self, message: Any) -> None:
        value = message.data
        order = self._orders.get(msgspec.json.decode(value)["order_id"])
        if order is not None and order.value(ORDERS) != value:
            raise Contradiction(f"the consumer received {value!r}, and {order.value(ORDERS)!r} was sent")

    # --- patience --------------------------------------------------------------------------------------------------

    async def _connected(self) -> "Client":
        import nats

        if self._client is None or self._client.is_closed:
            self._client = await nats.connect(
                f"nats://{self._context.addresses['nats']}",
                connect_timeout=2,
                allow_reconnect=False,
                error_cb=_ignore,
            )
        return self._client

    async def _insist(self, ask: Any) -> tuple[dict[str, Any], int]:
        """The answer, and how often it was asked. A connection that failed is made anew, and all is sent again."""
        from nats.errors import Error

        give_up = time.monotonic() + GIVE_UP_S
        attempts = 0
        while True:
            attempts += 1
            try:
                return await ask(), attempts
            except _Later as error:
                reason = str(error)
            except (TimeoutError, Error, OSError, asyncio.IncompleteReadError) as error:
                reason = repr(error)
                await self._drop()
            if time.monotonic() > give_up:
                raise NoNats(f"no answer within {GIVE_UP_S:g} s, {attempts} attempts: {reason}")
            await asyncio.sleep(PAUSE_S)

    async def _drop(self) -> None:
        from nats.errors import Error

        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Error, OSError, asyncio.TimeoutError):
                await client.close()


class _Later(Exception):
    """The server could not do it now, or met half of a batch: the whole is sent again."""


LATER: Final = frozenset((10176, 10023, 10008, 10210))
"""Error numbers after which the same succeeds: half of a batch was lost with its connection, no room for now."""


def _decoded(answer: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(answer)
    error = fields.get("error")
    if error is not None:
        if error.get("err_code") in LATER:
            raise _Later(str(error))
        raise NoNats(f"refused: {error}")
    return fields


def _stream(context: Context, topic: str) -> str:
    return f"{topic}-{context.partition}"


async def _ignore(_error: Exception) -> None:
    """nats-py would log it; the request that suffers from it says so itself."""
