"""Query parameters: what a route does not have is refused by name, on every route, and changes nothing."""

from typing import Any

import pytest

from function.contract.parts import ANYBODY, OPERATORS
from function.contract.table import ROUTES
from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from tests.integration.function.conftest import Platform
from tests.integration.orchestrator.test_access import OPEN, SIGNED_ADDRESS, filled, operations
from tests.support.business import submit_body

ASSET = "a9234e9e7b1ae7c5151568522b54db33"
CHECKED = {
    name: route for name, route in ROUTES.items() if not (route.operation.any_query or route.operation.who == ANYBODY)
}


def placed(template: str) -> str:
    """Return a path of a route."""
    places = {"{asset_id}": ASSET, "{ordinal:int}": "0", "{request_id}": "x", "{platform_id}": "ddh", "{job_id}": "x"}
    for place, value in places.items():
        template = template.replace(place, value)
    return f"/{template}"


def test_only_the_proxy_passes_a_query_on() -> None:
    assert {name.partition("_")[0] for name, route in ROUTES.items() if route.operation.any_query} == {"proxy"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_parameter_that_a_route_does_not_have_is_refused_by_name(standing: Platform) -> None:
    assert len(CHECKED) > 35
    for name, route in CHECKED.items():
        operators = route.operation.who == OPERATORS
        path = f"{placed(route.template)}?dry_runn=true"
        reply = await standing.call(route.method, path, "operator" if operators else "submitter", {})
        assert (reply.status, reply.body["code"], reply.body["field"]) == (422, "PARAMETER_INVALID", "dry_runn"), name
        assert (await standing.call(route.method, path, None, {})).status == 401, name
        if operators:
            assert (await standing.call(route.method, path, "admin", {})).status == 404, name


async def test_a_dry_run_in_the_query_submits_nothing(platform: Platform) -> None:
    platform.put("ddh/dem.tif")
    for query in ("dry_run=true", "wait=5", "DRY_RUN=", "reason=x"):
        reply = await platform.call("POST", f"/api/platform/submit?{query}", body=submit_body())
        assert (reply.status, reply.body["field"]) == (422, query.partition("=")[0])
    assert (await platform.call("GET", "/api/platform/requests")).body["requests"] == []
    assert (await platform.call("GET", "/api/livez?probe=1", None)).status == 200


async def test_the_orchestrator_refuses_them_too_and_so_does_what_is_proxied(
    platform: Platform, settings: OrchestratorSettings
) -> None:
    door = platform.orchestrator
    routes = [one for one in operations(create_app(settings)) if one not in OPEN and one != SIGNED_ADDRESS]
    wrong: list[Any] = []
    for method, path in routes:
        if path in {"/health", "/metrics"}:
            continue
        service = "worker" if path.startswith("/api/v1/callbacks/") else "gateway"
        where = f"{filled(path)}?dry_runn=true"
        status, body = await door.call(method, where, body={}, caller="operator", service=service)
        if (status, body.get("code"), body.get("field")) != (422, "PARAMETER_INVALID", "dry_runn"):
            wrong.append((method, path, status))
        assert (await door.call(method, where, body={}))[0] == 401, path
    assert wrong == []
    job = {"workflow_id": "echo_test", "inputs": {}}
    reply = await platform.call("POST", "/api/proxy/orchestrator/api/v1/jobs?dry_run=true", "operator", job)
    assert (reply.status, reply.body["field"]) == (422, "dry_run")
    assert (await door.get("/api/v1/jobs"))["jobs"] == []


async def test_the_reason_of_a_delete_reaches_the_audit_wherever_it_stands(platform: Platform) -> None:
    told: list[str | None] = []
    for resource, query, body in (
        ("a", "?reason=asked", None),
        ("b", "", {"reason": "said"}),
        ("c", "?reason=both", {"reason": "both"}),
        ("d", "", None),
    ):
        accepted = await platform.submit(platform_refs={"dataset_id": "D", "resource_id": resource})
        await platform.end_job(accepted["request_id"])
        version = f"/api/assets/{accepted['asset_id']}/versions/0"
        for wrong in ({"reason": "another"}, {"why": "?"}, {"reason": " "}) if query else ():
            refused = await platform.call("DELETE", version + query, "submitter", wrong)
            assert (refused.status, refused.body["field"]) == (422, next(iter(wrong)))
        assert (await platform.call("DELETE", version + query, "submitter", body)).status == 200
        audit = await platform.call("GET", f"/api/admin/audit?asset_id={accepted['asset_id']}&limit=1", "operator")
        told.append(audit.body["entries"][0]["reason"])
        assert audit.body["entries"][0]["action"] == "deleted"
    assert told == ["asked", "said", "both", None]
    asset = f"/api/assets/{accepted['asset_id']}"
    assert (await platform.call("DELETE", asset, "admin", {"reason": "all of it"})).status == 200


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("digits", [41, 10_000])
async def test_a_number_without_end_is_refused_in_our_words(standing: Platform, digits: int) -> None:
    raw = b'{"platform_id": "ddh", "priority": ' + b"9" * digits + b"}"
    for path in ("/api/platform/submit", "/api/platform/approve", f"/api/assets/{ASSET}/unpublish"):
        reply = await standing.call("POST", path, "reviewer" if "submit" not in path else "submitter", raw=raw)
        assert (reply.status, reply.body["code"], reply.body["field"]) == (422, "PARAMETER_INVALID", "body")
        assert reply.body["detail"].endswith(f"a number has {digits} digits; expected at most 40")
    proxied = await standing.call("POST", "/api/proxy/orchestrator/api/v1/jobs", "operator", raw=raw)
    assert (proxied.status, proxied.body["code"][:9]) == (422, "PARAMETER")
    assert not any(word in proxied.body["detail"] for word in ("limit", "int", "string", "conversion"))
