"""Sub-workflows over a real database: what is committed together, and who hears of it."""

from typing import Any

import pytest
from psycopg import AsyncConnection

from core.dag.child_jobs import CHILD_QUEUE, child_job_id
from core.ids import task_id
from core.models.engine import Job
from core.wire import ClaimOutcome, TaskMessage, TaskResult, TaskStatus
from repositories.commands import CommandRepository
from repositories.database import AsyncPool
from services.definitions import Definitions
from services.work import pipelined
from tests.integration.services.test_isolation import break_definition
from tests.support.engine import Engine, HandWorker, workflows_of

TOP = """
workflow_id: top
version: 1
inputs: {message: {type: string, required: true}}
outputs: {said: "{{ nodes.call.output.said }}"}
nodes:
  start: {type: start, next: call}
  call: {type: workflow, workflow_id: mid, inputs: {message: "{{ inputs.message }}!"}, next: end}
  end: {type: end}
"""
MID = """
workflow_id: mid
version: 1
inputs: {message: {type: string, required: true}}
outputs: {said: "{{ nodes.call.output.said }}"}
nodes:
  start: {type: start, next: call}
  call: {type: workflow, workflow_id: leaf, inputs: {message: "{{ inputs.message }}?"}, next: end}
  end: {type: end}
"""
LEAF = """
workflow_id: leaf
version: 1
inputs: {message: {type: string, required: true}}
outputs: {said: "{{ nodes.say.output.echoed_params.message }}"}
nodes:
  start: {type: start, next: say}
  say: {handler: echo, params: {message: "{{ inputs.message }}"}, retry: {max_retries: 0}, next: end}
  end: {type: end}
"""
EMPTY = """
workflow_id: leaf
version: 1
inputs: {message: {type: string, required: true}}
outputs: {said: "{{ inputs.message }}"}
nodes: {start: {type: start, next: end}, end: {type: end}}
"""


def engine_of(pool: AsyncPool, leaf: str = LEAF) -> Engine:
    return Engine(pool, workflows_of(TOP, MID, leaf))


def family(top: str) -> tuple[str, str, str]:
    """Return the ids of the three jobs."""
    mid = child_job_id(task_id(top, "call", 0))
    return top, mid, child_job_id(task_id(mid, "call", 0))


async def jobs_of(engine: Engine, ids: tuple[str, ...]) -> list[Job]:
    return [await engine.job(job_id) for job_id in ids]


async def settle(engine: Engine, ids: tuple[str, ...]) -> None:
    """Advance from the innermost job outwards, as the wake-ups would."""
    for job_id in reversed(ids):
        await engine.advance(job_id)


async def started(engine: Engine) -> tuple[tuple[str, str, str], TaskMessage]:
    ids = family(await engine.create("top", {"message": "hi"}, priority="interactive", correlation_id="req"))
    return ids, await engine.message(ids[2])


