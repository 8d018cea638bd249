"""What takes something away, ordered through the services, acts on every door with the next request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core.b2b_assets import ClearanceRequest, RevokeRequest, SupersedeRequest, UnpublishRequest
from repositories import roles
from repositories.database import async_pool
from services.approvals import ApprovalService
from tests.integration.serving.test_access_doors import BLOB, DOORS
from tests.support.business import ADMIN, READER, REVIEWER, key_of
from tests.support.serving_world import ServingWorld, VersionSeed

Order = Callable[[ApprovalService, str], Awaitable[Any]]
AUDIENCES = {"anonymous": None, "reader": key_of(READER), "reviewer": key_of(REVIEWER)}


def clearance(level: str) -> Order:
    body = ClearanceRequest.model_validate({"clearance_level": level, "reason": "leaked"})
    return lambda service, asset: service.set_clearance(ADMIN, asset, body)


WITHDRAWALS: dict[str, tuple[Order, set[str], Order | None]] = {
    "revoke": (lambda s, asset: s.revoke(REVIEWER, asset, 0, RevokeRequest(reason="recalled")), set(), None),
    "unpublish": (
        lambda s, asset: s.unpublish(REVIEWER, asset, UnpublishRequest(reason="recalled", dry_run=False)),
        set(),
        None,
    ),
    "lower to ouo": (clearance("ouo"), {"reader", "reviewer"}, clearance("public")),
    "lower to uncleared": (clearance("uncleared"), {"reviewer"}, clearance("public")),
    "delete": (
        lambda s, asset: s.delete_asset(ADMIN, asset, "not ours"),
        set(),
        lambda s, asset: s.restore_asset(ADMIN, asset, SupersedeRequest()),
    ),
}
"""What is ordered, who still sees the version by its number afterwards, and what opens the doors again."""


def order(world: ServingWorld, asset: str, what: Order) -> None:
    async def run() -> None:
        async with async_pool(world.database.conninfo(roles.ORCHESTRATOR), name="test", min_size=1) as pool:
            await what(ApprovalService(pool), asset)

    asyncio.run(run())


def seen_by(world: ServingWorld, asset: str) -> dict[str, set[str]]:
    """Return, for each door, who gets through it."""
    return {
        door: {
            who
            for who, key in AUDIENCES.items()
            if world.get(f"{path.format(asset=asset)}?version=0", key).status == 200
        }
        for door, path in DOORS.items()
    }


@pytest.mark.parametrize("withdrawal", WITHDRAWALS)
def test_every_door_is_closed_with_the_next_request(world: ServingWorld, withdrawal: str) -> None:
    take_down, left, bring_back = WITHDRAWALS[withdrawal]
    asset = f"{list(WITHDRAWALS).index(withdrawal):x}{'9' * 31}"
    world.add_asset(asset, {0: VersionSeed(blob_path=BLOB, render={"bidx": [1], "rescale": [[0, 1000]]})})
    assert seen_by(world, asset) == {key: set(AUDIENCES) for key in DOORS}
    order(world, asset, take_down)
    assert seen_by(world, asset) == dict.fromkeys(DOORS, left)
    if bring_back is not None:
        order(world, asset, bring_back)
        assert seen_by(world, asset) == {key: set(AUDIENCES) for key in DOORS}
