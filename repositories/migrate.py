"""Step two of two: numbered forward migrations, run by a role that may become `geodag_owner` but is no superuser.

Each migration is one transaction under an advisory lock, recorded with its checksum; a recorded migration whose text
changed stops everything. Then the deploy role lets `pypgstac` bring the catalogue's schema up to date.
"""

import asyncio
import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata, resources
from typing import Any

from psycopg import AsyncConnection, conninfo, errors, sql
from psycopg.rows import class_row

from core.errors import GeodagError
from core.models.business import BUSINESS_TABLES
from core.models.engine import ENGINE_TABLES
from core.schema import ddl
from repositories import roles
from repositories.bootstrap import LOCK_KEY

SCHEMAS = ("dagapp", "dagqueue", "fence", "geo", "dagapi", "dagserve")
"""Everything geodag_owner owns; pgstac's schema belongs to pgstac_admin."""
TRIES = 5
"""How often a migration is tried that meets locks of others."""
_FILE_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


class MigrationError(GeodagError):
    """The database and the migrations of this build do not fit together; an operator decides."""

    code = "MIGRATION_FAILED"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Return the SHA-256 hex digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """One row of `dagapp.schema_migrations`."""

    number: int
    name: str
    checksum: str
    applied_by: str
    applied_at: datetime


@dataclass(frozen=True, slots=True)
class TableCount:
    """One table and how many rows it holds."""

    schema_name: str
    table_name: str
    row_count: int


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What a database has and what this build wants."""

    applied: tuple[Applied, ...]
    pending: tuple[str, ...]
    changed: tuple[str, ...]
    """Names of applied migrations whose text in this build differs, or which it does not know."""
    pgstac_installed: str | None
    pgstac_wanted: str

    @property
    def ready(self) -> bool:
        """Return whether processes of this build may use the database."""
        return not self.pending and not self.changed and self.pgstac_installed == self.pgstac_wanted


def load_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this build in order; gaps and foreign names are errors."""
    folder = resources.files("repositories") / "migrations"
    found = sorted(
        (_parse(entry.name, entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name[:1] != "_"),
        key=lambda migration: migration.number,
    )
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise MigrationError(f"migration {expected:04} is missing or doubled before {migration.name}")
    return tuple(found)


async def status(conn: AsyncConnection, migrations: Sequence[Migration] | None = None) -> SchemaStatus:
    """Return what is applied, pending and changed; needs SELECT on `dagapp.schema_migrations` only."""
    wanted = load_migrations() if migrations is None else migrations
    applied = await _applied(conn)
    by_number = {row.number: row for row in applied}
    known = {migration.number: migration for migration in wanted}
    return SchemaStatus(
        applied=applied,
        pending=tuple(m.name for m in wanted if m.number not in by_number),
        changed=tuple(
            row.name for row in applied if row.number not in known or known[row.number].checksum != row.checksum
        ),
        pgstac_installed=await _pgstac_version(conn),
        pgstac_wanted=metadata.version("pypgstac"),
    )


async def tables(conn: AsyncConnection) -> tuple[TableCount, ...]:
    """Return every table of the schemas the caller may read, with exact row counts."""
    cursor = await conn.execute(
        "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        " AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1, 2",
        (list(SCHEMAS),),
    )
    return tuple([await _count(conn, schema, table) for schema, table in await cursor.fetchall()])


def ddl_preview() -> str:
    """Return the DDL that the models stand for."""
    return ddl((*ENGINE_TABLES, *BUSINESS_TABLES))


async def migrate(conn: AsyncConnection, migrations: Sequence[Migration] | None = None) -> tuple[str, ...]:
    """Apply what is pending and return the names; idempotent, and safe to call from many processes at once.

    The build before goes on meanwhile: one that meets its locks in another order is tried again, as a whole.

    Raises:
        MigrationError: An applied migration has another text in this build, or one is unknown to it.
        psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable: As often as it was tried; nothing of that
            migration is left.
    """
    wanted = load_migrations() if migrations is None else migrations
    return tuple([migration.name for migration in wanted if await _apply_patiently(conn, migration, wanted)])


async def _apply_patiently(conn: AsyncConnection, migration: Migration, wanted: Sequence[Migration]) -> bool:
    for _ in range(TRIES - 1):
        with suppress(errors.DeadlockDetected, errors.LockNotAvailable):
            return await _apply(conn, migration, wanted)
    return await _apply(conn, migration, wanted)


async def _apply(conn: AsyncConnection, migration: Migration, wanted: Sequence[Migration]) -> bool:
    """Apply a migration in a transaction of its own; return whether it was pending."""
    async with conn.transaction():
        await _become_owner(conn)
        await _ensure_ledger(conn)
        pending = await _is_pending(conn, migration, wanted)
        if pending:
            await conn.execute(migration.text.encode(), prepare=False)
            await _record(conn, migration)
        return pending


async def drop_all(conn: AsyncConnection) -> None:
    """Drop every schema of geodag_owner with everything in it; the caller guards this with a development flag."""
    async with conn.transaction():
        await _become_owner(conn)
        for schema in SCHEMAS:
            await conn.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)), prepare=False
            )


