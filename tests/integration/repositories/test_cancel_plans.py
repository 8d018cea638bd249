"""Who cancelled a job is read from its own events, and from the last of those, however many there are."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from repositories import roles
from repositories.database import async_pool
from repositories.events import EventRepository
from tests.support.databases import Database
from tests.support.plans import Recorded, Session, recording

JOBS, EVENTS = 2000, 20
VISITS = 200
"""Rows or index entries that the question may visit."""


def fill(database: Database, *, analyzed: bool) -> None:
    """Store events of many jobs, the newest of other jobs, and one job with many; its cancel is among its last."""
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO dagapp.dag_job_events (job_id, event_type, event_data, created_at)"
            " SELECT 'job' || n %% %s, CASE n / %s WHEN 10 THEN 'job_cancelled' ELSE 'node_ready' END,"
            " jsonb_build_object('actor', 'ada', 'n', n), dagapp.clock() FROM generate_series(0, %s) AS n",
            (JOBS, JOBS, JOBS * EVENTS - 1),
        )
        admin.execute(
            "INSERT INTO dagapp.dag_job_events (job_id, event_type, event_data, created_at)"
            " SELECT 'large', CASE WHEN n = 9990 THEN 'job_cancelled' ELSE 'node_ready' END, '{}', dagapp.clock()"
            " FROM generate_series(1, 10000) AS n"
        )
        if analyzed:
            admin.execute("ANALYZE dagapp.dag_job_events")


@pytest.mark.parametrize("analyzed", [False, True])
async def test_the_cancel_of_a_job_is_found_from_the_end_of_its_events(database: Database, analyzed: bool) -> None:
    fill(database, analyzed=analyzed)
    statements: Recorded = {}

    async def configure(conn: AsyncConnection[Any]) -> None:
        conn.cursor_factory = recording(statements)

    pool = async_pool(database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1)
    pool._configure = configure
    since = datetime.now(UTC) - timedelta(minutes=1)
    async with pool, Session.open(database.admin) as session:
        for job_id, at in (("job7", JOBS * 10 + 7), ("large", None), ("nobody", None)):
            async with pool.connection() as conn:
                event = await EventRepository(conn).cancel_of(job_id, since)
            assert (event is None) == (job_id == "nobody")
            assert event is None or event.event_data.get("n") == at
            ((query, values),) = statements.items()
            scans = await session.scans(query, values)
            assert sum(one.visited for one in scans) < VISITS, scans
