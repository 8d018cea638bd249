"""Slots of a key: who gets one, in which order, and when it is free again."""

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection

from repositories import roles
from repositories.commands import CommandRepository
from repositories.database import AsyncPool
from repositories.slots import SlotRepository
from tests.support.databases import Database
from tests.support.plans import Recorded, Session, recording
from tests.support.rows import seed_attempt, seed_job
from tests.support.waiting import await_until

MANY_KEYS = """
WITH jobs AS (
    INSERT INTO dagapp.dag_jobs (job_id, workflow_id, workflow_version, definition_hash, status, input_params)
    SELECT 'many-' || n, 'echo_test', 1, 'hash', 'RUNNING', '{}' FROM generate_series(1, 8000) AS n
),
limits AS (
    INSERT INTO dagapp.dag_limits (slot_key, limit_count) SELECT 'w:' || n, 2 FROM generate_series(1, 400) AS n
)
INSERT INTO dagapp.dag_slots (slot_key, holder, job_id, requested_at, granted_at)
SELECT 'w:' || 1 + n % 400, 'many-' || n, 'many-' || n, dagapp.clock(), CASE WHEN n <= 800 THEN dagapp.clock() END
FROM generate_series(1, 8000) AS n
"""
"""400 keys, each with 2 holders and a line of 18."""


def wish(holder: str, key: str = "w:k", limit: int = 2, priority: int = 5, **fields: Any) -> dict[str, Any]:
    wanted = {"slot_key": key, "limit_count": limit, "holder": holder, "job_id": "job-1", "priority": priority}
    return {**wanted, "node_id": "n", **fields}


async def change(conn: AsyncConnection[Any], *requests: dict[str, Any], freed: tuple[str, ...] = ()) -> None:
    await SlotRepository(conn).change(requests, freed)
    await conn.commit()


async def held(conn: AsyncConnection[Any], key: str = "w:k") -> list[str]:
    cursor = await conn.execute(
        "SELECT holder FROM dagapp.dag_slots WHERE slot_key = %s AND granted_at IS NOT NULL"
        " ORDER BY granted_at, priority DESC, requested_at, holder",
        (key,),
    )
    rows = await cursor.fetchall()
    await conn.commit()
    return [row[0] for row in rows]


@pytest.fixture
async def seeded(conn: AsyncConnection[Any]) -> AsyncConnection[Any]:
    """Return a connection to a database with one running job."""
    await seed_job(conn)
    await conn.commit()
    return conn


async def test_a_key_has_as_many_holders_as_its_limit_and_the_oldest_waits_least(
    seeded: AsyncConnection[Any],
) -> None:
    for holder in ("a", "b", "c", "d"):
        await change(seeded, wish(holder))
    assert await held(seeded) == ["a", "b"]
    await change(seeded, freed=("a",))
    assert await held(seeded) == ["b", "c"]
    await change(seeded, freed=("b", "c"))
    assert await held(seeded) == ["d"]


async def test_a_higher_priority_is_served_before_an_older_request(seeded: AsyncConnection[Any]) -> None:
    await change(seeded, wish("first", limit=1))
    await change(seeded, wish("old", limit=1, priority=1), wish("older twin", limit=1, priority=1))
    await change(seeded, wish("urgent", limit=1, priority=8))
    await change(seeded, freed=("first",))
    assert await held(seeded) == ["urgent"]
    await change(seeded, freed=("urgent",))
    assert await held(seeded) == ["old"]


async def test_the_same_request_again_changes_nothing(seeded: AsyncConnection[Any]) -> None:
    for _ in range(3):
        await change(seeded, wish("a", limit=1), wish("b", limit=1))
    assert await held(seeded) == ["a"]
    rows = await (await seeded.execute("SELECT holder FROM dagapp.dag_slots")).fetchall()
    assert len(rows) == 2


async def test_keys_do_not_meet(seeded: AsyncConnection[Any]) -> None:
    await change(seeded, wish("a", limit=1), wish("b", key="w:other", limit=1))
    assert (await held(seeded), await held(seeded, "w:other")) == (["a"], ["b"])


