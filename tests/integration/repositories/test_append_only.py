"""Events and audit can be written and read, never changed; events live in monthly partitions."""

from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, errors

from repositories import roles
from tests.support.databases import Database

EVENT = "INSERT INTO dagapp.dag_job_events (job_id, event_type, created_at) VALUES ('j', %s, %s)"
AUDIT = "INSERT INTO dagapp.asset_audit (asset_id, action, actor, actor_role) VALUES ('a', 'approved', 'x', 'reviewer')"


@pytest.mark.parametrize("table", ["dag_job_events", "asset_audit", "version_comments"])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dagapp.{} SET created_at = dagapp.clock()",
        "DELETE FROM dagapp.{}",
        "TRUNCATE dagapp.{}",
        "ALTER TABLE dagapp.{} DISABLE TRIGGER ALL",
        "DROP TABLE dagapp.{}",
        "SELECT 1 FROM dagapp.{} FOR UPDATE",
    ],
)
async def test_the_orchestrator_cannot_change_what_it_wrote(
    conn: AsyncConnection[Any], table: str, change: str
) -> None:
    await conn.execute(EVENT, ("job_created", "2026-01-01T00:00:00Z"))
    await conn.execute(AUDIT.encode())
    await conn.commit()
    with pytest.raises(errors.InsufficientPrivilege):
        await conn.execute(change.format(table).encode())


async def test_an_upsert_is_no_way_round_it(conn: AsyncConnection[Any]) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        await conn.execute(f"{AUDIT} ON CONFLICT (audit_id) DO UPDATE SET actor = 'somebody else'".encode())


async def test_ids_of_events_and_audit_rows_are_the_database_s(conn: AsyncConnection[Any]) -> None:
    with pytest.raises(errors.GeneratedAlways):
        await conn.execute("INSERT INTO dagapp.dag_job_events (event_id, job_id, event_type) VALUES (1, 'j', 'x')")


async def test_an_event_of_this_month_lands_in_this_month_s_partition(
    database: Database, conn: AsyncConnection[Any]
) -> None:
    await conn.execute("INSERT INTO dagapp.dag_job_events (job_id, event_type) VALUES ('j', 'job_created')")
    await conn.commit()
    assert _places(database) == [_month(database, 0)]


async def test_an_event_of_a_month_without_partition_is_kept_in_the_default_one(
    database: Database, conn: AsyncConnection[Any]
) -> None:
    await conn.execute(EVENT, ("job_created", "1999-12-31T23:59:59Z"))
    await conn.commit()
    assert _places(database) == ["dag_job_events_default"]


async def test_partitions_exist_two_months_ahead_and_more_can_be_asked_for(
    database: Database, conn: AsyncConnection[Any]
) -> None:
    assert _partitions(database) == [_month(database, n) for n in range(3)]
    for expected in (3, 0):
        cursor = await conn.execute("SELECT dagapp.ensure_event_partitions(5)")
        assert await cursor.fetchone() == (expected,)
    await conn.commit()
    assert _partitions(database) == [_month(database, n) for n in range(6)]


async def test_events_that_fell_into_the_default_partition_move_when_their_month_gets_its_own(
    database: Database, conn: AsyncConnection[Any]
) -> None:
    await conn.execute(
        "INSERT INTO dagapp.dag_job_events (job_id, event_type, created_at)"
        " VALUES ('j', 'late', dagapp.clock() + make_interval(months => 5))"
    )
    await conn.execute(EVENT, ("old", "1999-12-31T23:59:59Z"))
    await conn.execute("SELECT dagapp.ensure_event_partitions(5)")
    await conn.commit()
    assert _places(database) == ["dag_job_events_default", _month(database, 5)]
    cursor = await conn.execute("SELECT event_type FROM dagapp.dag_job_events ORDER BY 1")
    assert await cursor.fetchall() == [("late",), ("old",)]


@pytest.mark.parametrize("months", [-1, 25, 10_000])
async def test_an_absurd_number_of_months_is_refused(conn: AsyncConnection[Any], months: int) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        await conn.execute("SELECT dagapp.ensure_event_partitions(%s)", (months,))


async def test_a_partition_cannot_be_reached_past_its_parent(database: Database, conn: AsyncConnection[Any]) -> None:
    for verb in ("SELECT * FROM", "DELETE FROM", "TRUNCATE"):
        with pytest.raises(errors.InsufficientPrivilege):
            await conn.execute(f"{verb} dagapp.{_month(database, 0)}".encode())
        await conn.rollback()


def _query(database: Database, query: str) -> list[str]:
    with psycopg.connect(database.admin) as admin:
        return [row[0] for row in admin.execute(query.encode()).fetchall()]


def _places(database: Database) -> list[str]:
    return _query(
        database,
        "SELECT c.relname::text FROM dagapp.dag_job_events AS e JOIN pg_class AS c"
        " ON c.oid = e.tableoid ORDER BY e.created_at",
    )


def _partitions(database: Database) -> list[str]:
    return _query(
        database,
        "SELECT c.relname::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'dagapp.dag_job_events'::regclass AND c.relname <> 'dag_job_events_default' ORDER BY 1",
    )


def _month(database: Database, ahead: int) -> str:
    (name,) = _query(
        database,
        "SELECT 'dag_job_events_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date"
        f" + make_interval(months => {ahead}), 'YYYYMM')",
    )
    return name


async def test_the_worker_role_cannot_write_events_or_audit(database: Database) -> None:
    async with await AsyncConnection.connect(database.conninfo(roles.WORKER), autocommit=True) as worker:
        for statement in (EVENT.replace("%s", "'2026-01-01'"), AUDIT):
            with pytest.raises(errors.InsufficientPrivilege):
                await worker.execute(statement.encode())
