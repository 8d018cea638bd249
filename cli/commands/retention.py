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
from repositories import roles
from repositories.retention import Policy, Retention, Swept, storage
from repositories.settings import DatabaseSettings

Work = Callable[[AsyncConnection[Any]], Awaitable[Any]]
SWEPT_COLUMNS = ("kind", "rows", "detail")
STORAGE_COLUMNS = (
    "platform_id",
    "versions",
    "published_bytes",
    "other_bytes",
    "deleted_bytes",
    "external_copies",
)


def gc(
    really: Annotated[bool, typer.Option("--really", help="Remove it; without it only count.")] = False,
    events: Annotated[int, typer.Option(min=0, help="Days that months of events are kept; 0: for ever.")] = 400,
    deliveries: Annotated[int, typer.Option(min=0, help="Days of webhooks that are over.")] = 90,
    dead_letters: Annotated[int, typer.Option(min=0, help="Days of letters that were resolved.")] = 90,
    batches: Annotated[int, typer.Option(min=0, help="Days of answers to batches of submits.")] = 30,
    results: Annotated[int, typer.Option(min=0, help="Days of results that came too late.")] = 30,
    archive: Annotated[
        Path | None, typer.Option(help="Folder that months of events are written to first.", file_okay=False)
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Remove what is past its time, as the deploy role: of this machine's stack, or where POSTGRES_HOST leads."""
    policy = Policy(
        events_days=events,
        deliveries_days=deliveries,
        dead_letters_days=dead_letters,
        batches_days=batches,
        results_days=results,
    )

    async def sweep(conn: AsyncConnection[Any]) -> list[Swept]:
        return await Retention(conn, policy, dry_run=not really, archive=archive).sweep()

    if archive is not None and really:
        archive.mkdir(parents=True, exist_ok=True)
    rows = [asdict(one) for one in asyncio.run(_connected(home, sweep))]
    title = "Removed" if really else "Would be removed; --really removes it"
    show(rows, row_table(title, SWEPT_COLUMNS, rows), as_json=as_json)


def storage_of_platforms(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Say what the versions of each platform take."""
    rows = [asdict(one) for one in asyncio.run(_connected(home, storage))]
    show(rows, row_table("Storage", STORAGE_COLUMNS, rows), as_json=as_json)


async def _connected(home: Path, work: Work) -> Any:
    async with await AsyncConnection.connect(_conninfo(home), autocommit=True) as conn:
        return await work(conn)


def _conninfo(home: Path) -> str:
    if os.environ.get("POSTGRES_HOST"):
        return DatabaseSettings.load().listen_conninfo()
    cluster = Cluster(home.resolve())
    if not cluster.is_running():
        raise Unreachable(f"the database of {home} does not run, and POSTGRES_HOST names none")
    password = ensure_credentials(home.resolve()).passwords[roles.DEPLOY]
    return conninfo.make_conninfo(
        cluster.admin_conninfo("geodag"), host="127.0.0.1", user=roles.DEPLOY, password=password
    )
