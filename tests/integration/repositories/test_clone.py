"""The test server itself: clones are whole, apart from each other, and quick."""

import psycopg
import pytest

from repositories import migrate, roles
from tests.support.databases import Database


async def test_a_clone_is_migrated_and_seeded(database: Database) -> None:
    async with await psycopg.AsyncConnection.connect(database.conninfo(roles.ORCHESTRATOR)) as conn:
        assert (await migrate.status(conn)).ready
        cursor = await conn.execute("SELECT platform_id, version_ref FROM dagapp.platforms ORDER BY 1")
        assert await cursor.fetchall() == [("arcgis", "version"), ("ddh", "version_id"), ("geonode", "version")]


@pytest.mark.parametrize("turn", [1, 2])
def test_what_one_test_writes_no_other_sees(database: Database, turn: int) -> None:
    with psycopg.connect(database.conninfo(roles.ORCHESTRATOR)) as conn:
        assert conn.execute("SELECT count(*) FROM dagapp.dag_settings").fetchone() == (0,)
        conn.execute("INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES ('k', '1', 'test')")
