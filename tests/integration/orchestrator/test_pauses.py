"""Pause switches over HTTP, and that what they held goes on by itself."""

from typing import Any

import pytest

from orchestrator import scaling
from tests.support.doors import Door
from tests.support.engine import Engine
from tests.support.waiting import await_until


async def turn(door: Door, method: str, switch: str, body: Any = None) -> tuple[int, Any]:
    path = f"/api/v1/settings/pauses/{switch}"
    return await door.call(method, path, body=body, caller="operator", service="gateway")


async def test_a_switch_holds_new_jobs_until_it_is_lifted(door: Door, engine: Engine) -> None:
    status, body = await turn(door, "PUT", "workflow:echo_test", {"reason": "maintenance"})
    assert (status, body) == (200, {"switch": "workflow:echo_test", "paused": True, "changed": True, "jobs": 0})
    job_id = await door.create("echo_test")
    (listed,) = (await door.get("/api/v1/settings/pauses"))["switches"]
    assert (listed["switch"], listed["paused"], listed["updated_by"]) == ("workflow:echo_test", True, "operator")
    assert listed["reason"] == "maintenance"
    assert await engine.messages(job_id) == []
    status, body = await turn(door, "DELETE", "workflow:echo_test")
    assert (status, body["changed"], body["jobs"]) == (200, True, 1)

    async def sent() -> bool:
        return bool(await engine.messages(job_id))

    await await_until(sent, "the loop sends what was held", timeout_seconds=3)
    assert (await turn(door, "DELETE", "workflow:echo_test"))[1]["changed"] is False


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_switch_is_refused_by_name(standing: Door) -> None:
    for switch, status in (("nothing", 422), ("queue:nope", 404)):
        code, problem = await turn(standing, "PUT", switch)
        assert (code, problem["field"]) == (status, "switch")
        assert (await turn(standing, "DELETE", switch))[0] == status
    assert (await turn(standing, "PUT", "all", {"surprise": 1}))[1]["field"] == "surprise"


async def test_scale_counts_leases_and_not_what_is_held(door: Door, engine: Engine) -> None:
    jobs = [await door.create("echo_test") for _ in range(2)]
    path = "/api/v1/scale/functionapp-tasks"
    assert (await door.get(path))["tasks"] == 2
    await door.claim(await engine.message(jobs[0]))
    await turn(door, "PUT", "queue:functionapp-tasks")
    answer = await door.get(path)
    assert answer.pop("oldest_unclaimed_seconds") == 0
    # No message is left that anybody may take, and there is work as long as the lease lives.
    assert answer == {"queue": "functionapp-tasks", "unclaimed": 0, "leased": 1, "tasks": 1, "held": 1}


async def test_a_task_that_waits_for_long_is_in_the_log(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scaling, "LONG_WAIT_SECONDS", 0.0)
    await door.create("echo_test")
    assert (await door.get("/api/v1/scale/functionapp-tasks"))["oldest_unclaimed_seconds"] > 0
    assert [one.message for one in caplog.records if one.name == scaling.__name__] == ["tasks wait for workers"]
