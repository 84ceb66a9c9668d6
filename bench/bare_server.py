"""The least HTTP server on the same event loop: the yardstick beside which `bench http` shows CPU figures.

It finds the end of a request by its Content-Length and answers a constant. Nothing is parsed, checked, kept or synced:
what is left is the sockets, which every server pays.

`python -m bench.bare_server` prints `ready http=HOST:PORT` and runs until it is told to stop.
"""

import asyncio
import re
from typing import cast

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"
_CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
_PLAIN = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 0000000000000001\r\n\r\n"
_PRODUCER = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 0000000000000001\r\nContent-Length: 0\r\n\r\n"


class Answerer(asyncio.Protocol):
    """One connection, one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._missing = 0
        self._answer = b""

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
            if not self._missing:
                self._transport.write(self._answer)
            return
        head, _, body = data.partition(_END)
        length = _LENGTH.search(head)
        self._missing = (int(length[1]) if length else 0) - len(body)
        self._answer = _CREATED if head.startswith(b"PUT") else _PRODUCER if b"Producer-Seq" in head else _PLAIN
        if not self._missing:
            self._transport.write(self._answer)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answerer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"ready http={host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
