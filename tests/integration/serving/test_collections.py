"""The door to collections: open to whoever sees an item inside, and to nobody else."""

import pytest

from core.access import PRIVATE_CACHE
from core.models.business import ApprovalState, Clearance
from tests.support import business
from tests.support.serving_world import COLLECTION, ServingWorld, VersionSeed

DOOR = f"/stac/collections/{COLLECTION}"


@pytest.fixture(scope="module")
def guarded(world: ServingWorld) -> ServingWorld:
    """Return serving with one internal and one pending version."""
    world.add_asset("a" * 32, {0: VersionSeed()}, clearance=Clearance.OUO)
    world.add_asset("b" * 32, {0: VersionSeed(ApprovalState.PENDING_REVIEW)})
    return world


def test_a_collection_opens_only_to_those_who_see_an_item_in_it(guarded: ServingWorld) -> None:
    hidden = guarded.get(DOOR)
    assert hidden.status == 404
    assert guarded.get(DOOR, business.key_of(business.FOREIGNER)).status == 404
    for insider in (business.READER, business.REVIEWER):
        answer = guarded.get(DOOR, business.key_of(insider))
        assert (answer.status, answer.json()["id"]) == (200, COLLECTION)
        assert answer.headers["cache-control"] == PRIVATE_CACHE

    guarded.add_asset("c" * 32, {n: VersionSeed() for n in range(3)})
    public = guarded.get(DOOR)
    assert (public.status, public.json()["type"]) == (200, "Collection")
    for _ in range(20):  # a look-up that stops early leaves its connection clean
        assert guarded.get(DOOR).status == 200


def test_the_extent_grows_and_shrinks_with_what_the_caller_sees(guarded: ServingWorld) -> None:
    """C09 of the cases: no writer recomputes it, so no load waits for it."""
    key = business.key_of(business.READER)
    guarded.add_asset("e" * 32, {0: VersionSeed()})
    guarded.add_asset("d" * 32, {0: VersionSeed()}, clearance=Clearance.OUO)
    guarded.execute(
        "UPDATE dagapp.asset_versions SET stac_item = stac_item || jsonb_build_object('bbox', %s::jsonb) ||"
        " jsonb_build_object('properties', stac_item -> 'properties' || '{\"datetime\": \"2025-05-01T00:00:00Z\"}')"
        " WHERE asset_id = %s",
        "[20, 52, 20.1, 52.1]",
        "d" * 32,
    )
    both = guarded.get(DOOR, key).json()["extent"]
    assert both["spatial"]["bbox"] == [[15, 50, 20.1, 52.1]]
    assert both["temporal"]["interval"] == [["2025-05-01T00:00:00Z", "2026-03-01T00:00:00Z"]]
    one = {"spatial": {"bbox": [[15, 50, 16, 51]]}, "temporal": {"interval": [["2026-03-01T00:00:00Z"] * 2]}}
    assert guarded.get(DOOR).json()["extent"] == one, "the public learns nothing of what it does not see"
    guarded.execute("UPDATE dagapp.asset_versions SET deleted_at = dagapp.clock() WHERE asset_id = %s", "d" * 32)
    assert guarded.get(DOOR, key).json()["extent"] == one


@pytest.mark.parametrize("name", ["no-such-collection", "%00", "a%27%20OR%201=1"])
def test_an_unknown_collection_is_not_found(guarded: ServingWorld, name: str) -> None:
    answer = guarded.get(f"/stac/collections/{name}", business.key_of(business.REVIEWER))
    assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
