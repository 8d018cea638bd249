"""The gateway from outside: what partners, reviewers, operators and strangers get through its one door."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from psycopg import AsyncConnection, errors
from yarl import URL

from core.b2b import MAX_BODY_BYTES
from core.identity import SERVICE_HEADER
from core.wire import TaskMessage
from function.app import build_gateway, create_app
from function.blueprints.elsewhere_bp import METHODS
from function.local_host import LocalHost
from repositories import roles
from tests.integration.function.conftest import CLOSED_PORT, Platform, Reply, gateway_settings
from tests.support.business import submit_body
from tests.support.databases import Database
from tests.support.doors import WORKER
from tests.support.gateway_routes import FUNCTIONS
from tests.support.serving_http import serve
from tests.support.waiting import await_until

ASSET = "a9234e9e7b1ae7c5151568522b54db33"
DECISIONS = (
    ("PATCH", "", "reviewer"),
    ("DELETE", "", "admin"),
    ("POST", "/restore", "admin"),
    ("POST", "/clearance", "reviewer"),
    ("POST", "/unpublish", "reviewer"),
    ("DELETE", "/versions/0", "submitter"),
    ("POST", "/versions/0/approve", "reviewer"),
    ("POST", "/versions/0/reject", "reviewer"),
    ("POST", "/versions/0/revoke", "reviewer"),
    ("POST", "/versions/0/supersede", "submitter"),
    ("POST", "/versions/0/restore", "admin"),
    ("POST", "/versions/0/comments", "reviewer"),
)
MUTATIONS = (
    ("POST", "/api/assets/reviews/decisions", "/api/v1/reviews/decisions", "reviewer"),
    ("POST", "/api/platform/submit", "/api/v1/submit", "submitter"),
    ("POST", "/api/platform/submit/batch", "/api/v1/requests/batch", "submitter"),
    ("POST", "/api/platform/requests/x/cancel", "/api/v1/requests/x/cancel", "submitter"),
    ("POST", "/api/platform/requests/x/resubmit", "/api/v1/requests/x/resubmit", "submitter"),
    ("POST", "/api/platform/validate", "/api/v1/validate", "submitter"),
    ("POST", "/api/platform/uploads", "/api/v1/uploads", "submitter"),
    ("PUT", "/api/platform/webhooks/nobody", "/api/v1/webhooks/platforms/nobody", "admin"),
    ("POST", "/api/platform/webhooks/nobody/secrets", "/api/v1/webhooks/platforms/nobody/secrets", "admin"),
    *(
        (method, f"/api/assets/{ASSET}{what}", f"/api/v1/assets/{ASSET}{what}", role)
        for method, what, role in DECISIONS
    ),
)


async def test_a_submit_passes_and_its_status_is_read_from_the_view(platform: Platform) -> None:
    platform.put("ddh/dem.tif")
    reply = await platform.call("POST", "/api/platform/submit", body=submit_body())
    assert (reply.status, reply.body["asset_id"], reply.body["version_ordinal"]) == (202, ASSET, 0)
    assert reply.headers["Location"] == reply.body["status_url"]
    assert reply.headers["Retry-After"] == "2"
    status = await platform.call("GET", f"/api/platform/status/{reply.body['request_id']}")
    assert (status.status, status.body["state"], status.body["review"]) == (200, "queued", None)
    assert status.headers["Cache-Control"] == "private, no-store"
    direct = await platform.orchestrator.call("GET", f"/api/v1/status/{reply.body['request_id']}", caller="submitter")
    assert direct == (200, status.body)


async def test_no_answer_to_a_partner_ever_holds_a_job_id(platform: Platform) -> None:
    accepted = await platform.submit()
    async with platform.orchestrator.context.pool.connection() as conn:
        cursor = await conn.execute("SELECT job_id FROM dagapp.dag_jobs")
        (job_id,) = await cursor.fetchone() or ("",)
    await platform.end_job(accepted["request_id"])
    texts = [json.dumps(accepted)]
    for path in (
        f"/api/platform/status/{accepted['request_id']}",
        f"/api/assets/{ASSET}",
        f"/api/assets/{ASSET}/versions",
        f"/api/assets/{ASSET}/versions/0",
    ):
        reply = await platform.call("GET", path)
        assert reply.status == 200, reply
        texts.append(json.dumps(reply.body))
    assert job_id
    assert not [text for text in texts if job_id in text or "job_id" in text]


async def test_an_idempotency_key_travels_in_its_header(platform: Platform) -> None:
    platform.put("ddh/dem.tif")
    replies = [
        await platform.call("POST", "/api/platform/submit", body=submit_body(title=title), Idempotency_Key="k")
        for title in ("one", "one", "two")
    ]
    assert [reply.status for reply in replies] == [202, 202, 409]
    assert replies[0].body == replies[1].body
    assert replies[2].body["code"] == "IDEMPOTENCY_CONFLICT"


async def test_a_refusal_of_the_orchestrator_arrives_as_it_is(platform: Platform) -> None:
    missing = {"container_name": "bronze", "blob_name": "ddh/none.tif"}
    reply = await platform.call("POST", "/api/platform/submit", body=submit_body(source=missing))
    assert (reply.status, reply.headers["Content-Type"]) == (422, "application/problem+json")
    assert reply.body["instance"] == "/api/platform/submit"  # the path the partner knows
    assert (reply.body["code"], reply.body["field"], reply.body["user_fixable"]) == (
        "FILE_NOT_FOUND",
        "file",
        True,
    )
    assert reply.body["error_id"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"a":1,"a":2}', b"\xff"])
async def test_a_body_that_is_no_json_object_is_a_named_refusal(standing: Platform, raw: bytes) -> None:
    reply = await standing.call("POST", "/api/platform/submit", raw=raw)
    assert (reply.status, reply.body["code"], reply.body["field"]) == (422, "PARAMETER_INVALID", "body")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", ["/api/platform/submit", "/api/platform/uploads", "/api/platform/approve"])
@pytest.mark.parametrize("size_bytes", [MAX_BODY_BYTES + 1, 9 * MAX_BODY_BYTES])
async def test_a_body_beyond_the_limit_is_413_however_long(standing: Platform, path: str, size_bytes: int) -> None:
    reply = await standing.call("POST", path, raw=io.BytesIO(b" " * size_bytes))
    assert (reply.status, reply.body["code"], reply.body["field"]) == (413, "PAYLOAD_TOO_LARGE", "body")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "outside", "inside", "role"), MUTATIONS)
async def test_a_mutation_needs_both_credentials(
    standing: Platform, method: str, outside: str, inside: str, role: str
) -> None:
    door = standing.orchestrator
    answers = {
        "gateway alone": (await door.call(method, inside, body={}, service="gateway"))[0],
        "caller alone": (await door.call(method, inside, body={}, caller=role))[0],
        "worker's beside": (await door.call(method, inside, body={}, caller=role, service="worker"))[0],
        "service as caller": (await door.call(method, inside, body={}, caller="gateway", service="gateway"))[0],
        "wrong role": (await door.call(method, inside, body={}, caller="operator", service="gateway"))[0],
    }
    assert answers == {
        "gateway alone": 401,
        "caller alone": 401,
        "worker's beside": 401,
        "service as caller": 401,
        "wrong role": 403,
    }
    assert (await door.call(method, inside, body={}, caller=role, service="gateway"))[0] in {404, 422}
    assert (await standing.call(method, outside, None, {})).status == 401
    assert (await standing.call(method, outside, "gateway", {})).status == 401
    assert (await standing.call(method, outside, "nobody", {})).status == 401
    assert (await standing.call(method, outside, "operator", {})).status == 403


@pytest.mark.asyncio(loop_scope="module")
async def test_a_partner_can_not_bring_the_gateways_credential(standing: Platform) -> None:
    headers = {SERVICE_HEADER: "key-worker", "X-API-Key": "key-submitter"}
    async with standing.session.post(standing.gateway + "/api/platform/submit", json={}, headers=headers) as answer:
        assert (await answer.json())["code"] == "PARAMETER_MISSING"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "path", [f"/api/platform/status/{'x' * 40}", f"/api/assets/{ASSET}", f"/api/assets/{ASSET}/versions"]
)
async def test_a_read_needs_a_caller(standing: Platform, path: str) -> None:
    assert (await standing.call("GET", path, None)).status == 401
    assert (await standing.call("GET", path, "worker")).status == 401
    reply = await standing.call("GET", path)
    assert (reply.status, reply.body["code"]) == (404, "NOT_FOUND")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("nonsense", ["%00", "%ff", "a%00b", "x" * 5000, "%F0%9F%98%80", "'%3B--"])
async def test_nonsense_in_a_path_is_unknown_and_no_error_of_ours(standing: Platform, nonsense: str) -> None:
    for path in ("/api/platform/status/{}", "/api/assets/{}", "/api/assets/{}/versions", "/api/assets/{}/versions/0"):
        assert (await standing.call("GET", path.format(nonsense))).status == 404
    for path in ("/api/v1/status/{}", "/api/v1/assets/{}/versions"):
        status, _ = await standing.orchestrator.call("GET", path.format(nonsense), caller="submitter")
        assert status in {404, 422}
    status = (await standing.call("POST", f"/api/assets/{nonsense}/versions/0/approve", "reviewer", {})).status
    assert status == 422


async def test_what_was_published_is_taken_down_through_the_gateway(platform: Platform) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"])
    version = f"/api/assets/{ASSET}/versions/0"
    assert (await platform.call("POST", f"{version}/approve", "reviewer", {"clearance_level": "public"})).status == 200
    shown = await platform.call("GET", f"/api/platform/status/{accepted['request_id']}")
    assert shown.body["services"]
    silent = await platform.call("POST", f"{version}/revoke", "reviewer", {})
    assert (silent.status, silent.body["code"], silent.body["field"]) == (422, "PARAMETER_MISSING", "reason")
    dry = await platform.call("POST", "/api/platform/unpublish", "reviewer", {"asset_id": ASSET})
    assert (dry.status, dry.body["dry_run"], dry.body["version_ordinals"]) == (200, True, [0])
    revoked = await platform.call("POST", f"{version}/revoke", "reviewer", {"reason": "recalled"})
    assert (revoked.status, revoked.body["approval_state"]) == (200, "revoked")
    gone = await platform.call("GET", f"/api/platform/status/{accepted['request_id']}")
    assert (gone.body["services"], gone.body["review"], gone.body["reason"]) == (None, "revoked", "recalled")
    assert (await platform.call("GET", f"/api/assets/{ASSET}/versions/latest")).status == 404


async def test_an_asset_is_exposed_lowered_deleted_and_restored_through_the_gateway(platform: Platform) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"])
    asset = f"/api/assets/{ASSET}"
    await platform.call("POST", f"{asset}/versions/0/approve", "reviewer", {"clearance_level": "public"})
    exposed = await platform.call("PATCH", asset, "reviewer", {"exposure": "all_versions"})
    assert (exposed.status, exposed.body["exposure"]) == (200, "all_versions")
    lowered = {"clearance_level": "ouo", "reason": "leaked"}
    assert (await platform.call("POST", f"{asset}/clearance", "reviewer", lowered)).status == 403
    assert (await platform.call("POST", f"{asset}/clearance", "admin", lowered)).body["clearance_state"] == "ouo"
    assert (await platform.call("DELETE", asset, "admin")).body["field"] == "reason"
    deleted = await platform.call("DELETE", f"{asset}?reason=not+ours", "admin")
    assert (deleted.status, deleted.body["deleted"]) == (200, True)
    assert (await platform.call("GET", asset)).status == 404
    assert (await platform.call("POST", f"{asset}/restore", "admin")).body["deleted"] is False
    assert (await platform.call("GET", asset)).body["exposure"] == "all_versions"


async def test_another_platforms_request_is_as_unknown_as_none(platform: Platform) -> None:
    accepted = await platform.submit()
    async with platform.orchestrator.context.pool.connection() as conn:
        await conn.execute("UPDATE dagapp.platform_requests SET platform_id = 'arcgis'")
        await conn.execute("UPDATE dagapp.geospatial_assets SET platform_id = 'arcgis'")
    hidden = await platform.call("GET", f"/api/platform/status/{accepted['request_id']}")
    unknown = await platform.call("GET", "/api/platform/status/req_none")
    assert (hidden.status, hidden.body["detail"]) == (unknown.status, unknown.body["detail"])
    for path in (f"/api/assets/{ASSET}", f"/api/assets/{ASSET}/versions", f"/api/assets/{ASSET}/versions/0"):
        assert (await platform.call("GET", path)).status == 404


async def test_review_through_the_gateway_from_pending_to_approved(platform: Platform) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"])
    path = f"/api/assets/{ASSET}/versions/0/approve"
    assert (await platform.call("POST", path, "submitter", {"clearance_level": "public"})).status == 403
    missing = await platform.call("POST", path, "reviewer", {})
    assert (missing.status, missing.body["field"]) == (422, "clearance_level")
    named = await platform.call("POST", path, "reviewer", {"clearance_level": "ouo", "reviewer": "me"})
    assert (named.status, named.body["field"]) == (422, "reviewer")
    approved = await platform.call("POST", path, "reviewer", {"clearance_level": "public"})
    assert (approved.status, approved.body["latest_approved_version_ordinal"]) == (200, 0)
    again = await platform.call("POST", path, "reviewer", {"clearance_level": "public"})
    assert (again.status, again.body["code"]) == (409, "INVALID_TRANSITION")
    status = await platform.call("GET", f"/api/platform/status/{accepted['request_id']}")
    assert status.body["review"] == "approved"
    assert status.body["services"]["stac"] == f"http://serving.test/stac/{ASSET}?version=0"
    latest = await platform.call("GET", f"/api/assets/{ASSET}/versions/latest")
    assert (latest.status, latest.body["version_ordinal"], latest.body["report"]["verdict"]) == (200, 0, "accept")


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_the_aliases_take_the_version_from_the_body(platform: Platform, decision: str) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"])
    own = {"clearance_level": "ouo"} if decision == "approve" else {"reason": "wrong place"}
    body = {"asset_id": ASSET, "version_ordinal": 0} | own
    bad = await platform.call("POST", f"/api/platform/{decision}", "reviewer", body | {"asset_id": "../../jobs"})
    assert (bad.status, bad.body["field"]) == (422, "asset_id")
    good = await platform.call("POST", f"/api/platform/{decision}", "reviewer", body)
    assert (good.status, good.body["approval_state"]) == (200, {"approve": "approved", "reject": "rejected"}[decision])


async def test_a_file_goes_through_its_upload_address(platform: Platform) -> None:
    wish = {"platform_id": "ddh", "filename": "dem.tif", "size_bytes": 6}
    address = (await platform.call("POST", "/api/platform/uploads", body=wish)).body
    url = address["upload_url"].replace("http://orchestrator.test", platform.orchestrator.base)
    async with platform.session.put(url, data=b"pixels") as answer:
        assert (answer.status, (await answer.json())["size_bytes"]) == (201, 6)
    async with platform.session.put(url, data=b"other!") as answer:
        assert (answer.status, (await answer.json())["code"]) == (409, "BLOB_EXISTS")
    async with platform.session.get(url) as answer:
        assert answer.status == 405
    async with platform.session.put(url[:-2] + "xx", data=b"pixels") as answer:
        assert answer.status == 401
    assert platform.storage.read(f"bronze/{address['blob_name']}") == b"pixels"
    source = {"container_name": address["container_name"], "blob_name": address["blob_name"]}
    assert (await platform.submit(source=source))["version_ordinal"] == 0


async def queued_message(platform: Platform) -> TaskMessage | None:
    """Return the task that waits in the queue."""
    async with platform.orchestrator.context.pool.connection() as conn:
        row = await (await conn.execute("SELECT body FROM dagqueue.messages")).fetchone()
        return None if row is None else TaskMessage.model_validate(row[0])


async def validated(platform: Platform, path: str, body: dict[str, Any], result: dict[str, Any]) -> Reply:
    """Return the answer to a validation whose one task ends with a result."""
    platform.put("ddh/dem.tif")
    asked = asyncio.create_task(platform.call("POST", path, body=body))
    message = await await_until(lambda: queued_message(platform), "the validation is queued")
    assert message is not None
    assert message.handler == "raster.validate"
    assert (await platform.orchestrator.claim(message))["outcome"] == "granted"
    report = {"task_id": message.task_id, "token": message.token} | result
    await platform.orchestrator.callback("task-results", {"worker": WORKER, "results": [report]})
    return await asyncio.wait_for(asked, 10)


@pytest.mark.parametrize(
    ("path", "more"), [("/api/platform/validate", {}), ("/api/platform/submit", {"dry_run": True})]
)
async def test_a_good_file_is_validated_without_storing_anything(
    platform: Platform, path: str, more: dict[str, Any]
) -> None:
    output = {
        "source": "bronze/ddh/dem.tif",
        "content_hash": "c" * 64,
        "file_size_bytes": 6,
        "file_size_mb": 0.0,
        "raster": {},
        "report": {"verdict": "accept with fixes", "findings": []},
    }
    reply = await validated(platform, path, submit_body(**more), {"status": "completed", "output": output})
    assert (reply.status, reply.body["verdict"]) == (200, "accept with fixes")
    assert (reply.body["asset_id"], reply.body["version_ordinal"], reply.body["revision"]) == (ASSET, 0, 1)
    assert "job_id" not in json.dumps(reply.body)
    async with platform.orchestrator.context.pool.connection() as conn:
        row = await (await conn.execute("SELECT count(*) FROM dagapp.geospatial_assets")).fetchone()
        assert row == (0,)


async def test_a_bad_file_is_refused_by_its_validation_with_its_own_code(platform: Platform) -> None:
    error = {"code": "CRS_MISSING", "message": "no CRS", "field": "crs", "user_fixable": True}
    reply = await validated(platform, "/api/platform/validate", submit_body(), {"status": "failed", "error": error})
    assert (reply.status, reply.headers["Content-Type"]) == (422, "application/problem+json")
    assert (reply.body["code"], reply.body["field"], reply.body["detail"]) == ("CRS_MISSING", "crs", "no CRS")


async def test_a_validation_refuses_what_a_submit_would_refuse(platform: Platform) -> None:
    reply = await platform.call("POST", "/api/platform/validate", body=submit_body(colour="red"))
    assert (reply.status, reply.body["field"]) == (422, "colour")


async def test_a_status_is_answered_304_until_it_changes(platform: Platform) -> None:
    accepted = await platform.submit()
    path = f"/api/platform/status/{accepted['request_id']}"
    first = await platform.call("GET", path)
    same = await platform.call("GET", path, If_None_Match=first.headers["ETag"])
    assert (same.status, same.body) == (304, b"")
    await platform.end_job(accepted["request_id"])
    changed = await platform.call("GET", path, If_None_Match=first.headers["ETag"])
    assert (changed.status, changed.body["state"]) == (200, "completed")


async def test_a_waiting_status_answers_as_soon_as_the_request_ends(platform: Platform) -> None:
    accepted = await platform.submit()
    waiting = asyncio.create_task(platform.call("GET", f"/api/platform/status/{accepted['request_id']}?wait=30"))
    pids = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'geodag-gateway'"

    async def asked() -> bool:
        async with platform.orchestrator.context.pool.connection() as conn:
            row = await (await conn.execute(pids)).fetchone()
            return bool(row and row[0]) and not waiting.done()

    await await_until(asked, "the gateway asks its view")
    await platform.end_job(accepted["request_id"])
    reply = await asyncio.wait_for(waiting, 5)
    assert (reply.status, reply.body["state"]) == (200, "completed")


async def test_a_final_status_does_not_wait(platform: Platform) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"], status="CANCELLED", outputs=None)
    path = f"/api/platform/status/{accepted['request_id']}?wait=60"
    reply = await asyncio.wait_for(platform.call("GET", path), 5)
    assert reply.body["state"] == "cancelled"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("wait", ["-1", "61", "x", "1.5", "1000", ""])
async def test_a_bad_wait_is_refused(standing: Platform, wait: str) -> None:
    reply = await standing.call("GET", f"/api/platform/status/req_x?wait={wait}")
    assert (reply.status, reply.body["field"]) == (422, "wait")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "path", ["/api/status/jobs", "/api/status/job/x", "/api/status/job/x/nodes", "/api/admin/audit"]
)
async def test_operational_routes_do_not_exist_for_partners(standing: Platform, path: str) -> None:
    for caller in ("submitter", "reader", "reviewer", "admin"):
        assert (await standing.call("GET", path, caller)).status == 404
    assert (await standing.call("GET", path, None)).status == 401


async def test_an_operator_asks_who_did_what(platform: Platform) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"])
    reply = await platform.call("GET", f"/api/admin/audit?asset_id={ASSET}&limit=1", "operator")
    assert [entry["action"] for entry in reply.body["entries"]] == ["processed"]
    again = await platform.call("GET", f"/api/admin/audit?after={reply.body['next_after']}", "operator")
    assert [(e["action"], e["actor"], e["platform_id"]) for e in again.body["entries"]] == [
        ("submitted", "submitter", "ddh")
    ]
    for query, field in (
        ("limit=0", "limit"),
        ("since=yesterday", "since"),
        ("after=x", "after"),
        ("actor=%00", "actor"),
    ):
        wrong = await platform.call("GET", f"/api/admin/audit?{query}", "operator")
        assert (wrong.status, wrong.body["field"]) == (422, field)


async def test_an_operator_reads_jobs_through_the_gateway(platform: Platform) -> None:
    await platform.submit()
    jobs = (await platform.call("GET", "/api/status/jobs?limit=5&status=RUNNING", "operator")).body["jobs"]
    assert [job["workflow_id"] for job in jobs] == ["raster_tiled"]
    for workflow_id, found in (("raster_tiled", jobs), ("echo_test", [])):
        path = f"/api/status/jobs?status=RUNNING&workflow_id={workflow_id}"
        assert (await platform.call("GET", path, "operator")).body["jobs"] == found
    job = f"/api/status/job/{jobs[0]['job_id']}"
    assert (await platform.call("GET", job, "operator")).body["job_id"] == jobs[0]["job_id"]
    assert len((await platform.call("GET", f"{job}/nodes", "operator")).body["nodes"]) == 11
    events = (await platform.call("GET", f"{job}/events", "operator")).body["events"]
    assert events[0]["event_type"] == "job_created"
    assert (await platform.call("GET", "/api/status/job/..%2F..%2Fbootstrap%2Fstatus", "operator")).status == 404


@pytest.mark.asyncio(loop_scope="module")
async def test_what_the_gateway_does_not_offer_is_not_there_and_told_as_every_refusal(standing: Platform) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/api"),
        ("GET", "/api/v1/jobs"),
        ("OPTIONS", "/api/v1/jobs"),
        ("POST", "/api/v1/bootstrap/rebuild"),
        ("GET", f"/api/assets/{ASSET}/versions/x"),
        ("POST", f"/api/assets/{ASSET}/versions/99999999999/approve"),
    ):
        for caller in ("operator", None):
            reply = await standing.call(method, path, caller)
            assert (reply.status, reply.body["code"], reply.body["instance"]) == (404, "NOT_FOUND", path)
            assert "Allow" not in reply.headers


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_method_is_told_with_those_there_are(standing: Platform) -> None:
    for method, path, allow in (
        ("GET", "/api/platform/submit", "POST"),
        ("PUT", "/api/platform/submit", "POST"),
        ("POST", "/api/platform/status/x", "GET"),
        ("PUT", f"/api/assets/{ASSET}", "DELETE, GET, PATCH"),
        ("OPTIONS", f"/api/assets/{ASSET}", "DELETE, GET, PATCH"),
        ("OPTIONS", "/api/assets/reviews", "GET"),
    ):
        reply = await standing.call(method, path, None)
        assert (reply.status, reply.body["code"], reply.headers["Allow"]) == (405, "METHOD_NOT_ALLOWED", allow)
    assert (await standing.call("HEAD", "/api/livez", None)).status == 405
    spelt = URL(f"{standing.gateway}/api/%61ssets", encoded=True)
    async with standing.session.get(spelt) as answer:
        assert (answer.status, "Allow" in answer.headers) == (404, False)
    twice = await standing.call("GET", "/api/assets?limit=10&limit=20", "submitter")
    assert (twice.status, twice.body["field"]) == (422, "limit")
    twice = await standing.call("GET", "/api/proxy/orchestrator/api/v1/jobs?limit=1&limit=2", "operator")
    assert (twice.status, twice.body["field"]) == (422, "limit")
    asked = [(await standing.call("POST", "/api/status/jobs", caller)).status for caller in (None, "admin", "operator")]
    assert asked == [404, 404, 405]  # for whom it is not there, no method of it is


@pytest.mark.asyncio(loop_scope="module")
async def test_a_negative_ordinal_is_refused_by_name(standing: Platform) -> None:
    reply = await standing.call("POST", f"/api/assets/{ASSET}/versions/-1/approve", "reviewer", {})
    assert (reply.status, reply.body["field"]) == (422, "version_ordinal")


@pytest.mark.asyncio(loop_scope="module")
async def test_probes_need_no_credential(standing: Platform) -> None:
    assert (await standing.call("GET", "/api/livez", None)).body == {"status": "alive"}
    assert (await standing.call("GET", "/api/readyz", None)).body == {"status": "ready"}


async def test_without_an_orchestrator_mutations_are_503_and_reads_go_on(database: Database, keys_file: Path) -> None:
    gateway = build_gateway(gateway_settings(database, keys_file, CLOSED_PORT))
    host = LocalHost(create_app(gateway), {"extensions": {"http": {"routePrefix": ""}}})
    async with serve(host) as base, aiohttp.ClientSession(headers={"X-API-Key": "key-submitter"}) as session:
        async with session.post(f"{base}/api/platform/submit", json={}) as answer:
            body = await answer.json()
            assert (answer.status, body["code"]) == (503, "ORCHESTRATOR_UNAVAILABLE")
            assert (answer.headers["Retry-After"], body["classification"]) == ("2", "transient")
        async with session.get(f"{base}/api/platform/status/req_none") as answer:
            assert answer.status == 404
    await gateway.close()


async def test_the_gateways_role_writes_nothing_and_reads_only_its_views(database: Database) -> None:
    dsn = database.conninfo(roles.GATEWAY)
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("SELECT * FROM dagapi.requests")
        for statement in (
            "SELECT * FROM dagapp.platform_requests",
            "SELECT * FROM dagapp.dag_jobs",
            "UPDATE dagapi.assets SET exposure = 'all_versions'",
            "DELETE FROM dagapi.assets",
            "INSERT INTO dagapi.platforms (platform_id) VALUES ('x')",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                await conn.execute(statement.encode())


def test_every_route_of_the_contract_is_served(database: Database, keys_file: Path) -> None:
    app: Any = create_app(build_gateway(gateway_settings(database, keys_file, CLOSED_PORT)))
    host = LocalHost(app, json.loads((Path(__file__).parents[3] / "host.json").read_text()))
    served = {f"{method} {function.template.text}" for function in host.functions for method in function.methods}
    elsewhere = {f"{method} /{{*path}}" for method in METHODS}
    assert served == {f"{method} /{route}" for method, route in FUNCTIONS.values()} | elsewhere


@pytest.mark.asyncio(loop_scope="module")
async def test_the_document_is_served_to_anybody_and_told_once(standing: Platform) -> None:
    reply = await standing.call("GET", "/api/openapi.json", None)
    assert (reply.status, reply.body["openapi"], reply.body["servers"]) == (
        200,
        "3.1.0",
        [{"url": "http://gateway.test"}],
    )
    again = await standing.call("GET", "/api/openapi.json", None, If_None_Match=reply.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
