"""Pools survive a restart of the server; what goes away by itself is one error, what does not is left as it is."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, errors

from cli.stack.cluster import TEST_CONFIG, Cluster
from core.errors import DatabaseUnavailable
from repositories import roles
from repositories.database import AsyncPool, async_pool, listen, read, sync_pool, transaction
from tests.support.databases import Database
from tests.support.waiting import await_until, wait_until

INSERT = "INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES (%s, '1', 'test')"


@pytest.fixture
def own_cluster(open_folder: Path) -> Iterator[Cluster]:
    """A cluster of this test alone, to be stopped and started under a pool."""
    cluster = Cluster(open_folder, config=TEST_CONFIG)
    cluster.start()
    yield cluster
    cluster.destroy()


async def keys(conn: AsyncConnection[Any]) -> list[str]:
    cursor = await conn.execute("SELECT key FROM dagapp.dag_settings ORDER BY 1")
    return [key for (key,) in await cursor.fetchall()]


async def test_a_transaction_commits_at_its_end_and_rolls_back_on_an_error(pool: AsyncPool) -> None:
    async with transaction(pool) as conn:
        await conn.execute(INSERT, ("kept",))
    with pytest.raises(ZeroDivisionError):
        await _write_then_fail(pool)
    async with transaction(pool) as conn:
        assert await keys(conn) == ["kept"]


async def test_an_error_of_the_statement_is_not_called_unavailable(pool: AsyncPool) -> None:
    async with transaction(pool) as conn:
        await conn.execute(INSERT, ("k",))
    with pytest.raises(errors.UniqueViolation):
        async with transaction(pool) as conn:
            await conn.execute(INSERT, ("k",))
    with pytest.raises(errors.UndefinedTable):
        async with transaction(pool) as conn:
            await conn.execute("SELECT * FROM dagapp.nothing")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(5)",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '55P03'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53100'; END $$",
    ],
)
async def test_what_may_pass_by_itself_is_unavailable(pool: AsyncPool, statement: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with transaction(pool) as conn:
            await conn.execute(statement.encode())
    async with transaction(pool) as conn:
        assert await keys(conn) == []


async def test_a_lock_that_another_holds_is_given_up_after_the_role_s_lock_timeout(
    pool: AsyncPool, conn: AsyncConnection[Any]
) -> None:
    await conn.execute(INSERT, ("k",))
    await conn.commit()
    await conn.execute("SELECT 1 FROM dagapp.dag_settings FOR UPDATE")
    with pytest.raises(DatabaseUnavailable, match="LockNotAvailable"):
        async with transaction(pool) as other:
            await other.execute("UPDATE dagapp.dag_settings SET value = '2'")


async def test_a_process_that_stands_still_in_a_transaction_loses_its_locks(
    database: Database, pool: AsyncPool
) -> None:
    async with transaction(pool) as conn:
        await conn.execute(INSERT, ("k",))
    still = await AsyncConnection.connect(database.conninfo())
    await still.execute("SELECT 1 FROM dagapp.dag_settings FOR UPDATE")

    def released() -> bool:
        with psycopg.connect(database.conninfo()) as other:
            return bool(other.execute("SELECT 1 FROM dagapp.dag_settings FOR UPDATE SKIP LOCKED").fetchall())

    wait_until(released, "the idle transaction is ended by the server", timeout_seconds=10)
    with pytest.raises(errors.IdleInTransactionSessionTimeout):
        await still.execute("SELECT 1")
    await still.close()


async def test_connections_say_who_they_are_and_prepare_nothing(database: Database) -> None:
    async with async_pool(database.conninfo(), name="orchestrator-1") as pool, transaction(pool) as conn:
        for _ in range(10):
            cursor = await conn.execute("SELECT current_setting('application_name'), %s::int", (1,))
            assert await cursor.fetchone() == ("orchestrator-1", 1)
        cursor = await conn.execute("SELECT count(*) FROM pg_prepared_statements")
        assert await cursor.fetchone() == (0,)


def test_threads_read_through_the_sync_pool_in_autocommit(database: Database) -> None:
    with sync_pool(database.conninfo(roles.SERVING), name="serving") as pool:
        with read(pool) as conn:
            assert conn.execute("SELECT count(*) FROM dagserve.routes").fetchone() == (0,)
        with pytest.raises(DatabaseUnavailable), read(pool) as conn:
            conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        with read(pool) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)


async def test_a_listener_hears_at_once(database: Database, conn: AsyncConnection[Any]) -> None:
    async with await listen(database.conninfo(), name="listener") as listener:
        await listener.execute("LISTEN dag_ended")
        await conn.execute("NOTIFY dag_ended")
        await conn.commit()
        heard = [n.channel async for n in listener.notifies(timeout=5, stop_after=1)]
    assert heard == ["dag_ended"]


async def test_a_pool_serves_again_soon_after_the_server_was_away(own_cluster: Cluster) -> None:
    dsn = own_cluster.admin_conninfo()
    async with async_pool(dsn, name="test", min_size=2, max_size=4) as pool:
        async with transaction(pool) as conn:
            await conn.execute("SELECT 1")
        await asyncio.to_thread(own_cluster.stop, "immediate")
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable):
                async with transaction(pool, timeout_seconds=1.5) as conn:
                    await conn.execute("SELECT 1")
        await asyncio.to_thread(own_cluster.start)
        await await_until(lambda: _answers(pool), "the pool serves again", timeout_seconds=4)


async def test_a_pool_can_be_opened_before_its_server_runs(own_cluster: Cluster) -> None:
    dsn = own_cluster.admin_conninfo()
    own_cluster.stop()
    async with async_pool(dsn, name="test") as pool:
        assert not await _answers(pool)
        await asyncio.to_thread(own_cluster.start)
        await await_until(lambda: _answers(pool), "the pool serves", timeout_seconds=4)


async def _write_then_fail(pool: AsyncPool) -> None:
    async with transaction(pool) as conn:
        await conn.execute(INSERT, ("lost",))
        raise ZeroDivisionError


async def _answers(pool: AsyncPool) -> bool:
    try:
        async with transaction(pool, timeout_seconds=0.5) as conn:
            await conn.execute("SELECT 1")
    except DatabaseUnavailable:
        return False
    return True
