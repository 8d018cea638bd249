"""Fixtures of all tests. Unit tests touch none of the database's, so they run without any service."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from repositories import roles
from repositories.database import AsyncPool, async_pool
from tests.support.databases import Database, Server, shared_folder
from tests.support.folders import open_to_others


def pytest_configure(config: pytest.Config) -> None:
    """Give every worker of this run the same folder for the shared cluster."""
    shared_folder(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a module that share something standing one after the other, before the rest."""
    first: dict[str, int] = {}
    order = {item.nodeid: first.setdefault(item.nodeid.partition("::")[0], at) for at, item in enumerate(items)}
    items.sort(key=lambda item: (order[item.nodeid], "standing" not in getattr(item, "fixturenames", ())))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker the folder; the cluster in it is shared."""
    node.workerinput["geodag_folder"] = str(shared_folder(node.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop and remove the cluster at the end of the run; only the controlling process does."""
    if not hasattr(config, "workerinput"):
        Server(shared_folder(config)).destroy()


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Server:
    """Return the run's real PostgreSQL server, started and with a migrated template by the first who asks."""
    server = Server(shared_folder(pytestconfig))
    server.ensure_ready()
    return server


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """Return a fresh clone of the migrated template; it is dropped afterwards."""
    database = server.clone()
    yield database
    server.drop(database)


@pytest.fixture(scope="module")
def shared_database(server: Server) -> Iterator[Database]:
    """Return a clone for all tests of a module that leave it as it is."""
    database = server.clone()
    yield database
    server.drop(database)


@pytest.fixture
async def conn(database: Database) -> AsyncIterator[AsyncConnection[Any]]:
    """Return a connection as geodag_orchestrator, not in autocommit."""
    dsn = database.conninfo(roles.ORCHESTRATOR)
    async with await AsyncConnection.connect(dsn, prepare_threshold=None) as connection:
        yield connection
        await connection.rollback()


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[AsyncPool]:
    """Return an open pool as geodag_orchestrator."""
    async with async_pool(database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1, max_size=10) as pool:
        yield pool


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that another account can enter, for private clusters."""
    with open_to_others("open") as folder:
        yield folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Return a scratch folder of this test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder
