"""What operators reach through the gateway, that nobody else finds it, and that the proxy leads nowhere else."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from function.app import build_gateway, create_app
from function.local_host import APP_FOLDER, LocalHost
from tests.integration.function.conftest import CLOSED_PORT, Platform, gateway_settings
from tests.support.business import submit_body
from tests.support.databases import Database
from tests.support.serving_http import serve

OPERATIONAL = (
    ("GET", "/api/status/stats"),
    ("GET", "/api/status/lookup?request_id=x"),
    ("GET", "/api/gateway/health"),
    ("POST", "/api/gateway/submit/batch"),
    ("GET", "/api/admin/health"),
    ("GET", "/api/admin/config"),
    ("GET", "/api/admin/active-jobs"),
    ("GET", "/api/admin/recent-events"),
    ("GET", "/api/admin/workflows"),
    ("GET", "/api/admin/audit"),
    ("GET", "/api/proxy/health"),
    ("GET", "/api/proxy/orchestrator/api/v1/jobs"),
    ("POST", "/api/proxy/orchestrator/api/v1/commands/cancel"),
    ("PATCH", "/api/proxy/orchestrator/api/v1/platforms/ddh"),
)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "path"), OPERATIONAL)
async def test_operational_routes_are_there_for_operators_alone(standing: Platform, method: str, path: str) -> None:
    for caller in ("submitter", "reader", "reviewer", "admin"):
        reply = await standing.call(method, path, caller, {} if method != "GET" else None)
        assert (reply.status, reply.body["code"]) == (404, "NOT_FOUND")
    for caller in (None, "gateway", "worker", "stranger"):
        assert (await standing.call(method, path, caller)).status == 401
    assert (await standing.call(method, path, "operator", {} if method != "GET" else None)).status in {200, 422}


async def test_an_operator_sees_what_there_is(platform: Platform) -> None:
    accepted = await platform.submit()
    request_id = accepted["request_id"]
    stats = (await platform.call("GET", "/api/status/stats?hours=1", "operator")).body
    assert (stats["jobs"], stats["requests"]) == ({"raster_tiled": {"RUNNING": 1}}, {"ddh": {"queued": 1}})
    assert sum(sum(states.values()) for states in stats["tasks"].values()) == 1
    (job,) = (await platform.call("GET", f"/api/status/lookup?request_id={request_id}", "operator")).body["jobs"]
    assert (job["asset_id"], job["version_ordinal"], job["workflow_id"]) == (accepted["asset_id"], 0, "raster_tiled")
    by_job = (await platform.call("GET", f"/api/status/lookup?job_id={job['job_id']}", "operator")).body["jobs"]
    by_asset = await platform.call(
        "GET", f"/api/status/lookup?asset_id={job['asset_id']}&version_ordinal=0", "operator"
    )
    assert by_job == by_asset.body["jobs"] == [job]
    active = (await platform.call("GET", "/api/admin/active-jobs", "operator")).body["jobs"]
    assert [one["job_id"] for one in active] == [job["job_id"]]
    first = (await platform.call("GET", "/api/admin/recent-events?limit=1", "operator")).body
    rest = (await platform.call("GET", f"/api/admin/recent-events?after={first['next_after']}", "operator")).body
    ids = [event["event_id"] for event in first["events"] + rest["events"]]
    assert ids == sorted(ids, reverse=True)
    assert rest["events"][-1]["event_type"] == "job_created"
    workflows = (await platform.call("GET", "/api/admin/workflows", "operator")).body["workflows"]
    assert "raster_ingest" in {one["workflow_id"] for one in workflows}
    await platform.end_job(request_id)
    assert (await platform.call("GET", "/api/status/stats", "operator")).body["reviews"] == {"ddh": {"pending": 1}}
    (takes,) = (await platform.call("GET", "/api/proxy/orchestrator/api/v1/storage", "operator")).body["platforms"]
    assert (takes["platform_id"], takes["versions"], takes["published_bytes"]) == ("ddh", 1, 0)


async def test_a_batch_of_jobs_is_started_by_an_operator(platform: Platform) -> None:
    body = {"jobs": [{"workflow_id": "echo_test", "inputs": {"message": "x"}}, {"workflow_id": "nothing"}]}
    reply = await platform.call("POST", "/api/gateway/submit/batch", "operator", body)
    assert (reply.status, reply.body["created"], reply.body["refused"]) == (202, 1, 1)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "path",
    [
        "/api/admin/recent-events?colour=red",
        "/api/admin/workflows?x=1",
        "/api/status/stats?hours=0",
        "/api/status/stats?hours=x",
        "/api/status/lookup",
        "/api/status/lookup?request_id=%00",
        "/api/admin/recent-events?after=x",
    ],
)
async def test_a_wrong_question_of_an_operator_is_refused_by_name(standing: Platform, path: str) -> None:
    reply = await standing.call("GET", path, "operator")
    assert reply.status == 422, reply
    assert reply.body["field"]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_configuration_is_shown_without_any_secret(standing: Platform) -> None:
    reply = await standing.call("GET", "/api/admin/config", "operator")
    settings = reply.body["settings"]
    assert (settings["GATEWAY_SERVICE_KEY"], settings["POSTGRES_PASSWORD"]) == ("(set)", "(set)")
    assert settings["PUBLIC_GATEWAY_URL"] == "http://gateway.test"
    assert "key-gateway" not in json.dumps(reply.body)


@pytest.mark.asyncio(loop_scope="module")
async def test_health_says_what_the_gateway_reaches(standing: Platform) -> None:
    for path in ("/api/gateway/health", "/api/admin/health"):
        reply = await standing.call("GET", path, "operator")
        assert reply.body == {"status": "ok", "database": "ok", "orchestrator": "ok"}
    reply = await standing.call("GET", "/api/proxy/health", "operator")
    assert reply.body == {
        "status": "degraded",
        "targets": {"orchestrator": {"status": "degraded", "alive": 1, "of": 2}},
    }


async def test_the_proxy_reaches_what_its_list_names_with_the_operators_own_key(platform: Platform) -> None:
    await platform.submit()
    jobs = (await platform.call("GET", "/api/proxy/orchestrator/api/v1/jobs?limit=5", "operator")).body["jobs"]
    cancelled = await platform.call(
        "POST", f"/api/proxy/orchestrator/api/v1/jobs/{jobs[0]['job_id']}/cancel", "operator", {"reason": "test"}
    )
    assert (cancelled.status, cancelled.body["job"]["status"]) == (200, "CANCELLED")
    changed = await platform.call(
        "PATCH", "/api/proxy/orchestrator/api/v1/platforms/ddh", "operator", {"request_burst": 7}
    )
    assert (changed.status, changed.body["request_burst"]) == (200, 7)
    refused = await platform.call("GET", "/api/proxy/orchestrator/api/v1/jobs/nothing", "operator")
    assert (refused.status, refused.body["instance"]) == (404, "/api/proxy/orchestrator/api/v1/jobs/nothing")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "orchestrator/api/v1/bootstrap/rebuild"),
        ("GET", "orchestrator/api/v1/bootstrap/status"),
        ("POST", "orchestrator/api/v1/submit"),
        ("POST", "orchestrator/api/v1/callbacks/claims"),
        ("GET", "orchestrator/api/v1/jobs/..%2fbootstrap%2fstatus"),
        ("GET", "orchestrator/api/v1/jobs/%2e%2e/bootstrap/status"),
        ("GET", "orchestrator/api/v1/jobs/%252e%252e/bootstrap/status"),
        ("GET", "orchestrator/%2fapi/v1/jobs"),
        ("GET", "orchestrator"),
        ("GET", "orchestrator/"),
        ("GET", "worker/livez"),
        ("GET", "nothing/livez"),
        ("GET", "orchestrator/api/v1/jobs%00"),
        ("GET", "orchestrator/api/v1/jobs%0d%0aX: y"),
    ],
)
async def test_the_proxy_reaches_nothing_else(standing: Platform, method: str, path: str) -> None:
    reply = await standing.call(method, f"/api/proxy/{path}", "operator", {} if method == "POST" else None)
    assert reply.status == 404
    if reply.body:
        assert reply.body["code"] == "NOT_FOUND"


@pytest.fixture
async def worker() -> AsyncIterator[tuple[str, list[Any]]]:
    """Return the address of something that answers as a worker's health server, and the headers that it got."""
    seen: list[Any] = []

    async def livez(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.router.add_get("/livez", livez)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield site.name, seen
    await runner.cleanup()


async def test_no_credential_goes_to_a_worker(
    database: Database, keys_file: Path, worker: tuple[str, list[Any]]
) -> None:
    address, seen = worker
    settings = gateway_settings(database, keys_file, CLOSED_PORT).model_copy(update={"gateway_worker_urls": address})
    gateway = build_gateway(settings)
    host_json = json.loads((APP_FOLDER / "host.json").read_text())
    host = LocalHost(create_app(gateway), host_json, on_shutdown=gateway.close)
    headers = {"X-API-Key": "key-operator", "Authorization": "Bearer key-operator"}
    async with serve(host) as base, aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{base}/api/proxy/worker/livez") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with session.get(f"{base}/api/proxy/health") as answer:
            assert (await answer.json())["targets"] == {
                "orchestrator": {"status": "down", "alive": 0, "of": 1},
                "worker": {"status": "up", "alive": 1, "of": 1},
            }
        async with session.get(f"{base}/api/gateway/health") as answer:
            assert (await answer.json())["orchestrator"] == "unavailable"
    assert len(seen) == 2
    assert not [one for one in seen if "key-" in json.dumps(one)]


async def test_a_platform_that_calls_too_often_is_told_when_to_come_back(platform: Platform) -> None:
    change = {"request_burst": 1, "requests_per_minute": 2}
    await platform.call("PATCH", "/api/proxy/orchestrator/api/v1/platforms/ddh", "operator", change)
    await platform.submit()
    reply = await platform.call("POST", "/api/platform/submit", body=submit_body())
    assert (reply.status, reply.body["code"], reply.body["classification"]) == (429, "THROTTLED", "throttling")
    assert 25 <= int(reply.headers["Retry-After"]) <= 31
