"""What the process says when it ends."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DAMAGED: Final = 4