async def test_what_waits_can_be_withdrawn(seeded: AsyncConnection[Any]) -> None:
    await change(seeded, wish("a", limit=1), wish("b", limit=1), wish("c", limit=1))
    await change(seeded, freed=("b",))
    await change(seeded, freed=("a",))
    assert await held(seeded) == ["c"]


async def test_a_limit_follows_the_newest_request_until_somebody_sets_it(seeded: AsyncConnection[Any]) -> None:
    slots = SlotRepository(seeded)
    for holder in ("a", "b", "c"):
        await change(seeded, wish(holder, limit=1))
    await change(seeded, wish("d", limit=2))
    assert await held(seeded) == ["a", "b"]
    await slots.set_limit("w:k", 3, "op")
    await seeded.commit()
    await change(seeded, wish("e", limit=9))
    assert await held(seeded) == ["a", "b", "c"]
    await slots.set_limit("w:k", 0, "op")
    await seeded.commit()
    await change(seeded, freed=("a", "b", "c"))
    assert await held(seeded) == []
    (view,) = await slots.limits()
    assert (view.slot_key, view.limit, view.set_by, view.held, view.waiting) == ("w:k", 0, "op", 0, 2)
    await slots.unset_limit("w:k")
    assert await held(seeded) == ["d", "e"]
    (view,) = await slots.limits()
    assert (view.limit, view.set_by) == (9, None)


async def test_a_limit_that_a_build_before_has_kept_stays_until_somebody_asks(seeded: AsyncConnection[Any]) -> None:
    slots = SlotRepository(seeded)
    await slots.set_limit("w:k", 0, "op")
    await seeded.commit()
    await change(seeded, wish("a", limit=1))
    await seeded.execute("UPDATE dagapp.dag_limits SET asked_count = NULL")
    await slots.unset_limit("w:k")
    assert await held(seeded) == []
    await change(seeded, wish("b", limit=2))
    assert await held(seeded) == ["a", "b"]


async def test_keys_that_nobody_uses_are_forgotten(seeded: AsyncConnection[Any]) -> None:
    slots = SlotRepository(seeded)
    await change(seeded, wish("a", key="held", limit=1), wish("b", key="held", limit=1), wish("c", key="left"))
    await change(seeded, freed=("c",))
    await slots.set_limit("set", 3, "op")
    await slots.forget(3600, 10)
    assert {one.slot_key for one in await slots.limits()} == {"held", "left", "set"}
    await slots.forget(0, 10)
    assert {one.slot_key for one in await slots.limits()} == {"held", "set"}
    await change(seeded, wish("d", key="left"))
    assert await held(seeded, "left") == ["d"]


async def test_a_key_that_somebody_is_about_to_ask_for_is_not_forgotten(
    seeded: AsyncConnection[Any], database: Database
) -> None:
    await change(seeded, wish("a"))
    await change(seeded, freed=("a",))
    async with await AsyncConnection.connect(database.conninfo()) as other:
        await SlotRepository(other).change([wish("b")], ())
        await SlotRepository(seeded).forget(0, 10)
        await seeded.commit()
    assert await held(seeded) == ["b"]
    assert [one.slot_key for one in await SlotRepository(seeded).limits()] == ["w:k"]


async def test_a_lower_limit_takes_nothing_away_but_grants_nothing_either(seeded: AsyncConnection[Any]) -> None:
    for holder in ("a", "b", "c"):
        await change(seeded, wish(holder))
    await SlotRepository(seeded).set_limit("w:k", 1, "op")
    await change(seeded, freed=("a",))
    assert await held(seeded) == ["b"]
    await change(seeded, freed=("b",))
    assert await held(seeded) == ["c"]


async def test_grants_are_unnoticed_until_their_job_acted_on_them(seeded: AsyncConnection[Any]) -> None:
    slots = SlotRepository(seeded)
    await change(seeded, wish("job-1", node_id=None), wish("a", limit=2), wish("b", limit=2))

    async def seen() -> dict[str, bool]:
        (moment,) = await (await CommandRepository(seeded).moment(["job-1"])).rows()
        return {row.holder: row.granted_at is not None for row in moment.slots}

    assert await seen() == {"job-1": True, "a": True}
    await slots.notice(["job-1", "a"])
    assert await seen() == {"job-1": True}


