"""Orders over HTTP: who may, what is answered, what a refusal looks like."""

from typing import Any

import pytest

from tests.support.doors import Door
from tests.support.engine import Engine, HandWorker
from tests.support.waiting import await_until


async def order(door: Door, path: str, body: Any = None) -> tuple[int, Any]:
    """Order something as the operator, through the gateway."""
    return await door.call("POST", f"/api/v1/{path}", body=body, caller="operator", service="gateway")


async def test_each_order_answers_with_the_state_that_it_produced(door: Door, engine: Engine) -> None:
    job_id = await door.create("echo_test")
    status, body = await order(door, f"jobs/{job_id}/pause", {"reason": "maintenance"})
    assert (status, body["command"], body["state"]) == (200, "pause", "applied")
    assert body["job"]["paused_at"] is not None
    status, body = await order(door, f"jobs/{job_id}/priority", {"priority": "interactive"})
    assert (status, body["job"]["priority"]) == (200, 8)
    status, body = await order(door, f"jobs/{job_id}/resume")
    assert (status, body["job"]["paused_at"]) == (200, None)
    status, body = await order(door, f"jobs/{job_id}/cancel")
    assert (status, body["job"]["status"]) == (200, "CANCELLED")
    events = (await door.get(f"/api/v1/jobs/{job_id}/events"))["events"]
    said = {event["event_type"]: event["event_data"] for event in events}
    assert said["job_paused"] == {"actor": "operator", "reason": "maintenance"}
    assert said["job_priority_changed"]["after"] == 8


async def test_a_cancelled_job_says_by_whom_and_why(door: Door) -> None:
    job_id = await door.create("echo_test")
    assert (await door.job(job_id))["cancelled"] is None
    await order(door, f"jobs/{job_id}/cancel", {"reason": "wrong file"})
    await order(door, f"jobs/{job_id}/retry")
    assert (await door.job(job_id))["cancelled"] is None
    _, answer = await order(door, f"jobs/{job_id}/cancel", {"reason": "still wrong"})
    job = await door.job(job_id)
    assert answer["job"]["cancelled"] == job["cancelled"]
    assert job["cancelled"] == {"by": "operator", "reason": "still wrong", "at": job["completed_at"]}
    nodes = (await door.get(f"/api/v1/jobs/{job_id}/nodes"))["nodes"]
    assert {one["completed_at"] for one in nodes if one["status"] == "CANCELLED"} == {job["completed_at"]}


async def test_a_job_that_has_ended_is_not_paused_any_more(door: Door) -> None:
    job_id = await door.create("echo_test")
    await order(door, f"jobs/{job_id}/pause")
    status, body = await order(door, f"jobs/{job_id}/cancel")
    assert (status, body["job"]["status"], body["job"]["paused_at"]) == (200, "CANCELLED", None)
    assert (await door.job(job_id))["paused_at"] is None


async def test_a_window_is_told_by_its_order_and_by_its_node(door: Door) -> None:
    job_id = await door.create("fan_out_test")
    path = f"jobs/{job_id}/nodes/split"
    assert (await door.get(f"/api/v1/{path}"))["fan_out"]["max_concurrency"] == 512
    status, body = await order(door, f"{path}/window", {"max_concurrency": 2})
    assert (status, body["node"]["node_id"], body["node"]["fan_out"]["max_concurrency"]) == (200, "split", 2)
    assert (await door.get(f"/api/v1/{path}"))["fan_out"]["max_concurrency"] == 2


async def test_the_loser_is_told_the_state_that_won(door: Door) -> None:
    job_id = await door.create("echo_test")
    await order(door, f"jobs/{job_id}/cancel")
    status, problem = await order(door, f"jobs/{job_id}/pause")
    assert (status, problem["code"], problem["value"]) == (409, "JOB_FINAL", "CANCELLED")


async def test_a_waiter_hears_at_once_of_a_cancel(door: Door) -> None:
    job_id = await door.create("echo_test")
    await order(door, f"jobs/{job_id}/cancel")
    assert (await door.job(job_id, wait=30))["status"] == "CANCELLED"


async def test_nodes_are_skipped_and_rerun(door: Door, engine: Engine) -> None:
    job_id = await door.create("echo_test", {"message": "hi"})
    status, body = await order(door, f"jobs/{job_id}/nodes/echo_handler/skip", {"reason": "not today"})
    assert (status, body["state"]) == (200, "applied")
    status, body = await order(door, f"jobs/{job_id}/nodes/echo_handler/rerun", {"params": {"message": "ho"}})
    assert (status, body["job"]["status"], body["job"]["run_no"]) == (200, "RUNNING", 2)
    message = await engine.message(job_id)
    assert message.params == {"message": "ho"}
    await HandWorker(engine).run(message)
    assert (await door.job(job_id, wait=20))["status"] == "COMPLETED"
    status, problem = await order(door, f"jobs/{job_id}/nodes/echo_handler/skip")
    assert (status, problem["code"], problem["value"]) == (409, "JOB_FINAL", "COMPLETED")


