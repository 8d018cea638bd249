"""Limits of slots over HTTP: an operator changes one, and whoever waits goes on by itself."""

from typing import Any

import pytest

from tests.support.doors import Door


async def put(door: Door, key: str, body: Any, method: str = "PUT") -> tuple[int, Any]:
    path = f"/api/v1/settings/limits/{key}"
    return await door.call(method, path, body=body, caller="operator", service="gateway")


async def test_a_limit_that_is_raised_lets_the_next_job_go_on(door: Door) -> None:
    jobs = [await door.create("slots_test", {"seconds": 0, "place": "a/b"}) for _ in range(4)]
    assert [(await door.get(f"/api/v1/jobs/{job_id}"))["status"] for job_id in jobs][3] == "PENDING"
    (listed,) = [one for one in (await door.get("/api/v1/settings/limits"))["limits"] if "a/b" in one["slot_key"]]
    assert (listed["limit"], listed["held"], listed["waiting"], listed["set_by"]) == (2, 2, 2, None)
    status, body = await put(door, listed["slot_key"], {"limit": 3})
    assert status == 200
    assert body["limit"] == {**listed, "limit": 3, "held": 3, "waiting": 1, "set_by": "operator"}
    status, body = await put(door, listed["slot_key"], None, "DELETE")
    assert (status, body["limit"]["set_by"]) == (200, None)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("key", "body", "status", "field"),
    [
        ("k", {"limit": 3}, 422, "key"),
        ("slots_test:", {"limit": 3}, 422, "key"),
        ("nope:x", {"limit": 3}, 422, "key"),
        ("global:", {"limit": 3}, 422, "key"),
        (":x", {"limit": 3}, 422, "key"),
        ("slots_test:" + "x" * 257, {"limit": 3}, 422, "key"),
        ("global:" + "x" * 250, {"limit": 3}, 422, "key"),
        ("global:x", {"limit": 3, "reason": 5}, 422, "reason"),
        ("global:k", {"limit": -1}, 422, "limit"),
        ("global:k", {"limit": "3"}, 422, "limit"),
        ("global:k", {}, 422, "limit"),
        ("global:k", {"limit": 3, "x": 1}, 422, "x"),
        ("x" * 401, {"limit": 3}, 422, "key"),
    ],
)
async def test_what_cannot_be_a_limit_is_refused(standing: Door, key: str, body: Any, status: int, field: str) -> None:
    code, problem = await put(standing, key, body)
    assert (code, problem["field"]) == (status, field)


@pytest.mark.parametrize("key", ["slots_test:later/x:y", "global:" + "x" * 249, "slots_test:" + "x" * 256])
async def test_a_key_that_nobody_asked_for_yet_may_be_set_and_the_answer_says_so(door: Door, key: str) -> None:
    status, body = await put(door, key, {"limit": 3})
    assert (status, body["limit"]["asked"]) == (200, None)
    assert (await door.get("/api/v1/settings/limits"))["limits"] == [body["limit"]]
    ((first,),) = ((await door.get("/api/v1/audit"))["entries"],)
    assert first["before"] == {"slot_key": key, "limit": None, "set_by": None}


async def test_whoever_changes_a_limit_is_in_the_audit_with_why_and_from_what_to_what(door: Door) -> None:
    await door.create("slots_test", {"seconds": 0, "place": "here"})
    ((listed,), key) = ((await door.get("/api/v1/settings/limits"))["limits"], "slots_test:here")
    assert (listed["slot_key"], listed["asked"]) == (key, 2)
    for body in ({"limit": 5, "reason": "night"}, {"limit": 5, "reason": "no change"}):
        assert (await put(door, key, body))[0] == 200
    for _ in range(2):
        assert (await put(door, key, {"reason": "day"}, "DELETE"))[0] == 200
    rows = (await door.get("/api/v1/audit"))["entries"]
    workflows, hand = ({"slot_key": key, "limit": limit, "set_by": by} for limit, by in ((2, None), (5, "operator")))
    assert [(row["action"], row["actor"], row["reason"], row["before"], row["after"]) for row in rows] == [
        ("limit_unset", "operator", "day", hand, workflows),
        ("limit_set", "operator", "night", workflows, hand),
    ]


async def test_one_key_says_who_holds_it_and_who_waits_in_what_order(door: Door) -> None:
    urgency = ("routine", "routine", "backfill", "routine", "interactive")
    jobs = []
    for priority in urgency:
        body = {"workflow_id": "slots_test", "inputs": {"seconds": 0, "place": "a/b"}, "priority": priority}
        _, made = await door.call("POST", "/api/v1/jobs", body=body, caller="operator", service="gateway")
        jobs.append(made["job_id"])
    found = await door.get("/api/v1/settings/limits/slots_test:a/b")
    listed, first = found["limit"], found["holders"][0]
    assert listed in (await door.get("/api/v1/settings/limits"))["limits"]
    assert (listed["slot_key"], listed["held"], listed["waiting"]) == ("slots_test:a/b", 2, 3)
    assert [one["job_id"] for one in found["holders"]] == jobs[:2]
    assert [(one["job_id"], one["priority"]) for one in found["line"]] == [(jobs[4], 8), (jobs[3], 5), (jobs[2], 1)]
    assert (first["node_id"], first["workflow_id"]) == (None, "slots_test")
    assert first["requested_at"] <= first["granted_at"]
    assert {one["granted_at"] for one in found["line"]} == {None}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("key", "status", "code"),
    [("nobody:x", 404, "NOT_FOUND"), ("x" * 401, 422, "PARAMETER_INVALID"), ("", 422, "PARAMETER_INVALID")],
)
async def test_a_key_that_nobody_asked_for_or_set_is_not_there(
    standing: Door, key: str, status: int, code: str
) -> None:
    answer, problem = await standing.call("GET", f"/api/v1/settings/limits/{key}", caller="operator")
    assert (answer, problem["code"], problem["field"]) == (status, code, "key")


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_can_unset_a_key_that_is_not_there(standing: Door) -> None:
    code, problem = await put(standing, "nobody", None, "DELETE")
    assert (code, problem["code"]) == (404, "NOT_FOUND")
