"""Many publishers at once into the catalogue: what a batch of items costs, and that nothing is lost.

`measure` is what the test in tests/integration/repositories/test_publishers.py judges and `python -m bench.catalogue`
prints.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection, errors

from core.stac import collection_document
from repositories import pgstac

Json = dict[str, Any]
PUBLISHERS = 20
LOCK_TIMEOUT = "60s"


@dataclass(frozen=True, slots=True)
class Published:
    """What came of one run."""

    items: int
    stored: int
    seconds: float
    deadlocks: int
    bboxes: dict[str, list[float]]
    """Of each collection, from all its items."""
    intervals: dict[str, list[str]]

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.seconds


def item(publisher: int, number: int, collection_id: str) -> Json:
    """Return an item whose place and time tell its publisher and number."""
    west, south = -170.0 + 17 * publisher, -60.0 + number % 100
    moment = f"{2000 + number % 25}-{1 + publisher % 12:02}-01T00:00:00Z"
    return {
        "type": "Feature", "stac_version": "1.1.0", "stac_extensions": [], "id": f"p{publisher}-{number}",
        "collection": collection_id, "bbox": [west, south, west + 1, south + 1],
        "geometry": {"type": "Polygon", "coordinates": [[
            [west, south], [west + 1, south], [west + 1, south + 1], [west, south + 1], [west, south]]]},
        "properties": {"datetime": moment, "title": f"Item {number} of publisher {publisher}"},
        "links": [], "assets": {"data": {"href": f"http://127.0.0.1/download/{publisher}-{number}", "roles": ["data"]}},
    }  # fmt: skip


async def measure(conninfo: str, *, each: int, batch: int, collections: int) -> Published:
    """Let 20 publishers write `each` items in batches into one collection, or into one of their own that is new."""
    names = [f"bench-{collections}-{number}" for number in range(collections)]
    deadlocks = 0

    async def publish(number: int) -> None:
        nonlocal deadlocks
        name = names[number % collections]
        items = [item(number, n, name) for n in range(each)]
        async with await AsyncConnection.connect(conninfo, autocommit=True) as conn:
            await conn.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
            for start in range(0, each, batch):
                try:
                    async with conn.transaction():
                        await pgstac.ensure_collection(conn, collection_document(name, name))
                        await pgstac.write_items(conn, items[start : start + batch])
                except errors.DeadlockDetected:
                    deadlocks += 1

    began = time.monotonic()
    await asyncio.gather(*(publish(number) for number in range(PUBLISHERS)))
    seconds = time.monotonic() - began
    async with await AsyncConnection.connect(conninfo) as conn:
        cursor = await conn.execute(
            "SELECT collection, count(*), min(ST_XMin(geometry)), min(ST_YMin(geometry)), max(ST_XMax(geometry)),"
            " max(ST_YMax(geometry)), to_char(min(datetime) AT TIME ZONE 'UTC', 'YYYY-MM'),"
            " to_char(max(end_datetime) AT TIME ZONE 'UTC', 'YYYY-MM')"
            " FROM pgstac.items WHERE collection = ANY(%s) GROUP BY collection",
            (names,),
        )
        rows = await cursor.fetchall()
    return Published(
        items=PUBLISHERS * each,
        stored=sum(row[1] for row in rows),
        seconds=seconds,
        deadlocks=deadlocks,
        bboxes={row[0]: list(row[2:6]) for row in rows},
        intervals={row[0]: list(row[6:8]) for row in rows},
    )
