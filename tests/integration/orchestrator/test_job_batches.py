"""Many jobs by one call."""

from typing import Any

import pytest

from orchestrator.routes.job_batches import MAX_JOBS
from repositories.database import AsyncPool
from tests.support.doors import Door
from tests.support.engine import Engine

ECHO = {"workflow_id": "echo_test", "inputs": {"message": "hi"}}


async def batch(door: Door, jobs: Any, status: int = 202) -> dict[str, Any]:
    """Create jobs by one call and return its answer."""
    got, answer = await door.call(
        "POST", "/api/v1/jobs/batch", body={"jobs": jobs}, caller="operator", service="gateway"
    )
    assert got == status, answer
    return dict(answer)


async def test_every_job_of_a_batch_runs_as_one_created_alone(door: Door) -> None:
    engine = Engine(door.context.pool)
    answer = await batch(door, [{**ECHO, "inputs": {"message": str(number)}} for number in range(5)])
    assert (answer["created"], answer["refused"]) == (5, 0)
    for number, created in enumerate(answer["jobs"]):
        assert created["status"] == "RUNNING"
        message = await engine.message(created["job_id"])
        assert message.params == {"message": str(number)}
        await door.claim(message)
        await door.complete(message)
        assert (await door.job(created["job_id"], wait=5))["status"] == "COMPLETED"


async def test_a_job_that_is_not_valid_says_why_and_keeps_no_other_from_being_created(door: Door) -> None:
    wrong = [
        {"workflow_id": "no_such_workflow"},
        {**ECHO, "inputs": {"message": 5}},
        {**ECHO, "color": "red"},
        {"inputs": {}},
        {**ECHO, "priority": 11},
    ]
    answer = await batch(door, [ECHO, *wrong, ECHO])
    assert (answer["created"], answer["refused"]) == (2, 5)
    first, *refused, last = answer["jobs"]
    assert first["job_id"] != last["job_id"]
    assert [(one["error"]["code"], one["error"]["field"]) for one in refused] == [
        ("NOT_FOUND", "jobs.1.workflow_id"),
        ("PARAMETER_INVALID", "jobs.2.inputs.message"),
        ("PARAMETER_INVALID", "jobs.3.color"),
        ("PARAMETER_MISSING", "jobs.4.workflow_id"),
        ("PARAMETER_INVALID", "jobs.5.priority"),
    ]


async def test_a_batch_without_a_valid_job_creates_nothing(door: Door, pool: AsyncPool) -> None:
    answer = await batch(door, [{"workflow_id": "no_such_workflow"}])
    assert (answer["created"], answer["refused"]) == (0, 1)
    assert await Engine(pool).query("SELECT job_id FROM dagapp.dag_jobs") == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("jobs", [[], [ECHO] * (MAX_JOBS + 1), "echo", [5]])
async def test_a_batch_is_one_to_a_thousand_jobs(standing: Door, jobs: Any) -> None:
    assert (await batch(standing, jobs, 422))["field"].startswith("jobs")


async def test_a_full_batch_is_created_at_once(door: Door, pool: AsyncPool) -> None:
    answer = await batch(door, [ECHO] * MAX_JOBS)
    assert answer["created"] == MAX_JOBS
    (count,) = await Engine(pool).query("SELECT count(DISTINCT created_at) AS moments, count(*) FROM dagapp.dag_jobs")
    assert (count["moments"], count["count"]) == (1, MAX_JOBS)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_batch_needs_both_credentials(standing: Door) -> None:
    status, _ = await standing.call("POST", "/api/v1/jobs/batch", body={"jobs": [ECHO]}, caller="operator")
    assert status == 401
