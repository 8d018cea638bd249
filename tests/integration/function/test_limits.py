"""Limits of slots through the gateway and by the command."""

import pytest

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


@pytest.mark.parametrize(
    "place",
    ["a/../b", "a/./b", "a//b", "/a", "a/", "..", ".", "?x=1&key=y", "#x", "%2e%2e", "a b+c", "a\\b", "ä;b", "by-key"],
)
async def test_a_key_made_of_whatever_data_hold_is_found_and_changed(platform: Platform, place: str) -> None:
    """Addresses normalise what stands in a path; keys are made of paths of files, among others."""
    key = f"slots_test:{place}"
    job = await platform.orchestrator.create("slots_test", {"seconds": 0, "place": place})
    await geodag(platform, "operator", "limits", "slots_test:b", "3")
    found = await geodag(platform, "operator", "limits", key)
    assert (found["limit"]["slot_key"], [one["job_id"] for one in found["holders"]]) == (key, [job])
    await geodag(platform, "operator", "limits", key, "7")
    limits = {one["slot_key"]: one["limit"] for one in await geodag(platform, "operator", "limits")}
    assert {one: limit for one, limit in limits.items() if limit != 1} == {key: 7, "slots_test:b": 3}
    (unset,) = await geodag(platform, "operator", "limits", key, "--unset")
    assert (unset["slot_key"], unset["set_by"]) == (key, None)


async def test_another_key_than_the_one_that_was_meant_is_never_touched(platform: Platform) -> None:
    await geodag(platform, "operator", "limits", "global:b", "3")
    await geodag(platform, "operator", "limits", "global:a/../global:b", exit_code=1)  # nobody asked for it
    await geodag(platform, "operator", "limits", "global:a/../global:b", "7")
    found = {one["slot_key"]: one["limit"] for one in await geodag(platform, "operator", "limits")}
    assert found == {"global:b": 3, "global:a/../global:b": 7}
    answer = await platform.call("GET", f"{LIMITS}/by-key", "operator")
    assert (answer.status, answer.body["field"]) == (422, "key")
