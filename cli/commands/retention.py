"""`geodag gc` and `geodag storage`: what goes after its time, and who takes how much."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection, conninfo

from cli.errors import Unreachable
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import row_table, show
from cli.stack.cluster import Cluster
from cli.stack.credentials import ensure_credentials
from cli.stack.storage import storage_of
from core.ports import BlobRepository
from repositories import roles
from repositories.blobs import BlobSettings, open_blobs
from repositories.database import translated
from repositories.expiry import as_owner
from repositories.retention import RetentionSettings, Swept
from repositories.storage import PlatformStorage, storage
from services.retention import sweep

Work = Callable[[AsyncConnection[Any], BlobRepository], Awaitable[Any]]
SWEPT_COLUMNS = ("kind", "rows", "size_bytes", "detail")
STORAGE_COLUMNS = (
    "platform_id",
    "versions",
    "published_bytes",
    "other_bytes",
    "deleted_bytes",
    "external_copies",
)


def _days(text: str) -> Any:
    return typer.Option(min=0, help=f"Days: {text}; 0: for ever. Default: the setting.")


def gc(
    really: Annotated[bool, typer.Option("--really", help="Remove it; without it only count.")] = False,
    events: Annotated[int | None, _days("whole months of events")] = None,
    jobs: Annotated[int | None, _days("jobs that are over")] = None,
    deleted: Annotated[int | None, _days("files of versions and assets that were deleted")] = None,
    files: Annotated[int | None, _days("files of attempts to which nothing refers")] = None,
    uploads: Annotated[int | None, _days("uploads that nobody submitted")] = None,
    deliveries: Annotated[int | None, _days("webhooks that are over")] = None,
    dead_letters: Annotated[int | None, _days("letters that were resolved")] = None,
    batches: Annotated[int | None, _days("answers to batches of submits")] = None,
    results: Annotated[int | None, _days("results that came too late")] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Put months into the storage before they go.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Remove what is past its time, as the deploy role: of this machine's stack, or where POSTGRES_HOST leads."""
    given = {
        "retention_events_days": events,
        "retention_jobs_days": jobs,
        "retention_deleted_days": deleted,
        "retention_files_days": files,
        "retention_uploads_days": uploads,
        "retention_deliveries_days": deliveries,
        "retention_dead_letters_days": dead_letters,
        "retention_batches_days": batches,
        "retention_results_days": results,
        "retention_archive_events": archive,
    }
    policy = RetentionSettings.load().model_copy(update={k: v for k, v in given.items() if v is not None})

    async def work(conn: AsyncConnection[Any], blobs: BlobRepository) -> list[Swept]:
        return await sweep(conn, policy, blobs, dry_run=not really)

    rows = [asdict(one) for one in asyncio.run(_connected(home, work))]
    title = "Removed" if really else "Would be removed; --really removes it"
    show(rows, row_table(title, SWEPT_COLUMNS, rows), as_json=as_json)


def storage_of_platforms(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Say what the versions of each platform take."""

    async def work(conn: AsyncConnection[Any], _blobs: BlobRepository) -> list[PlatformStorage]:
        async with as_owner(conn):
            return await storage(conn)

    rows = [asdict(one) for one in asyncio.run(_connected(home, work))]
    show(rows, row_table("Storage", STORAGE_COLUMNS, rows), as_json=as_json)


async def _connected(home: Path, work: Work) -> Any:
    dsn, blobs = _places(home)
    try:
        with translated():
            async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
                return await work(conn, blobs)
    finally:
        await blobs.close()


def _places(home: Path) -> tuple[str, BlobRepository]:
    """Return the database and the storage that belongs to it."""
    if os.environ.get("POSTGRES_HOST"):
        settings = BlobSettings.load()
        return settings.listen_conninfo(), open_blobs(settings)
    cluster = Cluster(home.resolve())
    if not cluster.is_running():
        raise Unreachable(f"the database of {home} does not run, and POSTGRES_HOST names none")
    password = ensure_credentials(home.resolve()).passwords[roles.DEPLOY]
    dsn = conninfo.make_conninfo(
        cluster.admin_conninfo("geodag"), host="127.0.0.1", user=roles.DEPLOY, password=password
    )
    return dsn, storage_of(home.resolve())
