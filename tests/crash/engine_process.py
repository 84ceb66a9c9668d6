"""An engine in a process of its own, driven through a pipe: what the kill loop kills.

Frames on standard input and output are a length (u32) and a pickle. In: (number, command) or (number, ("read", topic,
partition, offset)). Out: (0, "ready") once, then (number, outcome) when it is durable.
"""

import asyncio
import os
import pickle
import struct
import sys
from pathlib import Path

from oncelog.core import batch as codec
from oncelog.core.outcome import Outcome, Refusal
from oncelog.engine.engine import Engine, Settings
from oncelog.engine.open import open_engine

LENGTH = struct.Struct("<I")


class Pipe(asyncio.Protocol):
    """Feeds frames to the engine and writes its answers, one system call per burst."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._data = bytearray()
        self._out: list[bytes] = []
        self.closed = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._data += data
        at = 0
        while len(self._data) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._data, at)
            if len(self._data) - at - LENGTH.size < length:
                break
            at += LENGTH.size
            self._take(*pickle.loads(self._data[at : at + length]))
            at += length
        del self._data[:at]

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed.set_result(None)

    def _take(self, number: int, command: object) -> None:
        if isinstance(command, tuple):
            self.send(number, self._read(*command[1:]))
            return

        def reply(outcome: Outcome) -> None:
            self.send(number, outcome)

        self._engine.submit(command, reply)  # type: ignore[arg-type]

    def _read(self, topic: str, partition: int, offset: int) -> object:
        result = self._engine.read(topic, partition, offset)
        if isinstance(result, Refusal):
            return result
        records = [
            (found.base_offset + delta, value)
            for found in result.batches
            for delta, _, _, value, _ in codec.decode(found.batch)
            if found.base_offset + delta >= offset
        ]
        return records, result.next_offset, result.stable

    def send(self, number: int, answer: object) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        body = pickle.dumps((number, answer))
        self._out.append(LENGTH.pack(len(body)) + body)

    def _flush(self) -> None:
        data = memoryview(b"".join(self._out))
        self._out.clear()
        while data:
            data = data[os.write(1, data) :]


async def main(directory: Path, segment_bytes: int, checkpoint_bytes: int) -> None:
    loop = asyncio.get_running_loop()
    engine = open_engine(directory, loop, settings=Settings(segment_bytes, checkpoint_bytes))
    _, pipe = await loop.connect_read_pipe(lambda: Pipe(engine), sys.stdin)
    pipe.send(0, "ready")
    await pipe.closed
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
