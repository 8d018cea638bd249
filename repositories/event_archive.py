"""Months of the event log as Parquet files, in the silver zone under `archives/events/`.

One file a month; columns are those of `JobEvent`, times in UTC to the microsecond, `event_data` as its JSON text. A
file is written here first, then put under a name that nobody used, read back whole and compared by a digest of rows.
One that is there already, as after a crash, counts when it holds the same. Needs the extra `archive` (pyarrow).
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from core.errors import Conflict, GeodagError
from core.payloads import ARCHIVES, CONTAINER
from core.ports import BlobRef, BlobRepository

BATCH: Final = 20_000
Row = Mapping[str, Any]
COLUMNS: Final = (
    "event_id",
    "job_id",
    "node_id",
    "task_id",
    "event_type",
    "event_status",
    "event_data",
    "checkpoint_name",
    "created_at",
)


class ArchiveFailed(GeodagError):
    """A month of events was not archived as a whole, so it was not dropped."""

    code = "ARCHIVE_FAILED"


@dataclass(slots=True)
class Contents:
    """How many rows a file or a table has, and what proves that they are the same."""

    rows: int = 0
    size_bytes: int = 0
    last_event_id: int = 0
    digest: Any = field(default_factory=hashlib.sha256, repr=False)

    def add(self, rows: Iterable[Row]) -> None:
        """Count rows in the order of their ids."""
        for row in rows:
            values = [row[name] for name in COLUMNS[:-1]] + [row["created_at"].timestamp()]
            self.digest.update(repr(values).encode())
            self.rows += 1
            self.last_event_id = row["event_id"]

    def same_as(self, other: "Contents") -> bool:
        """Return whether both hold the same rows."""
        return (self.rows, self.digest.digest()) == (other.rows, other.digest.digest())


def place(table: str) -> BlobRef:
    """Return where a month lies."""
    return BlobRef(CONTAINER, f"{ARCHIVES}events/{table}.parquet")


def check_installed() -> None:
    """Raise `ArchiveFailed` where the extra is missing, before anything is done."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ArchiveFailed(
            "archives are Parquet files, and pyarrow is not installed",
            remediation="Install the extra: pip install 'geodag[archive]'; or drop months without one: --no-archive.",
        ) from error


async def write(conn: AsyncConnection[Any], table: str, path: Path) -> Contents:
    """Write a month to a local file, in the caller's transaction, and return what it should hold."""
    import pyarrow as pa
    from pyarrow import parquet

    found, schema = Contents(), _schema(pa)
    plain = sql.SQL(", ").join(sql.Identifier(name) for name in COLUMNS if name != "event_data")
    query = sql.SQL("SELECT {}, event_data::text AS event_data FROM {} ORDER BY event_id")
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        async for rows in _batches(conn, query.format(plain, sql.Identifier("dagapp", table))):
            found.add(rows)
            await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(rows, schema=schema))
    return found


async def put(blobs: BlobRepository, table: str, path: Path, found: Contents) -> Contents:
    """Store a file that was written, and return what was read back from there.

    Raises:
        ArchiveFailed: that is not what the table holds.
    """
    with suppress(Conflict):  # an earlier run came this far, or the database was restored since: the rows decide
        await blobs.upload(path, place(table))
    stored = await read_back(blobs, table)
    if not stored.same_as(found):
        raise ArchiveFailed(
            f"{place(table)} holds {stored.rows} events and the table {found.rows}, or others; nothing was dropped",
            value=str(place(table)),
            remediation="Look at the file; move it away when it is not this month's, then run again.",
        )
    return stored


async def read_back(blobs: BlobRepository, table: str) -> Contents:
    """Read a stored month whole."""
    from pyarrow import parquet

    def read(path: Path) -> Contents:
        found = Contents(size_bytes=path.stat().st_size)
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                found.add(batch.to_pylist())
        return found

    with tempfile.TemporaryDirectory(prefix="geodag-archive-") as folder:
        return await asyncio.to_thread(read, await blobs.stage(place(table), Path(folder)))


async def _batches(conn: AsyncConnection[Any], query: sql.Composed) -> AsyncIterator[Sequence[dict[str, Any]]]:
    async with conn.cursor(name="archive", row_factory=dict_row) as cursor:
        await cursor.execute(query)
        while rows := await cursor.fetchmany(BATCH):
            yield rows


def _schema(pa: Any) -> Any:
    kinds = {"event_id": pa.int64(), "created_at": pa.timestamp("us", tz="UTC")}
    required = {"event_id", "job_id", "event_type", "event_data", "created_at"}
    return pa.schema([pa.field(name, kinds.get(name, pa.string()), nullable=name not in required) for name in COLUMNS])