async def rebuild(conn: AsyncConnection) -> tuple[str, ...]:
    """Drop everything and migrate from nothing; the catalogue is a projection and stays."""
    await drop_all(conn)
    return await migrate(conn)


async def migrate_pgstac(dsn: str) -> str:
    """Bring pgstac to this build's version and return it; `dsn` is of the deploy role (CREATEROLE, no superuser).

    Runs in its own process: importing pypgstac replaces psycopg's JSON functions for the whole interpreter.
    """
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        # Without it the migration's first function would land in public, where nobody may create.
        await conn.execute("CREATE SCHEMA IF NOT EXISTS pgstac AUTHORIZATION pgstac_admin")
    environment = {**_without_pg(os.environ), **_pg_environment(dsn)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pypgstac.pypgstac", "migrate",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    if process.returncode != 0:
        tail = output.decode(errors="replace").strip().splitlines()[-5:]
        raise MigrationError(f"pypgstac migrate ended with {process.returncode}: {' | '.join(tail)}")
    return metadata.version("pypgstac")


def _parse(file_name: str, text: str) -> Migration:
    match = _FILE_NAME.match(file_name)
    if match is None:
        raise MigrationError(f"{file_name} is no migration name, expected 0001_lower_case.sql")
    return Migration(int(match[1]), file_name.removesuffix(".sql"), text)


async def _become_owner(conn: AsyncConnection) -> None:
    """Take the lock and the owner's role until the transaction ends; bootstrap is the only place that may."""
    await conn.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
    await conn.execute("SET LOCAL statement_timeout = 0")
    await conn.execute("SET LOCAL lock_timeout = '10s'")
    await conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(roles.OWNER)))
    await conn.execute("SET LOCAL search_path = pg_catalog, public")


async def _ensure_ledger(conn: AsyncConnection) -> None:
    cursor = await conn.execute("SELECT to_regclass('dagapp.schema_migrations')")
    row = await cursor.fetchone()
    if row and row[0]:
        return
    await conn.execute("CREATE SCHEMA IF NOT EXISTS dagapp")
    await conn.execute(
        "CREATE TABLE dagapp.schema_migrations ("
        " number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
        " applied_by text NOT NULL DEFAULT session_user, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )


async def _is_pending(conn: AsyncConnection, migration: Migration, wanted: Sequence[Migration]) -> bool:
    known = {m.number: m for m in wanted}
    applied = {row.number: row for row in await _applied(conn)}
    for number, row in applied.items():
        if number not in known:
            raise MigrationError(f"the database has migration {row.name}, which this build does not know")
        if known[number].checksum != row.checksum:
            raise MigrationError(f"migration {row.name} was changed after it had been applied")
    return migration.number not in applied


async def _record(conn: AsyncConnection, migration: Migration) -> None:
    await conn.execute(
        "INSERT INTO dagapp.schema_migrations (number, name, checksum) VALUES (%s, %s, %s)",
        (migration.number, migration.name, migration.checksum),
    )


async def _applied(conn: AsyncConnection) -> tuple[Applied, ...]:
    cursor = await conn.execute("SELECT to_regclass('dagapp.schema_migrations')")
    row = await cursor.fetchone()
    if not row or not row[0]:
        return ()
    async with conn.cursor(row_factory=class_row(Applied)) as rows:
        await rows.execute(
            "SELECT number, name, checksum, applied_by, applied_at FROM dagapp.schema_migrations ORDER BY number"
        )
        return tuple(await rows.fetchall())


async def _pgstac_version(conn: AsyncConnection) -> str | None:
    cursor = await conn.execute("SELECT to_regclass('pgstac.migrations')")
    row = await cursor.fetchone()
    if not row or not row[0]:
        return None
    cursor = await conn.execute("SELECT pgstac.get_version()")
    row = await cursor.fetchone()
    return row[0] if row else None


async def _count(conn: AsyncConnection, schema: str, table: str) -> TableCount:
    cursor = await conn.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table)))
    row = await cursor.fetchone()
    return TableCount(schema, table, row[0] if row else 0)


def _without_pg(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("PG")}


def _pg_environment(dsn: str) -> dict[str, str]:
    names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER", "password": "PGPASSWORD"}
    parts: dict[str, Any] = conninfo.conninfo_to_dict(dsn)
    return {variable: str(parts[key]) for key, variable in names.items() if parts.get(key) is not None}
