"""Time for append times and timeouts: the wall clock, except that it never runs backwards and never stands still.

If the wall clock is set back, time goes on at its own pace from where it was: otherwise every open txn would wait for
the wall clock to catch up before it could time out (P7).
"""

import time


class SteadyClock:
    """Nanoseconds since 1970, never decreasing, from `not_before_ns` on."""

    def __init__(self, not_before_ns: int) -> None:
        self._base_ns = not_before_ns
        self._monotonic_ns = time.monotonic_ns()

    def __call__(self) -> int:
        wall_ns = time.time_ns()
        monotonic_ns = time.monotonic_ns()
        now_ns = self._base_ns + monotonic_ns - self._monotonic_ns
        if wall_ns > now_ns:
            now_ns = wall_ns
        self._base_ns, self._monotonic_ns = now_ns, monotonic_ns
        return now_ns
