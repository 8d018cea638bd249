"""500 mixed jobs while orchestrators and workers are killed and stopped: nothing is lost, nothing is done twice."""

import random
import signal
import threading
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.acceptance.conftest import THRESHOLD_SECONDS
from tests.acceptance.platform import Platform
from tests.acceptance.verdicts import check_applied_once
from tests.support.waiting import wait_until

JOBS = 500
SUBMITTERS = 8
CALL_TIMEOUT_SECONDS = 5.0
SLACK_SECONDS = 2.0
"""The safety poll comes once a second."""
STOPPED_SECONDS = THRESHOLD_SECONDS + 2.5
Json = dict[str, Any]


def kinds(number: int) -> tuple[str, Json]:
    """Return workflow and inputs of one of the mixed jobs."""
    if number % 5 == 0:
        return "sleep_test", {"seconds": 1.0 + number % 4}
    if number % 5 in {1, 2}:
        return "retry_test", {"failure_rate": 0.2, "message": f"m{number}"}
    return "echo_test", {"message": f"m{number}"}


@dataclass
class Load:
    """Submits the jobs from several threads; a submit without an answer is sent again, as a client would."""

    platform: Platform
    answered: list[str] = field(default_factory=list)
    second_half: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def submit(self, number: int) -> None:
        """Create one job, however often it takes."""
        workflow_id, inputs = kinds(number)

        def created() -> str | None:
            try:
                return self.platform.create_job(workflow_id, inputs, CALL_TIMEOUT_SECONDS)
            except (urllib.error.URLError, OSError, AssertionError):
                return None

        self.answered.append(wait_until(created, f"job {number} accepted", 60, every=0.2) or "")

    def run(self) -> None:
        """Create every job, the second half once it is asked for: no stop may meet an idle platform."""
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self.submit, range(JOBS // 2)))
            self.second_half.wait()
            list(pool.map(self.submit, range(JOBS // 2, JOBS)))
        self.done.set()


@dataclass(frozen=True)
class Owner:
    """An orchestrator's part with the owner id of its present boot."""

    part: str
    owner_id: str


def owner_of(platform: Platform, part: str) -> Owner:
    """Return which owner a part is now."""
    pid = platform.stack.pid(part)
    query = "SELECT owner_id FROM dagapp.dag_orchestrators WHERE pid = %s ORDER BY started_at DESC LIMIT 1"
    return Owner(part, platform.rows(query, pid)[0]["owner_id"])


@dataclass(frozen=True, slots=True)
class Silence:
    """A silent owner beside whoever may take over, in seconds of the database's clock."""

    now: float
    owner_beat: float
    other_beat: float
    other_start: float
    jobs: int


def silence_of(platform: Platform, owner: Owner) -> Silence:
    """Return where a takeover stands."""
    (row,) = platform.rows(
        "SELECT extract(epoch FROM dagapp.clock())::float8 AS now,"
        " (extract(epoch FROM min(o.heartbeat_at) FILTER (WHERE o.owner_id = %(owner)s)))::float8 AS owner_beat,"
        " (extract(epoch FROM max(o.heartbeat_at) FILTER (WHERE o.owner_id <> %(owner)s)))::float8 AS other_beat,"
        " (SELECT extract(epoch FROM s.started_at) FROM dagapp.dag_orchestrators AS s"
        "  WHERE s.owner_id <> %(owner)s ORDER BY s.heartbeat_at DESC LIMIT 1)::float8 AS other_start,"
        " (SELECT count(*) FROM dagapp.dag_jobs"
        "  WHERE owner_id = %(owner)s AND status IN ('PENDING', 'RUNNING')) AS jobs"
        " FROM dagapp.dag_orchestrators AS o",
        owner=owner.owner_id,
    )
    return Silence(**row)


def jobs_of(platform: Platform, owner: Owner) -> int:
    """Return how many unfinished jobs an owner has."""
    query = "SELECT count(*) FROM dagapp.dag_jobs WHERE owner_id = %s AND status IN ('PENDING', 'RUNNING')"
    return int(platform.value(query, owner.owner_id))


def wait_for_takeover(platform: Platform, owner: Owner, how: str) -> None:
    """Return once a silent owner has no jobs any more; that must be soon after others may take them.

    They may a threshold after the owner's last sign of life, after their own start, and after any long gap in their own
    signs of life. A busy machine delays those and the takeover alike.
    """
    heard: list[float] = []

    def taken_over() -> Silence | None:
        seen = silence_of(platform, owner)
        heard.append(seen.other_beat)
        return seen if seen.jobs == 0 else None

    what = f"the jobs of {owner.part}, which was {how}, taken over"
    seen = wait_until(taken_over, what, 60, every=0.1)
    assert seen is not None
    gaps = [(later - earlier, later) for earlier, later in pairwise(heard)]
    resumed = [later for gap, later in gaps if gap > THRESHOLD_SECONDS / 2]
    allowed = max(seen.owner_beat, seen.other_start, *resumed) + THRESHOLD_SECONDS
    slack = SLACK_SECONDS + max((gap for gap, _ in gaps), default=0.0)
    assert seen.now - allowed < slack, f"{what} only {seen.now - allowed:.1f} s after others were allowed to"


def busy_owner(platform: Platform, parts: list[str]) -> Owner:
    """Return one of the orchestrators once it owns jobs that are not finished."""

    def found() -> Owner | None:
        owners = [owner_of(platform, part) for part in parts]
        return next((owner for owner in owners if jobs_of(platform, owner) > 0), None)

    return wait_until(found, "an orchestrator with jobs", 30) or Owner("", "")


def test_five_hundred_jobs_survive_kills_and_stops(platform: Platform) -> None:
    chance = random.Random(20)
    before = platform.value("SELECT coalesce(max(event_id), 0) FROM dagapp.dag_job_events")
    orchestrators = list(platform.stack.shape.orchestrator_names)
    workers = [name for name in platform.stack.shape.worker_names if "light" in name]
    for name in orchestrators:
        wait_until(lambda name=name: platform.stack.is_ready(name), f"{name} ready", 30)  # type: ignore[misc]
    load = Load(platform)
    submitting = threading.Thread(target=load.run, daemon=True)
    submitting.start()

    chance.shuffle(orchestrators)
    killed = busy_owner(platform, orchestrators)
    platform.stack.kill(killed.part)
    platform.stack.kill(chance.choice(workers))
    wait_for_takeover(platform, killed, "killed")
    platform.stack.wait_ready(60)

    load.second_half.set()
    stopped = busy_owner(platform, [name for name in orchestrators if name != killed.part])
    frozen = chance.choice(workers)
    for name in (stopped.part, frozen):
        platform.stack.kill(name, signal.SIGSTOP)
    until = time.monotonic() + STOPPED_SECONDS
    try:
        wait_for_takeover(platform, stopped, "stopped")
        wait_until(lambda: time.monotonic() > until, "the stop to last beyond the threshold", STOPPED_SECONDS + 1)
    finally:
        for name in (stopped.part, frozen):
            platform.stack.kill(name, signal.SIGCONT)

    wait_until(load.done.is_set, "every job accepted", 120)
    submitting.join()
    check_all_ended(platform, load, before)
    check_applied_once(platform, before)


def check_all_ended(platform: Platform, load: Load, before: int) -> None:
    """Check that every job, also one whose submit got no answer, came to its end, and those that must did complete."""
    mine = "job_id IN (SELECT job_id FROM dagapp.dag_job_events WHERE event_id > %s)"
    unfinished = f"SELECT count(*) FROM dagapp.dag_jobs WHERE status IN ('PENDING', 'RUNNING') AND {mine}"
    wait_until(lambda: platform.value(unfinished, before) == 0, "every job ended", 120, every=0.5)
    jobs = platform.rows(f"SELECT job_id, workflow_id, status, error FROM dagapp.dag_jobs WHERE {mine}", before)
    assert set(load.answered) <= {job["job_id"] for job in jobs}
    assert len(set(load.answered)) == JOBS
    failed = [job for job in jobs if job["status"] != "COMPLETED"]
    assert not [job for job in failed if job["workflow_id"] != "retry_test"], failed[:3]
    assert len(failed) <= 3, failed
    left = "SELECT count(*) FROM dagqueue.messages"
    wait_until(lambda: platform.value(left) == 0, "the messages of the dead received again and settled", 90, every=0.5)
