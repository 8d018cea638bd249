"""The operators' page has every route that the gateway lets operators reach."""

import re

from core.dag.orders import Kind
from function.errors import HTTP_STATUS as AT_THE_GATEWAY
from orchestrator.errors import HTTP_STATUS as AT_THE_ORCHESTRATOR
from scripts.generated_docs_api import ORDERS, TOLD, operator_page, routes

PAGE = operator_page()
OF_PARTNERS = {"THROTTLED", "QUOTA_EXCEEDED", "TASK_TIMEOUT"}
"""Codes that no operator's route answers with."""


def test_every_route_has_its_section_and_nothing_else_has() -> None:
    found = {(method, path) for method, path, _ in routes()}
    assert ("POST", "/api/v1/jobs/{job_id}/nodes/{node_id}/gate") in found
    assert ("POST", "/api/v1/callbacks/claims") not in found
    told = set(re.findall(r"^### (GET|PUT|POST|PATCH|DELETE) (\S+)$", PAGE, re.MULTILINE))
    assert told == found
    assert TOLD.keys() <= found


def test_every_order_is_told() -> None:
    assert ORDERS.keys() == {kind.value for kind in Kind}


def test_every_argument_of_an_order_and_its_codes_are_told() -> None:
    orders = PAGE.partition("## Orders\n")[2].partition("\n### ")[0]
    for words in (
        "| `rerun` | `run_no` | ",
        "| `rerun` | `params` | ",
        "| `gate` | `data` | ",
        "| `window` | `max_conc",
    ):
        assert words in orders
    assert {"JOB_CHANGED", "JOB_NOT_FAILED"} <= set(re.findall(r"`([A-Z_]+)`", ORDERS["rerun"][2]))


def test_every_object_that_is_named_is_told() -> None:
    anchors = {heading.lower() for heading in re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)}
    links = set(re.findall(r"\]\(#(\w+)\)", PAGE)) - {"orders"}
    assert links
    assert links <= anchors


def test_a_section_says_query_body_answer_and_errors() -> None:
    section = PAGE.partition("### POST /api/v1/jobs\n")[2].partition("\n### ")[0]
    for words in ("Start a run", "**Query**: `rerun`", "[CreateJob](#createjob)", "[JobCreated](#jobcreated)", "404"):
        assert words in section


def test_every_code_of_the_edges_is_told_with_its_status() -> None:
    table = PAGE.partition("## Errors\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", table, re.MULTILINE)
    told = {(code, int(status)) for status, codes in rows for code in re.findall(r"`([A-Z_]+)`", codes)}
    statuses = {**AT_THE_ORCHESTRATOR, **AT_THE_GATEWAY}
    expected = {(code, status.value) for code, status in statuses.items() if code not in OF_PARTNERS}
    assert told == expected | {("STORAGE_UNAVAILABLE", 503)}
