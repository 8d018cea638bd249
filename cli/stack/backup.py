"""Backups of the local stack's database, and their restore: pg_dump and pg_restore of the server's own version.

On Azure the server keeps its own backups (docs/operations.md); this is for one machine, and for drills.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from cli.stack.cluster import Cluster, ClusterError
from repositories import roles

RESTORED: Final = "geodag_restored"
_NO_PATH: Final = b"SELECT pg_catalog.set_config('search_path', '', false);"
_PGSTACS_PATH: Final = b"SELECT pg_catalog.set_config('search_path', 'pgstac, public', false);"


def backup(cluster: Cluster, target: Path, database: str = "geodag") -> int:
    """Write a consistent dump of a running database, while others write to it, and return its size.

    Raises:
        ClusterError: pg_dump failed; no file is left.
    """
    pending = target.with_name(f"{target.name}.pending")
    try:
        _run(cluster, "pg_dump", "--format=custom", f"--file={pending}", cluster.admin_conninfo(database))
        pending.rename(target)
    finally:
        pending.unlink(missing_ok=True)
    return target.stat().st_size


def restore(cluster: Cluster, source: Path, database: str = "geodag", keep_as: str | None = None) -> str | None:
    """Put a dump in the place of a database that nobody uses; return the name under which the old one stays.

    The dump is restored beside the old database first, so a broken dump changes nothing.

    Raises:
        ClusterError: the dump cannot be read, or somebody is connected to the database.
    """
    with psycopg.connect(cluster.admin_conninfo(), autocommit=True) as admin:
        _refuse_users(admin, database)
        admin.execute(_statement("DROP DATABASE IF EXISTS {}", RESTORED))
        admin.execute(_statement("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'", RESTORED))
        try:
            _restore(cluster, source)
            _grant(admin)
        except BaseException:
            admin.execute(_statement("DROP DATABASE {}", RESTORED))
            raise
        kept = _set_aside(admin, database, keep_as)
        admin.execute(_statement("ALTER DATABASE {} RENAME TO {}", RESTORED, database))
    return kept


def _restore(cluster: Cluster, source: Path) -> None:
    """Run a dump's statements with pgstac in the search path: its functions name each other without their schema."""
    with tempfile.TemporaryDirectory(prefix="geodag-restore-") as folder:
        script = Path(folder) / "restore.sql"
        _run(cluster, "pg_restore", f"--file={script}", str(source))
        text = script.read_bytes().replace(_NO_PATH, _PGSTACS_PATH, 1)
        script.write_bytes(text)
        target = ("--dbname", cluster.admin_conninfo(RESTORED))
        _run(cluster, "psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", *target, f"--file={script}")


def _refuse_users(admin: psycopg.Connection[Any], database: str) -> None:
    row = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (database,)).fetchone()
    if row and row[0]:
        raise ClusterError(f"{row[0]} connections use {database}; stop the platform first (geodag down)")


def _set_aside(admin: psycopg.Connection[Any], database: str, keep_as: str | None) -> str | None:
    if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone():
        return None
    if keep_as is None:
        admin.execute(_statement("DROP DATABASE {}", database))
        return None
    admin.execute(_statement("ALTER DATABASE {} RENAME TO {}", database, keep_as))
    return keep_as


def _grant(admin: psycopg.Connection[Any]) -> None:
    """Give the rights on the database itself, which no dump carries."""
    admin.execute(_statement("REVOKE ALL ON DATABASE {} FROM PUBLIC", RESTORED))
    for privilege, grantees in roles.DATABASE_RIGHTS.items():
        names = sql.SQL(", ").join(map(sql.Identifier, grantees))
        admin.execute(
            sql.SQL("GRANT {} ON DATABASE {} TO {}").format(sql.SQL(privilege), sql.Identifier(RESTORED), names)
        )


def _statement(text: str, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*map(sql.Identifier, names))


def _run(cluster: Cluster, program: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(cluster.installation.bin / program), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
    )
    if done.returncode != 0:
        tail = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise ClusterError(f"{program} ended with {done.returncode}: {tail}")
