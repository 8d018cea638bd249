"""The access table, cell by cell: every audience at every door, for every state an asset and a version can be in.

What is expected is the sentence of the B2B contract ("Who sees what"), written down here once more, not the policy.
"""

import itertools
from dataclasses import dataclass

import pytest

from core.access import PRIVATE_CACHE, PUBLIC_CACHE
from core.identity import Caller
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState
from tests.support import business
from tests.support.rasters import tile_of
from tests.support.serving_world import ServingWorld, VersionSeed

BLOB = "silver/dem.tif"
ZOOM = 10
X, Y = tile_of(15.1, 50.5, ZOOM)
DOORS = {
    "tile": f"/tiles/{{asset}}/{ZOOM}/{X}/{Y}.png",
    "tile without extension": f"/tiles/{{asset}}/{ZOOM}/{X}/{Y}",
    "tilejson": "/tiles/{asset}/tilejson.json",
    "preview": "/preview/{asset}.png",
    "stac": "/stac/{asset}",
    "download": "/download/{asset}",
}
READER_ELSEWHERE = "artur"
AUDIENCES: dict[str, Caller | None] = {
    "anonymous": None,
    "reader": business.READER,
    "submitter": business.SUBMITTER,
    "submitter of another platform": business.FOREIGNER,
    "reviewer": business.REVIEWER,
    "admin": business.ADMIN,
    "operator": business.OPERATOR,
}
OLD, LATEST, PENDING, REJECTED, REVOKED, PROCESSING, FAILED, DELETED = range(8)
VERSIONS = {
    OLD: VersionSeed(),
    LATEST: VersionSeed(),
    PENDING: VersionSeed(ApprovalState.PENDING_REVIEW),
    REJECTED: VersionSeed(ApprovalState.REJECTED),
    REVOKED: VersionSeed(ApprovalState.REVOKED),
    PROCESSING: VersionSeed(ApprovalState.PENDING_REVIEW, ProcessingState.PROCESSING),
    FAILED: VersionSeed(ApprovalState.PENDING_REVIEW, ProcessingState.FAILED),
    DELETED: VersionSeed(deleted=True),
}
REQUESTED = ("latest", None, *VERSIONS, 99)


@dataclass(frozen=True)
class SeededAsset:
    """An asset that holds every kind of version."""

    asset_id: str
    clearance: Clearance
    exposure: Exposure


@pytest.fixture(scope="module")
def assets(world: ServingWorld) -> list[SeededAsset]:
    """Return an asset for each pair of clearance and exposure."""
    pairs = itertools.product(Clearance, Exposure)
    seeded = [SeededAsset(f"{n:032x}", clearance, exposure) for n, (clearance, exposure) in enumerate(pairs)]
    render = {"bidx": [1], "rescale": [[0, 1000]]}
    versions = {n: VersionSeed(v.approval, v.processing, BLOB, render, v.deleted) for n, v in VERSIONS.items()}
    for asset in seeded:
        world.add_asset(asset.asset_id, versions, clearance=asset.clearance, exposure=asset.exposure)
    return seeded


def is_exposed(ordinal: int, exposure: Exposure) -> bool:
    """Approved, and the latest or N when all versions are exposed."""
    return ordinal == LATEST or (ordinal == OLD and exposure is Exposure.ALL_VERSIONS)


def may_see(audience: str, asset: SeededAsset, ordinal: int) -> bool:
    """Say who sees what, in the words of the contract."""
    if audience in ("reviewer", "admin"):
        return ordinal in (OLD, LATEST, PENDING, REJECTED)
    cleared = {Clearance.PUBLIC, Clearance.OUO} if audience == "reader" else {Clearance.PUBLIC}
    return is_exposed(ordinal, asset.exposure) and asset.clearance in cleared


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("audience", AUDIENCES)
def test_a_door_shows_an_audience_what_the_contract_says_and_nothing_else(
    world: ServingWorld, assets: list[SeededAsset], audience: str, door: str
) -> None:
    caller = AUDIENCES[audience]
    key = None if caller is None else business.key_of(caller)
    for asset, requested in itertools.product(assets, REQUESTED):
        ordinal = LATEST if requested in ("latest", None) else int(requested)
        query = "" if requested is None else f"?version={requested}"
        answer = world.get(DOORS[door].format(asset=asset.asset_id) + query, key)
        cell = (asset, requested, answer.status, answer.body[:200])
        assert answer.status == (200 if may_see(audience, asset, ordinal) else 404), cell
        public = answer.status == 200 and may_see("anonymous", asset, ordinal)
        assert answer.headers["cache-control"] == (PUBLIC_CACHE if public else PRIVATE_CACHE), cell


