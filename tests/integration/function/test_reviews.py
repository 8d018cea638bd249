"""The reviewers' inbox and what is said about versions, through the gateway and by the `geodag` command."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from core.b2b_assets import CommentList, DecisionsAnswer, ReviewItem, ReviewList
from tests.integration.function.conftest import Platform

REFS = {"dataset_id": "1", "resource_id": "a"}


async def processed(platform: Platform, resource: str = "a", **changes: Any) -> str:
    """Submit a version whose ingest succeeds and return its asset."""
    accepted = await platform.submit(platform_refs=REFS | {"resource_id": resource}, **changes)
    await platform.end_job(accepted["request_id"])
    return str(accepted["asset_id"])


async def inbox(platform: Platform, query: str = "", caller: str = "reviewer") -> list[ReviewItem]:
    reply = await platform.call("GET", f"/api/assets/reviews{query}", caller)
    assert reply.status == 200, reply
    return ReviewList.model_validate_json(json.dumps(reply.body)).reviews


async def test_the_inbox_shows_what_waits_the_oldest_first(platform: Platform) -> None:
    first = await processed(platform, "a", title="Relief", access_level="public")
    await platform.submit(platform_refs=REFS | {"resource_id": "in work"})
    second = await processed(platform, "b")
    items = await inbox(platform)
    assert [item.asset_id for item in items] == [first, second]
    assert await inbox(platform, caller="admin") == [
        item.model_copy(update={"age_seconds": other.age_seconds, "next_actions": other.next_actions})
        for item, other in zip(items, await inbox(platform, caller="admin"), strict=True)
    ]
    item = items[0]
    assert (item.title, item.access_level, item.submitted_by, item.version_label) == (
        "Relief",
        "public",
        "submitter",
        "V1",
    )
    assert (item.state, item.verdict, item.finding_count, item.comment_count) == ("pending_review", "accept", 0, 0)
    assert (item.overdue, item.previous, item.next_actions[:2]) == (False, None, ["approve", "reject"])
    assert 0 <= item.age_seconds < 600
    assert item.thumbnail_url == f"http://serving.test/preview/{first}.png?version=0"
    assert item.report_url == f"http://gateway.test/api/assets/{first}/versions/0"


async def test_the_inbox_names_what_was_approved_before(platform: Platform) -> None:
    asset = await processed(platform)
    approved = f"/api/assets/{asset}/versions/0/approve"
    assert (await platform.call("POST", approved, "reviewer", {"clearance_level": "ouo"})).status == 200
    assert await inbox(platform) == []
    await processed(platform, version_label="V2")
    (item,) = await inbox(platform)
    assert item.previous is not None
    assert (item.previous.version_ordinal, item.previous.version_label) == (0, "V1")
    assert item.previous.thumbnail_url.endswith(f"/preview/{asset}.png?version=0")
    (done,) = await inbox(platform, "?state=approved")
    assert (done.version_ordinal, done.next_actions) == (0, ["revoke"])


async def test_the_inbox_is_filtered_and_read_page_by_page(platform: Platform) -> None:
    assets = [await processed(platform, f"r{n}") for n in range(5)]
    pages, after = [], ""
    while True:
        reply = await platform.call("GET", f"/api/assets/reviews?limit=2{after}", "reviewer")
        pages.append([item["asset_id"] for item in reply.body["reviews"]])
        if reply.body["next_after"] is None:
            break
        after = f"&after={reply.body['next_after']}"
    assert pages == [assets[:2], assets[2:4], assets[4:]]
    assert len(await inbox(platform, "?platform_id=ddh&data_type=raster")) == 5
    assert await inbox(platform, "?platform_id=arcgis") == []
    assert await inbox(platform, "?data_type=vector") == []
    assert await inbox(platform, "?overdue=true") == []
    async with platform.orchestrator.context.pool.connection() as conn:
        await conn.execute(
            "UPDATE dagapp.asset_versions SET review_due_at = dagapp.clock() WHERE asset_id = %s", (assets[3],)
        )
    assert [(item.asset_id, item.overdue) for item in await inbox(platform, "?overdue=true")] == [(assets[3], True)]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?state=unknown", "state"),
        ("?limit=0", "limit"),
        ("?after=x", "after"),
        ("?colour=red", "colour"),
        ("?platform_id=", "platform_id"),
        ("?platform_id=%00", "platform_id"),
        ("?overdue=yes", "overdue"),
    ],
)
async def test_a_wrong_question_is_refused_by_name(standing: Platform, query: str, field: str) -> None:
    reply = await standing.call("GET", f"/api/assets/reviews{query}", "reviewer")
    assert (reply.status, reply.body["code"], reply.body["field"]) == (422, "PARAMETER_INVALID", field)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_inbox_is_for_reviewers(standing: Platform) -> None:
    for caller, status in ((None, 401), ("submitter", 403), ("reader", 403), ("operator", 403), ("gateway", 401)):
        assert (await standing.call("GET", "/api/assets/reviews", caller)).status == status


async def test_reviewers_and_partners_talk_about_a_version(platform: Platform) -> None:
    asset = await processed(platform)
    path = f"/api/assets/{asset}/versions/0/comments"
    assert (await platform.call("POST", path, "reviewer", {"text": "where is this?"})).status == 201
    assert (await platform.call("POST", path, "submitter", {"text": "in Bhutan"})).status == 201
    for text in ("", "a\0b", "x" * 4001):
        assert (await platform.call("POST", path, "submitter", {"text": text})).status == 422
    seen = {}
    for caller in ("reviewer", "submitter"):
        reply = await platform.call("GET", path, caller)
        assert reply.headers["Cache-Control"] == "private, no-store"
        comments = CommentList.model_validate_json(json.dumps(reply.body)).comments
        seen[caller] = [(one.author, one.author_role, one.text) for one in comments]
    assert seen == {
        "reviewer": [("reviewer", "reviewer", "where is this?"), ("submitter", "submitter", "in Bhutan")],
        "submitter": [(None, "reviewer", "where is this?"), ("submitter", "submitter", "in Bhutan")],
    }
    assert (await inbox(platform))[0].comment_count == 2
    for caller, status in ((None, 401), ("reader", 404), ("operator", 404)):
        assert (await platform.call("GET", path, caller)).status == status
    missing = f"/api/assets/{asset}/versions/7/comments"
    assert (await platform.call("GET", missing, "reviewer")).status == 404


async def test_many_versions_are_decided_in_one_call(platform: Platform) -> None:
    assets = [await processed(platform, f"r{n}") for n in range(3)]
    decisions = [
        {"asset_id": asset, "version_ordinal": 0, "decision": "approve", "clearance_level": "ouo"} for asset in assets
    ]
    decisions[1] |= {"decision": "reject"}
    reply = await platform.call("POST", "/api/assets/reviews/decisions", "reviewer", {"decisions": decisions})
    results = DecisionsAnswer.model_validate_json(json.dumps(reply.body)).results
    assert [r.answer.approval_state if r.answer else r.error.code if r.error else "" for r in results] == [
        "approved",
        "PARAMETER_INVALID",
        "approved",
    ]
    odd: list[Any] = [{"asset_id": assets[1]}, "reject", decisions[1] | {"reason": "blurred"}]
    reply = await platform.call("POST", "/api/assets/reviews/decisions", "reviewer", {"decisions": odd})
    results = DecisionsAnswer.model_validate_json(json.dumps(reply.body)).results
    assert [(r.index, r.asset_id, r.error.field if r.error else None) for r in results] == [
        (0, None, "version_ordinal"),
        (1, None, "body"),
        (2, assets[1], "clearance_level"),
    ]
    for wrong in ({"decisions": []}, {"decisions": decisions * 34}, {}):
        assert (await platform.call("POST", "/api/assets/reviews/decisions", "reviewer", wrong)).status == 422


async def test_who_reviews_the_next_revision_reads_why_the_last_one_was_rejected(platform: Platform) -> None:
    asset = await processed(platform)
    other = await processed(platform, "b")
    version = f"/api/assets/{asset}/versions/0"
    assert (await inbox(platform))[0].decisions == []
    assert (await platform.call("POST", f"{version}/reject", "reviewer", {"reason": "heights are feet"})).status == 200
    (rejected,) = await inbox(platform, "?state=rejected")
    assert (rejected.reason, rejected.next_actions) == ("heights are feet", [])
    await processed(platform, title="in metres")
    items = {item.asset_id: item for item in await inbox(platform)}
    (before,) = items[asset].decisions
    assert (before.revision, before.decision, before.reason, before.decided_by, before.role) == (
        1,
        "rejected",
        "heights are feet",
        "reviewer",
        "reviewer",
    )
    assert (items[asset].revision, items[asset].reason, items[other].decisions) == (2, None, [])
    seen = {}
    for caller in ("reviewer", "submitter"):
        for path in (version, f"/api/assets/{asset}/versions"):
            body = (await platform.call("GET", path, caller)).body
            told = (body["versions"][0] if "versions" in body else body)["decisions"]
            seen[caller, path == version] = [(one["decision"], one["reason"], one["decided_by"]) for one in told]
    assert set(map(tuple, (seen["reviewer", True], seen["reviewer", False]))) == {
        (("rejected", "heights are feet", "reviewer"),)
    }
    assert seen["submitter", True] == seen["submitter", False] == [("rejected", "heights are feet", None)]
    direct = await platform.orchestrator.call("GET", f"/api/v1/assets/{asset}/versions", caller="submitter")
    assert direct == (200, (await platform.call("GET", f"/api/assets/{asset}/versions")).body)
    assert (await platform.call("POST", f"{version}/approve", "reviewer", {"clearance_level": "ouo"})).status == 200
    read = (await platform.call("GET", version, "reader")).body
    assert (read["decisions"], read["next_actions"]) == ([], [])
    shown = await geodag(platform, "reviewer", "version", asset, "0")
    assert [(one["decision"], one["revision"]) for one in shown["decisions"]] == [("rejected", 1), ("approved", 2)]
    env = {"GEODAG_GATEWAY_URL": platform.gateway, "GEODAG_API_KEY": "key-reviewer"}
    for words in (["version", asset, "0"], ["reviews", "--state", "approved"]):
        result = await asyncio.to_thread(CliRunner().invoke, app, words, env=env)
        assert result.exit_code == 0, result.output


async def geodag(platform: Platform, role: str, *words: str, exit_code: int = 0) -> Any:
    """Run the command as somebody and return what it printed as JSON."""
    env = {"GEODAG_GATEWAY_URL": platform.gateway, "GEODAG_API_KEY": f"key-{role}"}
    result = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json"], env=env)
    assert (result.exit_code != 0) == (exit_code != 0), result.output
    return json.loads(result.stdout) if result.stdout else None


async def test_the_command_lists_comments_and_decides(platform: Platform) -> None:
    first, second = await processed(platform, "a"), await processed(platform, "b")
    listed = await geodag(platform, "reviewer", "reviews", "--platform", "ddh")
    assert [item["asset_id"] for item in listed["reviews"]] == [first, second]
    said = await geodag(platform, "reviewer", "comment", first, "0", "where is this?")
    assert said["author_role"] == "reviewer"
    heard = await geodag(platform, "submitter", "comments", first, "0")
    assert [one["text"] for one in heard["comments"]] == ["where is this?"]
    decided = await geodag(platform, "reviewer", "decide", "approve", f"{first}:0", f"{second}:0", "--clearance", "ouo")
    assert [one["answer"]["approval_state"] for one in decided["results"]] == ["approved", "approved"]
    again = await geodag(platform, "reviewer", "decide", "approve", f"{first}:0", exit_code=1)
    assert again["results"][0]["error"]["code"] == "INVALID_TRANSITION"


async def test_the_command_takes_down_and_brings_back(platform: Platform) -> None:
    asset = await processed(platform)
    await geodag(platform, "reviewer", "approve", asset, "0", "--clearance", "ouo")
    assert (await geodag(platform, "reviewer", "clearance", asset, "public"))["clearance_state"] == "public"
    assert (await geodag(platform, "reviewer", "expose", asset, "all_versions"))["exposure"] == "all_versions"
    await geodag(platform, "admin", "clearance", asset, "ouo", exit_code=1)
    lowered = await geodag(platform, "admin", "clearance", asset, "ouo", "--reason", "leaked")
    assert lowered["clearance_state"] == "ouo"
    assert (await geodag(platform, "reviewer", "unpublish", asset))["dry_run"] is True
    assert (await geodag(platform, "admin", "delete", asset, "--reason", "not ours"))["deleted"] is True
    assert (await geodag(platform, "admin", "restore", asset))["deleted"] is False
    revoked = await geodag(platform, "reviewer", "revoke", asset, "0", "--reason", "recalled")
    assert revoked["approval_state"] == "revoked"
    await processed(platform, version_label="V2")
    await geodag(platform, "reviewer", "reject", asset, "1", "--reason", "blurred")
    assert (await geodag(platform, "submitter", "supersede", asset, "1"))["approval_state"] == "revoked"
    assert (await geodag(platform, "submitter", "delete", asset, "1"))["deleted"] is True
    assert (await geodag(platform, "admin", "restore", asset, "1"))["deleted"] is False
    told = await geodag(
        platform, "operator", "audit", "--asset", asset, "--version", "1", "--since", "2026-01-01T00:00:00Z"
    )
    assert [(row["action"], row["actor"]) for row in told][:3] == [
        ("restored", "admin"),
        ("deleted", "submitter"),
        ("superseded", "submitter"),
    ]
