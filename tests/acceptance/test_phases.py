"""Workers that are killed or told to leave between two phases: no phase runs again once its checkpoint was stored."""

import random
import signal
from collections import Counter
from datetime import timedelta

import pytest

from tests.acceptance.platform import Json, Platform
from tests.support.waiting import wait_until

PHASES = 14
SECONDS = 0.6


def phases_run(platform: Platform, job_id: str) -> list[tuple[int, int]]:
    """Return (attempt, phase) of every phase that was finished, in order, as the journal has it."""
    lines = platform.journal.read_text().splitlines()
    words = [line.split() for line in lines if line.startswith(f"{job_id}_work_") and " phase " in line]
    return [(int(task.rpartition("_")[2]), int(number)) for task, _, number in words]


def stored(platform: Platform, job_id: str) -> list[tuple[int, int]]:
    """Return (attempt, phase) of every checkpoint that was stored, in order."""
    rows = platform.rows(
        "SELECT task_id, checkpoint_name FROM dagapp.dag_job_events"
        " WHERE job_id = %s AND event_type = 'checkpoint_saved' ORDER BY event_id",
        job_id,
    )
    return [
        (int(row["task_id"].rpartition("_")[2]), int(row["checkpoint_name"].removeprefix("phase_"))) for row in rows
    ]


def node(platform: Platform, job_id: str) -> Json:
    """Return the node that runs the phases."""
    (row,) = platform.rows("SELECT * FROM dagapp.dag_node_states WHERE job_id = %s AND node_id = 'work'", job_id)
    return row


def holder(platform: Platform, job_id: str) -> str | None:
    """Return the part that holds the lease of the job's task right now."""
    found = platform.rows(
        "SELECT w.pid FROM dagapp.dag_attempts AS a JOIN dagapp.dag_workers AS w ON w.worker_id = a.worker_id"
        " WHERE a.job_id = %s AND a.state = 'leased'",
        job_id,
    )
    names = {platform.stack.pid(name): name for name in platform.stack.shape.worker_names}
    return names.get(found[0]["pid"]) if found else None


def end_worker_in(platform: Platform, job_id: str, phase: int, number: signal.Signals) -> None:
    """Send a signal to the worker of a job as soon as a phase is finished, and wait for its end.

    Another goes on with the job; that this one is back may take longer than all the phases on a busy machine.
    """

    def reached() -> str | None:
        done = [run for _, run in phases_run(platform, job_id)]
        return holder(platform, job_id) if done and max(done) >= phase else None

    name = wait_until(reached, f"phase {phase} of {job_id} finished", 120, every=0.02) or ""
    pid = platform.stack.pid(name)
    platform.stack.kill(name, number)
    wait_until(lambda: platform.stack.pid(name) != pid, f"{name} ended", 30, every=0.02)


def finished(platform: Platform, job_id: str) -> Json:
    """Return the job once it has ended."""

    def ended() -> Json | None:
        (job,) = platform.rows("SELECT * FROM dagapp.dag_jobs WHERE job_id = %s", job_id)
        return job if job["status"] not in {"PENDING", "RUNNING"} else None

    return wait_until(ended, f"job {job_id} ended", 120, every=0.2) or {}


def check_phases(platform: Platform, job_id: str) -> None:
    """Check that each attempt began right behind what had been stored, and that nothing stored ran again."""
    run, kept = phases_run(platform, job_id), stored(platform, job_id)
    assert {phase for _, phase in run} == set(range(PHASES))
    for attempt in sorted({attempt for attempt, _ in run}):
        phases = [phase for number, phase in run if number == attempt]
        before = [phase for number, phase in kept if number < attempt]
        assert phases == list(range(max(before, default=-1) + 1, phases[-1] + 1)), (run, kept)


@pytest.mark.parametrize("seed", [1, 2])
def test_phases_survive_workers_that_are_killed(platform: Platform, seed: int) -> None:
    chosen = sorted(random.Random(seed).sample(range(PHASES - 2), 2))
    job_id = platform.create_job("multi_phase", {"phases": PHASES, "seconds_per_phase": SECONDS})
    for phase in chosen:
        end_worker_in(platform, job_id, phase, signal.SIGKILL)
    job = finished(platform, job_id)
    platform.stack.wait_ready(60)
    assert (job["status"], job["error"]) == ("COMPLETED", None)
    check_phases(platform, job_id)
    assert (node(platform, job_id)["losses_used"], node(platform, job_id)["retries_used"]) == (2, 0)
    twice = [phase for phase, count in Counter(phase for _, phase in phases_run(platform, job_id)).items() if count > 1]
    assert len(twice) <= len(chosen), "more than the phase that was not acknowledged yet ran again"


def test_phases_survive_workers_that_are_told_to_leave_at_once_and_for_free(platform: Platform) -> None:
    job_id = platform.create_job("multi_phase", {"phases": PHASES, "seconds_per_phase": SECONDS})
    for phase in (2, 7):
        end_worker_in(platform, job_id, phase, signal.SIGTERM)
    job = finished(platform, job_id)
    platform.stack.wait_ready(60)
    assert (job["status"], job["error"]) == ("COMPLETED", None)
    assert [phase for _, phase in phases_run(platform, job_id)] == list(range(PHASES))
    check_phases(platform, job_id)
    row = node(platform, job_id)
    assert (row["losses_used"], row["retries_used"], row["attempt"]) == (0, 0, 3)
    assert (
        job["outputs"]["resumed_from"] == max(phase for attempt, phase in stored(platform, job_id) if attempt < 2) + 1
    )
    for released, again in released_and_sent(platform, job_id):
        assert again - released < timedelta(seconds=1)


def released_and_sent(platform: Platform, job_id: str) -> list[tuple[object, object]]:
    """Return when each released attempt ended, and when the next one was sent."""
    rows = platform.rows(
        "SELECT a.state, a.ended_at, n.queued_at FROM dagapp.dag_attempts AS a JOIN dagapp.dag_attempts AS n"
        " ON n.job_id = a.job_id AND n.attempt = a.attempt + 1 WHERE a.job_id = %s ORDER BY a.attempt",
        job_id,
    )
    assert [row["state"] for row in rows] == ["released", "released"]
    return [(row["ended_at"], row["queued_at"]) for row in rows]
