"""What the process says when it ends."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1
"""The server, or this machine, said no; or a check failed. Also a run that was interrupted."""
USAGE: Final = 2
"""The arguments or the settings make no sense; nothing was tried. Typer uses the same number."""
UNREACHABLE: Final = 3
"""No answer. A write may have happened; the same claim, sent again, tells."""
DAMAGED: Final = 4
"""Something is not what was written."""
