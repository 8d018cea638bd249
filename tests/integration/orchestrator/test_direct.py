"""Direct routes answer as the framework's router does, errors too."""

import inspect
from typing import Any

import aiohttp
import pytest

from orchestrator.app import DIRECT, ROUTERS, create_app
from orchestrator.settings import OrchestratorSettings
from tests.support.doors import WORKER, Door


def test_every_direct_route_is_the_endpoint_that_the_routers_have() -> None:
    routed = {
        (method, route.path): route.endpoint  # type: ignore[attr-defined]
        for router in ROUTERS
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert {key: routed.get(key) for key in DIRECT} == dict(DIRECT)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wait_that_is_no_time_is_told_from_one_that_is(standing: Door) -> None:
    job_id = await standing.create("echo_test")
    for wait in ("soon", "-1", "301", "nan", ""):
        status, answer = await standing.call("GET", f"/api/v1/jobs/{job_id}?wait={wait}", caller="operator")
        assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", "wait")
    assert (await standing.job(job_id, wait=0.01))["job_id"] == job_id


@pytest.mark.asyncio(loop_scope="module")
async def test_a_flag_is_true_or_false(standing: Door) -> None:
    body = {"workflow_id": "echo_test"}
    for flag, expected, why in (("perhaps", 422, "true or false"), ("true", 422, "deduplicate"), ("false", 202, "")):
        path = f"/api/v1/jobs?rerun={flag}"
        status, answer = await standing.call("POST", path, body=body, caller="operator", service="gateway")
        assert status == expected, answer
        assert why in answer.get("detail", ""), answer


def test_what_the_endpoints_read_themselves_is_in_the_document(settings: OrchestratorSettings) -> None:
    paths = create_app(settings).openapi()["paths"]
    documented = {
        key: {(one["name"], one["in"]) for one in paths[key[1]][key[0].lower()].get("parameters", ())} for key in DIRECT
    }
    assert documented["POST", "/api/v1/jobs"] == {("rerun", "query"), ("Idempotency-Key", "header")}
    assert documented["GET", "/api/v1/jobs/{job_id}"] == {("job_id", "path"), ("wait", "query")}


def test_no_direct_path_hides_another_route() -> None:
    taken = {
        (method, route.path)  # type: ignore[attr-defined]
        for router in ROUTERS
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    for method, path in DIRECT:
        above = path.rpartition("/")[0]
        beside = {other for m, other in taken if m == method and other.rpartition("/")[0] == above}
        assert beside == {path} or not path.endswith("}"), beside


def test_no_direct_endpoint_wants_more_than_the_request() -> None:
    assert {len(inspect.signature(endpoint).parameters) for endpoint in DIRECT.values()} == {1}


WRONG: tuple[tuple[str, str, Any, tuple[int, str]], ...] = (
    ("POST", "/api/v1/jobs", {"workflow_id": "echo_test", "color": 1}, (422, "PARAMETER_INVALID")),
    ("POST", "/api/v1/jobs", {"workflow_id": "none"}, (404, "NOT_FOUND")),
    ("GET", "/api/v1/jobs/none", None, (404, "NOT_FOUND")),
    ("PUT", "/api/v1/jobs/none", None, (405, "METHOD_NOT_ALLOWED")),
    ("DELETE", "/api/v1/callbacks/claims", None, (405, "METHOD_NOT_ALLOWED")),
    ("POST", "/api/v1/callbacks/claims", {"worker": WORKER}, (422, "PARAMETER_MISSING")),
    ("POST", "/api/v1/callbacks/nothing", {}, (404, "NOT_FOUND")),
)


@pytest.mark.asyncio(loop_scope="module")
async def test_errors_are_problem_details_on_either_way(standing: Door) -> None:
    for method, path, body, expected in WRONG:
        service = "worker" if "callbacks" in path else "gateway"
        status, answer = await standing.call(method, path, body=body, caller="operator", service=service)
        assert (status, answer["code"], answer["instance"]) == (*expected, path)


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_gets_in_without_credentials(standing: Door) -> None:
    for path in ("/api/v1/jobs", "/api/v1/callbacks/claims", "/api/v1/callbacks/task-results"):
        status, answer = await standing.call("POST", path, body={})
        assert (status, answer["code"]) == (401, "UNAUTHENTICATED")


async def test_a_body_that_is_cut_short_ends_its_own_request_only(door: Door) -> None:
    host, port = door.base.removeprefix("http://").split(":")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"http://{host}:{port}/api/v1/jobs", data=_cut(), headers={"Content-Length": "10"})
    assert (await door.job(await door.create("echo_test")))["status"] == "RUNNING"


async def _cut() -> Any:
    yield b"{"
    raise aiohttp.ClientError("the caller goes away")
