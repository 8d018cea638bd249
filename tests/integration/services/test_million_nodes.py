"""EXPLAIN of what the engine says to a database of a million nodes, most of them children of one fan-out that runs."""

from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection, errors

from core.statuses import NodeStatus
from repositories import roles
from repositories.database import AsyncPool, async_pool
from repositories.jobs import JobRepository
from services import insight
from tests.integration.services.fans import END_BACKOFFS, Fans, failed
from tests.support.databases import Database
from tests.support.engine import beats_of, completed
from tests.support.plans import Recorded, Session, recording

CHILDREN = 600_000
OTHERS = 400_000
LETTERS = 2_000
FEW = 100
VISITS = 200
"""Rows or index entries that one scan may visit; the life below has fewer of everything it may look at."""
WINDOW = "max_concurrency: 20"
NODES = "dagapp.dag_node_states"


async def add_others(admin: AsyncConnection[Any], count: int) -> None:
    """Add nodes of other jobs, four to each."""
    await admin.execute(
        f"INSERT INTO {NODES} (job_id, node_id, status) SELECT 'other' || n / 4, 'node' || n %% 4, 'PENDING'"
        " FROM generate_series(%s::int, %s::int) AS n",
        (count, 2 * count - 1),
    )


async def add_letters(admin: AsyncConnection[Any], count: int) -> None:
    """Add open dead letters of other tasks."""
    await admin.execute(
        "INSERT INTO dagapp.dag_dead_letters (message_id, queue, task_id, body, reason, classification, dead_at)"
        " SELECT 'other' || n || '_a_0.1', 'q', 'other' || n || '_a_0', '{}', 'r', 'bad_token', dagapp.clock()"
        " FROM generate_series(1, %s::int) AS n",
        (count,),
    )


async def grow(admin: AsyncConnection[Any], job_id: str) -> None:
    """Add settled children to a running fan-out, and many nodes of other jobs."""
    await admin.execute(
        f"INSERT INTO {NODES} (job_id, node_id, status, attempt, parent_node_id, fan_out_index, completed_at)"
        " SELECT %s, 'many__' || n, 'COMPLETED', 1, 'many', n, dagapp.clock()"
        " FROM generate_series(1000, 999 + %s) AS n",
        (job_id, CHILDREN),
    )
    await add_others(admin, OTHERS)
    await add_letters(admin, LETTERS)


async def life_of_a_fan_out(pool: AsyncPool, fans: Fans) -> None:
    """Let the job go on by every kind of transaction that touches its children."""
    worker = fans.worker
    first = await fans.fresh()
    await worker.claim(*first)
    await worker.beat(*beats_of(first))
    await worker.report(*(completed(message) for message in first[:8]), failed(first[8], transient=True))
    await fans.engine.lapse(first[9].task_id)
    await fans.advance()
    await fans.let_time_pass()
    await fans.advance()
    again = await fans.fresh()
    await worker.claim(*again)
    await worker.complete(*again[:-1])
    await worker.complete(*first[10:12])
    look = fans.engine.insight
    await look.nodes(fans.job_id)
    await look.node(fans.job_id, again[-1].node_id)
    for status in (None, NodeStatus.RUNNING):
        await look.children(fans.job_id, "many", status=status, after=1000, limit=20)
    async with pool.connection() as conn:
        jobs = JobRepository(conn)
        for look in (jobs.due_timers, jobs.due_results, jobs.due_leases):
            await (await look("me", 10)).rows()


async def wide_scans(session: Session, statements: Recorded, *, grown: bool = True) -> tuple[list[str], int]:
    """Return the scans that visit too much, and how many statements look at nodes."""
    wide, looks = [], 0
    for query, values in statements.items():
        if query == END_BACKOFFS:
            continue
        try:
            scans = await session.scans(query, values)
        except errors.IntegrityError:
            assert "UPDATE dagapp.dag_node_states" not in query or not grown
            continue
        looks += any(scan.table == "dag_node_states" for scan in scans)
        wide += [
            f"{scan.kind} of {scan.table} visits {scan.visited:g} in: {' '.join(query.split())[:300]}"
            for scan in scans
            if scan.visited > VISITS
        ]
    return wide, looks


async def test_nothing_that_is_said_reads_more_than_it_wants(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not by plans that were made when there was almost nothing, which sessions keep."""
    monkeypatch.setattr(insight, "LOOKED_AT", 100)
    statements: Recorded = {}

    async def configure(conn: AsyncConnection[Any]) -> None:
        conn.cursor_factory = recording(statements)

    pool = async_pool(database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1)
    pool._configure = configure
    async with (
        await AsyncConnection.connect(database.admin, autocommit=True) as admin,
        pool,
        Session.open(database.admin) as session,
    ):
        await admin.execute("SET session_replication_role = replica")  # keys to other tables are not looked at
        await admin.execute(f"ALTER TABLE {NODES} SET (autovacuum_enabled = false)".encode())
        await life_of_a_fan_out(pool, await Fans.start(pool, tmp_path, range(30), WINDOW))
        await admin.execute("TRUNCATE dagapp.dag_jobs, dagapp.dag_node_states, dagapp.dag_attempts CASCADE")
        await add_others(admin, FEW)
        await wide_scans(session, statements, grown=False)
        fans = await Fans.start(pool, tmp_path, range(30), WINDOW)
        await grow(admin, fans.job_id)
        await life_of_a_fan_out(pool, fans)
        before = await wide_scans(session, statements)
        await admin.execute(f"ANALYZE {NODES}".encode())
        after = await wide_scans(session, statements)
    for wide, looks in (before, after):
        assert not wide, "\n".join(wide)
        assert looks >= 6
