"""A task of a minute under a lease of two seconds and a broker lock of five: killed workers, killed orchestrators."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.cluster import TEST_CONFIG
from cli.stack.layout import QueueKind, Shape
from cli.stack.stack import Stack
from tests.acceptance.platform import Platform
from tests.support.waiting import wait_until

TASK_SECONDS = 60.0
LEASE_SECONDS = 2.0
BROKER_LOCK_SECONDS = 5.0
FINAL = {"COMPLETED", "FAILED", "CANCELLED"}


@pytest.fixture
def platform(open_folder: Path) -> Iterator[Platform]:
    """Yield two orchestrators and two light workers on Service Bus, with hurried leases."""
    orchestrator = {
        "LEASE_SECONDS": str(LEASE_SECONDS),
        "ORCHESTRATOR_HEARTBEAT_SECONDS": "0.5",
        "ORCHESTRATOR_THRESHOLD_SECONDS": "2",
    }
    shape = Shape(
        light=2,
        heavy=0,
        gateway=False,
        serving=False,
        queue=QueueKind.SERVICEBUS,
        broker_lock_seconds=BROKER_LOCK_SECONDS,
        overrides={"orchestrator": orchestrator, "worker": {"WORKER_HEARTBEAT_SECONDS": "0.4"}},
    )
    stack = Stack(open_folder / "stack", ports={}, shape=shape, database_config=TEST_CONFIG)
    stack.start()
    try:
        yield Platform(stack, open_folder / "journal")
    finally:
        stack.stop()


def running_at(platform: Platform, job_id: str, attempt: int) -> str:
    """Return the worker that runs an attempt of the job's task, as soon as one does."""

    def found() -> str | None:
        rows = platform.rows(
            "SELECT w.pid FROM dagapp.dag_attempts AS a JOIN dagapp.dag_workers AS w ON w.worker_id = a.worker_id"
            " WHERE a.job_id = %s AND a.attempt = %s AND a.state = 'leased'",
            job_id,
            attempt,
        )
        names = {platform.stack.pid(name): name for name in platform.stack.shape.worker_names}
        return names.get(rows[0]["pid"]) if rows else None

    return wait_until(found, f"attempt {attempt} runs", 60, every=0.1) or ""


def owner_of(platform: Platform, job_id: str) -> str:
    """Return the orchestrator that a job belongs to, once it belongs to a living one."""

    def found() -> str | None:
        owner = str(platform.value("SELECT owner_id FROM dagapp.dag_jobs WHERE job_id = %s", job_id))
        pids = {str(platform.stack.pid(name)): name for name in platform.stack.shape.orchestrator_names}
        return pids.get(owner.rpartition("-")[0].rpartition("-")[2])

    return wait_until(found, "an owner", 60, every=0.1) or ""


def test_a_long_task_survives_three_workers_and_two_orchestrators_with_one_result(platform: Platform) -> None:
    job_id = platform.create_job("sleep_test", {"seconds": TASK_SECONDS})
    for attempt in range(3):
        worker = running_at(platform, job_id, attempt)
        if attempt < 2:
            platform.stack.kill(owner_of(platform, job_id))
        platform.stack.kill(worker)
    running_at(platform, job_id, 3)
    began = time.monotonic()
    wait_until(lambda: status_of(platform, job_id) in FINAL, "the job has ended", 180, every=0.5)
    assert status_of(platform, job_id) == "COMPLETED"
    assert time.monotonic() - began >= TASK_SECONDS - 10
    states = platform.rows("SELECT attempt, state FROM dagapp.dag_attempts WHERE job_id = %s ORDER BY attempt", job_id)
    assert [row["state"] for row in states] == ["expired", "expired", "expired", "reported"]
    results = platform.rows("SELECT disposition FROM dagapp.dag_task_results WHERE job_id = %s", job_id)
    assert [row["disposition"] for row in results] == ["applied"]


def status_of(platform: Platform, job_id: str) -> str:
    """Return the status of a job."""
    return str(platform.value("SELECT status FROM dagapp.dag_jobs WHERE job_id = %s", job_id))
