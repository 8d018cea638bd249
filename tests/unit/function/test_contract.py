"""The OpenAPI document of the gateway: all that is served, valid, and judged by a judge that finds what is wrong."""

import json
import re
from http import HTTPStatus
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from core.b2b import StatusView
from core.errors import NotFound
from edge.problems import document
from function.contract.table import ROUTES, openapi
from tests.support.contract import Contract
from tests.support.gateway_routes import FUNCTIONS

DOCUMENT = openapi("1.2.3", "https://gateway.test")
OPERATIONS = [
    (path, method, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
STATUS: dict[str, Any] = {
    "request_id": "req_1",
    "asset_id": "a" * 32,
    "version_ordinal": 0,
    "revision": 1,
    "state": "queued",
    "progress": {},
    "review": None,
    "reason": None,
    "errors": [],
    "warnings": [],
    "report_url": None,
    "services": None,
    "next_actions": [],
    "deleted": False,
}
JSON = {"content-type": "application/json"}
PROBLEM = document(NotFound("there is no such resource").detail, HTTPStatus.NOT_FOUND, "/api/nowhere")
PROBLEM_KIND = {"content-type": "application/problem+json"}


def test_every_function_of_the_gateway_is_in_the_document_where_it_is_served() -> None:
    assert {name: (route.method, route.template) for name, route in ROUTES.items()} == FUNCTIONS
    assert {operation["operationId"] for _, _, operation in OPERATIONS} == set(FUNCTIONS)


def test_the_document_is_in_order() -> None:
    Draft202012Validator.check_schema({"$defs": DOCUMENT["components"]["schemas"]})
    for path, method, operation in OPERATIONS:
        parameters = operation.get("parameters", [])
        assert re.findall(r"\{(\w+)\}", path) == [one["name"] for one in parameters if one["in"] == "path"]
        assert len({(one["in"], one["name"]) for one in parameters}) == len(parameters), (path, method)
        for parameter in parameters:
            Draft202012Validator.check_schema(parameter["schema"])
        assert operation["responses"]["default"]
        assert bool(operation["security"]) is (operation["operationId"] not in {"livez", "readyz", "openapi"})


def test_every_reference_leads_somewhere() -> None:
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"]["schemas"], name


def test_a_submit_may_carry_its_refs_flat() -> None:
    schema = DOCUMENT["components"]["schemas"]["SubmitRequest"]
    assert schema["additionalProperties"]["type"] == "string"
    assert "platform_refs" not in schema["required"]


def judged(method: str, path: str, status: int, body: Any, headers: dict[str, str] = JSON) -> str:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return "; ".join(Contract(DOCUMENT).complaints(method, f"http://x{path}?wait=1", status, headers, raw))


def test_the_judge_lets_what_is_promised_pass() -> None:
    assert StatusView.model_validate(STATUS, strict=False)
    assert judged("GET", "/api/platform/status/req_1", 200, STATUS) == ""
    assert judged("GET", "/api/platform/status/req_1", 304, b"") == ""
    assert judged("GET", "/api/nowhere", 404, PROBLEM, PROBLEM_KIND) == ""
    assert judged("GET", "/api/livez", 405, PROBLEM, PROBLEM_KIND) == ""


@pytest.mark.parametrize(
    ("method", "path", "status", "body", "complaint"),
    [
        ("GET", "/api/platform/status/req_1", 200, STATUS | {"job_id": "j"}, "job_id"),
        ("GET", "/api/platform/status/req_1", 200, STATUS | {"state": "waiting"}, "waiting"),
        ("GET", "/api/platform/status/req_1", 200, {**STATUS, "errors": [{"code": 1}]}, "$.errors[0]"),
        ("GET", "/api/platform/status/req_1", 201, STATUS, "expected ['200', '304', 'default']"),
        ("GET", "/api/platform/status/req_1", 500, STATUS, "application/problem+json"),
        ("PUT", "/api/platform/status/req_1", 200, STATUS, "does not know the call"),
        ("GET", "/api/platform/status/req_1", 304, b"x", "nobody expects"),
        ("GET", "/api/nowhere", 404, b"", "application/problem+json"),
    ],
)
def test_the_judge_names_what_is_not(method: str, path: str, status: int, body: Any, complaint: str) -> None:
    assert complaint in judged(method, path, status, body)
