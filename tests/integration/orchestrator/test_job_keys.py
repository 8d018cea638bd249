"""`Idempotency-Key` of a job over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict

from core.identity import SERVICE_HEADER
from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.integration.orchestrator.test_deduplicate import ONCE
from tests.support.doors import Door

BODY = {"workflow_id": "echo_test", "inputs": {"message": "hi"}, "priority": "routine"}


async def create(door: Door, key: str | None, body: Any = None, query: str = "") -> tuple[int, Any]:
    named = {} if key is None else {"Idempotency_Key": key}
    return await door.call(
        "POST", f"/api/v1/jobs{query}", body=body or BODY, caller="operator", service="gateway", **named
    )


async def test_the_same_call_again_is_answered_with_the_job_as_it_is(door: Door) -> None:
    status, first = await create(door, "night/7")
    job_id = first["job_id"]
    assert (status, first["existing"], first["status"]) == (202, False, "RUNNING")
    await door.call("POST", f"/api/v1/jobs/{job_id}/cancel", caller="operator", service="gateway")
    same = {"priority": "routine", "inputs": {"message": "hi"}, "version": None, "workflow_id": "echo_test"}
    for body in (BODY, same):
        again = await create(door, "night/7", body)
        assert again == (200, {"job_id": job_id, "status": "CANCELLED", "existing": True})
    assert (await create(door, None))[1]["job_id"] != job_id
    assert (await create(door, "night/8"))[0] == 202
    assert len((await door.get("/api/v1/jobs"))["jobs"]) == 3


@pytest.mark.parametrize(
    "change",
    [{"inputs": {"message": "ho"}}, {"inputs": {}}, {"priority": 5}, {"version": 1}, {"workflow_id": "no_such"}],
)
async def test_another_body_under_the_key_is_a_conflict(door: Door, change: dict[str, Any]) -> None:
    await create(door, "k")
    status, problem = await create(door, "k", BODY | change)
    assert (status, problem["code"], problem["field"]) == (409, "IDEMPOTENCY_CONFLICT", "idempotency_key")
    assert len((await door.get("/api/v1/jobs"))["jobs"]) == 1


async def test_of_calls_to_two_instances_at_once_one_creates(start: StartOrchestrator) -> None:
    async with start() as one, start() as other:
        answers = await asyncio.gather(*(create(door, "k") for door in (one, other) * 4))
        assert sorted(status for status, _ in answers) == [200] * 7 + [202]
        assert len({body["job_id"] for _, body in answers}) == 1
        assert len((await one.get("/api/v1/jobs"))["jobs"]) == 1


async def test_a_key_is_answered_when_its_workflow_is_not_there_any_more(
    start: StartOrchestrator, tmp_path: Path
) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    file = folder / "gone.yaml"
    file.write_text(ONCE.replace("once", "gone").replace("deduplicate: inputs\n", ""))
    async with start(workflows_dir=folder) as door:
        _, first = await create(door, "k", {"workflow_id": "gone"})
    file.unlink()
    async with start(workflows_dir=folder) as door:
        status, again = await create(door, "k", {"workflow_id": "gone"})
        assert (status, again["job_id"]) == (200, first["job_id"])
        assert (await create(door, "other", {"workflow_id": "gone"}))[0] == 404


async def test_a_workflow_that_deduplicates_needs_no_key_and_takes_none(
    start: StartOrchestrator, tmp_path: Path
) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "once.yaml").write_text(ONCE)
    async with start(workflows_dir=folder) as door:
        status, problem = await create(door, "k", {"workflow_id": "once"})
        assert (status, problem["field"], "without a key" in problem["detail"]) == (422, "idempotency_key", True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("key", ["", "with space", "é", "x" * 256, "tab\tin"])
async def test_a_key_that_can_be_none_is_refused(standing: Door, key: str) -> None:
    status, problem = await create(standing, key)
    assert (status, problem["code"], problem["field"]) == (422, "PARAMETER_INVALID", "idempotency_key")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_stands_in_its_header_of_a_single_call_without_rerun(standing: Door) -> None:
    status, problem = await create(standing, "k", query="?rerun=true")
    assert (status, problem["field"]) == (422, "idempotency_key")
    status, problem = await create(standing, None, query="?Idempotency-Key=k")
    assert (status, problem["field"]) == (422, "Idempotency-Key")
    status, problem = await standing.call(
        "POST", "/api/v1/jobs/batch", body={"jobs": [BODY]}, caller="operator", service="gateway", Idempotency_Key="k"
    )
    assert (status, problem["field"]) == (422, "Idempotency-Key")
    raw = b'{"workflow_id": "echo_test", "inputs": {"message": NaN}}'
    status, problem = await standing.call(
        "POST", "/api/v1/jobs", raw=raw, caller="operator", service="gateway", Idempotency_Key="k"
    )
    assert (status, problem["field"]) == (422, "inputs.message")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("query", ["", "?rerun=false"], ids=["direct", "routed"])
async def test_of_two_keys_none_counts(standing: Door, query: str) -> None:
    twice = CIMultiDict({"X-API-Key": "key-operator", SERVICE_HEADER: "key-gateway", "Idempotency-Key": "a"})
    twice.add("Idempotency-Key", "b")
    for path in (f"jobs{query}", "submit", "validate", "requests/batch", "requests/r/resubmit"):
        twice["X-API-Key"] = "key-operator" if path.startswith("jobs") else "key-submitter"
        body = {"submits": [{}]} if path == "requests/batch" else BODY
        async with standing.session.post(f"{standing.base}/api/v1/{path}", json=body, headers=twice) as answer:
            assert (answer.status, (await answer.json())["field"]) == (422, "Idempotency-Key"), path


async def test_an_order_under_a_key_is_refused(door: Door) -> None:
    """It would be obeyed as often as it is sent, and who gives a key relies on once."""
    job_id = await door.create("hello_world")
    named = {"caller": "operator", "service": "gateway", "Idempotency_Key": "k"}
    for path in (f"jobs/{job_id}/rerun", f"jobs/{job_id}/cancel", "commands/rerun"):
        status, problem = await door.call("POST", f"/api/v1/{path}", body={}, **named)
        assert (status, problem["code"], problem["field"]) == (422, "PARAMETER_INVALID", "Idempotency-Key"), path
    assert (await door.job(job_id))["run_no"] == 1
    status, _ = await door.call("GET", f"/api/v1/jobs/{job_id}/events", caller="operator", Idempotency_Key="k")
    assert status == 200
