"""EXPLAIN of every statement of a job's life: keys lead to rows, whatever the size of the tables and their statistics.

Also an index read from end to end shows here, as rows that a scan visited.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from core.ids import task_id
from core.wire import Release, TaskMessage
from messaging.postgres import PostgresTaskQueue, PostgresTaskReceiver
from repositories import roles
from repositories.database import async_pool
from repositories.jobs import JobRepository
from repositories.piped import PipedCursor
from services.work import pipelined
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, beats_of
from tests.support.plans import repeatable

ROWS = 4000
VISITS = 120
"""Rows that one scan may visit at most; a batch is never larger here."""
BIG = frozenset({"dag_jobs", "dag_node_states", "dag_attempts", "dag_task_results", "messages", "consumers"})

Recorded = dict[str, Any]


def recording(statements: Recorded) -> type[PipedCursor]:
    """Return a cursor that keeps each statement with its newest values."""

    class Recording(PipedCursor):
        async def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
            if isinstance(query, str) and ("dagapp." in query or "dagqueue." in query):
                statements[query] = params
            return await super().execute(query, params, **more)

    return Recording


COPIES = {
    "dagapp.dag_jobs": "jsonb_build_object('job_id', 'copy' || n, 'owner_id', 'owner-' || 1 + n % 3,"
    " 'wake_at', dagapp.clock() + interval '1 hour',"
    " 'status', CASE WHEN n % 2 = 0 THEN 'COMPLETED' ELSE 'RUNNING' END)",
    "dagapp.dag_node_states": "jsonb_build_object('job_id', 'copy' || n)",
    "dagapp.dag_attempts": "jsonb_build_object('job_id', 'copy' || n, 'task_id', 'copy' || n || '_x_0',"
    " 'state', CASE WHEN n % 2 = 0 THEN 'reported' ELSE 'queued' END)",
    "dagapp.dag_task_results": "jsonb_build_object('job_id', 'copy' || n, 'task_id', 'copy' || n || '_x_0')",
    "dagqueue.messages": "jsonb_build_object('message_id', 'copy' || n, 'task_id', 'copy' || n, 'lock_token', NULL,"
    " 'locked_until', NULL, 'queue', CASE WHEN n % 2 = 0 THEN 'functionapp-tasks' ELSE 'container-tasks' END)",
    "dagqueue.consumers": "jsonb_build_object('consumer_id', 'copy' || n, 'queue', 'queue-' || n)",
}
"""What a copy of a row has of its own: most jobs are finished, many active ones are others' or ours and not due."""


async def fill(admin: AsyncConnection[Any]) -> None:
    """Copy one row of each table many times; for nodes, those of one job."""
    await admin.execute("INSERT INTO dagqueue.consumers (consumer_id, queue, channel) VALUES ('one', 'q', 'c')")
    for table, own in COPIES.items():
        column = "job_id" if table == "dagapp.dag_node_states" else own.split("'")[1]
        column = "task_id" if "task_id" in own and "message_id" not in own else column
        await admin.execute(
            f"INSERT INTO {table} SELECT c.* FROM {table} AS t, generate_series(1, {ROWS}) AS n,"
            f" LATERAL jsonb_populate_record(t, {own}) AS c"
            f" WHERE t.{column} = (SELECT min({column}) FROM {table})".encode()
        )


