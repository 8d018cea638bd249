"""Limits of slots through the gateway and by the command."""

from tests.integration.function.conftest import Platform
from tests.integration.function.test_reviews import geodag

LIMITS = "/api/proxy/orchestrator/api/v1/settings/limits"
KEY = "global:gdal/heavy 1"


async def test_the_command_sets_lists_and_unsets_limits(platform: Platform) -> None:
    assert await geodag(platform, "operator", "limits") == []
    (made,) = await geodag(platform, "operator", "limits", KEY, "3")
    assert made == {"slot_key": KEY, "limit": 3, "set_by": "operator", "held": 0, "waiting": 0, "asked": None}
    assert await geodag(platform, "operator", "limits") == [made]
    assert await geodag(platform, "operator", "limits", KEY, "--unset") == [{**made, "set_by": None}]
    await geodag(platform, "operator", "limits", KEY, "3", "--unset", exit_code=2)
    await geodag(platform, "operator", "limits", "--unset", exit_code=2)
    await geodag(platform, "reviewer", "limits", exit_code=1)


async def test_a_change_needs_an_operator_and_a_number(platform: Platform) -> None:
    for caller in ("submitter", "reader", "reviewer", "admin"):
        assert (await platform.call("PUT", f"{LIMITS}/k", caller, {"limit": 1})).status == 404
    wrong = await platform.call("PUT", f"{LIMITS}/global:k", "operator", {"limit": -5})
    assert (wrong.status, wrong.body["field"]) == (422, "limit")


async def test_the_command_shows_who_holds_a_key_and_who_waits(platform: Platform) -> None:
    jobs = [await platform.orchestrator.create("slots_test", {"seconds": 0, "place": "a/b"}) for _ in range(3)]
    found = await geodag(platform, "operator", "limits", "slots_test:a/b")
    assert [[one["job_id"] for one in found[name]] for name in ("holders", "line")] == [jobs[:2], jobs[2:]]
    assert found["limit"] in await geodag(platform, "operator", "limits")
    await geodag(platform, "operator", "limits", "slots_test:nowhere", exit_code=1)
    await geodag(platform, "operator", "limits", "slots_test:a/b", "--reason", "none", exit_code=2)
    await geodag(platform, "reviewer", "limits", "slots_test:a/b", exit_code=1)
