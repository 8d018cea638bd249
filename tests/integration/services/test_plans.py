"""Hot statements never read a table from end to end, whatever the statistics say."""

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import AsyncConnection, sql

from core.wire import TaskMessage
from repositories import roles
from repositories.database import AsyncPool, async_pool
from repositories.engine_pool import engine_pool
from repositories.jobs import JobRepository
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, beats_of
from tests.support.waiting import await_until

KEYS = {
    "dag_jobs": "jsonb_build_object('job_id', 'copy' || n)",
    "dag_node_states": "jsonb_build_object('job_id', 'copy' || n)",
    "dag_attempts": "jsonb_build_object('job_id', 'copy' || n, 'task_id', 'copy' || n || '_x_0')",
    "dag_task_results": "jsonb_build_object('job_id', 'copy' || n, 'task_id', 'copy' || n || '_x_0')",
}
"""The big tables, with what a copy of one of their rows has of its own."""
ROWS = 5000
POOLS: dict[str, Callable[[str], AsyncPool]] = {
    "engine": lambda dsn: engine_pool(dsn, name="test", max_size=3, pooled=False),
    "pooled": lambda dsn: async_pool(dsn, name="test", max_size=3),
}


async def fill(admin: AsyncConnection[Any], job_id: str) -> None:
    """Copy a finished job many times, with its nodes, attempt and result."""
    for table, own in KEYS.items():
        name = sql.Identifier("dagapp", table)
        copy = sql.SQL(
            "INSERT INTO {} SELECT c.* FROM {} AS t, generate_series(1, %s) AS n,"
            " LATERAL jsonb_populate_record(t, {}) AS c WHERE t.job_id = %s"
        )
        await admin.execute(copy.format(name, name, sql.SQL(own)), (ROWS, job_id))  # type: ignore[arg-type]


async def scans(admin: AsyncConnection[Any], database: Database) -> dict[str, int]:
    """Return the scans from end to end, once every session that counted has ended and told its numbers."""

    async def ended() -> bool:
        cursor = await admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = %s",
            (database.name, roles.ORCHESTRATOR),
        )
        return await cursor.fetchone() == (0,)

    await await_until(ended, "the sessions of the pool have ended")
    await admin.execute("SELECT pg_stat_force_next_flush()")
    cursor = await admin.execute(
        "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'dagapp' AND relname = ANY(%s)",
        (list(KEYS),),
    )
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def life_of_a_job(engine: Engine) -> str:
    """Run through every hot statement and return the job."""
    worker = HandWorker(engine)
    job_id = await engine.create("echo_test")
    (row,) = await engine.query("DELETE FROM dagqueue.messages RETURNING body")
    message = TaskMessage.model_validate(row["body"])
    await worker.claim(message)
    await worker.beat(*beats_of([message]))
    await engine.advance(job_id)
    await worker.complete(message)
    async with engine.pool.connection() as conn:
        await look(JobRepository(conn), job_id)
    return job_id


async def look(jobs: JobRepository, job_id: str) -> None:
    """Do what the loop does in every tick."""
    for pending in (
        await jobs.due_timers("owner-1", 10),
        await jobs.due_results("owner-1", 10),
        await jobs.due_leases("owner-1", 10),
    ):
        await pending.rows()
    await (await jobs.seconds_to_next_timer("owner-1")).rows()
    await jobs.claim_unowned("owner-1", 10)
    await jobs.reclaim("owner-1", ["owner-9"], 10)
    await jobs.adopt("owner-1", ["owner-9"], 10)
    await (await jobs.final_among([job_id])).rows()


@pytest.mark.parametrize("kind", sorted(POOLS))
@pytest.mark.parametrize("statistics", ["of empty tables", "of full tables"])
async def test_hot_statements_never_read_a_big_table_from_end_to_end(
    database: Database, kind: str, statistics: str
) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        await admin.execute("ANALYZE")
        async with POOLS[kind](database.conninfo(roles.ORCHESTRATOR)) as pool:
            await fill(admin, await life_of_a_job(Engine(pool)))
        if statistics == "of full tables":
            await admin.execute("ANALYZE")
        before = await scans(admin, database)
        async with POOLS[kind](database.conninfo(roles.ORCHESTRATOR)) as pool:
            for _ in range(8):
                await life_of_a_job(Engine(pool))
        assert await scans(admin, database) == before
