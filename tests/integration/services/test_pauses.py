"""Pause switches on real PostgreSQL: what they hold, that they say so, and that nothing stays held for nothing."""

import asyncio
from typing import Any

import pytest

from core.errors import NotFound, ParameterInvalid
from repositories.attempts import AttemptRepository
from tests.support.engine import Engine, HandWorker

QUEUE = "functionapp-tasks"
SWITCHES = ["all", "workflow:echo_test", f"queue:{QUEUE}"]


async def due(engine: Engine) -> list[str]:
    """Return the jobs whose timer is due."""
    rows = await engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE wake_at <= dagapp.clock() ORDER BY created_at")
    return [row["job_id"] for row in rows]


async def node(engine: Engine, job_id: str) -> dict[str, Any]:
    (row,) = await engine.query(
        "SELECT status, waiting_for FROM dagapp.dag_node_states WHERE job_id = %s AND node_id = 'echo_handler'", job_id
    )
    return row


@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_submit_is_accepted_and_waits_until_the_switch_is_lifted(
    engine: Engine, worker: HandWorker, switch: str
) -> None:
    assert (await engine.pause(switch)).changed
    job_id = await engine.create("echo_test")
    assert await engine.messages(job_id) == []
    assert await node(engine, job_id) == {"status": "READY", "waiting_for": {"kind": "paused", "detail": switch}}
    job = await engine.job(job_id)
    assert (job.status, job.wake_at, job.waiting_for) == ("PENDING", None, {"kind": "paused", "detail": [switch]})
    assert (await engine.pause(switch, on=False)).jobs == 1
    assert await due(engine) == [job_id]
    await engine.advance(job_id)
    await worker.run(await engine.message(job_id))
    assert (await engine.job(job_id)).status == "COMPLETED"


