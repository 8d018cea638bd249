"""`geodag db`: schema, backup, restore and verification of the local database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection

from cli.errors import Unreachable
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, row_table, show
from cli.stack import backup as backups
from cli.stack.cluster import Cluster
from cli.stack.credentials import ensure_credentials
from cli.stack.storage import storage_of
from repositories.verification import Missing, missing

app = typer.Typer(no_args_is_help=True, help="The local database: its schema, backups, whether it is whole.")


@app.command()
def deploy(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Bring the database of the local stack to the schema of this build; nothing to do is fine."""
    cluster = Cluster(home.resolve())
    if not cluster.is_running():
        raise Unreachable(f"the database of {home} does not run; `geodag up` starts and deploys it")
    deployed = cluster.deploy(ensure_credentials(home.resolve()).passwords)
    rows: dict[str, Any] = {
        "database_created": deployed.created_database,
        "migrations": list(deployed.migrations),
        "pgstac": deployed.pgstac,
    }
    show(rows, key_value_table("Deployed", rows), as_json=as_json)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="File to write.", dir_okay=False)],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Write a consistent backup, also while the platform works."""
    with _running(home) as cluster:
        rows: dict[str, Any] = {"file": str(target), "size_bytes": backups.backup(cluster, target.absolute())}
    show(rows, key_value_table("Backup", rows), as_json=as_json)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="File that `backup` wrote.", exists=True, dir_okay=False)],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Put a backup in the database's place; the platform must be down. The old database stays under another name."""
    keep_as = f"geodag_before_{datetime.now(UTC):%Y%m%d_%H%M%S}"
    with _running(home) as cluster:
        kept = backups.restore(cluster, source.absolute(), keep_as=keep_as)
        cluster.deploy(ensure_credentials(home.resolve()).passwords)
    rows: dict[str, Any] = {"restored": str(source), "old_database": kept}
    show(rows, key_value_table("Restored; now geodag db verify", rows), as_json=as_json)


@app.command()
def verify(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Say what the database names and is not there, and which jobs nothing will ever move.

    Of schema, files of versions, what jobs will read, and the catalogue.
    """
    with _running(home) as cluster:
        found = asyncio.run(_missing(cluster, home.resolve()))
    rows = [asdict(one) for one in found]
    title = "Missing" if rows else "Nothing is missing"
    show(rows, row_table(title, ("kind", "name", "detail"), rows), as_json=as_json)
    raise typer.Exit(1 if rows else 0)


async def _missing(cluster: Cluster, root: Path) -> list[Missing]:
    blobs = storage_of(root)
    try:
        async with await AsyncConnection.connect(cluster.admin_conninfo("geodag"), autocommit=True) as conn:
            return await missing(conn, blobs)
    finally:
        await blobs.close()


@contextmanager
def _running(home: Path) -> Iterator[Cluster]:
    """Give the cluster, started for as long as it is needed when the platform is down."""
    cluster = Cluster(home.resolve())
    if cluster.is_running():
        yield cluster
        return
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
