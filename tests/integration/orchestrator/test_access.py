"""Every route of the OpenAPI document against every credential: nothing is open by accident."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.app import create_app
from tests.integration.orchestrator.conftest import short_times, write_keys
from tests.support.databases import Database
from tests.support.doors import KEYS, Door
from tests.support.storage import Folders

OPEN = {("GET", "/livez"), ("GET", "/readyz")}
SIGNED_ADDRESS = ("PUT", "/uploads/{token}")
"""Its token is the credential; services/uploads has the tests."""
pytestmark = pytest.mark.asyncio(loop_scope="module")
METHODS = {"get", "post", "put", "patch", "delete"}
CALLERS = [name for name, (role, _) in KEYS.items() if role not in {"gateway", "worker"}]


def operations(app: Any) -> Iterator[tuple[str, str]]:
    for path, item in app.openapi()["paths"].items():
        for method in sorted(METHODS & set(item)):
            yield method.upper(), path


@pytest.fixture(scope="module")
def routes(shared_database: Database, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Return (method, path) of everything that needs a credential."""
    folder = tmp_path_factory.mktemp("routes")
    app = create_app(short_times(shared_database, write_keys(folder), Folders(folder)))
    found = [one for one in operations(app) if one not in OPEN and one != SIGNED_ADDRESS]
    assert len(found) > 15
    return found


PLACES = {"{ordinal}": "0", "{asset_id}": "0" * 32, "{queue}": "functionapp-tasks", "{dead_letter_id}": "1"}


def filled(path: str) -> str:
    """Return a path with something well-formed in each of its places."""
    for place, value in PLACES.items():
        path = path.replace(place, value)
    return re.sub(r"[{}]", "", path)


def is_callback(path: str) -> bool:
    return path.startswith("/api/v1/callbacks/")


async def status(door: Door, method: str, path: str, **credentials: Any) -> int:
    code, body = await door.call(method, filled(path), body={} if method != "GET" else None, **credentials)
    if code >= 400:
        assert body["status"] == code, (method, path, body)
    return code


async def test_without_a_credential_everything_is_401(standing: Door, routes: list[tuple[str, str]]) -> None:
    wrong = [route for route in routes if await status(standing, *route) != 401]
    assert wrong == []


@pytest.mark.parametrize("credentials", [{}, {"service": "gateway"}, {"caller": "stranger", "service": "gateway"}])
async def test_a_malformed_place_or_query_is_401_too(standing: Door, credentials: Any) -> None:
    for method, path in (
        ("POST", "/api/v1/assets/no-id/versions/-1/approve"),
        ("GET", "/api/v1/assets/no-id"),
        ("GET", "/api/v1/audit?limit=many"),
        ("DELETE", "/api/v1/assets/no-id"),
    ):
        assert await status(standing, method, path, **credentials) == 401, path
    assert await status(standing, "POST", "/api/v1/assets/no-id/restore", caller="admin") == 401
    assert await status(standing, "GET", "/api/v1/audit?limit=many", caller="operator") == 422


async def test_an_unknown_key_is_401_everywhere(standing: Door, routes: list[tuple[str, str]]) -> None:
    wrong = [route for route in routes if await status(standing, *route, caller="stranger", service="stranger") != 401]
    assert wrong == []


async def test_every_mutation_is_401_with_the_gateways_credential_alone(
    standing: Door, routes: list[tuple[str, str]]
) -> None:
    wrong = [route for route in routes if await status(standing, *route, service="gateway") != 401]
    assert wrong == []


@pytest.mark.parametrize("caller", CALLERS)
async def test_every_mutation_is_401_with_the_callers_credential_alone(
    standing: Door, routes: list[tuple[str, str]], caller: str
) -> None:
    mutations = [route for route in routes if route[0] != "GET"]
    wrong = [route for route in mutations if await status(standing, *route, caller=caller) != 401]
    assert wrong == []


@pytest.mark.parametrize("service", ["gateway", "worker"])
async def test_a_service_key_is_nobodys_caller_key(standing: Door, routes: list[tuple[str, str]], service: str) -> None:
    callers = [route for route in routes if not is_callback(route[1])]
    wrong = [route for route in callers if await status(standing, *route, caller=service, service="gateway") != 401]
    assert wrong == []


async def test_callbacks_take_the_workers_key_and_no_other(standing: Door, routes: list[tuple[str, str]]) -> None:
    callbacks = [route for route in routes if is_callback(route[1])]
    assert len(callbacks) == 6
    for route in callbacks:
        assert await status(standing, *route, caller="operator", service="gateway") == 401, route
        assert await status(standing, *route, service="worker") == 422, route


