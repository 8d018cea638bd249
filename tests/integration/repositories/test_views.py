"""What leaves through the gateway's and serving's views: what a partner may see, and no job."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from repositories import roles
from tests.support.databases import Database
from tests.support.rows import seed_request

ASSET = "a" * 32
JOB = "job-that-stays-inside"


@pytest.fixture
async def request_id(conn: AsyncConnection[Any]) -> str:
    return await seed_request(conn, ASSET, JOB)


@pytest.fixture
async def gateway(database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await AsyncConnection.connect(database.conninfo(roles.GATEWAY), autocommit=True) as connection:
        yield connection


async def rows(conn: AsyncConnection[Any], view: str) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"SELECT * FROM {view}".encode())
        return await cursor.fetchall()


@pytest.mark.parametrize("view", ["requests", "assets", "versions", "platforms"])
async def test_no_view_of_the_gateway_shows_a_job_a_blob_or_a_reviewer(
    gateway: AsyncConnection[Any], request_id: str, view: str
) -> None:
    found = await rows(gateway, f"dagapi.{view}")
    assert found
    text = repr(found)
    assert JOB not in text
    assert "silver/" not in text
    names = {name for row in found for name in row}
    assert not names & {"job_id", "current_job_id", "blob_path", "reviewer", "body", "body_hash", "allowed_sources"}


async def test_review_and_reason_belong_to_the_revision_of_the_request(
    conn: AsyncConnection[Any], gateway: AsyncConnection[Any], request_id: str
) -> None:
    await conn.execute("UPDATE dagapp.asset_versions SET approval_state = 'rejected', rejection_reason = 'blurred'")
    await conn.commit()
    (row,) = await rows(gateway, "dagapi.requests")
    assert (row["review"], row["reason"], row["deleted"]) == ("rejected", "blurred", False)
    await conn.execute("UPDATE dagapp.asset_versions SET revision = 2, approval_state = 'pending_review'")
    await conn.commit()
    (row,) = await rows(gateway, "dagapi.requests")
    assert (row["review"], row["reason"], row["current_revision"]) == (None, None, 2)


@pytest.mark.parametrize("table", ["geospatial_assets", "asset_versions"])
async def test_what_is_deleted_is_gone_from_the_lists_and_marked_on_its_request(
    conn: AsyncConnection[Any], gateway: AsyncConnection[Any], request_id: str, table: str
) -> None:
    await conn.execute(f"UPDATE dagapp.{table} SET deleted_at = dagapp.clock()".encode())
    await conn.commit()
    assert await rows(gateway, "dagapi.versions") == []
    assert [row["deleted"] for row in await rows(gateway, "dagapi.requests")] == [True]


async def test_serving_s_route_tells_deleted_flags_instead_of_hiding(
    database: Database, conn: AsyncConnection[Any], request_id: str
) -> None:
    await conn.execute("UPDATE dagapp.geospatial_assets SET deleted_at = dagapp.clock()")
    await conn.commit()
    async with await AsyncConnection.connect(database.conninfo(roles.SERVING), autocommit=True) as serving:
        (row,) = await rows(serving, "dagserve.routes")
    assert (row["asset_deleted"], row["version_deleted"], row["blob_path"]) == (True, False, "silver/x.tif")
    assert not {"current_job_id", "submitted_by", "reviewer", "source"} & set(row)