async def test_a_retried_job_is_taken_by_an_instance_and_its_timers_run(door: Door, engine: Engine) -> None:
    job_id = await door.create("echo_test")
    await order(door, f"jobs/{job_id}/cancel")
    status, body = await order(door, f"jobs/{job_id}/retry")
    assert (status, body["job"]["status"]) == (200, "RUNNING")
    await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock() WHERE state = 'queued'")
    await engine.query("UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock()")

    async def sent_again() -> bool:
        return (await engine.message(job_id)).dispatch_no == 2

    await await_until(sent_again, "the new owner's loop sends the task again")
    assert (await engine.job(job_id)).owner_id == door.context.owner_id


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("jobs/nope/cancel", {}, 404, "job_id"),
        ("jobs/JOB/nodes/nope/skip", {}, 404, "node_id"),
        ("jobs/JOB/nodes/start/window", {"max_concurrency": 3}, 422, "node_id"),
        ("jobs/JOB/nodes/echo_handler/window", {}, 422, "max_concurrency"),
        ("jobs/JOB/nodes/start/gate", {"decision": "approved"}, 404, "node_id"),
        ("jobs/JOB/nodes/start/gate", {"decision": "maybe"}, 422, "decision"),
        ("jobs/JOB/priority", {"priority": 11}, 422, "priority"),
        ("jobs/JOB/cancel", {"surprise": 1}, 422, "surprise"),
        ("jobs/JOB/cancel", {"reason": 5}, 422, "reason"),
        ("jobs/JOB/cancel", {"reason": "a\u0000b"}, 422, "reason"),
        ("jobs/JOB/cancel", {"reason": "a\ud800b"}, 422, "reason"),
        ("jobs/JOB/priority", {"priority": "\udfff"}, 422, "priority"),
        ("jobs/JOB/priority", {"priority": 3, "\ud800": 1}, 422, "a key of the body"),
        ("jobs/JOB/priority", {"priority": {"\ud800": [1]}}, 422, "a key of priority"),
        ("jobs/JOB/pause", {"unknown": ["\ud800"]}, 422, "unknown[0]"),
        ("jobs/JOB/pause", {"unknown": "a\u0000b"}, 422, "unknown"),
        ("jobs/JOB/nodes/echo_handler/gate", {"decision": "\ud800"}, 422, "decision"),
        ("jobs/JOB/nodes/echo_handler/rerun", {"params": {"message": "\ud800"}}, 422, "params.message"),
        ("commands/cancel", {"reason": "\ud800"}, 422, "reason"),
        ("jobs/JOB/nodes/echo_handler/rerun", {"params": {"message": "a\u0000b"}}, 422, "params.message"),
        ("jobs/JOB/cancel", [], 422, None),
        ("commands/cancel", {}, 422, "filter"),
        ("commands/cancel", {"filter": {"workflow_id": "a\u0000"}}, 422, "filter.workflow_id"),
        ("commands/explode", {"filter": {"workflow_id": "x"}}, 404, "kind"),
        ("commands/cancel", {"filter": {"surprise": "x"}}, 422, "filter.surprise"),
        ("commands/cancel", {"filter": {"workflow_id": "x"}, "limit": 0}, 422, "limit"),
        ("commands/cancel", {"filter": {"workflow_id": "nope"}}, 404, "filter.workflow_id"),
        ("commands/retry", {"filter": {"workflow_id": "nope"}, "dry_run": True}, 404, "filter.workflow_id"),
    ],
)
async def test_what_does_not_fit_is_refused_by_name(
    standing: Door, path: str, body: Any, status: int, field: str | None
) -> None:
    job_id = await standing.create("echo_test")
    code, problem = await order(standing, path.replace("JOB", job_id), body)
    assert (code, problem.get("field")) == (status, field), problem
    assert (await standing.job(job_id))["status"] == "RUNNING"


async def test_orders_by_filter_list_first_and_then_have_an_outcome_per_job(door: Door) -> None:
    jobs = [await door.create("echo_test") for _ in range(3)]
    wanted = {"filter": {"workflow_id": "echo_test", "status": "RUNNING"}, "limit": 2, "reason": "clean up"}
    status, body = await order(door, "commands/cancel", {**wanted, "dry_run": True})
    assert (status, body["dry_run"], body["more"]) == (200, True, True)
    assert [(job["job_id"], job["outcome"]) for job in body["jobs"]] == [(one, "would_apply") for one in jobs[:2]]
    status, body = await order(door, "commands/cancel", wanted)
    assert [(job["job_id"], job["outcome"], job["status"]) for job in body["jobs"]] == [
        (one, "applied", "CANCELLED") for one in jobs[:2]
    ]
    assert (await door.job(jobs[0]))["cancelled"]["reason"] == "clean up"
    assert (await door.job(jobs[2]))["status"] == "RUNNING"


async def test_a_dry_run_foresees_that_a_job_has_no_such_node(door: Door) -> None:
    job_id = await door.create("echo_test")
    for path, node in ((f"jobs/{job_id}/nodes/nope/rerun", {}), (f"jobs/{job_id}/rerun", {"node_id": "nope"})):
        status, problem = await order(door, path, {"dry_run": True, **node})
        assert (status, problem["field"], problem["value"]) == (404, "node_id", "nope")
    wanted = {"filter": {"status": "RUNNING"}, "args": {"node_id": "nope"}, "dry_run": True}
    status, body = await order(door, "commands/rerun", wanted)
    assert (status, [(job["outcome"], job["code"]) for job in body["jobs"]]) == (200, [("refused", "NOT_FOUND")])


async def test_a_dry_run_for_one_job_changes_nothing(door: Door) -> None:
    job_id = await door.create("echo_test")
    status, body = await order(door, f"jobs/{job_id}/nodes/echo_handler/rerun", {"dry_run": True})
    assert (status, body["state"], body["job"]["run_no"]) == (200, "would_apply", 1)
    status, problem = await order(door, f"jobs/{job_id}/cancel", {"dry_run": "yes"})
    assert (status, problem["field"]) == (422, "dry_run")
    assert (await door.job(job_id))["status"] == "RUNNING"
