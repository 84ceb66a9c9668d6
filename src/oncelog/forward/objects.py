"""Carries an object from one zone to another, in pieces, before the fact that refers to it.

The source is asked for ranges of `PIECE_BYTES` and the target gets them as one PUT with the digest in its head, so the
forwarder holds one piece, and the target refuses bytes that are not those of the digest. An object that the target has
is not sent: its HEAD tells the digest.
"""

import asyncio
import contextlib
from typing import Any, Final
from urllib.parse import quote

from oncelog.client.errors import ConnectionLost
from oncelog.client.wire import AnswerBroken, AnswerParser
from oncelog.forward.link import CallRefused, Link, answer_of

PIECE_BYTES: Final = 1 << 20
SILENCE_S: Final = 30.0


def object_path(attachment: dict[str, Any]) -> str:
    """Where an object is, in every zone."""
    return f"/bsfg/objects/{quote(attachment['bucket'], safe='')}/{quote(attachment['key'], safe='')}"


async def carry_object(source: Link, target: Link, attachment: dict[str, Any]) -> bool:
    """Make sure that the target has the object; whether it had to be sent. Raises ConnectionLost, CallRefused."""
    path, digest = object_path(attachment), attachment["digest"]
    there = await target.request("HEAD", path)
    if there.status == 200 and there.headers.get("bsfg-digest") == digest:
        return False
    size = int(attachment.get("size", 0))
    media_type = attachment.get("media_type", "")
    headers = {"Bsfg-Digest": digest, **({"Content-Type": media_type} if media_type else {})}
    try:
        async with asyncio.timeout(SILENCE_S):
            reader, writer = await asyncio.open_connection(
                target.address.host, target.address.port, ssl=target.address.tls
            )
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"no connection to {target.url}: {error}", sent=False) from None
    try:
        writer.write(target.head("PUT", path, headers).fixed + b"Content-Length: %d\r\n\r\n" % size)
        for first in range(0, size, PIECE_BYTES):
            writer.write(await _piece(source, path, first, min(size, first + PIECE_BYTES), size))
            async with asyncio.timeout(SILENCE_S):
                await writer.drain()
        await _answered(reader)
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"{target.url} took no more of {path}: {error}", sent=True) from None
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return True


async def _piece(source: Link, path: str, first: int, next_: int, size: int) -> bytes:
    headers = {} if (first, next_) == (0, size) else {"Range": f"bytes={first}-{next_ - 1}"}
    answer = await source.request("GET", path, headers)
    if answer.status not in (200, 206):
        answer_of(answer)  # says what is wrong
    if len(answer.body) != next_ - first:
        raise ConnectionLost(
            f"{source.url} answered {len(answer.body):,} bytes of {path}, not {next_ - first:,}", sent=True
        )
    return answer.body


async def _answered(reader: asyncio.StreamReader) -> None:
    parser = AnswerParser()
    while True:
        async with asyncio.timeout(SILENCE_S):
            data = await reader.read(65_536)
        if not data:
            raise ConnectionLost("the target ended the connection before it answered", sent=True)
        try:
            answers = parser.feed(data)
        except AnswerBroken as error:
            raise ConnectionLost(f"the answer of the target cannot be read: {error}", sent=True) from None
        if answers:
            answer_of(answers[0])
            return


async def carry_objects(source: Link, target: Link, fact: dict[str, Any]) -> CallRefused | None:
    """All objects of a fact; a refusal for good is returned. Raises ConnectionLost, and CallRefused for another try."""
    for attachment in fact.get("attachments", ()):
        try:
            await carry_object(source, target, attachment)
        except CallRefused as refused:
            if refused.is_retryable:
                raise
            return refused
    return None