VERSION = "/api/v1/assets/{asset_id}/versions/{ordinal}"
OWNERS = {f"POST {VERSION}/supersede", f"DELETE {VERSION}", f"POST {VERSION}/comments"}
REVIEWERS = {
    "PATCH /api/v1/assets/{asset_id}",
    "POST /api/v1/assets/{asset_id}/clearance",
    "POST /api/v1/assets/{asset_id}/unpublish",
    *(f"POST {VERSION}/{one}" for one in ("approve", "reject", "revoke", "comments")),
    "POST /api/v1/reviews/decisions",
}
ALLOWED = {
    "submitter": {
        *(f"POST /api/v1/{one}" for one in ("submit", "validate", "uploads", "requests/batch")),
        *(f"POST /api/v1/requests/{{request_id}}/{one}" for one in ("cancel", "resubmit")),
        *OWNERS,
    },
    "reader": set(),
    "reviewer": REVIEWERS,
    "admin": {
        *REVIEWERS,
        *OWNERS,
        "POST /api/v1/requests/{request_id}/cancel",
        "PATCH /api/v1/platforms/{platform_id}",
        "DELETE /api/v1/assets/{asset_id}",
        "POST /api/v1/assets/{asset_id}/restore",
        f"POST {VERSION}/restore",
        "PUT /api/v1/webhooks/platforms/{platform_id}",
        "POST /api/v1/webhooks/platforms/{platform_id}/secrets",
        "POST /api/v1/webhooks/deliveries/{delivery_id}/replay",
    },
    "operator": {
        "POST /api/v1/jobs",
        "POST /api/v1/jobs/batch",
        *(f"POST /api/v1/jobs/{{job_id}}/{one}" for one in ("cancel", "pause", "resume", "retry", "rerun", "priority")),
        *(f"POST /api/v1/jobs/{{job_id}}/nodes/{{node_id}}/{one}" for one in ("skip", "gate", "window", "rerun")),
        "POST /api/v1/commands/{kind}",
        "PATCH /api/v1/platforms/{platform_id}",
        "PUT /api/v1/settings/pauses/{switch}",
        "DELETE /api/v1/settings/pauses/{switch}",
        *(f"POST /api/v1/dead-letters/{{dead_letter_id}}/{one}" for one in ("replay", "discard")),
        "PUT /api/v1/settings/limits/{key}",
        "DELETE /api/v1/settings/limits/{key}",
        "PUT /api/v1/settings/limits/by-key",
        "DELETE /api/v1/settings/limits/by-key",
        "POST /api/v1/webhooks/deliveries/{delivery_id}/replay",
        "POST /api/v1/bootstrap/deploy",
        "POST /api/v1/bootstrap/migrate",
    },
}
"""Mutations that a role may call; `rebuild` is refused to everybody in production."""


@pytest.mark.parametrize("caller", CALLERS)
async def test_a_mutation_by_the_wrong_role_is_403(standing: Door, routes: list[tuple[str, str]], caller: str) -> None:
    mutations = [route for route in routes if route[0] != "GET" and not is_callback(route[1])]
    for method, path in mutations:
        code = await status(standing, method, path, caller=caller, service="gateway")
        assert (code != 403) == (f"{method} {path}" in ALLOWED[caller]), (caller, method, path, code)


async def test_operational_reads_need_an_operator(standing: Door, routes: list[tuple[str, str]]) -> None:
    areas = ("jobs", "workflows", "bootstrap", "scale", "settings", "dead-letters")
    prefixes = ("/health", *(f"/api/v1/{area}" for area in areas))
    reads = [route for route in routes if route[0] == "GET" and route[1].startswith(prefixes)]
    assert len(reads) >= 10
    for route in reads:
        for caller in CALLERS:
            code = await status(standing, *route, caller=caller)
            assert (code != 403) == (caller == "operator"), (caller, route, code)


async def test_liveness_and_readiness_are_open_and_tell_nothing(standing: Door) -> None:
    assert await standing.call("GET", "/livez") == (200, {"status": "ok"})
    assert await standing.call("GET", "/readyz") == (200, {"status": "ok"})


async def test_rebuild_is_refused_without_the_flag_in_the_environment(standing: Door) -> None:
    code, body = await standing.call("POST", "/api/v1/bootstrap/rebuild", caller="operator", service="gateway")
    assert (code, body["code"]) == (403, "FORBIDDEN")
    code, body = await standing.call("POST", "/api/v1/submit", body={}, caller="operator", service="gateway")
    assert (code, body["code"], body["field"]) == (403, "FORBIDDEN", "role")
    twice = await standing.call("GET", "/api/v1/jobs?limit=1&limit=2", caller="operator")
    assert (twice[0], twice[1]["code"], twice[1]["field"]) == (422, "PARAMETER_INVALID", "limit")
    nothing = await standing.call("GET", "/api/v1/audit?actor=%00", caller="operator")
    assert (nothing[0], nothing[1]["field"], nothing[1]["value"]) == (422, "actor", "\ufffd")


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
async def test_the_list_of_routes_is_not_shown_to_anybody(standing: Door, path: str) -> None:
    assert await status(standing, "GET", path) == 404
