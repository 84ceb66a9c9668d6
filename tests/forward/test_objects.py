"""Objects go before the facts that refer to them, in pieces, and once."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from oncelog.forward.daemon import Forwarder, Route
from oncelog.forward.link import CallRefused, Link
from oncelog.forward.objects import PIECE_BYTES, carry_object
from tests.servers.running import Running, running

LARGE = hashlib.sha256(b"x").digest() * (4 * PIECE_BYTES // 32) + b"the end"


def attachment_of(blob: bytes, key: str = "a/1") -> dict[str, Any]:
    return {"bucket": "b", "key": key, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": str(len(blob))}


def url_of(server: Running) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("size", [0, 17, PIECE_BYTES, len(LARGE)])
def test_an_object_is_carried_once(size: int) -> None:
    blob = LARGE[:size]

    async def carried(source: Running, target: Running) -> list[bool]:
        links = Link(url_of(source)), Link(url_of(target))
        try:
            return [await carry_object(*links, attachment_of(blob)) for _ in range(2)]
        finally:
            for link in links:
                await link.close()

    with running() as source, running() as target:
        with source.client() as client:
            client.ask("PUT", "/bsfg/objects/b/a%2F1", blob, {"Content-Type": "text/plain"})
        assert asyncio.run(carried(source, target)) == [True, False]
        with target.client() as client:
            assert client.ask("GET", "/bsfg/objects/b/a%2F1").body == blob


def test_an_object_that_the_source_does_not_have_is_refused() -> None:
    async def carry(source: Running, target: Running) -> None:
        links = Link(url_of(source)), Link(url_of(target))
        try:
            await carry_object(*links, attachment_of(b"x"))
        finally:
            for link in links:
                await link.close()

    with running() as source, running() as target, pytest.raises(CallRefused, match="not_found"):
        asyncio.run(carry(source, target))


def test_facts_with_objects_arrive_in_their_order() -> None:
    headers = {"Content-Type": "application/json"}

    def fact(number: int, *attachments: dict[str, Any]) -> bytes:
        envelope = {"message_id": f"m{number}", "from_zone": "local", "to_zone": "b", "produced_at_unix_ms": 1}
        body = {"subject": "report:1", "predicate": "was_written", "object_json": str(number)}
        return json.dumps({"envelope": envelope, "fact": body, "attachments": attachments}).encode()

    async def forward(source: Running, target: Running) -> None:
        forwarder = Forwarder(Route(url_of(source), url_of(target)), lambda _: None, ["facts.operational"])
        task = asyncio.create_task(forwarder.run())
        async with asyncio.timeout(30):
            while not forwarder.carriers or forwarder.carriers[0].progress.frontier < 20:  # noqa: ASYNC110
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with running() as source, running(zone="b") as target:
        with source.client() as client:
            for number in range(20):
                attachments = []
                if number % 4 == 1:
                    client.ask("PUT", f"/bsfg/objects/b/{number}", LARGE[number:])
                    attachments = [attachment_of(LARGE[number:], str(number))]
                answer = client.ask("POST", "/bsfg.v1.BoundaryService/AppendFact", fact(number, *attachments), headers)
                assert answer.status == 200
        asyncio.run(forward(source, target))
        with target.client() as client:
            values = json.loads(client.ask("GET", "/v1/stream/facts.operational").body)
            assert [value["object"] for value in values] == list(range(20))
            assert client.ask("GET", "/bsfg/objects/b/17").body == LARGE[17:]