@pytest.mark.parametrize("switch", SWITCHES)
async def test_what_waits_in_a_queue_is_parked_by_a_claim_and_sent_again_when_the_switch_is_lifted(
    engine: Engine, worker: HandWorker, switch: str
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await engine.pause(switch)
    assert await due(engine) == [job_id]
    await engine.advance(job_id)
    assert (await node(engine, job_id))["waiting_for"] == {"kind": "paused", "detail": switch}
    assert (await worker.claim(message))[0].outcome == "paused"
    await engine.query("DELETE FROM dagqueue.messages")
    await engine.query("UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock()")
    await engine.advance(job_id)
    assert await engine.messages(job_id) == []
    await engine.pause(switch, on=False)
    await engine.advance(job_id)
    again = await engine.message(job_id)
    assert (again.task_id, again.dispatch_no) == (message.task_id, 2)
    assert (await worker.run(again)).disposition == "applied"


async def test_running_tasks_finish_and_are_recorded_while_everything_is_paused(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("chain_10")
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.pause("all")
    await worker.complete(message)
    assert (await engine.attempt(message.task_id))["state"] == "reported"
    statuses = await engine.statuses(job_id)
    assert sorted(statuses.values()).count("READY") == 1
    await engine.pause("all", on=False)
    await engine.advance(job_id)
    assert len(await engine.messages(job_id)) == 2


async def test_a_switch_of_another_workflow_or_queue_holds_nothing(engine: Engine) -> None:
    await engine.pause("workflow:hello_world")
    await engine.pause("queue:container-tasks")
    assert await engine.messages(await engine.create("echo_test"))


async def test_turning_a_switch_is_idempotent_and_remembers_who_did_it(engine: Engine) -> None:
    assert not (await engine.pause("all", on=False)).changed
    assert [(await engine.pause("all")).changed for _ in range(2)] == [True, False]
    assert [(await engine.pause("all", on=False)).changed for _ in range(2)] == [True, False]
    (switch,) = await engine.pauses.all()
    assert (switch.switch, switch.paused, switch.updated_by) == ("all", False, "op")


async def test_jobs_log_who_set_and_who_lifted_a_switch(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    other = await engine.create("retry_test")
    for switch in ("all", f"queue:{QUEUE}", "queue:container-tasks", "workflow:echo_test"):
        await engine.pause(switch)
    await engine.pause("all", on=False)
    logged = await engine.query(
        "SELECT event_type, event_data FROM dagapp.dag_job_events WHERE job_id = %s AND event_type LIKE 'pause%%'"
        " ORDER BY event_id",
        job_id,
    )
    assert [(row["event_type"], row["event_data"]["switch"]) for row in logged] == [
        ("pause_switch_set", "all"),
        ("pause_switch_set", f"queue:{QUEUE}"),
        ("pause_switch_set", "workflow:echo_test"),
        ("pause_switch_lifted", "all"),
    ]
    assert logged[0]["event_data"] == {"switch": "all", "actor": "op", "reason": "because"}
    assert "workflow:echo_test" not in str(await engine.query(
        "SELECT event_data FROM dagapp.dag_job_events WHERE job_id = %s", other
    ))  # fmt: skip


async def test_who_turned_a_switch_when_and_why_is_kept_with_it_and_in_the_audit(engine: Engine) -> None:
    await engine.pauses.turn(f"queue:{QUEUE}", paused=True, actor="op", reason="disk full")
    await engine.pauses.turn(f"queue:{QUEUE}", paused=True, actor="other", reason="late")
    await engine.pauses.turn("all", paused=True, actor="op", reason=None)
    everything, queue = await engine.pauses.all()
    assert (queue.switch, queue.updated_by, queue.reason) == (f"queue:{QUEUE}", "op", "disk full")
    assert everything.reason is None
    await engine.pauses.turn(f"queue:{QUEUE}", paused=False, actor="other", reason="disk cleaned")
    (_, queue) = await engine.pauses.all()
    assert (queue.paused, queue.updated_by, queue.reason) == (False, "other", "disk cleaned")
    rows = await engine.query(
        "SELECT action, actor, actor_role, reason, before, after FROM dagapp.asset_audit ORDER BY audit_id"
    )
    assert [(row["action"], row["actor"], row["actor_role"], row["reason"]) for row in rows] == [
        ("paused", "op", "operator", "disk full"),
        ("paused", "op", "operator", None),
        ("resumed", "other", "operator", "disk cleaned"),
    ]
    assert rows[0]["before"] == {"switch": f"queue:{QUEUE}", "paused": False}
    assert rows[0]["after"] == {"switch": f"queue:{QUEUE}", "paused": True}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize(("switch", "error"), [
    ("nothing", ParameterInvalid),
    ("workflow:", ParameterInvalid),
    ("all:x", ParameterInvalid),
    ("workflow:nope", NotFound),
    ("queue:nope", NotFound),
])  # fmt: skip
async def test_what_is_no_switch_is_refused(engine: Engine, switch: str, error: type[Exception], on: bool) -> None:
    with pytest.raises(error):
        await engine.pause(switch, on=on)
    assert await engine.pauses.all() == []


async def test_a_switch_of_a_workflow_that_is_gone_can_still_be_lifted(engine: Engine) -> None:
    await engine.query(
        "INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES ('pause:workflow:old', 'true', 'op')"
    )
    assert (await engine.pause("workflow:old", on=False)).changed


async def test_a_job_that_read_the_switch_just_before_it_was_lifted_is_found(engine: Engine) -> None:
    await engine.pause("all")
    job_id = await engine.create("echo_test")
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (job_id,))
        assert (await engine.pause("all", on=False)).jobs == 0
        await holder.rollback()
    assert await due(engine) == []
    assert await engine.pauses.release_held() == 1
    assert await due(engine) == [job_id]
    await engine.advance(job_id)
    assert await engine.pauses.release_held() == 0
    assert await engine.messages(job_id)


async def test_a_task_that_was_parked_just_after_the_resume_is_found(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    async with engine.pool.connection() as conn:
        await AttemptRepository(conn).park([message.task_id])
    assert await engine.pauses.release_held() == 1
    await engine.advance(job_id)
    assert await engine.pauses.release_held() == 0
    assert (await worker.run(await engine.message(job_id))).disposition == "applied"


async def test_what_is_rightly_held_is_left_alone(engine: Engine, worker: HandWorker) -> None:
    by_switch = await engine.create("echo_test")
    by_job = await engine.create("hello_world")
    await engine.order(by_job, "pause")
    await engine.pause("workflow:echo_test")
    await engine.advance(by_switch)
    await worker.claim(*await engine.messages())
    await engine.query("UPDATE dagapp.dag_jobs SET wake_at = NULL")
    assert await engine.pauses.release_held() == 0


async def test_a_job_that_two_switches_hold_goes_on_with_the_second(engine: Engine) -> None:
    await engine.pause("all")
    await engine.pause("workflow:echo_test")
    job_id = await engine.create("echo_test")
    await engine.pause("all", on=False)
    await engine.advance(job_id)
    assert (await node(engine, job_id))["waiting_for"] == {"kind": "paused", "detail": "workflow:echo_test"}
    await engine.pause("workflow:echo_test", on=False)
    await engine.advance(job_id)
    assert await engine.messages(job_id)


async def test_workers_scale_on_what_they_may_take(engine: Engine, worker: HandWorker) -> None:
    jobs = [await engine.create("echo_test") for _ in range(4)]
    await worker.claim(await engine.message(jobs[0]))
    await engine.order(jobs[1], "pause")

    async def counts() -> dict[str, int]:
        async with engine.pool.connection() as conn:
            return {kind: count for kind, (count, _) in (await AttemptRepository(conn).counts(QUEUE)).items()}

    assert await counts() == {"leased": 1, "queued": 2, "held": 1}
    await worker.claim(await engine.message(jobs[1]))
    assert await counts() == {"leased": 1, "queued": 2}
    for switch in SWITCHES:
        await engine.pause(switch)
        assert await counts() == {"leased": 1, "held": 2}
        await engine.pause(switch, on=False)


async def test_many_creates_while_a_switch_is_turned_leave_nobody_behind(engine: Engine) -> None:
    async def create(number: int) -> str:
        return await engine.create("echo_test", {"message": str(number)})

    for _ in range(3):
        await asyncio.gather(engine.pause("all"), *(create(number) for number in range(8)))
        await asyncio.gather(engine.pause("all", on=False), *(create(number) for number in range(8)))
        await engine.pauses.release_held()
        await engine.advance(*await due(engine))
    rows = await engine.query("SELECT count(*) AS n FROM dagapp.dag_attempts WHERE state = 'queued'")
    assert rows[0]["n"] == 48