async def test_three_generations_begin_in_one_transaction_and_end_one_after_the_other(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    worker = HandWorker(engine)
    ids, message = await started(engine)
    top, mid, leaf = await jobs_of(engine, ids)
    assert [job.status for job in (top, mid, leaf)] == ["RUNNING"] * 3
    assert [job.depth for job in (top, mid, leaf)] == [0, 1, 2]
    assert {(job.priority, job.owner_id, job.correlation_id) for job in (mid, leaf)} == {(8, "owner-1", "req")}
    assert message.params == {"message": "hi!?"}
    assert message.priority == 8
    await worker.run(message)
    assert (await engine.job(ids[2])).status == "COMPLETED"
    assert (await engine.job(ids[1])).status == "RUNNING"
    await settle(engine, ids)
    assert [job.outputs for job in await jobs_of(engine, ids)] == [{"said": "hi!?"}] * 3
    assert [job.job_id for job in engine.ended] == list(reversed(ids))
    attempts = await engine.query("SELECT state FROM dagapp.dag_attempts WHERE queue = %s", CHILD_QUEUE)
    assert [row["state"] for row in attempts] == ["reported"] * 2


async def test_the_node_says_which_job_it_waits_for(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    ids, _ = await started(engine)
    (node,) = await engine.query(
        "SELECT status, waiting_for FROM dagapp.dag_node_states WHERE job_id = %s AND node_id = 'call'", ids[0]
    )
    assert node["status"] == "WAITING"
    assert node["waiting_for"] == {
        "kind": "child",
        "detail": {"job_id": ids[1], "workflow_id": "mid", "version": 1},
    }


async def test_a_failure_deep_down_fails_all_with_its_code(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    worker = HandWorker(engine)
    ids, message = await started(engine)
    await worker.claim(message)
    error = {"code": "CRS_MISSING", "message": "no CRS"}
    failed = TaskResult.model_validate(
        {"task_id": message.task_id, "token": message.token, "status": TaskStatus.FAILED, "error": error}
    )
    await worker.report(failed)
    await settle(engine, ids)
    top, mid, _ = await jobs_of(engine, ids)
    assert top.error is not None
    assert mid.error is not None
    assert (top.status, top.error["code"], top.error["node_id"]) == ("FAILED", "CRS_MISSING", "call")
    assert top.error["message"] == "mid.call: leaf.say: no CRS"


async def test_a_child_that_would_end_in_the_transaction_that_creates_it_still_reports(pool: AsyncPool) -> None:
    engine = engine_of(pool, EMPTY)
    ids = family(await engine.create("top", {"message": "hi"}))
    assert (await engine.job(ids[2])).status == "PENDING"
    due = await engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE wake_at <= dagapp.clock()")
    assert [row["job_id"] for row in due] == [ids[2]]
    await settle(engine, ids)
    assert [job.status for job in await jobs_of(engine, ids)] == ["COMPLETED"] * 3
    assert (await engine.job(ids[0])).outputs == {"said": "hi!?"}


async def test_the_end_of_a_child_wakes_the_owner_of_its_parent_and_locks_nothing_of_it(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    worker = HandWorker(engine)
    ids, message = await started(engine)
    await worker.claim(message)
    async with pool.connection() as held:
        await held.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (ids[1],))
        await held.execute("SELECT FROM dagapp.dag_attempts WHERE job_id = %s FOR UPDATE", (ids[1],))
        async with await AsyncConnection.connect(pool.conninfo, autocommit=True) as listener:
            await listener.execute('LISTEN "dag_owner_owner-1"')
            await worker.complete(message)
            assert (await engine.job(ids[2])).status == "COMPLETED"
            heard = [one.channel async for one in listener.notifies(timeout=5, stop_after=1)]
        await held.rollback()
    assert heard == ["dag_owner_owner-1"]
    await settle(engine, ids)
    assert (await engine.job(ids[0])).status == "COMPLETED"


async def test_nobody_can_claim_or_report_the_attempt_that_a_child_works_for(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    worker = HandWorker(engine)
    ids, message = await started(engine)
    forged = message.model_copy(update={"task_id": task_id(ids[0], "call", 0)})
    (claimed,) = await worker.claim(forged)
    (reported,) = await worker.complete(forged)
    assert (claimed.outcome, reported.disposition) == (ClaimOutcome.UNKNOWN, "rejected")
    assert (await engine.attempt(forged.task_id))["state"] == "leased"


async def test_time_does_nothing_to_the_attempt_that_a_child_works_for(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    ids, _ = await started(engine)
    await engine.query("UPDATE dagapp.dag_attempts SET queued_at = queued_at - interval '1 year'")
    await engine.query("UPDATE dagapp.dag_jobs SET created_at = created_at - interval '1 year'")
    await settle(engine, ids)
    assert [job.status for job in await jobs_of(engine, ids)] == ["RUNNING"] * 3


async def commands(engine: Engine, job_id: str) -> list[dict[str, Any]]:
    return await engine.query(
        "SELECT kind, actor, reason FROM dagapp.dag_commands WHERE job_id = %s AND processed_at IS NULL", job_id
    )


async def test_a_deadline_of_the_parent_cancels_the_child(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    ids, _ = await started(engine)
    await engine.query("UPDATE dagapp.dag_jobs SET deadline_at = dagapp.clock() WHERE job_id = %s", ids[0])
    await engine.advance(ids[0])
    assert (await engine.job(ids[0])).status == "FAILED"
    assert await commands(engine, ids[1]) == [{"kind": "cancel", "actor": "engine", "reason": "job_deadline"}]
    assert await commands(engine, ids[2]) == []


async def test_what_another_instance_created_can_be_advanced_without_having_its_files(pool: AsyncPool) -> None:
    engine = engine_of(pool, EMPTY)
    ids = family(await engine.create("top", {"message": "hi"}))
    other = Engine(pool, workflows_of(LEAF), owner_id="owner-2")
    await settle(other, ids)
    assert [job.status for job in await jobs_of(engine, ids)] == ["COMPLETED"] * 3


async def test_definitions_of_children_are_read_down_to_the_last_one(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    ids, _ = await started(engine)
    fresh = Definitions()
    async with pool.connection() as conn:
        await fresh.fetch(conn, [(await engine.job(ids[0])).definition_hash])
    assert sorted(one.workflow_id for one in fresh.known.values()) == ["leaf", "mid", "top"]


@pytest.mark.parametrize("owner", ["owner-1", None])
async def test_a_child_belongs_to_the_owner_of_its_parent(pool: AsyncPool, owner: str | None) -> None:
    engine = engine_of(pool)
    engine.owner_id = owner
    ids, _ = await started(engine)
    assert {job.owner_id for job in await jobs_of(engine, ids)} == {owner}


async def order(engine: Engine, job_id: str, kind: str, **args: Any) -> None:
    async with pipelined(engine.pool) as conn:
        await CommandRepository(conn).put(job_id, kind, args, "ann", None)
    await engine.advance(job_id)


async def test_a_cancel_of_the_parent_goes_down_to_the_last_child(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    worker = HandWorker(engine)
    ids, message = await started(engine)
    await worker.claim(message)
    await order(engine, ids[0], "cancel")
    for job_id in ids[1:]:
        await engine.advance(job_id)
    assert [job.status for job in await jobs_of(engine, ids)] == ["CANCELLED"] * 3
    assert (await engine.attempt(message.task_id))["state"] == "revoked"
    late = await worker.complete(message)
    assert late[0].disposition == "superseded"
    rows = await engine.query(
        "SELECT job_id, disposition FROM dagapp.dag_task_results WHERE job_id = ANY(%s)", list(ids[:2])
    )
    assert len(rows) == 2
    await settle(engine, ids)
    rows = await engine.query("SELECT DISTINCT disposition FROM dagapp.dag_task_results")
    assert [row["disposition"] for row in rows] == ["superseded"]
    assert [job.status for job in await jobs_of(engine, ids)] == ["CANCELLED"] * 3


async def test_pause_resume_and_priority_go_down(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    ids, _ = await started(engine)

    async def all_ordered(kind: str, **args: Any) -> list[Job]:
        await order(engine, ids[0], kind, **args)
        for job_id in ids[1:]:
            await engine.advance(job_id)
        return await jobs_of(engine, ids)

    assert all(job.paused_at for job in await all_ordered("pause"))
    assert not any(job.paused_at for job in await all_ordered("resume"))
    assert [job.priority for job in await all_ordered("priority", priority="backfill")] == [1, 1, 1]
    assert (await engine.message(ids[2])).priority == 1


async def test_a_parent_that_cannot_be_evaluated_any_more_leaves_no_child_behind(pool: AsyncPool) -> None:
    engine = engine_of(pool)
    ids, _ = await started(engine)
    await engine.query("UPDATE dagapp.dag_jobs SET evaluation_failures = 4 WHERE job_id = %s", ids[0])
    await break_definition(engine, ids[0])
    await engine.advance(ids[0])
    assert (await engine.job(ids[0])).status == "FAILED"
    assert [one["kind"] for one in await commands(engine, ids[1])] == ["cancel"]


@pytest.mark.parametrize("switch", ["pause:all", "pause:workflow:mid", "pause:queue:functionapp-tasks"])
async def test_a_pause_switch_holds_what_is_created_under_it(pool: AsyncPool, switch: str) -> None:
    engine = engine_of(pool)
    await engine.query("INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES (%s, 'true', 'test')", switch)
    top = await engine.create("top", {"message": "hi"})
    assert await engine.messages() == []
    await engine.query("DELETE FROM dagapp.dag_settings")
    for job_id in family(top):
        await engine.advance(job_id)
    assert [message.params for message in await engine.messages()] == [{"message": "hi!?"}]
