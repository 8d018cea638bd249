"""What was set aside, though its attempt was the current one, keeps nobody for ever, and no stalled job another."""

from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
import pytest
from psycopg import conninfo

from core.errors import DatabaseUnavailable
from core.ports import BlobRepository
from repositories.database import AsyncPool, async_pool
from services.stalls import StallService
from tests.integration.repositories.test_stalls import INNER, waiting_below
from tests.integration.services.fans import Fans
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, workflows_of
from tests.support.gaps.scenes import SOURCES

Start = Callable[..., Awaitable[Fans]]
SET_ASIDE = "UPDATE dagapp.dag_task_results SET processed = true, disposition = 'superseded' WHERE task_id = %s"
REFUSE = "ALTER TABLE dagapp.dag_jobs ADD CHECK (job_id <> '{}') NOT VALID"
CUT_OFF = """
CREATE FUNCTION public.cut_off() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
CREATE TRIGGER cut_off BEFORE UPDATE ON dagapp.dag_jobs FOR EACH ROW WHEN (OLD.job_id = '{}')
EXECUTE FUNCTION public.cut_off();
"""


@pytest.fixture
def start(pool: AsyncPool, blobs: BlobRepository) -> Start:
    """Return how a job with a fan-out is created."""
    return partial(Fans.start, pool, blobs)


async def stuck(start: Start) -> Fans:
    """Return a fan-out with one child whose result was set aside, and one that has ended."""
    fans = await start([1, 2])
    first, second = await fans.fresh()
    await fans.worker.claim(first, second)
    async with fans.engine.pool.connection() as conn:
        await conn.execute("SELECT 1 FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (fans.job_id,))
        await fans.worker.complete(first)
    await fans.engine.query(SET_ASIDE, first.task_id)
    await fans.worker.complete(second)
    await fans.advance()
    return fans


def service_of(engine: Engine, owner_id: str = "owner-1") -> StallService:
    return StallService(engine.pool, engine.advance_service, owner_id)


async def test_a_stalled_child_is_lost_and_tried_again(start: Start) -> None:
    fans = await stuck(start)
    service = service_of(fans.engine)
    assert await fans.children() == {"many__0": "DISPATCHED", "many__1": "COMPLETED"}
    assert await service.move_stalled() == 1
    (again,) = await fans.fresh()
    assert (again.node_id, again.attempt) == ("many__0", 1)
    assert await service.move_stalled() == 0
    await fans.worker.run(again)
    assert await fans.status() == "COMPLETED"
    row = await fans.engine.query("SELECT losses_used FROM dagapp.dag_node_states WHERE node_id = 'many__0'")
    assert row == [{"losses_used": 1}]


async def test_a_fan_out_with_a_stalled_child_can_be_cancelled(start: Start) -> None:
    fans = await stuck(start)
    answer = await fans.engine.order(fans.job_id, "cancel")
    assert answer.job.status == "CANCELLED"
    assert await fans.children() == {"many__0": "CANCELLED", "many__1": "COMPLETED"}


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    """Return an engine with jobs of all kinds."""
    return Engine(pool, workflows_of(*SOURCES))


async def stuck_tasks(engine: Engine, count: int) -> list[str]:
    """Return jobs, in the order in which they are looked at, whose first results were set aside."""
    jobs = sorted([await engine.create("task") for _ in range(count)])
    for job_id in jobs:
        message = (await engine.messages(job_id))[0]
        await HandWorker(engine).claim(message)
        async with engine.pool.connection() as conn:
            await conn.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (job_id,))
            await HandWorker(engine).complete(message)
        await engine.query(SET_ASIDE, message.task_id)
    return jobs


async def moved(engine: Engine, job_ids: list[str]) -> list[bool]:
    """Return of which jobs a task counts as lost."""
    rows = await engine.query(
        "SELECT job_id FROM dagapp.dag_node_states WHERE losses_used = 1 AND job_id = ANY(%s)", job_ids
    )
    return [job_id in {row["job_id"] for row in rows} for job_id in job_ids]


async def test_a_stalled_job_that_cannot_be_moved_keeps_no_other(engine: Engine, database: Database) -> None:
    jobs = await stuck_tasks(engine, 3)
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(REFUSE.format(jobs[0]).encode())
    assert await service_of(engine).move_stalled() == 3
    assert await moved(engine, jobs) == [False, True, True]


async def test_a_stalled_job_that_somebody_holds_keeps_no_other(engine: Engine, database: Database) -> None:
    jobs = await stuck_tasks(engine, 3)
    hurried = conninfo.make_conninfo(database.conninfo(), options="-c lock_timeout=50ms")
    async with async_pool(hurried, name="hurried", min_size=1, max_size=2) as pool:
        service = service_of(Engine(pool, engine.catalogue))
        with psycopg.connect(database.admin) as admin:
            admin.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (jobs[0],))
            admin.execute("SELECT FROM dagapp.dag_attempts WHERE job_id = %s FOR UPDATE", (jobs[1],))
            assert await service.move_stalled() == 3
            assert await moved(engine, jobs) == [False, False, True]
        assert await service.move_stalled() == 2
    assert await moved(engine, jobs) == [True, True, True]


