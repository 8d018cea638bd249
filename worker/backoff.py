"""How long to wait before the next try."""

import random


class Backoff:
    """Doubles from `initial_seconds` to `max_seconds`, with jitter so that many workers do not come back together."""

    def __init__(self, initial_seconds: float = 0.1, max_seconds: float = 5.0) -> None:
        self._initial = initial_seconds
        self._max = max_seconds
        self._next = initial_seconds

    def reset(self) -> None:
        """Start over after a success."""
        self._next = self._initial

    def next_seconds(self) -> float:
        """Return the next delay."""
        delay = self._next
        self._next = min(self._next * 2, self._max)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not secrecy
