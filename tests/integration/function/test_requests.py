"""Requests through the gateway: lists, batches, cancel and resubmit."""

import json
from typing import Any

import pytest

from core.b2b_requests import BatchAnswer, RequestList
from tests.integration.function.conftest import Platform
from tests.support.business import submit_body


async def submitted(platform: Platform, number: int) -> str:
    accepted = await platform.submit(platform_refs={"dataset_id": "D", "resource_id": f"r{number}"})
    return str(accepted["request_id"])


async def listed(platform: Platform, query: str = "", caller: str = "submitter") -> list[str]:
    reply = await platform.call("GET", f"/api/platform/requests{query}", caller)
    assert reply.status == 200, reply
    assert "job_id" not in json.dumps(reply.body)
    return [one.request_id for one in RequestList.model_validate_json(json.dumps(reply.body)).requests]


async def test_requests_are_listed_by_state_page_by_page(platform: Platform) -> None:
    first, second, third = [await submitted(platform, n) for n in range(3)]
    await platform.end_job(first)
    await platform.end_job(second, status="FAILED", error={"code": "CRS_MISSING", "message": "no CRS"})
    assert await listed(platform) == [third, second, first]
    assert await listed(platform, "?state=completed") == [first]
    assert await listed(platform, "?state=failed") == [second]
    assert await listed(platform, "?state=queued") == [third]
    assert await listed(platform, "?state=processing") == []
    async with platform.orchestrator.context.pool.connection() as conn:
        await conn.execute(
            "UPDATE dagapp.dag_node_states SET started_at = dagapp.clock(), task_id = 't' WHERE node_id = 'validate'"
        )
    assert await listed(platform, "?state=processing") == [third]
    assert await listed(platform, "?state=queued") == []
    page = await platform.call("GET", "/api/platform/requests?limit=2")
    rest = await platform.call("GET", f"/api/platform/requests?limit=2&after={page.body['next_after']}")
    assert [one["request_id"] for one in page.body["requests"] + rest.body["requests"]] == [third, second, first]
    status = await platform.call("GET", f"/api/platform/status/{second}")
    assert page.body["requests"][1] == status.body
    assert await listed(platform, f"?asset_id={status.body['asset_id']}") == [second]


async def test_everybody_lists_his_own_requests(platform: Platform) -> None:
    request = await submitted(platform, 1)
    for caller in ("submitter", "reviewer", "admin"):
        assert await listed(platform, caller=caller) == [request]
    assert await listed(platform, "?platform_id=arcgis") == []
    for caller, status in ((None, 401), ("reader", 403), ("operator", 403), ("worker", 401)):
        assert (await platform.call("GET", "/api/platform/requests", caller)).status == status
    async with platform.orchestrator.context.pool.connection() as conn:
        await conn.execute("UPDATE dagapp.platform_requests SET platform_id = 'arcgis'")
    assert await listed(platform) == []
    assert await listed(platform, "?platform_id=arcgis", "reviewer") == [request]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?state=open", "state"),
        ("?limit=-1", "limit"),
        ("?after=%", "after"),
        ("?x=1", "x"),
        ("?asset_id=", "asset_id"),
    ],
)
async def test_a_wrong_question_is_refused_by_name(standing: Platform, query: str, field: str) -> None:
    reply = await standing.call("GET", f"/api/platform/requests{query}")
    assert (reply.status, reply.body["code"], reply.body["field"]) == (422, "PARAMETER_INVALID", field)


async def test_a_batch_of_submits_has_a_result_each(platform: Platform) -> None:
    platform.put("ddh/dem.tif")
    bodies: list[dict[str, Any]] = [
        submit_body(platform_refs={"dataset_id": "D", "resource_id": f"r{n}"}) for n in range(3)
    ]
    bodies[1]["source"] = {"container_name": "bronze", "blob_name": "ddh/none.tif"}
    replies = [
        await platform.call("POST", "/api/platform/submit/batch", body={"submits": bodies}, Idempotency_Key="b")
        for _ in range(2)
    ]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].body["results"][0] == replies[1].body["results"][0]
    results = BatchAnswer.model_validate_json(json.dumps(replies[0].body)).results
    assert [r.accepted is not None for r in results] == [True, False, True]
    assert results[1].error is not None
    assert results[1].error.code == "FILE_NOT_FOUND"
    for wrong in ({"submits": []}, {"submits": bodies * 34}, {}, {"submits": {}}):
        assert (await platform.call("POST", "/api/platform/submit/batch", body=wrong)).status == 422
    assert (await platform.call("POST", "/api/platform/submit/batch", "reviewer", {"submits": bodies})).status == 403


async def test_a_request_is_cancelled_and_resubmitted(platform: Platform) -> None:
    request = await submitted(platform, 1)
    cancelled = await platform.call("POST", f"/api/platform/requests/{request}/cancel", body={"reason": "wrong"})
    assert (cancelled.status, cancelled.body["state"]) == (200, "cancelled")
    again = await platform.call("POST", f"/api/platform/requests/{request}/cancel")
    assert (again.status, again.body["code"]) == (409, "INVALID_TRANSITION")
    resubmitted = await platform.call("POST", f"/api/platform/requests/{request}/resubmit", body={"title": "better"})
    assert (resubmitted.status, resubmitted.body["revision"]) == (202, 2)
    assert resubmitted.headers["Location"] == resubmitted.body["status_url"]
    for what in ("cancel", "resubmit"):
        unknown = await platform.call("POST", f"/api/platform/requests/req_none/{what}")
        assert (unknown.status, unknown.body["code"]) == (404, "NOT_FOUND")
        nonsense = await platform.call("POST", f"/api/platform/requests/{'%2e%2e%2f' * 3}/{what}")
        assert nonsense.status == 404
