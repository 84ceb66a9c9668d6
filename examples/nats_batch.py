"""Atomic batches over NATS: five keys of an address change together, or none does.

    oncelog serve --in-memory
    python examples/nats_batch.py nats://127.0.0.1:4222

The first batch ends with a message that is stored (`Nats-Batch-Commit: 1`), the second with one that is not (`eob`).
The second is then sent once more, as by a client that got no answer: nothing is stored twice.
"""

import asyncio
import json
import sys
from typing import Any

import nats
from nats.aio.client import Client

ADDRESS = {"street": "1 Main St", "city": "Springfield", "post_code": "12345", "state": "OR", "country": "US"}
MOVED = {"street": "2 Oak Ave", "city": "Shelbyville", "post_code": "54321", "state": "OR", "country": "US"}


async def send(client: Client, batch: str, fields: dict[str, str], *, end_of_batch: bool) -> dict[str, Any]:
    """One batch; the acknowledgement of its commit."""
    members = [(f"users.jo.{name}", value.encode()) for name, value in fields.items()]
    if end_of_batch:
        members.append(("users.jo.end", b""))
    for number, (subject, payload) in enumerate(members, start=1):
        headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
        if number == 1:
            # The first member is a request: an empty answer says that the server takes batches here.
            answer = await client.request(subject, payload, headers=headers)
            assert answer.data == b"", answer.data
        elif number < len(members):
            await client.publish(subject, payload, headers=headers)
        else:
            headers["Nats-Batch-Commit"] = "eob" if end_of_batch else "1"
            answer = await client.request(subject, payload, headers=headers)
    acknowledged: dict[str, Any] = json.loads(answer.data)
    if "error" in acknowledged:
        raise SystemExit(f"the batch was refused: {acknowledged['error']}")
    return acknowledged


async def main(url: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="users", subjects=["users.>"], allow_atomic=True)
    print(await send(client, "move-in", ADDRESS, end_of_batch=False))
    print(await send(client, "move-out", MOVED, end_of_batch=True))
    print(await send(client, "move-out", MOVED, end_of_batch=True))
    info = await stream.stream_info("users")
    print(f"{info.state.messages} messages in the stream")
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
