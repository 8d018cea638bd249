"""Lists of jobs by status and workflow, and orders by filter, read what they show, however many jobs have ended."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from core.job_filter import JobFilter
from core.statuses import JobStatus
from repositories import roles
from repositories.database import async_pool
from repositories.jobs import JobRepository
from services.meant_jobs import ACTIVE, UNSUCCESSFUL
from tests.support.databases import Database, Server
from tests.support.plans import Recorded, Session, recording

ENDED = 100_000
OF_EACH = 30
LIMIT = 10
VISITS = 200
"""Rows or index entries that one question may visit."""
OTHERS = ("PENDING", "RUNNING", "FAILED", "CANCELLED")


def fill(database: Database) -> None:
    """Store many jobs that completed, and in their midst a few in every other status; nothing is analyzed.

    Of every thousand jobs one is of a rare workflow.
    """
    with psycopg.connect(database.admin) as admin:
        admin.execute("SET session_replication_role = replica")
        admin.execute("ALTER TABLE dagapp.dag_jobs SET (autovacuum_enabled = false)")
        admin.execute(
            "INSERT INTO dagapp.dag_jobs (job_id, workflow_id, workflow_version, definition_hash, status, input_params,"
            " created_at) SELECT 'job' || n, CASE n %% 1000 WHEN 7 THEN 'rare' ELSE 'w' END, 1, 'x', CASE"
            " WHEN n %% 2 = 1 AND n BETWEEN %(from)s AND %(to)s"
            " THEN (%(others)s::text[])[1 + n / 2 %% 4] ELSE 'COMPLETED' END, '{}',"
            " dagapp.clock() - make_interval(secs => n) FROM generate_series(1, %(ended)s) AS n",
            {
                "others": list(OTHERS),
                "ended": ENDED,
                "from": ENDED // 2,
                "to": ENDED // 2 + 8 * OF_EACH - 1,
            },
        )


@asynccontextmanager
async def asked(database: Database, statements: Recorded) -> AsyncIterator[JobRepository]:
    """Yield a repository whose statements are kept."""

    async def configure(conn: AsyncConnection[Any]) -> None:
        conn.cursor_factory = recording(statements)

    pool = async_pool(database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1)
    pool._configure = configure
    async with pool, pool.connection() as conn:
        yield JobRepository(conn)


async def visited(database: Database, statements: Recorded, *, analyzed: bool) -> float:
    """Return how many rows and index entries a statement visits, planned without its values as the engine does."""
    ((query, values),) = statements.items()
    if analyzed:
        with psycopg.connect(database.admin, autocommit=True) as admin:
            admin.execute("ANALYZE dagapp.dag_jobs")
    async with Session.open(database.admin) as session:
        return sum(scan.visited for scan in await session.scans(query, values) if scan.table == "dag_jobs")


@pytest.fixture(scope="module", params=[False, True], ids=["not analyzed", "analyzed"])
def crowded(request: pytest.FixtureRequest, server: Server) -> Iterator[tuple[Database, bool]]:
    """Return a database with many jobs, and whether it has statistics of them."""
    database = server.clone()
    fill(database)
    yield database, request.param
    server.drop(database)


@pytest.mark.parametrize("status", [None, *JobStatus])
async def test_the_newest_jobs_of_a_status_are_found_among_many_that_ended(
    crowded: tuple[Database, bool], status: JobStatus | None
) -> None:
    (database, analyzed), statements = crowded, Recorded()
    async with asked(database, statements) as jobs:
        found = await (jobs.newest(LIMIT) if status is None else jobs.newest_in(status, LIMIT))
    assert {job.status for job in found} == {status or JobStatus.COMPLETED}
    assert [job.created_at for job in found] == sorted((job.created_at for job in found), reverse=True)
    assert len(found) == LIMIT
    assert await visited(database, statements, analyzed=analyzed) <= VISITS


MIDST = f"SELECT created_at, job_id FROM dagapp.dag_jobs WHERE job_id = 'job{ENDED // 2 + 3 * OF_EACH}'"


@pytest.mark.parametrize("workflow_id", [None, "w"])
@pytest.mark.parametrize("status", [None, *JobStatus])
async def test_a_list_goes_on_from_its_midst_without_a_look_at_what_was_shown(
    crowded: tuple[Database, bool], workflow_id: str | None, status: JobStatus | None
) -> None:
    (database, analyzed), statements = crowded, Recorded()
    with psycopg.connect(database.admin) as admin:
        (place,) = admin.execute(MIDST).fetchall()
    async with asked(database, statements) as jobs:
        if workflow_id is not None:
            found = await jobs.newest_of(workflow_id, [status] if status else JobStatus, LIMIT, place)
        else:
            found = await (jobs.newest_in(status, LIMIT, place) if status else jobs.newest(LIMIT, place))
    assert len(found) == LIMIT
    assert max(job.created_at for job in found) < place[0]
    assert await visited(database, statements, analyzed=analyzed) <= VISITS


@pytest.mark.parametrize(
    ("workflow_id", "status", "count"),
    [
        *(("w", status, LIMIT) for status in (None, *JobStatus)),
        ("rare", None, LIMIT),
        ("rare", JobStatus.COMPLETED, LIMIT),
        ("rare", JobStatus.RUNNING, 0),
        ("nope", None, 0),
    ],
)
async def test_the_newest_jobs_of_a_workflow_are_found_among_many_that_ended(
    crowded: tuple[Database, bool], workflow_id: str, status: JobStatus | None, count: int
) -> None:
    (database, analyzed), statements = crowded, Recorded()
    wanted = frozenset(JobStatus if status is None else {status})
    async with asked(database, statements) as jobs:
        found = await jobs.newest_of(workflow_id, wanted, LIMIT)
    assert {job.workflow_id for job in found} <= {workflow_id}
    assert {job.status for job in found} <= wanted
    assert [job.created_at for job in found] == sorted((job.created_at for job in found), reverse=True)
    assert len(found) == count
    assert await visited(database, statements, analyzed=analyzed) <= VISITS


@pytest.mark.parametrize("statuses", [ACTIVE, UNSUCCESSFUL, frozenset({JobStatus.RUNNING})])
async def test_the_oldest_jobs_that_a_filter_means_are_found_among_many_that_ended(
    crowded: tuple[Database, bool], statuses: frozenset[JobStatus]
) -> None:
    (database, analyzed), statements = crowded, Recorded()
    async with asked(database, statements) as jobs:
        found = await jobs.matching(JobFilter(workflow_id="w"), statuses, LIMIT)
    assert {job.status for job in found} == statuses
    assert [job.created_at for job in found] == sorted(job.created_at for job in found)
    assert len(found) == LIMIT
    assert await visited(database, statements, analyzed=analyzed) <= VISITS


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ("version = version + 1, updated_at = dagapp.clock()", True),
        ("evaluation_failures = 1, waiting_for = '{}', priority = 6", True),
        ("wake_at = dagapp.clock()", False),
        ("status = 'RUNNING'", False),
    ],
)
def test_updates_of_a_job_stay_in_their_page_unless_what_an_index_is_about_changes(
    database: Database, change: str, stays: bool
) -> None:
    with psycopg.connect(database.admin) as admin:
        admin.execute("SET session_replication_role = replica")
        admin.execute(
            "INSERT INTO dagapp.dag_jobs (job_id, workflow_id, workflow_version, definition_hash, input_params)"
            " VALUES ('j', 'w', 1, 'x', '{}')"
        )
        admin.execute(f"UPDATE dagapp.dag_jobs SET {change}".encode())
        row = admin.execute(
            "SELECT pg_stat_get_xact_tuples_hot_updated(oid) FROM pg_class WHERE oid = 'dagapp.dag_jobs'::regclass"
        ).fetchone()
    assert row == (int(stays),)
