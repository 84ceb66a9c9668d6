"""Cut input into lines, and lines into batches whose borders depend on the lines alone.

The second property is what makes `append --resume` exact. A batch carries the number of its last line as its sequence;
an import that was cut off goes on behind the last stored one. If two runs of the same import meet, both cut the same
batches at the same lines, so what one has stored is a duplicate for the other. Neither time nor the speed of a pipe
may therefore end a batch of a resumable import.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

from oncelog.limits import KIB

BATCH_LINES_MAX: Final = 5_000
BATCH_VALUE_BYTES_MAX: Final = 512 * KIB
"""Large enough that a round trip costs little, small enough that progress is seen and a cut-off run repeats little."""


class Batch(NamedTuple):
    """Lines that are written together."""

    last_line: int
    """Number of the last line, from 0: also the batch's sequence."""
    values: list[bytes]


def lines_of(file: BinaryIO, bytes_max: int) -> Generator[bytes, None, bool]:
    """Each line without its newline; the last one counts also if it has none. Returns whether it has none.

    Of a line over `bytes_max` come its first `bytes_max + 1` bytes, and then nothing: such input is refused. It may
    be a device or an image that has no newline at all.
    """
    is_open = False
    while line := file.readline(bytes_max + 1):
        content = line.removesuffix(b"\n")
        is_open = len(content) == len(line)
        yield content
        if len(content) > bytes_max:
            break
    return is_open


def batches_of(lines: Iterable[bytes], *, after: int = -1, skip_blank: bool = False) -> Iterator[Batch]:
    """Batches of the lines behind number `after`. A blank line that is skipped still has its number."""
    values: list[bytes] = []
    size = 0
    last = after
    for number, line in enumerate(lines):
        if number <= after or (skip_blank and not line.strip()):
            continue
        if values and size + len(line) > BATCH_VALUE_BYTES_MAX:
            yield Batch(last, values)
            values, size = [], 0
        values.append(line)
        size += len(line)
        last = number
        if len(values) == BATCH_LINES_MAX:
            yield Batch(last, values)
            values, size = [], 0
    if values:
        yield Batch(last, values)
