"""The look for what a pause does not hold any more costs as much as what there is, not its square."""

from typing import Any

from psycopg import AsyncConnection

from repositories import roles
from repositories.database import async_pool
from repositories.pauses import PauseRepository
from tests.support.databases import Database
from tests.support.engine import Engine
from tests.support.plans import Recorded, Session, recording

JOBS = 400
COPIES = {
    "dagapp.dag_jobs": "jsonb_build_object('job_id', 'copy' || n, 'wake_at', dagapp.clock() + interval '1 hour')",
    "dagapp.dag_attempts": "jsonb_build_object('job_id', 'copy' || n, 'task_id', 'copy' || n || '_x_0')",
}


async def test_many_running_jobs_are_looked_through_once(database: Database) -> None:
    statements: Recorded = {}

    async def configure(conn: AsyncConnection[Any]) -> None:
        conn.cursor_factory = recording(statements)

    pool = async_pool(database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1)
    pool._configure = configure
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin, pool:
        await Engine(pool).create("echo_test")
        for table, own in COPIES.items():
            await admin.execute(
                f"INSERT INTO {table} SELECT c.* FROM {table} AS t, generate_series(1, {JOBS}) AS n,"
                f" LATERAL jsonb_populate_record(t, {own}) AS c".encode()
            )
        await admin.execute("UPDATE dagapp.dag_attempts SET state = 'parked' WHERE job_id = 'copy7'")
        statements.clear()
        async with pool.connection() as conn:
            assert await PauseRepository(conn).held_for_nothing(10) == ["copy7"]
        ((query, values),) = statements.items()
        async with Session.open(database.admin) as session:
            scans = await session.scans(query, values)
    assert sum(scan.visited for scan in scans) < 8 * JOBS, scans
