"""A real orchestrator on a free port, served by the test's own event loop."""

import asyncio
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
import uvicorn
from pydantic import SecretStr

from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from repositories import roles
from repositories.database import AsyncPool
from tests.support.databases import PASSWORDS, Database
from tests.support.doors import KEYS, Door
from tests.support.engine import WORKFLOWS, Engine
from tests.support.waiting import await_until

StartOrchestrator = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """Return a key file with one key per role."""
    entries = [
        {
            "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest(),
            "subject": name,
            "roles": [role],
            "platform_id": platform,
        }
        for name, (role, platform) in KEYS.items()
    ]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": entries}))
    return path


@pytest.fixture
def settings(database: Database, keys_file: Path, tmp_path: Path) -> OrchestratorSettings:
    """Return settings with short times."""
    return OrchestratorSettings(
        postgres_host=database.host,
        postgres_port=database.port,
        postgres_db=database.name,
        postgres_user=roles.ORCHESTRATOR,
        postgres_password=SecretStr(PASSWORDS[roles.ORCHESTRATOR]),
        orchestrator_port=0,
        orchestrator_poll_interval=0.2,
        orchestrator_heartbeat_seconds=0.2,
        orchestrator_threshold_seconds=1.0,
        lease_seconds=1.0,
        api_keys_file=keys_file,
        workflows_dir=WORKFLOWS,
        blob_root=tmp_path / "blobs",
        upload_key=SecretStr("upload-key"),
        secrets_key=SecretStr(base64.b64encode(b"s" * 32).decode()),
        public_orchestrator_url="http://orchestrator.test",
        public_serving_url="http://serving.test",
        public_gateway_url="http://gateway.test",
    )


@pytest.fixture
def start(settings: OrchestratorSettings) -> StartOrchestrator:
    """Return a context manager that runs an orchestrator, with settings to override."""

    @contextlib.asynccontextmanager
    async def run(*, wait_ready: bool = True, **overrides: Any) -> AsyncIterator[Door]:
        app = create_app(settings.model_copy(update=overrides))
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        await await_until(lambda: _is(server.started), "the server started")
        port = server.servers[0].sockets[0].getsockname()[1]
        async with aiohttp.ClientSession() as session:
            door = Door(session, f"http://127.0.0.1:{port}", app.state.context)
            if wait_ready:
                await await_until(lambda: _ready(door), "ready")
            try:
                yield door
            finally:
                server.should_exit = True
                await task

    return run


@pytest.fixture
async def door(start: StartOrchestrator) -> AsyncIterator[Door]:
    """Return one running orchestrator."""
    async with start() as door:
        yield door


async def _is(value: bool) -> bool:
    return value


async def _ready(door: Door) -> bool:
    status, _ = await door.call("GET", "/readyz")
    return status == 200


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    """Return the engine's services beside the orchestrator, to look and to prepare."""
    return Engine(pool)
