"""The catalogue's one writer: what it wrote is there and whole, however many write at once."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection, errors
from psycopg.types.json import Jsonb

from repositories import pgstac, roles
from repositories.pgstac import CatalogueMismatch, differences
from serving.documents import with_nulls
from tests.support.databases import Database

POINT = {"type": "Point", "coordinates": [10.123456789012345, 52.0]}


def collection(collection_id: str = "ddh-dem") -> dict[str, Any]:
    return {
        "type": "Collection",
        "stac_version": "1.1.0",
        "id": collection_id,
        "title": "Elevation",
        "description": "Elevation",
        "license": "other",
        "links": [],
        "extent": {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}},
    }


def item(item_id: str = "a-v0", collection_id: str = "ddh-dem", moment: str = "2026-03-01T00:00:00Z") -> dict[str, Any]:
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "id": item_id,
        "collection": collection_id,
        "geometry": POINT,
        "bbox": [10.123456789012345, 52.0, 10.123456789012345, 52.0],
        "properties": {"datetime": moment, "title": "Größe ✓", "platform:version": "v1", "nothing": None},
        "links": [],
        "assets": {"data": {"href": "http://127.0.0.1/download/a?version=0", "roles": ["data"]}},
    }


@pytest.fixture
async def worker(database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    async with await AsyncConnection.connect(database.conninfo(roles.WORKER)) as connection:
        yield connection
        await connection.rollback()


@pytest.mark.parametrize("role", [roles.ORCHESTRATOR, roles.WORKER])
async def test_both_writing_roles_write_read_replace_and_delete(database: Database, role: str) -> None:
    async with await AsyncConnection.connect(database.conninfo(role), prepare_threshold=None) as conn:
        await pgstac.write_collection(conn, collection())
        await pgstac.write_item(conn, item())
        assert differences(item(), await pgstac.read_item(conn, "ddh-dem", "a-v0")) == ()
        changed = item(moment="2031-01-01T00:00:00Z")
        await pgstac.write_item(conn, changed)
        assert (await pgstac.read_item(conn, "ddh-dem", "a-v0") or {})["properties"]["datetime"].startswith("2031")
        assert await pgstac.delete_item(conn, "ddh-dem", "a-v0")
        assert not await pgstac.delete_item(conn, "ddh-dem", "a-v0")
        assert await pgstac.read_item(conn, "ddh-dem", "a-v0") is None


async def test_an_existing_collection_stays_as_it_is(conn: AsyncConnection[Any]) -> None:
    assert await pgstac.ensure_collection(conn, collection())
    assert not await pgstac.ensure_collection(conn, {**collection(), "title": "Another"})
    assert (await pgstac.read_collection(conn, "ddh-dem") or {})["title"] == "Elevation"


async def test_a_rolled_back_write_leaves_nothing(database: Database, conn: AsyncConnection[Any]) -> None:
    await pgstac.write_collection(conn, collection())
    await conn.commit()
    await pgstac.write_item(conn, item())
    await conn.rollback()
    assert await pgstac.read_item(conn, "ddh-dem", "a-v0") is None


async def test_a_batch_that_dies_half_way_is_whole_and_single_when_tried_again(
    database: Database, conn: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D33, non-idempotent-retry: what was written before the crash is not there twice, and nothing else is left."""
    monkeypatch.setattr(pgstac, "BATCH_ITEMS", 2)
    await pgstac.write_collection(conn, collection())
    await conn.commit()
    tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgstac'::regnamespace"
    before = await (await conn.execute(tables)).fetchone()
    good = [item(f"a-{number}") for number in range(6)]
    for attempt in range(2):
        with pytest.raises((CatalogueMismatch, errors.DatabaseError)):
            await pgstac.write_items(conn, [*good[:3], item("b", "nowhere"), *good[3:]])
        await conn.rollback()
        assert await (await conn.execute(tables)).fetchone() == before, attempt
    for _ in range(2):
        assert await pgstac.write_items(conn, good) == 6
        await conn.commit()
    cursor = await conn.execute("SELECT count(*) FROM pgstac.items")
    assert await cursor.fetchone() == (6,)


