"""The number that workers scale on, written where the autoscale of an App Service reads it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError

from core.handlers_catalog import HEAVY_QUEUE, LIGHT_QUEUE
from orchestrator.scaling import ScaleMetric
from orchestrator.settings import OrchestratorSettings
from repositories.database import AsyncPool
from repositories.monitor import RESOURCE, MetricsUnavailable
from tests.peers.identity.server import IdentityPeer
from tests.support.engine import Engine, HandWorker

PLAN = "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.Web/serverfarms/geodag-worker-plan"


@dataclass
class Monitor:
    """Azure Monitor's door for custom metrics: what it demands of a document, and what it was told."""

    url: str = ""
    status: int = 200
    written: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        """Take one document."""
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if jwt.decode(token, options={"verify_signature": False})["aud"] != RESOURCE:
            return web.Response(status=401)
        document = await request.json()
        datetime.fromisoformat(document["time"])
        base = document["data"]["baseData"]
        for one in base["series"]:
            assert len(one["dimValues"]) == len(base["dimNames"]) == one["count"] == 1
            assert one["min"] == one["max"] == one["sum"]
        self.written.append(base)
        return web.Response(status=self.status)


@asynccontextmanager
async def monitor() -> AsyncIterator[Monitor]:
    peer, app = Monitor(), web.Application()
    app.router.add_post(f"{PLAN}/metrics", peer.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}{PLAN}/metrics"
        yield peer
    finally:
        await runner.cleanup()


def settings(identity: IdentityPeer, **more: Any) -> OrchestratorSettings:
    places = ("api_keys_file", "workflows_dir", "blob_root")
    urls = ("public_orchestrator_url", "public_serving_url", "public_gateway_url")
    given: dict[str, Any] = {
        "postgres_host": "127.0.0.1",
        "postgres_db": "geodag",
        "postgres_user": "geodag_orchestrator",
        "orchestrator_port": 0,
        "use_managed_identity": True,
        "identity_endpoint": identity.endpoint,
        "identity_header": SecretStr(identity.header),
        "upload_key": SecretStr("u"),
        "secrets_key": SecretStr("c2VjcmV0LW9mLXNlYWxzLXNlY3JldC1vZi1zZWFscyE="),
        **{name: Path("/tmp") for name in places},
        **dict.fromkeys(urls, "http://127.0.0.1:9"),
    }
    return OrchestratorSettings(**given | more)


async def test_the_number_is_written_with_a_token_and_stays_above_0_while_a_lease_lives(
    pool: AsyncPool, identity: IdentityPeer
) -> None:
    engine = Engine(pool)
    worker = HandWorker(engine)

    async def numbers() -> dict[str, int]:
        await metric.write_scale()
        written = peer.written[-1]
        assert (written["metric"], written["namespace"], written["dimNames"]) == ("tasks", "geodag", ["queue"])
        return {one["dimValues"][0]: one["sum"] for one in written["series"]}

    async with monitor() as peer:
        found = ScaleMetric.of(settings(identity, scale_metrics_url=peer.url), pool)
        assert found is not None
        metric = found
        assert await numbers() == {HEAVY_QUEUE: 0, LIGHT_QUEUE: 0}
        await engine.create("multi_phase")
        job_id = await engine.create("echo_test")
        assert await numbers() == {HEAVY_QUEUE: 1, LIGHT_QUEUE: 1}
        message = await engine.message(job_id)
        await worker.claim(message)
        assert await numbers() == {HEAVY_QUEUE: 1, LIGHT_QUEUE: 1}
        await worker.complete(message)
        assert await numbers() == {HEAVY_QUEUE: 1, LIGHT_QUEUE: 0}
        assert len(identity.issued) == 1

        peer.status = 403
        with pytest.raises(MetricsUnavailable, match="HTTP 403"):
            await metric.write_scale()
    with pytest.raises(MetricsUnavailable, match="ClientConnectorError"):
        await metric.write_scale()


async def test_without_an_address_nothing_is_written_and_an_address_needs_an_identity(
    pool: AsyncPool, identity: IdentityPeer
) -> None:
    assert ScaleMetric.of(settings(identity), pool) is None
    with pytest.raises(ValidationError, match="needs USE_MANAGED_IDENTITY"):
        settings(identity, scale_metrics_url="http://127.0.0.1:9/metrics", use_managed_identity=False)
    for wrong in ("http://monitor.example/subscriptions/s/metrics", "https://e.example/metrics", "https://e/?/metrics"):
        with pytest.raises(ValidationError, match="scale_metrics_url"):
            settings(identity, scale_metrics_url=wrong)
