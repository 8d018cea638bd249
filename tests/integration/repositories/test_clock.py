"""The one clock moves inside a transaction, is timezone-aware, and can serve as an index condition."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection


async def test_the_clock_moves_within_a_transaction_and_is_near_ours(conn: AsyncConnection[Any]) -> None:
    moments: list[datetime] = []
    for _ in range(2):
        cursor = await conn.execute("SELECT dagapp.clock()")
        moments += [moment for (moment,) in await cursor.fetchall()]
    assert moments[0] < moments[1]
    assert moments[0].utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moments[0]) < timedelta(seconds=30)


async def test_the_timer_query_reads_the_index_by_owner_and_time(conn: AsyncConnection[Any]) -> None:
    await conn.execute("SET LOCAL enable_seqscan = off")
    cursor = await conn.execute(
        "EXPLAIN (FORMAT JSON) SELECT job_id FROM dagapp.dag_jobs WHERE owner_id = 'o'"
        " AND wake_at <= dagapp.clock() AND status IN ('PENDING','RUNNING')"
    )
    (plan,) = await cursor.fetchone() or ([],)
    text = json.dumps(plan)
    assert "dag_jobs_owner_wake_idx" in text
    assert "wake_at <= dagapp.clock()" in text.split("Index Cond", 1)[1].split('"Filter"')[0]
