"""One real PostgreSQL server per test run, and a migrated template that each test clones in about 0.1 s."""

import asyncio
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql

from cli.stack.cluster import TEST_CONFIG, Cluster
from repositories import roles
from repositories.deploy import deploy

TEMPLATE = "geodag_template"
PASSWORDS = {role: f"test-{role}" for role in roles.LOGIN_ROLES}
MEMORY_NEEDED = 6 * 1024**3
_FOLDER_KEY = pytest.StashKey[Path]()
_PREFIX = "geodag-pg-"
_COUNTER = itertools.count()


def shared_folder(config: pytest.Config) -> Path:
    """Return the folder all processes of this run share; made by the controller, passed to xdist's workers."""
    if _FOLDER_KEY not in config.stash:
        passed = getattr(config, "workerinput", {}).get("geodag_folder")
        config.stash[_FOLDER_KEY] = Path(passed) if passed else _new_folder()
    return config.stash[_FOLDER_KEY]


def _new_folder() -> Path:
    """Return a new folder named after this process, after removing what killed runs left behind."""
    root = _root()
    for left in root.glob(f"{_PREFIX}*-*"):
        owner = left.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and os.access(left, os.W_OK):
            Server(left).destroy()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root))


def _root() -> Path:
    """Return memory where there is plenty, else the folder of temporary files: a clone then costs half as much."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_NEEDED:
        return memory
    return Path(tempfile.gettempdir())


@dataclass(frozen=True, slots=True)
class Database:
    """A clone of the template, with every role's address."""

    name: str
    host: str
    port: int
    admin: str

    def conninfo(self, role: str = roles.ORCHESTRATOR) -> str:
        """Return the connection string of a role over TCP with its password, as processes connect."""
        return conninfo.make_conninfo(
            host=self.host, port=self.port, dbname=self.name, user=role, password=PASSWORDS[role]
        )

    def environment(self, role: str) -> dict[str, str]:
        """Return the POSTGRES_ variables of a process with this role."""
        return {
            "POSTGRES_HOST": self.host,
            "POSTGRES_PORT": str(self.port),
            "POSTGRES_DB": self.name,
            "POSTGRES_USER": role,
            "POSTGRES_PASSWORD": PASSWORDS[role],
        }


class Server:
    """The shared server, safe to use from many test processes at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the cluster; making the object looks for PostgreSQL, so only database tests do."""
        if self._cluster is None:
            self._cluster = Cluster(self.folder, config=TEST_CONFIG)
        return self._cluster

    def ensure_ready(self) -> None:
        """Start the server and migrate the template, once per run."""
        with self._lock():
            self.folder.chmod(0o755)
            self.cluster.start()
            if not (self.folder / "template-ready").exists():
                admin = self.cluster.admin_conninfo()
                asyncio.run(deploy(admin, TEMPLATE, PASSWORDS, host="127.0.0.1"))
                (self.folder / "template-ready").touch()

    def clone(self) -> Database:
        """Create a database from the template; PostgreSQL lets one clone at a time."""
        name = f"t_{os.getpid()}_{next(_COUNTER)}"
        with self._lock(), psycopg.connect(self.cluster.admin_conninfo(), autocommit=True) as conn:
            conn.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                    *map(sql.Identifier, (name, TEMPLATE))
                )
            )
            for privilege, grantees in roles.DATABASE_RIGHTS.items():
                names = sql.SQL(", ").join(map(sql.Identifier, grantees))
                grant = sql.SQL("GRANT {} ON DATABASE {} TO {}").format(sql.SQL(privilege), sql.Identifier(name), names)
                conn.execute(grant)
            conn.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
        return Database(name, "127.0.0.1", self.cluster.port, self.cluster.admin_conninfo(name))

    def drop(self, database: Database) -> None:
        """Drop a clone, ending what is still connected."""
        with psycopg.connect(self.cluster.admin_conninfo(), autocommit=True) as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database.name)))

    def destroy(self) -> None:
        """Stop the server, when it was started, and remove the folder."""
        if (self.folder / "postgres").exists():
            self.cluster.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
