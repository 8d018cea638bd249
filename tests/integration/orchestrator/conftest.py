"""A real orchestrator on a free port, served by the test's own event loop."""

import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from pydantic import SecretStr

from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from repositories import roles
from repositories.database import AsyncPool
from tests.support.azure_side import Azure
from tests.support.databases import Database
from tests.support.doors import KEYS, Door
from tests.support.engine import WORKFLOWS, Engine
from tests.support.serving_http import serve
from tests.support.storage import Storage, storage_of
from tests.support.waiting import await_until

StartOrchestrator = Callable[..., AbstractAsyncContextManager[Door]]


def write_keys(folder: Path) -> Path:
    """Write a key file with one key per role."""
    entries = [
        {
            "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest(),
            "subject": name,
            "roles": [role],
            "platform_id": platform,
        }
        for name, (role, platform) in KEYS.items()
    ]
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": entries}))
    return path


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """Return a key file with one key per role."""
    return write_keys(tmp_path)


def short_times(database: Database, keys_file: Path, storage: Storage) -> OrchestratorSettings:
    """Return settings with short times."""
    reached: dict[str, Any] = storage.environment(database, roles.ORCHESTRATOR)
    return OrchestratorSettings(
        **{name.lower(): value for name, value in reached.items()},
        orchestrator_port=0,
        orchestrator_poll_interval=0.2,
        orchestrator_heartbeat_seconds=0.2,
        orchestrator_threshold_seconds=1.0,
        lease_seconds=20.0,
        api_keys_file=keys_file,
        workflows_dir=WORKFLOWS,
        upload_key=SecretStr("upload-key"),
        secrets_key=SecretStr(base64.b64encode(b"s" * 32).decode()),
        public_orchestrator_url="http://orchestrator.test",
        public_serving_url="http://serving.test",
        public_gateway_url="http://gateway.test",
    )


@pytest.fixture
def settings(database: Database, keys_file: Path, storage: Storage) -> OrchestratorSettings:
    """Return settings of this test's orchestrators."""
    return short_times(database, keys_file, storage)


@contextlib.asynccontextmanager
async def orchestrator(settings: OrchestratorSettings, *, wait_ready: bool = True) -> AsyncIterator[Door]:
    """Run an orchestrator in this loop."""
    app = create_app(settings)
    async with serve(app) as base, aiohttp.ClientSession() as session:
        door = Door(session, base, app.state.context)
        if wait_ready:
            await await_until(lambda: _ready(door), "ready")
        yield door


@pytest.fixture
def start(settings: OrchestratorSettings) -> StartOrchestrator:
    """Return a context manager that runs an orchestrator, with settings to override."""

    def run(*, wait_ready: bool = True, **overrides: Any) -> AbstractAsyncContextManager[Door]:
        return orchestrator(settings.model_copy(update=overrides), wait_ready=wait_ready)

    return run


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(
    azure: Azure | None, shared_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Door]:
    """Return an orchestrator that tests share which ask for nothing but refusals."""
    folder = tmp_path_factory.mktemp("standing")
    with storage_of(azure, folder / "blobs") as storage:
        async with orchestrator(short_times(shared_database, write_keys(folder), storage)) as door:
            yield door


@pytest.fixture
async def door(start: StartOrchestrator) -> AsyncIterator[Door]:
    """Return one running orchestrator."""
    async with start() as door:
        yield door


async def _ready(door: Door) -> bool:
    status, _ = await door.call("GET", "/readyz")
    return status == 200


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    """Return the engine's services beside the orchestrator, to look and to prepare."""
    return Engine(pool)
