"""What goes wrong: each seed draws which kinds of faults there are and how often, so that rare combinations occur."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

KINDS = ("crash", "pause", "drain", "outage", "message", "network", "commit", "partition", "stall")
STALL_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Chances of one history."""

    lost_message: float = 0.0
    doubled_message: float = 0.0
    delayed_message: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    doubled_request: float = 0.0
    lost_connection: float = 0.0
    lost_commit: float = 0.0
    crash_every: float | None = None
    """Mean virtual seconds between crashes of any process; None for never."""
    pause_every: float | None = None
    drain_every: float | None = None
    outage_every: float | None = None
    partition_every: float | None = None
    """A worker reaches nobody for a while, and works on."""
    stall: float = 0.0
    """Chance that a process takes long to get to its next transaction."""

    @classmethod
    def draw(cls, chance: Random) -> "Profile":
        """Draw a profile: about half of all kinds, each with a rate of its own."""
        kinds = {kind for kind in KINDS if chance.random() < 0.5}

        def rate(kind: str, most: float) -> float:
            return chance.random() * most if kind in kinds else 0.0

        def every(kind: str, least: float) -> float | None:
            return least + chance.random() * 4 * least if kind in kinds else None

        return cls(
            lost_message=rate("message", 0.2),
            doubled_message=rate("message", 0.4),
            delayed_message=rate("message", 0.6),
            lost_request=rate("network", 0.2),
            lost_answer=rate("network", 0.2),
            doubled_request=rate("network", 0.3),
            lost_connection=rate("commit", 0.05),
            lost_commit=rate("commit", 0.1),
            crash_every=every("crash", 10.0),
            pause_every=every("pause", 8.0),
            drain_every=every("drain", 20.0),
            outage_every=every("outage", 50.0),
            partition_every=every("partition", 8.0),
            stall=rate("stall", 0.1),
        )


HARSH = Profile(
    doubled_message=0.5,
    delayed_message=0.3,
    doubled_request=0.3,
    lost_answer=0.1,
    pause_every=60.0,
    partition_every=12.0,
    stall=0.1,
)
"""What finds planted bugs soon."""
LATE = Profile(partition_every=5.0)
"""Workers work on while nobody hears of them: results come after their attempts were given up."""


class Faults:
    """Asked at every place where something may go wrong; calm once the history is to come to its end."""

    def __init__(self, chance: Random, profile: Profile, now: Callable[[], float]) -> None:
        self.profile = profile
        self._chance = chance
        self._now = now
        self._down_until = 0.0
        self._calm = False
        self.counts: dict[str, int] = {}

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self._calm = True
        self._down_until = 0.0

    @property
    def is_calm(self) -> bool:
        """Return whether nothing goes wrong any more."""
        return self._calm

    def database_down(self, seconds: float) -> None:
        """Let the database be away for everybody."""
        self.note("database outage")
        self._down_until = self._now() + seconds

    def no_database(self) -> bool:
        """Return whether a connection cannot be had."""
        return self._now() < self._down_until or self._happens("lost_connection")

    def commit_unanswered(self) -> bool:
        """Return whether a transaction committed and nobody learns it."""
        return self._happens("lost_commit")

    def message_fate(self) -> tuple[int, float]:
        """Return how often a message arrives, and how late."""
        copies = 0 if self._happens("lost_message") else 2 if self._happens("doubled_message") else 1
        return copies, self._chance.random() * 60 if self._happens("delayed_message") else 0.0

    def request_copies(self) -> int:
        """Return how often a request arrives."""
        return 0 if self._happens("lost_request") else 2 if self._happens("doubled_request") else 1

    def answer_lost(self) -> bool:
        """Return whether an answer never arrives."""
        return self._happens("lost_answer")

    def stall_seconds(self) -> float:
        """Return how long a process takes to get to its next transaction."""
        return self._chance.random() * STALL_SECONDS if self._happens("stall") else 0.0

    def note(self, kind: str) -> None:
        """Count a fault."""
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _happens(self, name: str) -> bool:
        rate: float = getattr(self.profile, name)
        if self._calm or rate == 0.0 or self._chance.random() >= rate:
            return False
        self.note(name.replace("_", " "))
        return True
