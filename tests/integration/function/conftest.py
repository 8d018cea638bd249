"""The gateway in its local host, in front of a real orchestrator; both serve in the test's own loop."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from pydantic import SecretStr

from core.models.business import RequestState
from function.app import build_gateway, create_app
from function.contract.table import openapi
from function.local_host import APP_FOLDER, LocalHost
from function.settings import GatewaySettings
from repositories import roles
from repositories.database import transaction
from repositories.jobs import JobRepository
from services.publish import on_job_ended
from services.work import Connection
from tests.integration.orchestrator.conftest import (
    StartOrchestrator,
    keys_file,
    orchestrator,
    settings,
    short_times,
    start,
    write_keys,
)
from tests.support.azure_side import Azure
from tests.support.business import submit_body
from tests.support.contract import Contract
from tests.support.databases import PASSWORDS, Database
from tests.support.doors import Door
from tests.support.serving_http import serve
from tests.support.storage import Storage, storage_of

__all__ = ["keys_file", "settings", "start"]

CONTRACT = Contract(openapi("test", "http://gateway.test"))
"""Every answer in these tests must be one that the document promises."""
CLOSED_PORT = "http://127.0.0.1:9"
"""Nothing listens there: a connect fails at once."""


@dataclass(frozen=True)
class Reply:
    """An answer as a client sees it."""

    status: int
    headers: Any
    body: Any


@dataclass
class Platform:
    """The whole front: gateway, orchestrator behind it, blobs."""

    session: aiohttp.ClientSession
    gateway: str
    orchestrator: Door
    storage: Storage

    async def call(
        self,
        method: str,
        path: str,
        caller: str | None = "submitter",
        body: Any = None,
        *,
        raw: Any = None,
        **headers: str,
    ) -> Reply:
        """Call the gateway in the name of a role."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if caller is not None:
            sent["X-API-Key"] = f"key-{caller}"
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        async with self.session.request(method, self.gateway + path, data=data, headers=sent) as answer:
            text = await answer.read()
            if method != "HEAD":
                assert CONTRACT.complaints(method, str(answer.url), answer.status, answer.headers, text) == []
            is_json = "json" in answer.headers.get("Content-Type", "") and bool(text)
            return Reply(answer.status, answer.headers.copy(), json.loads(text) if is_json else text)

    def put(self, name: str, content: bytes = b"pixels") -> None:
        """Put a file where ddh drops its own."""
        self.storage.put(f"bronze/{name}", content)

    async def submit(self, **changes: Any) -> Any:
        """Submit through the gateway and return what was accepted."""
        self.put("ddh/dem.tif")
        reply = await self.call("POST", "/api/platform/submit", body=submit_body(**changes))
        assert reply.status == 202, reply
        return reply.body

    async def end_job(self, request_id: str, **outcome: Any) -> None:
        """Let the job of a request end, by default with the outputs of a good ingest."""
        async with transaction(self.orchestrator.context.pool) as conn:
            await _end(conn, request_id, outcome)


async def _end(conn: Connection, request_id: str, outcome: dict[str, Any]) -> None:
    cursor = await conn.execute("SELECT job_id FROM dagapp.platform_request_jobs WHERE request_id = %s", (request_id,))
    (job_id,) = await cursor.fetchone() or ("",)
    job = await JobRepository(conn).get(job_id)
    assert job is not None
    item_id = job.input_params["item_id"]
    outputs = {
        "blob_path": f"{job.input_params['output_prefix']}/cog.tif",
        "stac_item_id": item_id,
        "stac_collection_id": "ddh-raster",
        "stac_item": {
            "type": "Feature",
            "stac_version": "1.1.0",
            "id": item_id,
            "collection": "ddh-raster",
            "geometry": {"type": "Point", "coordinates": [1, 2]},
            "bbox": [1, 2, 1, 2],
            "properties": {"datetime": "2020-01-01T00:00:00Z"},
            "links": [],
            "assets": {},
        },
        "report": {"verdict": "accept", "findings": []},
    }
    ended = {"status": RequestState.COMPLETED.upper(), "outputs": outputs} | outcome
    await on_job_ended(conn, type(job).model_validate(job.model_dump() | ended))


def gateway_settings(database: Database, keys: Path, *orchestrators: str, role: str = roles.GATEWAY) -> GatewaySettings:
    """Return settings of a gateway in front of orchestrators."""
    return GatewaySettings(
        postgres_host=database.host,
        postgres_port=database.port,
        postgres_db=database.name,
        postgres_user=role,
        postgres_password=SecretStr(PASSWORDS[role]),
        orchestrator_url=",".join(orchestrators),
        gateway_service_key=SecretStr("key-gateway"),
        api_keys_file=keys,
        public_gateway_url="http://gateway.test/",
        public_serving_url="http://serving.test/",
    )


@asynccontextmanager
async def front(database: Database, keys: Path, door: Door, storage: Storage) -> AsyncIterator[Platform]:
    """Run a gateway before an orchestrator; the first address of the gateway's list is dead."""
    gateway = build_gateway(gateway_settings(database, keys, CLOSED_PORT, door.base))
    host_json = json.loads((APP_FOLDER / "host.json").read_text())
    host = LocalHost(create_app(gateway), host_json, on_shutdown=gateway.close)
    async with serve(host) as base, aiohttp.ClientSession() as session:
        yield Platform(session, base, door, storage)


@pytest.fixture
async def platform(
    database: Database,
    keys_file: Path,
    storage: Storage,
    start: StartOrchestrator,
) -> AsyncIterator[Platform]:
    """Return gateway and orchestrator of this test alone."""
    async with start() as door, front(database, keys_file, door, storage) as platform:
        yield platform


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(
    azure: Azure | None, shared_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Platform]:
    """Return a platform that tests share which ask for nothing but refusals."""
    folder = tmp_path_factory.mktemp("standing")
    keys = write_keys(folder)
    with storage_of(azure, folder / "blobs") as storage:
        async with (
            orchestrator(short_times(shared_database, keys, storage)) as door,
            front(shared_database, keys, door, storage) as platform,
        ):
            yield platform
