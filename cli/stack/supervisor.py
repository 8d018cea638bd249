"""Keeps the parts of a stack running: whatever ends unasked is started again, with backoff."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence

from cli.stack.logs import rotate
from cli.stack.processes import Part, PartSpec, end_parts

logger = logging.getLogger(__name__)

Report = Callable[[str, str], None]
"""Takes the name of a part and what happened to it."""

BACKOFF_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_SECONDS = 30.0
TICK_SECONDS = 0.1
ROTATE_EVERY_SECONDS = 30.0


class Supervisor:
    """Starts, watches and ends parts; every method may be called from any thread.

    Args:
        names: The parts, in the order in which they start.
        spec: How to start a part.
        report: Told what happens.
        mend: Called every tick, for what is no child of ours.
    """

    def __init__(
        self, names: Sequence[str], spec: Callable[[str], PartSpec], report: Report, mend: Callable[[], None]
    ) -> None:
        self._names = tuple(names)
        self._spec = spec
        self._report = report
        self._mend = mend
        self._lock = threading.RLock()
        self._parts: dict[str, Part] = {}
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self.restarts: dict[str, int] = dict.fromkeys(names, 0)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._rotated_at = time.monotonic()

    def start(self, names: Sequence[str] | None = None) -> None:
        """Begin to watch, and start the named parts (all by default); the others wait for `start_part`."""
        for name in self._names if names is None else names:
            self.start_part(name)
        self._thread.start()

    def start_part(self, name: str) -> None:
        """Start one part now."""
        with self._lock:
            if name not in self._parts and not self._ending.is_set():
                self._due.pop(name, None)
                self._parts[name] = Part.start(self._spec(name))

    def stop_part(self, name: str, grace_seconds: float = 10.0) -> None:
        """End one part and leave it ended until `start_part`."""
        with self._lock:
            self._due.pop(name, None)
            part = self._parts.pop(name, None)
        if part is not None:
            end_parts([part], grace_seconds)

    def pid(self, name: str) -> int | None:
        """Return the pid of a running part, None while it is down."""
        with self._lock:
            part = self._parts.get(name)
            return None if part is None or part.has_ended() else part.pid

    def send(self, name: str, number: signal.Signals) -> None:
        """Signal one part."""
        with self._lock:
            if part := self._parts.get(name):
                part.send(number)

    def stop(self, last: Collection[str], grace_seconds: float) -> None:
        """Stop watching, then end everything; `last` are ended once the others are gone."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            parts = list(self._parts.values())
            self._parts.clear()
        end_parts([part for part in parts if part.spec.name not in last], grace_seconds)
        end_parts([part for part in parts if part.spec.name in last], grace_seconds)

    def _run(self) -> None:
        while not self._ending.wait(TICK_SECONDS):
            try:
                self._tick()
            except Exception:
                logger.exception("supervisor_tick_failed")

    def _tick(self) -> None:
        self._mend()
        with self._lock:
            for name in list(self._parts):
                self._bury_if_ended(name)
            for name in [name for name, due in self._due.items() if time.monotonic() >= due]:
                self.restarts[name] += 1
                self.start_part(name)
        if time.monotonic() - self._rotated_at > ROTATE_EVERY_SECONDS:
            self._rotate()

    def _bury_if_ended(self, name: str) -> None:
        part = self._parts[name]
        if not part.has_ended():
            return
        del self._parts[name]
        code = part.bury()
        steady = time.monotonic() - part.started_at > STEADY_SECONDS
        failures = 0 if steady else self._failures.get(name, 0)
        self._failures[name] = failures + 1
        delay = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
        self._due[name] = time.monotonic() + delay
        self._report(name, f"ended ({_describe(code)}), starting again in {delay:g} s")

    def _rotate(self) -> None:
        self._rotated_at = time.monotonic()
        for name in self._names:
            rotate(self._spec(name).log_file)


def _describe(code: int) -> str:
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
