"""What ties a process of the demo to the demo: it does not outlive it, also when the demo is ended by a kill -9.

A process that the demo starts has a session of its own, so nothing that ends the demo reaches it, and one that serves
or waits would stay for ever. So its stdin is a pipe that the demo holds and never writes to. The system closes it when
the demo ends, in whatever way; a thread of the process waits for that and kills its group. What Spark has started in a
group of its own ends with the virtual machine.
"""

import os
import signal
import threading
from typing import Final

_STDIN: Final = 0


def hold() -> None:
    """From now on this process ends when its stdin does."""
    threading.Thread(target=_wait, name="lifeline", daemon=True).start()


def _wait() -> None:
    while os.read(_STDIN, 1):
        pass
    # A group of its own, unless somebody has started it by hand: that one must not take its shell along.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
