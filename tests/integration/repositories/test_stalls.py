"""Jobs that nothing will ever move are named, and no others."""

import pytest
from psycopg import AsyncConnection

from repositories.database import AsyncPool
from repositories.stalls import stalled
from repositories.verification import missing
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, workflows_of
from tests.support.gaps.scenes import SOURCES

SET_ASIDE = "UPDATE dagapp.dag_task_results SET processed = true, disposition = 'superseded' WHERE job_id = %s"


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    """Return an engine with jobs of all kinds."""
    return Engine(pool, workflows_of(*SOURCES))


async def details(engine: Engine) -> list[tuple[str, str]]:
    async with engine.pool.connection() as conn:
        return [(one.job_id, one.detail) for one in await stalled(conn)]


async def put_in_the_inbox(engine: Engine, job_id: str) -> str:
    """Let a result come while somebody holds its job, and return its task."""
    worker, message = HandWorker(engine), (await engine.messages(job_id))[0]
    await worker.claim(message)
    async with engine.pool.connection() as conn:
        await conn.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (job_id,))
        await worker.complete(message)
    return message.task_id


async def test_a_task_whose_result_was_set_aside_is_named_and_others_are_not(
    engine: Engine, database: Database
) -> None:
    order = await engine.jobs.order(workflow_id="fan", inputs={})
    async with engine.pool.connection() as conn:
        (fan,) = [job.job_id for job in await engine.jobs.create_many(conn, [order])]
    task, held = await engine.create("task"), await engine.create("task")
    await engine.order(held, "pause")
    stuck = [await put_in_the_inbox(engine, job_id) for job_id in (fan, task)]
    assert await details(engine) == []
    for job_id in (fan, task):
        await engine.query(SET_ASIDE, job_id)
    found = dict(await details(engine))
    assert found.keys() == {fan, task}
    assert f"many__0 is DISPATCHED, its attempt {stuck[0]} is reported" in found[fan]
    assert f"one is RUNNING, its attempt {stuck[1]} is reported" in found[task]
    async with await AsyncConnection.connect(database.admin, autocommit=True) as conn:
        named = await missing(conn, engine.blobs)
    assert {one.name for one in named if one.kind == "job"} == {fan, task}


async def test_a_node_whose_child_job_ended_unheard_is_named(engine: Engine) -> None:
    parent = await engine.create("sub")
    child = (await engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE parent_task_id IS NOT NULL"))[0]["job_id"]
    await HandWorker(engine).run((await engine.messages(child))[0], output={})
    assert await details(engine) == []
    await engine.query(SET_ASIDE, parent)
    assert await details(engine) == [
        (parent, "call waits for a child job that is over, no result of it is in the inbox")
    ]


OUTER = """
workflow_id: outer
version: 1
concurrency: {key: "global:a", limit: 1}
nodes: {start: {type: start, next: call}, call: {type: workflow, workflow_id: inner, next: end}, end: {type: end}}
"""
INNER = """
workflow_id: inner
version: 1
concurrency: {key: "global:b", limit: 1}
nodes: {start: {type: start, next: one}, one: {handler: echo, next: end}, end: {type: end}}
"""


async def test_a_child_job_that_waits_for_the_slot_of_a_job_which_waits_for_it_is_named(pool: AsyncPool) -> None:
    """As builds made such that asked for whatever slot a key came to be."""
    engine = Engine(pool, workflows_of(OUTER, INNER))
    await engine.query("INSERT INTO dagapp.dag_limits (slot_key, limit_count, set_by) VALUES ('global:b', 0, 'op')")
    parent = await engine.create("outer")
    await engine.advance(parent)
    (child,) = await engine.query("SELECT job_id, holder FROM dagapp.dag_slots WHERE granted_at IS NULL")
    assert await details(engine) == []
    await engine.query("UPDATE dagapp.dag_slots SET slot_key = 'global:a' WHERE granted_at IS NULL")
    waits = f"it waits for a slot of global:a, which is held by {parent}, waiting for it"
    assert await details(engine) == [(child["job_id"], waits)]
    await engine.query("UPDATE dagapp.dag_limits SET limit_count = 2")
    assert await details(engine) == []  # another holder may give one back


async def waiting_below(pool: AsyncPool, inner: str = INNER) -> tuple[Engine, str, str]:
    """Return a job and its child job, which an old build made: it waits for the slot that the job holds."""
    engine = Engine(pool, workflows_of(OUTER, inner))
    await engine.query("INSERT INTO dagapp.dag_limits (slot_key, limit_count, set_by) VALUES ('global:b', 0, 'op')")
    parent = await engine.create("outer")
    await engine.advance(parent)
    (child,) = await engine.query("SELECT job_id FROM dagapp.dag_slots WHERE granted_at IS NULL")
    await engine.query("UPDATE dagapp.dag_slots SET slot_key = 'global:a' WHERE granted_at IS NULL")
    await engine.query("UPDATE dagapp.dag_node_states SET slot_key = 'global:a' WHERE slot_key IS NOT NULL")
    await engine.query("UPDATE dagapp.dag_jobs SET slots_above = NULL")
    return engine, parent, child["job_id"]


async def test_a_child_job_whose_deadline_ends_its_wait_is_not_named(pool: AsyncPool) -> None:
    timed = INNER.replace("version: 1", "version: 1\ndeadline_seconds: 60")
    engine, _, _ = await waiting_below(pool, timed)
    assert await details(engine) == []


@pytest.mark.parametrize("told", [0, 1], ids=["the job above", "itself"])
async def test_a_child_job_whose_wait_a_stored_order_may_end_is_not_named(pool: AsyncPool, told: int) -> None:
    engine, *jobs = await waiting_below(pool)
    assert [job_id for job_id, _ in await details(engine)] == [jobs[1]]
    await engine.query("INSERT INTO dagapp.dag_commands (job_id, kind, actor) VALUES (%s, 'cancel', 'op')", jobs[told])
    assert await details(engine) == []


async def test_a_job_that_waits_for_nothing_is_named_unless_a_switch_holds_it(engine: Engine) -> None:
    job_id = await engine.create("task")
    await engine.query("UPDATE dagapp.dag_attempts SET state = 'revoked', ended_at = dagapp.clock()")
    await engine.query("UPDATE dagapp.dag_node_states SET status = 'PENDING', task_id = NULL WHERE task_id IS NOT NULL")
    await engine.query("UPDATE dagapp.dag_jobs SET wake_at = NULL")
    assert await details(engine) == [(job_id, "it waits for nothing")]
    await engine.query("INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES ('pause:all', 'true', 'op')")
    assert await details(engine) == []