@pytest.mark.parametrize("door", DOORS)
def test_what_is_hidden_and_what_is_not_there_answer_alike(
    world: ServingWorld, assets: list[SeededAsset], door: str
) -> None:
    secret = next(a for a in assets if a.clearance is Clearance.OUO)
    paths = [DOORS[door].format(asset=name) for name in (secret.asset_id, "f" * 32, "no-asset-at-all")]
    paths.append(f"{paths[0]}?version=99")
    answers = [world.get(path) for path in paths]
    documents = [answer.json() | {"instance": ""} for answer in answers]
    assert all(answer.status == 404 for answer in answers)
    assert all(answer.headers["content-type"] == "application/problem+json" for answer in answers)
    assert documents == [documents[0]] * len(documents)
    assert documents[0]["code"] == "NOT_FOUND"
    assert [set(answer.headers) for answer in answers] == [set(answers[0].headers)] * len(answers)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "credential",
    [
        {"X_API_Key": "nobody-issued-this"},
        {"Authorization": "Bearer nobody-issued-this"},
        {"Authorization": "Basic c3VlOnN1ZQ=="},
        {"X_API_Key": business.key_of(business.GATEWAY)},
        {"X_API_Key": business.key_of(business.WORKER)},
    ],
    ids=["unknown key", "unknown bearer", "basic", "gateway's key", "worker's key"],
)
def test_a_credential_that_no_caller_holds_is_refused_even_where_anybody_may_look(
    world: ServingWorld, assets: list[SeededAsset], door: str, credential: dict[str, str]
) -> None:
    public = next(a for a in assets if a.clearance is Clearance.PUBLIC)
    answer = world.get(DOORS[door].format(asset=public.asset_id), **credential)
    assert answer.status == 401
    assert answer.json()["code"] == "UNAUTHENTICATED"
    assert "nobody-issued-this" not in answer.body.decode()


def test_a_bearer_token_is_a_credential_too(world: ServingWorld, assets: list[SeededAsset]) -> None:
    asset = next(a for a in assets if a.clearance is Clearance.UNCLEARED)
    path = f"/stac/{asset.asset_id}?version={PENDING}"
    assert world.get(path, Authorization=f"Bearer {business.key_of(business.REVIEWER)}").status == 200


@pytest.mark.parametrize("door", DOORS)
def test_a_revoked_version_and_a_lowered_clearance_are_gone_with_the_next_request(
    world: ServingWorld, door: str
) -> None:
    asset_id = f"{list(DOORS).index(door):x}{'d' * 31}"
    path = DOORS[door].format(asset=asset_id)
    world.add_asset(asset_id, {0: VersionSeed(blob_path=BLOB)})
    etag = world.get(path).headers["etag"]
    for change in ("clearance_state = 'ouo'", "clearance_state = 'public', exposure = 'latest_only'"):
        world.execute(f"UPDATE dagapp.geospatial_assets SET {change} WHERE asset_id = %s", asset_id)
        expected = 404 if "ouo" in change else 304
        assert world.get(path, If_None_Match=etag).status == expected
    world.execute("UPDATE dagapp.asset_versions SET approval_state = 'revoked' WHERE asset_id = %s", asset_id)
    assert world.get(path, If_None_Match=etag).status == 404


def test_latest_moves_only_when_the_next_version_is_approved(world: ServingWorld) -> None:
    asset_id = "e" * 32
    pending = VersionSeed(ApprovalState.PENDING_REVIEW, blob_path=BLOB)
    world.add_asset(asset_id, {0: VersionSeed(blob_path=BLOB), 1: pending})
    before = world.get(f"/tiles/{asset_id}/tilejson.json")
    reviewer = world.get(f"/tiles/{asset_id}/tilejson.json", business.key_of(business.REVIEWER))
    assert before.json()["name"] == reviewer.json()["name"] == "Version 0"
    world.execute("UPDATE dagapp.asset_versions SET approval_state = 'approved' WHERE asset_id = %s", asset_id)
    world.execute(
        "UPDATE dagapp.geospatial_assets SET latest_approved_version_ordinal = 1 WHERE asset_id = %s", asset_id
    )
    after = world.get(f"/tiles/{asset_id}/tilejson.json", If_None_Match=before.headers["etag"])
    assert after.status == 200
    assert after.json()["name"] == "Version 1"


def test_an_approved_item_comes_from_the_catalogue_and_a_pending_one_from_its_version(world: ServingWorld) -> None:
    asset_id = "c" * 32
    versions = {0: VersionSeed(blob_path=BLOB), 1: VersionSeed(ApprovalState.PENDING_REVIEW, blob_path=BLOB)}
    world.add_asset(asset_id, versions)
    world.execute("UPDATE dagapp.asset_versions SET stac_item = %s WHERE asset_id = %s", '{"id": "stored"}', asset_id)
    published = world.get(f"/stac/{asset_id}")
    assert published.headers["content-type"] == "application/geo+json"
    assert published.json()["id"] == f"{asset_id}-v0"
    assert world.get(f"/stac/{asset_id}?version=1", business.key_of(business.REVIEWER)).json() == {"id": "stored"}


def test_an_approved_version_that_the_catalogue_lost_has_no_item(world: ServingWorld) -> None:
    asset_id = "b" * 32
    world.add_asset(asset_id, {0: VersionSeed(blob_path=BLOB)})
    world.execute("DELETE FROM pgstac.items WHERE id = %s", f"{asset_id}-v0")
    assert world.get(f"/stac/{asset_id}").status == 404


def test_a_vector_has_no_pixels_and_no_file_here(world: ServingWorld) -> None:
    asset_id = "a" * 32
    world.add_asset(asset_id, {0: VersionSeed()}, data_type="vector")
    statuses = {door: world.get(path.format(asset=asset_id)).status for door, path in DOORS.items()}
    assert statuses == dict.fromkeys(DOORS, 404) | {"stac": 200}


def test_no_door_shows_a_stored_value_of_a_job(world: ServingWorld) -> None:
    asset_id = f"f{'0' * 31}"
    world.put("payloads/job/values/x.json", b"{}")
    world.add_asset(asset_id, {0: VersionSeed(blob_path="silver/payloads/job/values/x.json")})
    statuses = {door: world.get(path.format(asset=asset_id)).status for door, path in DOORS.items() if door != "stac"}
    assert set(statuses.values()) == {404}
