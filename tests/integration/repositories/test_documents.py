"""Rows that come as columns and rows that come as documents are the same rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from core.models.engine import ENGINE_TABLES, Command, Slot
from core.models.fan_out import FanOut
from core.models.table import Table, reader_of
from core.schema import ColumnSpec, columns, qualified
from repositories.commands import CommandRepository
from repositories.fan_outs import FanOutRepository
from repositories.slots import SlotRepository
from tests.support.rows import seed_job

AT = datetime(2026, 11, 29, 1, 2, 3, tzinfo=UTC)
MOMENTS = (AT, AT + timedelta(microseconds=7), AT + timedelta(milliseconds=120))
SAMPLES: dict[str, Any] = {
    "integer": 2**31 - 1,
    "smallint": -7,
    "bigint": 2**63 - 1,
    "boolean": True,
    "double precision": 0.1,
    "jsonb": {"deep": [1, {"a": None, "b": "2026-11-29T01:02:03+00:00"}], "text": 'é "\\ \n'},
}


def sample(spec: ColumnSpec, at: datetime) -> Any:
    if spec.type == "timestamptz":
        return at.isoformat()
    return spec.allowed[-1] if spec.allowed else SAMPLES.get(spec.type, "2026-11-29T01:02:03+00:00")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
@pytest.mark.parametrize("table", ENGINE_TABLES, ids=lambda table: table.__table_name__)
async def test_a_row_of_each_table_is_the_same_from_its_columns_and_from_its_document(
    conn: AsyncConnection[Any], table: type[Table], zone: str
) -> None:
    await conn.execute("SELECT set_config('timezone', %s, true)", (zone,))
    said = [{spec.name: sample(spec, at) for spec in columns(table)} for at in MOMENTS]
    for values in ({}, *said):
        statement = f"FROM jsonb_populate_record(NULL::{qualified(table)}, %s) AS t"
        async with conn.cursor(row_factory=dict_row) as cursor:
            found = await (await cursor.execute(f"SELECT t.* {statement}".encode(), (Jsonb(values),))).fetchone()
        async with conn.cursor(row_factory=tuple_row) as cursor:
            document = await (
                await cursor.execute(f"SELECT to_jsonb(t) {statement}".encode(), (Jsonb(values),))
            ).fetchone()
        assert found is not None
        assert document is not None
        row = table.of_row(dict(found))
        assert table.of_document(document[0]) == row
        assert reader_of(table, list(found))(list(found.values())) == row


async def test_what_surrounds_a_job_is_what_was_written(conn: AsyncConnection[Any]) -> None:
    commands = CommandRepository(conn)
    await seed_job(conn)
    (nothing,) = await (await commands.moment(["job-1"])).rows()
    assert (nothing.pauses, nothing.commands, nothing.fan_outs, nothing.slots) == (frozenset(), [], [], [])
    first = await commands.put("job-1", "pause", {"a": [1]}, "op", None)
    second = await commands.put("job-1", "resume", {}, "op", "because")
    slot = {"slot_key": "k", "limit_count": 1, "holder": "job-1", "job_id": "job-1", "node_id": None, "priority": 5}
    await SlotRepository(conn).change([slot])
    await conn.execute(
        "INSERT INTO dagapp.dag_fan_outs (job_id, node_id, state, item_count, child_count, batch_size, max_concurrency,"
        " tolerated, created_at, wake_at, failures)"
        " VALUES ('job-1', 'many', 'running', 3, 3, 1, 2, 0, dagapp.clock(), dagapp.clock(), '[{\"index\": 1}]')"
    )
    await conn.execute(
        "INSERT INTO dagapp.dag_settings (key, value, updated_by)"
        " VALUES ('pause:all', 'true', 'op'), ('pause:queue:q', 'false', 'op')"
    )
    (moment,) = await (await commands.moment(["job-1", "none"])).rows()
    assert moment.now.tzinfo is not None
    assert moment.pauses == {"all"}
    assert [one.command_id for one in moment.commands] == [first, second]
    assert moment.fan_outs == await (await FanOutRepository(conn).of_jobs(["job-1"])).rows()
    assert await of_table(conn, Command) == moment.commands
    assert await of_table(conn, FanOut) == moment.fan_outs
    assert await of_table(conn, Slot) == moment.slots
    assert all(row.granted_at is not None for row in moment.slots)


async def of_table(conn: AsyncConnection[Any], table: type[Table]) -> list[Table]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"SELECT * FROM {qualified(table)} ORDER BY 1".encode())
        return [table.of_row(dict(row)) for row in await cursor.fetchall()]
