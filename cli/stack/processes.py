"""Child processes that a supervisor starts, recognises again after its own death, and ends.

A process is recorded by pid *and* start time, so a pid that another program got later is never touched.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.stack.files import read_json, write_json

POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with a text that no later process of the same pid shares."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """Return the identity of a living process, or None when there is none."""
        started = _start_mark(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def load(cls, stored: object) -> "ProcessId | None":
        """Return a recorded identity, or None when the record is unreadable."""
        if not isinstance(stored, dict):
            return None
        pid, started = stored.get("pid"), stored.get("started")
        return cls(pid, started) if isinstance(pid, int) and isinstance(started, str) else None

    def dump(self) -> dict[str, object]:
        """Return the record of this identity."""
        return {"pid": self.pid, "started": self.started}

    def is_alive(self) -> bool:
        """Return whether this very process still runs (a zombie does not)."""
        return _start_mark(self.pid) == self.started


def _start_mark(pid: int) -> str | None:
    """Return boot id and start tick on Linux, else what `ps` prints; None for no process and for a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return _start_mark_by_ps(pid)
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in {"Z", "X"}:
        return None
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}:{fields[19]}"


def _start_mark_by_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


@dataclass(frozen=True, slots=True)
class PartSpec:
    """How to start one part; `environment` is everything it gets."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    record_file: Path
    working_directory: Path


class Part:
    """One running part: a child in a session of its own, so that a Ctrl-C reaches only the supervisor."""

    def __init__(self, spec: PartSpec, child: subprocess.Popen[bytes]) -> None:
        self.spec = spec
        self._child = child
        self.pid = child.pid
        self.started_at = time.monotonic()

    @classmethod
    def start(cls, spec: PartSpec) -> "Part":
        """Start a part, its output appended to its log file, and record who it is."""
        spec.log_file.parent.mkdir(parents=True, exist_ok=True)
        with spec.log_file.open("ab") as log:
            child = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(spec.environment),
                cwd=spec.working_directory,
                start_new_session=True,
            )
        identity = ProcessId.of(child.pid)
        if identity is not None:
            write_json(spec.record_file, identity.dump())
        return cls(spec, child)

    def has_ended(self) -> bool:
        """Return whether the process is gone; it stays unreaped, so that its pid and group stay ours."""
        if self._child.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def bury(self) -> int:
        """Kill what an ended part left behind in its process group, reap it, and return its exit code."""
        if self._child.returncode is None:
            _signal_group(self.pid, signal.SIGKILL)
        code = self._child.wait()
        self.spec.record_file.unlink(missing_ok=True)
        return code

    def send(self, number: signal.Signals) -> None:
        """Signal the process alone, not its group."""
        if not self.has_ended():
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the part to end; a stopped one is continued so that it can."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Poll a condition until it holds or the time is over; return whether it held."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def end_parts(parts: Sequence[Part], grace_seconds: float) -> None:
    """Terminate parts together, kill those that take too long, and reap all."""
    for part in parts:
        part.terminate()
    wait_until(lambda: all(part.has_ended() for part in parts), grace_seconds)
    for part in parts:
        part.bury()


def end_stale(record_file: Path, grace_seconds: float) -> bool:
    """End a recorded process that an earlier supervisor left behind; return whether there was one.

    A record whose process is gone, or whose pid belongs to somebody else by now, is only removed.
    """
    identity = ProcessId.load(read_json(record_file))
    found = identity is not None and identity.is_alive()
    if identity is not None and found:
        _end_stranger(identity, grace_seconds)
    record_file.unlink(missing_ok=True)
    return found


def _end_stranger(identity: ProcessId, grace_seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGCONT):
        _signal(identity.pid, number)
    if not wait_until(lambda: not identity.is_alive(), grace_seconds):
        _signal(identity.pid, signal.SIGKILL)
        wait_until(lambda: not identity.is_alive(), grace_seconds)
    _signal_group(identity.pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
