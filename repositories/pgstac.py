"""The one writer of the STAC catalogue (pgstac), and its reader.

Every write takes one global lock until its transaction ends: eight writers without it lost a third to three quarters
of their items to deadlocks and partitions that vanished (geo-stack.md §3.3). The lock is an empty table that the
two writing roles alone may lock; unlike a row's, its lock is given in the order of asking. Every write is read back and
compared by content, so `write_item` returning means that the document is there and whole.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from core.errors import GeodagError
from core.stac import TILE_MARK

Json = dict[str, Any]
BATCH_ITEMS: Final = 300
"""Items of one statement; more would only take more memory."""


class CatalogueMismatch(GeodagError):
    """pgstac gave back another document than was written; the transaction must not commit."""

    code = "CATALOGUE_MISMATCH"


async def write_collection(conn: AsyncConnection[Any], collection: Mapping[str, Any]) -> None:
    """Create or replace a collection and verify it.

    Raises:
        CatalogueMismatch: It reads back different.
    """
    await _lock(conn)
    await conn.execute("SELECT pgstac.upsert_collection(%s)", (Jsonb(dict(collection)),))
    _verify(collection, await read_collection(conn, collection["id"]))


async def ensure_collection(conn: AsyncConnection[Any], collection: Mapping[str, Any]) -> bool:
    """Create a collection unless one with its id exists, which stays untouched; returns whether it was created."""
    await _lock(conn)
    if await read_collection(conn, collection["id"]) is not None:
        return False
    await write_collection(conn, collection)
    return True


async def write_item(conn: AsyncConnection[Any], item: Mapping[str, Any]) -> None:
    """Create or replace an item in its collection, which must exist, and verify it.

    Raises:
        CatalogueMismatch: It reads back different, or the collection does not exist and pgstac dropped it silently.
    """
    await _lock(conn)
    await conn.execute("SELECT pgstac.upsert_item(%s)", (Jsonb(dict(item)),))
    _verify(item, await read_item(conn, item["collection"], item["id"]))


async def write_items(conn: AsyncConnection[Any], items: Iterable[Mapping[str, Any]]) -> int:
    """Create or replace many items, whose collections must exist, verify each, and return how many there are.

    Of an id that occurs twice in a collection the last one wins.

    Raises:
        CatalogueMismatch: One reads back different, or its collection does not exist.
    """
    last = {(str(item["collection"]), str(item["id"])): dict(item) for item in items}
    wanted = list(last.items())
    if wanted:
        await _lock(conn)
    for start in range(0, len(wanted), BATCH_ITEMS):
        part = wanted[start : start + BATCH_ITEMS]
        await conn.execute("SELECT pgstac.upsert_items(%s)", (Jsonb([item for _, item in part]),))
        cursor = await conn.execute(
            "SELECT pgstac.get_item(w.id, w.collection) FROM unnest(%s::text[], %s::text[]) AS w(collection, id)",
            ([collection for (collection, _), _ in part], [item_id for (_, item_id), _ in part]),
        )
        found = {(row[0]["collection"], row[0]["id"]): row[0] for row in await cursor.fetchall() if row[0]}
        for key, item in part:
            _verify(item, found.get(key))
    return len(wanted)


async def delete_item(conn: AsyncConnection[Any], collection_id: str, item_id: str) -> bool:
    """Delete an item and return whether there was one."""
    await _lock(conn)
    cursor = await conn.execute("DELETE FROM pgstac.items WHERE collection = %s AND id = %s", (collection_id, item_id))
    return cursor.rowcount > 0


async def delete_tiles(conn: AsyncConnection[Any], collection_id: str, item_id: str) -> int:
    """Delete the items of the tiles of an item, which are named after it, and return how many there were."""
    await _lock(conn)
    cursor = await conn.execute(
        "DELETE FROM pgstac.items WHERE collection = %s AND starts_with(id, %s)",
        (collection_id, f"{item_id}{TILE_MARK}"),
    )
    return cursor.rowcount


async def read_item(conn: AsyncConnection[Any], collection_id: str, item_id: str) -> Json | None:
    """Return an item as pgstac serves it, None when it has none."""
    return await _one(conn, "SELECT pgstac.get_item(%s, %s)", (item_id, collection_id))


async def read_collection(conn: AsyncConnection[Any], collection_id: str) -> Json | None:
    """Return a collection's document, None when there is none."""
    return await _one(conn, "SELECT pgstac.get_collection(%s)", (collection_id,))


def differences(written: Any, found: Any, path: str = "") -> tuple[str, ...]:
    """Return the paths at which `found` lacks or changes what was written; what pgstac adds does not count.

    Numbers compare within floating point noise (pgstac re-renders geometries); a null may have been dropped.
    """
    if isinstance(written, Mapping):
        if not isinstance(found, Mapping):
            return (path or "/",)
        pairs = ((f"{path}/{key}", value, found.get(key)) for key, value in written.items())
        return tuple(d for where, value, other in pairs for d in differences(value, other, where))
    if isinstance(written, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(written):
            return (path or "/",)
        pairs = ((f"{path}/{i}", a, b) for i, (a, b) in enumerate(zip(written, found, strict=True)))
        return tuple(d for where, value, other in pairs for d in differences(value, other, where))
    return () if _same(written, found) else (path or "/",)


def _same(written: Any, found: Any) -> bool:
    if _is_number(written) and _is_number(found):
        return math.isclose(written, found, rel_tol=1e-12, abs_tol=1e-9)
    return type(written) is type(found) and bool(written == found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _verify(written: Mapping[str, Any], found: Json | None) -> None:
    name = str(written.get("id"))
    if found is None:
        raise CatalogueMismatch(f"{name} is not in the catalogue after it was written", value=name)
    if changed := differences(written, found):
        raise CatalogueMismatch(f"{name} reads back different at {', '.join(changed[:5])}", value=name)


async def _lock(conn: AsyncConnection[Any]) -> None:
    await conn.execute("LOCK TABLE fence.catalogue_writer IN EXCLUSIVE MODE")


async def _one(conn: AsyncConnection[Any], statement: str, values: tuple[str, ...]) -> Json | None:
    cursor = await conn.execute(statement.encode(), values)
    row = await cursor.fetchone()
    return row[0] if row else None
