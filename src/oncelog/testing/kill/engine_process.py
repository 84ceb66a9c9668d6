"""An engine in a process of its own, driven through a pipe: what the kill rounds kill.

    python -m oncelog.testing.kill.engine_process DIRECTORY SEGMENT_BYTES CHECKPOINT_BYTES

In on standard input: (number, command) or (number, `Read`). Out on standard output: (0, READY) once, then (number,
answer) when it is durable. The end of standard input asks for a clean stop.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

from oncelog.core import batch as codec
from oncelog.core.command import Command
from oncelog.core.outcome import Outcome, Refusal
from oncelog.engine.engine import Engine, Settings
from oncelog.engine.open import open_engine
from oncelog.testing.kill.messages import READY, Read, ReadDone, packed, take_messages

EXIT_BUG: Final = 70
"""EX_SOFTWARE."""


class Pipe(asyncio.Protocol):
    """Feeds commands to the engine and writes its answers, one system call per burst."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._data = bytearray()
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()

    def data_received(self, data: bytes) -> None:
        self._data += data
        for number, command in take_messages(self._data):
            if isinstance(command, Read):
                self.send(number, self._read(command))
            else:
                self._submit(number, command)  # type: ignore[arg-type]

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed.set_result(None)

    def _submit(self, number: int, command: Command) -> None:
        def reply(outcome: Outcome) -> None:
            self.send(number, outcome)

        self._engine.submit(command, reply)

    def _read(self, asked: Read) -> ReadDone | Refusal:
        result = self._engine.reads.read(asked.topic, asked.partition, asked.offset)
        if isinstance(result, Refusal):
            return result
        records = [
            (found.base_offset + delta, value or b"")
            for found in result.batches
            for delta, _, _, value, _ in codec.decode(found.batch)
            if found.base_offset + delta >= asked.offset
        ]
        return ReadDone(records, result.next_offset, result.stable)

    def send(self, number: int, answer: object) -> None:
        """Answers of one turn of the loop leave together."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(packed(number, answer))

    def flush(self) -> None:
        data = memoryview(b"".join(self._out))
        self._out.clear()
        while data:
            data = data[os.write(1, data) :]


def _end_on_bug(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception that nobody caught is a bug: say it and end, so that whoever drives us does not wait in vain."""
    loop.default_exception_handler(context)
    sys.stderr.flush()
    os._exit(EXIT_BUG)


async def main(directory: Path, segment_bytes: int, checkpoint_bytes: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_end_on_bug)
    engine = open_engine(directory, loop, settings=Settings(segment_bytes, checkpoint_bytes))
    transport, pipe = await loop.connect_read_pipe(lambda: Pipe(engine), sys.stdin)
    pipe.send(0, READY)
    await pipe.closed
    await engine.close()
    pipe.flush()
    transport.close()


if __name__ == "__main__":
    # Answers go to descriptor 1: whatever else would be printed must not end up between them.
    sys.stdout = sys.stderr
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