async def test_an_item_without_its_collection_is_an_error_and_not_silence(conn: AsyncConnection[Any]) -> None:
    with pytest.raises((CatalogueMismatch, errors.DatabaseError)):
        await pgstac.write_item(conn, item(collection_id="nowhere"))


async def test_eight_writers_with_new_collections_lose_nothing(database: Database) -> None:
    per_writer = 5

    async def write(number: int) -> None:
        async with await AsyncConnection.connect(database.conninfo(roles.WORKER), autocommit=True) as conn:
            await conn.execute("SET lock_timeout = '30s'")  # they wait for each other; a busy machine lets them longer
            for index in range(per_writer):
                async with conn.transaction():
                    await pgstac.ensure_collection(conn, collection(f"ddh-{number}"))
                    document = item(f"i-{index}", f"ddh-{number}", f"20{10 + index}-0{1 + number}-01T00:00:00Z")
                    await pgstac.write_item(conn, document)

    await asyncio.gather(*(write(number) for number in range(8)))
    async with await AsyncConnection.connect(database.conninfo(roles.SERVING)) as reader:
        for number in range(8):
            for index in range(per_writer):
                assert await pgstac.read_item(reader, f"ddh-{number}", f"i-{index}") is not None


async def search(conn: AsyncConnection[Any], moment: str) -> list[tuple[str, str]]:
    """Return (collection, id) of what pgstac finds at a time."""
    cursor = await conn.execute("SELECT pgstac.search(%s)", (Jsonb({"datetime": moment, "limit": 10}),))
    (found,) = await cursor.fetchone() or ({},)
    return sorted((feature["collection"], feature["id"]) for feature in found["features"])


async def test_an_item_that_moves_in_time_is_one_item_at_its_new_time(conn: AsyncConnection[Any]) -> None:
    """C13 of the cases: the key is (collection, id); within a transaction, too, the last one wins."""
    await pgstac.write_collection(conn, collection())
    for moment in ("2024-01-15T00:00:00Z", "2030-01-01T00:00:00Z", "2025-07-01T00:00:00Z"):
        await pgstac.write_item(conn, item("a", moment=moment))
    assert await search(conn, "2025-06-01T00:00:00Z/2025-08-01T00:00:00Z") == [("ddh-dem", "a")]
    assert await search(conn, "2024-01-01T00:00:00Z/2024-02-01T00:00:00Z") == []
    cursor = await conn.execute("SELECT count(*) FROM pgstac.items WHERE id = 'a'")
    assert await cursor.fetchone() == (1,)


async def test_partitions_take_in_whatever_time_comes(conn: AsyncConnection[Any]) -> None:
    """C15 of the cases."""
    await pgstac.write_collection(conn, collection())
    for year in ("2021", "1999", "0900"):
        await pgstac.write_item(conn, item(f"in-{year}", moment=f"{year}-03-01T00:00:00Z"))
    for year in ("2021", "1999", "0900"):
        found = await search(conn, f"{year}-01-01T00:00:00Z/{year}-12-31T00:00:00Z")
        assert found == [("ddh-dem", f"in-{year}")]


async def test_an_item_over_an_interval_is_found_by_overlap(conn: AsyncConnection[Any]) -> None:
    """C01 of the cases, datetime-null: no instant but both ends. pgstac drops the null; serving puts it back."""
    await pgstac.write_collection(conn, collection())
    year = item("a")
    ends = {"start_datetime": "2023-01-01T00:00:00Z", "end_datetime": "2023-12-31T23:59:59Z"}
    year["properties"] |= {"datetime": None, **ends}
    await pgstac.write_items(conn, [year])
    for moment, found in {
        "2023-06-01T00:00:00Z/2023-06-02T00:00:00Z": [("ddh-dem", "a")],
        "2022-01-01T00:00:00Z/2023-01-01T00:00:00Z": [("ddh-dem", "a")],
        "2024-01-01T00:00:00Z/..": [],
        "../2022-12-31T23:59:59Z": [],
    }.items():
        assert await search(conn, moment) == found, moment
    served = with_nulls(await pgstac.read_item(conn, "ddh-dem", "a") or {})
    assert {"datetime": None, **ends}.items() <= served["properties"].items()


