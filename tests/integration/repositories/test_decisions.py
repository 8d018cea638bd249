"""What an engine transaction writes is one statement, whatever it has to say."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from psycopg import AsyncConnection, errors

from repositories.decisions import _PARTS, DecisionRepository, _statement
from repositories.events import NewEvent
from tests.support.rows import seed_job

NAMES = (*_PARTS, "channels")
KEYS = ("job_ids", "node_job_ids", "node_ids", "task_ids", "result_ids", "channels")
NOTHING: dict[str, Any] = {
    **dict.fromkeys(_PARTS, "[]"),
    **{key: [] for key in KEYS},
    "jobs_count": 0,
    "nodes_count": 0,
}


def some_of(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(names) + 1):
        yield from combinations(names, count)


async def test_every_combination_of_parts_is_a_statement(conn: AsyncConnection[Any]) -> None:
    for parts in some_of(NAMES):
        cursor = await conn.execute(_statement(parts).encode(), NOTHING)
        assert (await cursor.fetchone() or ())[0] == 1, parts


@pytest.mark.parametrize("stale", ["job", "node", "none"])
async def test_a_row_that_is_not_as_it_was_read_fails_the_statement_whatever_else_it_says(
    conn: AsyncConnection[Any], stale: str
) -> None:
    await seed_job(conn)
    await conn.execute("INSERT INTO dagapp.dag_node_states (job_id, node_id, status) VALUES ('job-1', 'n', 'READY')")
    row = await (await conn.execute("SELECT to_jsonb(j) FROM dagapp.dag_jobs AS j")).fetchone() or ({},)
    node = await (await conn.execute("SELECT to_jsonb(n) FROM dagapp.dag_node_states AS n LIMIT 1")).fetchone() or ({},)
    job = {**row[0], "version": row[0]["version"] + (2 if stale == "job" else 1)}
    changed = {**node[0], "from_status": "SKIPPED" if stale == "node" else node[0]["status"]}
    event = NewEvent(job_id=job["job_id"], event_type="tested", event_data={}, created_at=job["created_at"])
    everything: dict[str, Any] = {"jobs": [job], "nodes": [changed], "events": [event], "channels": ["dag_x"]}
    for names in some_of(tuple(everything)):
        said = {name: everything[name] for name in names}
        fails = {"job": "jobs", "node": "nodes"}.get(stale) in names
        await conn.execute("SAVEPOINT before")
        if fails:
            with pytest.raises(errors.DivisionByZero):
                await DecisionRepository(conn).update(**said)
        else:
            await DecisionRepository(conn).update(**said)
        await conn.execute("ROLLBACK TO before")


async def test_nothing_to_say_is_no_statement(conn: AsyncConnection[Any]) -> None:
    await conn.execute("SELECT 1")
    await DecisionRepository(conn).update()
