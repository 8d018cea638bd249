"""What an orchestrator does for the long run, and a start before its schema is there."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.databases import Database
from tests.support.engine import Engine
from tests.support.waiting import await_until, wait_until


async def partitions(admin: AsyncConnection[Any]) -> int:
    cursor = await admin.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'dagapp.dag_job_events'::regclass")
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_months_of_events_are_prepared_by_whoever_runs(start: StartOrchestrator, database: Database) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        before = await partitions(admin)
        cursor = await admin.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'dagapp.dag_job_events'::regclass"
            " AND inhrelid::regclass::text NOT LIKE '%default' ORDER BY 1 DESC LIMIT 1"
        )
        (newest,) = await cursor.fetchone() or ("",)
        await admin.execute(f"DROP TABLE {newest}")
        assert await partitions(admin) == before - 1
        async with start():
            await await_until(lambda: _equals(partitions(admin), before), "the month is there again")


async def _equals(value: Any, wanted: object) -> bool:
    return bool(await value == wanted)


async def _is(value: bool) -> bool:
    return value


async def test_boots_of_workers_and_orchestrators_long_gone_are_forgotten(
    start: StartOrchestrator, engine: Engine
) -> None:
    for name, days in (("fresh", 0), ("gone", 2)):
        await engine.query(
            "INSERT INTO dagapp.dag_workers (worker_id, queue, host, pid, build_id, state, heartbeat_at)"
            " VALUES (%s, 'q', 'h', 1, 'b', 'active', dagapp.clock() - make_interval(days => %s))",
            name,
            days,
        )
        await engine.query(
            "INSERT INTO dagapp.dag_orchestrators (owner_id, host, pid, build_id, state, heartbeat_at)"
            " VALUES (%s, 'h', 1, 'b', 'active', dagapp.clock() - make_interval(days => %s))",
            name,
            days,
        )

    async def left() -> list[str]:
        rows = await engine.query(
            "SELECT worker_id AS id FROM dagapp.dag_workers UNION ALL SELECT owner_id FROM dagapp.dag_orchestrators"
        )
        return [row["id"] for row in rows if row["id"] in {"fresh", "gone"}]

    async with start():
        await await_until(lambda: _equals(left(), ["fresh", "fresh"]), "only the living are left")


async def test_an_instance_that_starts_before_its_schema_works_once_it_is_there(
    start: StartOrchestrator, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        await admin.execute("ALTER TABLE dagapp.dag_workflows RENAME TO not_yet")
        async with start(wait_ready=False) as door:
            await await_until(lambda: _is("definitions not stored" in caplog.text), "it tried")
            await admin.execute("ALTER TABLE dagapp.not_yet RENAME TO dag_workflows")

            await await_until(lambda: _is(door.context.life.registered_definitions), "definitions stored")
            engine = Engine(door.context.pool, owner_id=None)
            job_id = await engine.create("echo_test")

            async def owned() -> bool:
                return (await engine.job(job_id)).owner_id == door.context.owner_id

            await await_until(owned, "its loop takes a job over")


async def test_the_heartbeat_outlives_any_error(start: StartOrchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without free file descriptors, where opening a connection raises OSError."""
    failures = iter([OSError(24, "Too many open files"), RuntimeError("surprise")])
    connect = psycopg.connect

    def fail_twice(*args: Any, **more: Any) -> Any:
        if error := next(failures, None):
            raise error
        return connect(*args, **more)

    monkeypatch.setattr(psycopg, "connect", fail_twice)
    async with start(wait_ready=False) as door:
        await asyncio.to_thread(wait_until, lambda: door.context.guard.registered, "it beats", 5.0)
