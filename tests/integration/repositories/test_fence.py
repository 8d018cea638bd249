"""`fence.hold` lets through only the holder of a live lease, and keeps the lease alive until it commits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, errors

from core.statuses import AttemptState
from repositories import fence, roles
from repositories.fence import FenceLost
from tests.support.databases import Database
from tests.support.rows import SeededAttempt, seed_attempt
from tests.support.waiting import await_until

WRONG = "f" * 32


@pytest.fixture
async def worker(database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await AsyncConnection.connect(database.conninfo(roles.WORKER)) as connection:
        yield connection
        await connection.rollback()


async def test_the_holder_of_a_live_lease_passes(conn: AsyncConnection[Any], worker: AsyncConnection[Any]) -> None:
    attempt = await seed_attempt(conn)
    await fence.hold(worker, attempt.task_id, attempt.token)


@pytest.mark.parametrize("state", [s for s in AttemptState if s is not AttemptState.LEASED])
async def test_every_other_state_is_refused_and_named(
    conn: AsyncConnection[Any], worker: AsyncConnection[Any], state: AttemptState
) -> None:
    attempt = await seed_attempt(conn, state)
    with pytest.raises(FenceLost, match=f"is {state}, not leased"):
        await fence.hold(worker, attempt.task_id, attempt.token)


@pytest.mark.parametrize(
    ("task_id", "token"), [("job-1_echo_0", WRONG), ("job-1_echo_0", ""), ("job-2_echo_0", WRONG), ("", "")]
)
async def test_a_wrong_token_and_an_unknown_task_get_the_same_answer(
    conn: AsyncConnection[Any], worker: AsyncConnection[Any], task_id: str, token: str
) -> None:
    await seed_attempt(conn)
    with pytest.raises(FenceLost, match="no attempt with this task id and token"):
        await fence.hold(worker, task_id, token)


@pytest.mark.parametrize("token", [None, "hash"])
async def test_neither_null_nor_the_stored_hash_is_a_token(
    conn: AsyncConnection[Any], worker: AsyncConnection[Any], token: str | None
) -> None:
    attempt = await seed_attempt(conn)
    cursor = await conn.execute("SELECT token_hash FROM dagapp.dag_attempts")
    (stored,) = await cursor.fetchone() or ("",)
    with pytest.raises(errors.DatabaseError, match="no attempt"):
        await worker.execute("SELECT fence.hold(%s, %s)", (attempt.task_id, stored if token == "hash" else token))


async def test_nobody_can_revoke_the_attempt_while_it_is_held(
    database: Database, conn: AsyncConnection[Any], worker: AsyncConnection[Any]
) -> None:
    attempt = await seed_attempt(conn)
    await fence.hold(worker, attempt.task_id, attempt.token)
    revoking = asyncio.create_task(_revoke(database, attempt))
    await await_until(lambda: _waits_for_lock(database), "the revocation waits for the fence")
    assert not revoking.done()
    await worker.commit()
    assert await revoking == 1


async def test_a_lease_that_was_revoked_first_stops_the_write(
    database: Database, conn: AsyncConnection[Any], worker: AsyncConnection[Any]
) -> None:
    attempt = await seed_attempt(conn)
    await _revoke(database, attempt)
    with pytest.raises(FenceLost):
        await fence.hold(worker, attempt.task_id, attempt.token)


async def test_two_transactions_of_one_attempt_may_hold_at_once(
    database: Database, conn: AsyncConnection[Any], worker: AsyncConnection[Any]
) -> None:
    attempt = await seed_attempt(conn)
    await fence.hold(worker, attempt.task_id, attempt.token)
    async with await AsyncConnection.connect(database.conninfo(roles.WORKER)) as other:
        await fence.hold(other, attempt.task_id, attempt.token)


async def test_a_table_of_the_same_name_in_the_session_does_not_deceive_the_fence(
    conn: AsyncConnection[Any], worker: AsyncConnection[Any]
) -> None:
    attempt = await seed_attempt(conn, AttemptState.REVOKED)
    await worker.execute("CREATE TEMP TABLE dag_attempts (task_id text, state text, token_hash text)")
    await worker.execute("CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'")
    await worker.execute("SET LOCAL search_path = pg_temp, pg_catalog")
    with pytest.raises(FenceLost, match="revoked"):
        await fence.hold(worker, attempt.task_id, attempt.token)


async def _revoke(database: Database, attempt: SeededAttempt) -> int:
    async with await AsyncConnection.connect(database.conninfo(roles.ORCHESTRATOR)) as conn:
        cursor = await conn.execute(
            "UPDATE dagapp.dag_attempts SET state = 'revoked' WHERE task_id = %s AND state = 'leased'",
            (attempt.task_id,),
        )
        return cursor.rowcount


async def _waits_for_lock(database: Database) -> bool:
    with psycopg.connect(database.admin) as admin:
        row = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'", (database.name,)
        ).fetchone()
    return row is not None and row[0] > 0