async def test_two_who_ask_for_a_new_key_at_once_do_not_both_get_its_only_slot(pool: AsyncPool) -> None:
    async with pool.connection() as one, pool.connection() as other:
        await seed_job(one)
        await one.commit()
        await SlotRepository(one).change([wish("a", limit=1)])
        waiting = asyncio.ensure_future(SlotRepository(other).change([wish("b", limit=1)]))
        await blocked(pool)
        await one.commit()
        await waiting
        await other.commit()
        assert await held(one) == ["a"]


async def test_a_slot_that_is_freed_while_somebody_asks_goes_to_the_first_in_line(pool: AsyncPool) -> None:
    async with pool.connection() as one, pool.connection() as other:
        await seed_job(one)
        await change(one, wish("a", limit=1), wish("b", limit=1))
        await SlotRepository(one).change([], ["a"])
        waiting = asyncio.ensure_future(SlotRepository(other).change([wish("c", limit=1)]))
        await blocked(pool)
        await one.commit()
        await waiting
        await other.commit()
        assert await held(one) == ["b"]


async def test_many_keys_are_locked_in_one_order_whatever_order_they_are_named_in(pool: AsyncPool) -> None:
    async with pool.connection() as conn:
        await seed_job(conn)
        await conn.commit()

    async def ask(number: int) -> None:
        keys = [f"w:{n}" for n in range(12)]
        order = keys if number % 2 else list(reversed(keys))
        async with pool.connection() as conn:
            await SlotRepository(conn).change([wish(f"h{number}", key, limit=3) for key in order])

    await asyncio.gather(*(ask(number) for number in range(8)))
    async with pool.connection() as conn:
        views = await SlotRepository(conn).limits()
    assert [(view.held, view.waiting) for view in views] == [(3, 5)] * 12


async def blocked(pool: AsyncPool) -> None:
    async def one_waits() -> bool:
        async with pool.connection() as conn:
            cursor = await conn.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            row = await cursor.fetchone()
        return row is not None and row[0] == 1

    await await_until(one_waits, "somebody waits for the lock", timeout_seconds=1.8)


@pytest.mark.parametrize(
    ("state", "lease_in_seconds", "expected"),
    [
        ("queued", None, False),
        ("leased", 10, False),
        ("leased", -10, False),
        ("revoked", 10, False),
        ("revoked", -1, True),
        ("revoked", None, True),
        ("expired", 10, False),
        ("expired", -1, True),
        ("reported", 10, True),
        ("released", 10, True),
    ],
)
async def test_a_slot_is_stale_once_its_attempt_is_over_and_its_lease_time_has_passed(
    conn: AsyncConnection[Any], state: str, lease_in_seconds: int | None, expected: bool
) -> None:
    seeded = await seed_attempt(conn, state)
    await conn.execute(
        "UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock() + make_interval(secs => %s)",
        (lease_in_seconds,),
    )
    await change(conn, wish(seeded.task_id))
    found = await (await SlotRepository(conn).stale(10)).rows()
    assert found == ([seeded.task_id] if expected else [])


@pytest.mark.parametrize(("status", "expected"), [("RUNNING", []), ("PENDING", []), ("FAILED", ["job-1"])])
async def test_a_job_holds_nothing_once_it_has_ended(
    seeded: AsyncConnection[Any], status: str, expected: list[str]
) -> None:
    await change(seeded, wish("job-1", node_id=None))
    await seeded.execute("UPDATE dagapp.dag_jobs SET status = %s", (status,))
    assert await (await SlotRepository(seeded).stale(10)).rows() == expected


async def test_what_was_granted_to_a_child_that_is_not_there_any_more_is_stale(
    seeded: AsyncConnection[Any],
) -> None:
    await change(seeded, wish("job-1_many__3_0", node_id="many__3"))
    assert await (await SlotRepository(seeded).stale(10)).rows() == ["job-1_many__3_0"]