async def test_one_id_in_two_collections_is_two_items(conn: AsyncConnection[Any]) -> None:
    """C07 of the cases."""
    for name in ("ddh-dem", "ddh-ortho"):
        await pgstac.write_collection(conn, collection(name))
        await pgstac.write_item(conn, item("same", name))
    assert await pgstac.delete_item(conn, "ddh-dem", "same")
    assert await pgstac.read_item(conn, "ddh-ortho", "same") is not None


async def test_nobody_but_the_writers_can_hold_the_writers_up(database: Database) -> None:
    for role in (roles.SERVING, roles.GATEWAY):
        async with await AsyncConnection.connect(database.conninfo(role)) as other:
            with pytest.raises(errors.InsufficientPrivilege):
                await other.execute("LOCK TABLE fence.catalogue_writer IN EXCLUSIVE MODE")


async def test_the_reader_s_role_cannot_write(database: Database) -> None:
    async with await AsyncConnection.connect(database.conninfo(roles.SERVING)) as reader:
        with pytest.raises(errors.InsufficientPrivilege):
            await pgstac.write_item(reader, item())


async def test_a_batch_is_written_whole_and_read_back(conn: AsyncConnection[Any]) -> None:
    for name in ("ddh-dem", "ddh-ortho"):
        await pgstac.write_collection(conn, collection(name))
    batch = [item(f"i-{n}", ("ddh-dem", "ddh-ortho")[n % 2], f"20{10 + n % 9}-03-01T00:00:00Z") for n in range(320)]
    assert await pgstac.write_items(conn, [*batch, item("i-0", moment="1999-01-01T00:00:00Z")]) == 320
    assert (await pgstac.read_item(conn, "ddh-dem", "i-0") or {})["properties"]["datetime"].startswith("1999")
    cursor = await conn.execute("SELECT collection, count(*) FROM pgstac.items GROUP BY collection ORDER BY collection")
    assert await cursor.fetchall() == [("ddh-dem", 160), ("ddh-ortho", 160)]
    assert await pgstac.write_items(conn, []) == 0


async def test_a_batch_for_a_collection_that_is_not_there_is_an_error(conn: AsyncConnection[Any]) -> None:
    await pgstac.write_collection(conn, collection())
    with pytest.raises((CatalogueMismatch, errors.DatabaseError)):
        await pgstac.write_items(conn, [item("here"), item("there", "nowhere")])


async def test_tiles_are_deleted_with_what_they_are_tiles_of_and_nothing_else(conn: AsyncConnection[Any]) -> None:
    await pgstac.write_collection(conn, collection())
    names = ["a-v1", "a-v1-tile-r0000c0000", "a-v1-tile-r0000c0001", "a-v10", "a-v10-tile-r0000c0000"]
    await pgstac.write_items(conn, [item(name) for name in names])
    assert await pgstac.delete_tiles(conn, "ddh-dem", "a-v1") == 2
    left = [name for name in names if await pgstac.read_item(conn, "ddh-dem", name)]
    assert left == ["a-v1", "a-v10", "a-v10-tile-r0000c0000"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda d: d["properties"].pop("title"), "/properties/title"),
        (lambda d: d["properties"].update(title="Other"), "/properties/title"),
        (lambda d: d["geometry"]["coordinates"].__setitem__(0, 10.1234567), "/geometry/coordinates/0"),
        (lambda d: d["bbox"].append(1.0), "/bbox"),
        (lambda d: d["assets"]["data"].update(roles="data"), "/assets/data/roles"),
        (lambda d: d.update(properties=None), "/properties"),
    ],
)
def test_a_document_that_reads_back_different_is_told_where(change: Any, where: str) -> None:
    found = copy.deepcopy(item())
    change(found)
    assert differences(item(), found) == (where,)


def test_what_the_catalogue_adds_is_no_difference() -> None:
    found = {**copy.deepcopy(item()), "stac_extensions": [], "links": []}
    found["properties"]["created"] = "2026-01-01T00:00:00Z"
    del found["properties"]["nothing"]
    assert differences(item(), found) == ()


@pytest.mark.parametrize(("written", "found"), [(True, 1), (1, True), (0, False), ("1", 1), (1, "1"), (1, None)])
def test_values_of_another_type_differ(written: Any, found: Any) -> None:
    assert differences({"x": written}, {"x": found}) == ("/x",)
