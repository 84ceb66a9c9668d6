"""Pauses between attempts: doubling, bounded, and spread so that many clients do not come back at one instant."""

import random


class Backoff:
    """The pauses of one thing that is tried again."""

    def __init__(self, first_ms: float, max_ms: float) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._failures = 0

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds: half of it certain, half of it chance."""
        pause_ms = min(self._max_ms, self._first_ms * 2.0 ** min(self._failures, 40))
        self._failures += 1
        return pause_ms * (0.5 + 0.5 * random.random()) / 1000

    def reset(self) -> None:
        """It worked: the next failure is the first again."""
        self._failures = 0