async def test_a_job_that_ended_leaves_every_line_and_keeps_what_it_holds(seeded: AsyncConnection[Any]) -> None:
    await change(seeded, wish("a", limit=1), wish("b", limit=1), wish("c", key="w:other", limit=1))
    await seed_job(seeded, "job-2")
    await change(seeded, wish("d", limit=1, job_id="job-2"))
    await SlotRepository(seeded).change([], dropped=["job-1"])
    await seeded.commit()
    assert (await held(seeded), await held(seeded, "w:other")) == (["a"], ["c"])
    await change(seeded, freed=("a",))
    assert await held(seeded) == ["d"]


async def test_a_new_priority_moves_what_waits(seeded: AsyncConnection[Any]) -> None:
    await seed_job(seeded, "job-2")
    await change(seeded, wish("a", limit=1), wish("b", limit=1), wish("c", limit=1, job_id="job-2"))
    await SlotRepository(seeded).change([], priorities=[{"job_id": "job-2", "priority": 9}])
    await change(seeded, freed=("a",))
    assert await held(seeded) == ["c"]


@pytest.mark.parametrize(("status", "stale"), [("WAITING", False), ("CANCELLED", True)])
async def test_a_slot_that_was_granted_to_a_node_that_ended_since_is_stale(
    seeded: AsyncConnection[Any], status: str, stale: bool
) -> None:
    await seeded.execute(
        "INSERT INTO dagapp.dag_node_states (job_id, node_id, status) VALUES ('job-1', 'n', %s)", (status,)
    )
    await change(seeded, wish("job-1_n_0"))
    assert await (await SlotRepository(seeded).stale(10)).rows() == (["job-1_n_0"] if stale else [])


async def test_holders_are_shown_by_age_and_the_line_in_the_order_of_its_grants(
    seeded: AsyncConnection[Any],
) -> None:
    slots, urgency = SlotRepository(seeded), {"a": 5, "b": 1, "c": 5, "d": 9, "e": 1, "f": 9, "g": 5}
    for holder, priority in urgency.items():
        await change(seeded, wish(holder, priority=priority, node_id=None if holder == "a" else holder))
    await change(seeded, wish("other", key="w:other"))
    assert [one.node_id for one in await slots.holders("w:k", 100)] == [None, "b"]
    assert [one.node_id for one in await slots.holders("w:k", 1)] == [None]
    line = [one.node_id for one in await slots.line("w:k", 100)]
    assert [one.node_id for one in await slots.line("w:k", 3)] == line[:3]
    (first, *_) = await slots.line("w:k", 1)
    assert (first.job_id, first.workflow_id, first.priority, first.granted_at) == ("job-1", "echo_test", 9, None)
    granted = []
    for _ in line:
        before = await held(seeded)
        await change(seeded, freed=(before[0],))
        granted += [one for one in await held(seeded) if one not in before]
    assert granted == line == ["d", "f", "c", "g", "e"]
    assert await slots.line("w:k", 100) == []


@pytest.mark.parametrize("statistics", ["of empty tables", "of full tables"])
async def test_a_key_is_shown_without_a_look_at_others(
    database: Database, seeded: AsyncConnection[Any], statistics: str
) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        for table in ("dag_jobs", "dag_slots", "dag_limits"):
            await admin.execute(f"ALTER TABLE dagapp.{table} SET (autovacuum_enabled = false)".encode())
        await admin.execute("ANALYZE")
        await admin.execute(MANY_KEYS)
        if statistics == "of full tables":
            await admin.execute("ANALYZE")
    statements: Recorded = {}
    seeded.cursor_factory = recording(statements)
    slots = SlotRepository(seeded)
    limit = await slots.limit_of("w:1")
    assert limit is not None
    assert (limit.held, limit.waiting) == (2, 18)
    assert [len(found) for found in (await slots.holders("w:1", 100), await slots.line("w:1", 100))] == [2, 18]
    await seeded.rollback()
    async with Session.open(database.conninfo(roles.ORCHESTRATOR)) as session:
        scans = [scan for query, values in statements.items() for scan in await session.scans(query, values)]
    assert {scan.table for scan in scans} == {"dag_jobs", "dag_slots", "dag_limits"}
    assert [scan for scan in scans if scan.kind == "Seq Scan" or scan.visited > 20] == []
