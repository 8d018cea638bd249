"""The peer's clock: the real one, that a test may put forward instead of sleeping."""

import time


class Clock:
    """Seconds since 1970, with what was skipped."""

    def __init__(self) -> None:
        self.skipped_seconds = 0.0

    def now(self) -> float:
        """Return the peer's time."""
        return time.time() + self.skipped_seconds

    def advance(self, seconds: float) -> None:
        """Put the clock forward."""
        self.skipped_seconds += seconds