async def life(database: Database) -> Recorded:
    """Run through every hot statement and return them; the clean-up of consumers, every ten minutes, is none."""
    statements: Recorded = {}
    cursor = recording(statements)

    async def connect() -> AsyncConnection[Any]:
        dsn = database.conninfo(roles.WORKER)
        connection = await AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=None)
        connection.cursor_factory = cursor
        return connection

    async def configure(conn: AsyncConnection[Any]) -> None:
        conn.cursor_factory = cursor

    pool = async_pool(database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1)
    pool._configure = configure
    receiver = PostgresTaskReceiver(connect, connect, queue="functionapp-tasks", consumer_id="me")
    async with pool:
        engine = Engine(pool)
        worker = HandWorker(engine)
        jobs = [await engine.create("echo_test") for _ in range(5)]
        messages = [await message_of(engine, job_id) for job_id in jobs]
        await worker.claim(*messages)
        await worker.beat(*beats_of(messages))
        await engine.lapse(messages[3].task_id)
        await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock() WHERE task_id = 'none'")
        await worker.complete(*messages[:3])
        await engine.advance(*jobs)
        await worker.report(*(Release(task_id=m.task_id, token=m.token, checkpoint={}) for m in messages[4:]))
        await look(engine, jobs[0])
        deliveries = await receiver.receive(2, 0.1)
        await receiver.renew(deliveries)
        await receiver.abandon(deliveries[0])
        await receiver.complete(deliveries[1:])
        await receiver.receive(1, 0.1)
        async with pipelined(pool) as conn:
            await PostgresTaskQueue().discard(conn, ["none"])
        await receiver.close()
    return {query: values for query, values in statements.items() if "hours => 1" not in query}


async def message_of(engine: Engine, job_id: str) -> TaskMessage:
    (found,) = await engine.query(
        "SELECT body FROM dagqueue.messages WHERE task_id = %s", task_id(job_id, "echo_handler", 0)
    )
    return TaskMessage.model_validate(found["body"])


async def look(engine: Engine, job_id: str) -> None:
    """Do what the loop does in every tick."""
    async with engine.pool.connection() as conn:
        jobs = JobRepository(conn)
        for pending in (
            await jobs.due_timers("owner-1", 10),
            await jobs.due_results("owner-1", 10),
            await jobs.due_leases("owner-1", 10),
            await jobs.seconds_to_next_timer("owner-1"),
        ):
            await pending.rows()
        await jobs.claim_unowned("owner-1", 10)
        await jobs.reclaim("owner-1", ["owner-9"], 10)
        await jobs.adopt("owner-1", ["owner-9"], 10)
        await (await jobs.final_among([job_id])).rows()
        await jobs.owners([job_id])


def scans(plan: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield table, kind and visited rows of every scan below a plan's node."""
    if plan.get("Relation Name") in BIG and "Scan" in plan["Node Type"]:
        removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        visited = (plan["Actual Rows"] + removed) * max(plan["Actual Loops"], 1)
        yield plan["Relation Name"], plan["Node Type"], visited
    for child in plan.get("Plans", ()):
        yield from scans(child)


async def explain(database: Database, role: str, query: str, values: Any) -> list[str]:
    """Run a statement under EXPLAIN, roll it back, and return what is wrong with its scans."""
    async with await AsyncConnection.connect(database.conninfo(role), prepare_threshold=None) as conn:
        cursor = await conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {repeatable(query)}".encode(), values)
        (plans,) = await cursor.fetchone() or ([],)
        await conn.rollback()
    return [
        f"{kind} of {table} visits {visited:g} rows in: {' '.join(query.split())[:300]}"
        for table, kind, visited in scans(plans[0]["Plan"])
        if kind == "Seq Scan" or visited > VISITS
    ]


@pytest.mark.parametrize("statistics", ["of empty tables", "of full tables"])
async def test_keys_lead_to_rows(database: Database, statistics: str) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        await admin.execute("ANALYZE")
        for table in ("dagapp.dag_jobs", "dagapp.dag_attempts", "dagqueue.messages"):
            await admin.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
        await life(database)
        await fill(admin)
        if statistics == "of full tables":
            await admin.execute("ANALYZE")
        statements = await life(database)
        assert len(statements) > 20
        problems = []
        for query, values in statements.items():
            role = roles.WORKER if "dagqueue." in query and "dagapp.dag_" not in query else roles.ORCHESTRATOR
            role = roles.ORCHESTRATOR if "INSERT INTO dagqueue.messages" in query else role
            try:
                problems += await explain(database, role, query, values)
            except psycopg.errors.UniqueViolation:
                continue
        assert not problems, "\n".join(problems)
