"""What a verb says while the server gives no answer: one line, since silence looks like a program that hangs.

The client goes on trying for a minute or two, and is silent about it. Here a clock runs meanwhile, and whatever came of
the last attempt is remembered for the line.
"""

import asyncio
import contextlib
import sys
from typing import Final

from oncelog.cli.screen import printable
from oncelog.client.calls import Caller, Channel, Timeouts
from oncelog.client.connection import Address, parse_address
from oncelog.client.errors import ClientError
from oncelog.client.wire import Answer

PATIENCE_S: Final = 3.0
"""Longer than a server takes to start again, shorter than people wait without wondering."""


class Patience:
    """Tells once, until something comes, that it is waited for. Everything here is called within one event loop."""

    def __init__(self, url: str, time_s: float) -> None:
        self._url = url
        self._time_s = time_s
        """How long it is tried."""
        self._cause = ""
        self._clock: asyncio.TimerHandle | None = None
        self._is_told = False

    def wait(self) -> None:
        """Something is asked for. The clock runs from the first time on, until `progress`."""
        if self._clock is None and not self._is_told:
            self._clock = asyncio.get_running_loop().call_later(PATIENCE_S, self._tell)

    def put_off(self, cause: ClientError) -> None:
        """An attempt came to nothing, and there will be another one."""
        self._cause = f" ({cause})"
        self.wait()

    def progress(self) -> None:
        """Something has come."""
        if self._clock is not None:
            self._clock.cancel()
        self._clock, self._cause, self._is_told = None, "", False

    def _tell(self) -> None:
        self._clock, self._is_told = None, True
        said = f"no answer from {self._url} yet{self._cause}, trying again for up to {self._time_s:g} s"
        # By stderr as it is now: a bar that is shown stands before it, and makes room for a line.
        if sys.stderr is not None:
            with contextlib.suppress(BrokenPipeError):
                print(f"oncelog: {printable(said)}", file=sys.stderr)


class PatientCaller(Caller):
    """A caller whose requests say so when they are not answered for a while."""

    def __init__(self, url: str, timeouts: Timeouts) -> None:
        self.patience = Patience(url, timeouts.request_s)
        super().__init__(parse_address(url), {}, timeouts, self.patience.put_off)

    def channel(self) -> Channel:
        return _PatientChannel(self.address, self.timeouts, self.patience)


class _PatientChannel(Channel):
    def __init__(self, address: Address, timeouts: Timeouts, patience: Patience) -> None:
        super().__init__(address, timeouts, patience.put_off)
        self._patience = patience

    async def ask(
        self,
        request: bytes,
        *,
        writes: bool,
        asks_if_changed: bool = False,
        wait_s: float | None = None,
    ) -> tuple[Answer, bool]:
        if wait_s is None:
            # A read that waits for records may take long.
            self._patience.wait()
        try:
            return await super().ask(request, writes=writes, asks_if_changed=asks_if_changed, wait_s=wait_s)
        finally:
            self._patience.progress()
