"""The heartbeat: its own thread and connection, beating only while the loop gets on (architecture §3.3)."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from core.errors import DatabaseUnavailable
from repositories.database import Dsn, make_conninfo, text_of
from repositories.orchestrators import BEAT
from services.recover import OutageGuard

log = logging.getLogger(__name__)

STUCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Instance:
    """Which boot of which build beats."""

    owner_id: str
    host: str
    pid: int
    build_id: str


@dataclass(slots=True)
class Pulse:
    """When the loop last finished a step, in seconds of the monotonic clock."""

    finished_at: float = field(default_factory=time.monotonic)

    def step(self) -> None:
        """Note that a step has been finished."""
        self.finished_at = time.monotonic()

    @property
    def beats(self) -> bool:
        """Return whether the loop finished a step lately."""
        return time.monotonic() - self.finished_at < STUCK_SECONDS


class Heartbeat:
    """Writes this instance's row every few seconds and tells the outage guard; reconnects by itself."""

    def __init__(
        self,
        conninfo: Dsn,
        instance: Instance,
        guard: OutageGuard,
        pulse: Pulse,
        *,
        interval_seconds: float,
        state: Callable[[], str],
    ) -> None:
        self._conninfo = conninfo
        self._instance = instance
        self._guard = guard
        self._pulse = pulse
        self._interval_seconds = interval_seconds
        self._state = state
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._connection: psycopg.Connection | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; waits for a beat that is under way."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            beaten = self._beat() if self._pulse.beats else self._skip()
            self._stopping.wait(self._interval_seconds if beaten else min(self._interval_seconds, 0.5))
        if self._connection is not None:
            self._connection.close()

    def _skip(self) -> bool:
        log.error("heartbeat withheld: the loop is stuck", extra={"owner_id": self._instance.owner_id})
        return True

    def _beat(self) -> bool:
        """Write one sign of life; its time is that of the attempt, so a slow answer never looks fresher than it is."""
        instance, began = self._instance, time.monotonic()
        try:
            if self._connection is None or self._connection.closed:
                text = make_conninfo(text_of(self._conninfo), f"heartbeat {instance.owner_id}")
                self._connection = psycopg.connect(text, autocommit=True, prepare_threshold=None)
            row = (instance.owner_id, instance.host, instance.pid, instance.build_id, self._state())
            self._connection.execute(BEAT, row)
        except Exception as error:
            # Whatever it is, the thread goes on: without it the instance counts as dead.
            known = isinstance(error, psycopg.Error | DatabaseUnavailable)
            log.warning("heartbeat failed", extra={"error": type(error).__name__}, exc_info=not known)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return False
        self._guard.beat(began)
        return True