async def test_without_a_database_the_round_is_over_and_begins_anew(engine: Engine, database: Database) -> None:
    jobs = await stuck_tasks(engine, 2)
    service = service_of(engine)
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(CUT_OFF.format(jobs[0]).encode())
        with pytest.raises(DatabaseUnavailable):
            await service.move_stalled()
        assert await moved(engine, jobs) == [False, False]
        admin.execute("DROP TRIGGER cut_off ON dagapp.dag_jobs")
    assert await service.move_stalled() == 2
    assert await moved(engine, jobs) == [True, True]


async def test_who_has_looked_through_all_jobs_leaves_those_of_others_to_them(engine: Engine) -> None:
    one, other = service_of(engine, "owner-1"), service_of(engine, "owner-2")
    assert (await one.move_stalled(), await other.move_stalled()) == (0, 0)
    jobs = await stuck_tasks(engine, 1)
    assert await other.move_stalled() == 0
    assert await moved(engine, jobs) == [False]
    assert await service_of(engine, "owner-3").move_stalled() == 1
    jobs = await stuck_tasks(engine, 1)
    assert await one.move_stalled() == 1
    assert await moved(engine, jobs) == [True]


async def ended_unheard(engine: Engine) -> tuple[str, str]:
    """Return a job and its child job, whose end was set aside."""
    parent = await engine.create("sub")
    child = (await engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE parent_task_id IS NOT NULL"))[0]["job_id"]
    async with engine.pool.connection() as conn:
        await conn.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (parent,))
        await HandWorker(engine).run((await engine.messages(child))[0], output={})
    await engine.query("UPDATE dagapp.dag_task_results SET processed = true WHERE job_id = %s", parent)
    return parent, child


async def test_the_end_of_a_child_job_that_was_not_heard_is_told_again(engine: Engine) -> None:
    parent, _ = await ended_unheard(engine)
    await engine.advance(parent)
    assert (await engine.statuses(parent))["call"] == "WAITING"
    service = service_of(engine)
    assert await service.move_stalled() == 1
    assert (await engine.statuses(parent))["call"] == "COMPLETED"
    assert await service.move_stalled() == 0
    await HandWorker(engine).run((await engine.messages(parent))[0], output={})
    assert (await engine.job(parent)).status == "COMPLETED"


@pytest.mark.parametrize("child_there", [True, False])
async def test_a_child_job_without_any_end_is_lost(engine: Engine, child_there: bool) -> None:
    parent, child = await ended_unheard(engine)
    await engine.query("DELETE FROM dagapp.dag_task_results WHERE job_id = %s", parent)
    if not child_there:
        await engine.query("DELETE FROM dagapp.dag_jobs WHERE job_id = %s", child)
    assert await service_of(engine).move_stalled() == 1
    call = (await engine.query("SELECT status, error FROM dagapp.dag_node_states WHERE node_id = 'call'"))[0]
    assert (call["status"], call["error"]["code"]) == ("FAILED", "CHILD_LOST")


SLOTTED = """
workflow_id: inner
version: 1
inputs: {{rows: {{type: array, default: [1]}}}}
nodes: {{start: {{type: start, next: one}}, {}, end: {{type: end}}}}
"""
TASK = "one: {handler: echo, concurrency: {key: 'global:b', limit: 1}, next: end}"
FAN = """one: {type: fan_out, source: "{{ inputs.rows }}", next: join,
    task: {handler: echo, concurrency: {key: 'global:b', limit: 1}}}, join: {type: fan_in, next: end}"""
LINES = [TASK, FAN]


@pytest.mark.parametrize("inner", [INNER, *(SLOTTED.format(line) for line in LINES)], ids=["job", "task", "fan-out"])
async def test_a_child_job_that_waits_for_a_slot_held_above_it_is_refused_it(pool: AsyncPool, inner: str) -> None:
    """As builds let wait that did not know what is held above; nothing else would end it."""
    engine, parent, child = await waiting_below(pool, inner)
    service = service_of(engine)
    assert await service.move_stalled() == 1
    ended = await engine.job(child)
    assert (ended.status, "SLOT_KEY_INVALID" in str(ended.error)) == ("FAILED", True)
    assert await service.move_stalled() == 0
    await engine.advance(parent)
    assert (await engine.job(parent)).status == "FAILED"
    assert await engine.query("SELECT holder FROM dagapp.dag_slots") == []
