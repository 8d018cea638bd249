"""What is decided from two rows is decided from one moment: others commit between any two statements."""

import asyncio
import base64
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from psycopg import AsyncConnection

from core.b2b_platforms import WebhookAddressRequest
from core.errors import NotFound
from core.outgoing import OutgoingPolicy
from core.status_view import AssetFilter, visible_versions
from edge.outgoing import OutgoingClient
from edge.seal import Seal
from function.queries import GatewayQueries
from repositories import roles
from repositories.database import AsyncPool, async_pool
from services.status import StatusService
from services.webhooks import WebhookService
from tests.support.business import ADMIN, READER, URLS, Business
from tests.support.databases import Database
from tests.support.stepping import Caller, Stops

LOCAL, KEY = OutgoingPolicy(allow_loopback=True), base64.b64encode(b"k" * 32).decode()
BEFORE = (
    "UPDATE dagapp.geospatial_assets SET clearance_state = 'ouo', exposure = 'all_versions'",
    "UPDATE dagapp.asset_versions SET approval_state = 'pending_review'",
)
AFTER = (
    "UPDATE dagapp.geospatial_assets SET clearance_state = 'uncleared'",
    "UPDATE dagapp.asset_versions SET approval_state = 'approved'",
)
"""Neither before nor after them may a reader see the version; he could with the asset of before."""


class Queries(GatewayQueries):
    """Over a pool that is open."""

    def __init__(self, pool: AsyncPool) -> None:
        super().__init__("")
        self._pool = pool


async def asset_of_orchestrator(pool: AsyncPool, asset_id: str) -> bool:
    try:
        await StatusService(pool, URLS).asset(READER, asset_id)
    except NotFound:
        return False
    return True


async def asset_of_gateway(pool: AsyncPool, asset_id: str) -> bool:
    return bool(visible_versions(READER, *await Queries(pool).asset(asset_id)))


async def assets_of_gateway(pool: AsyncPool, asset_id: str) -> bool:
    found = await Queries(pool).assets(AssetFilter(platform_id="ddh"), after=None, limit=5)
    return any(visible_versions(READER, *one) for one in found)


@pytest.mark.parametrize(
    ("sees", "role"),
    [
        (asset_of_orchestrator, roles.ORCHESTRATOR),
        (asset_of_gateway, roles.GATEWAY),
        (assets_of_gateway, roles.GATEWAY),
    ],
    ids=["orchestrator", "gateway", "list"],
)
async def test_a_version_is_never_seen_under_the_clearance_of_another_moment(
    business: Business, database: Database, sees: Callable[[AsyncPool, str], Awaitable[bool]], role: str
) -> None:
    asset_id = (await business.processed()).asset_id
    async with (
        async_pool(database.conninfo(role), name="reader", min_size=1, max_size=1) as pool,
        await AsyncConnection.connect(database.admin, autocommit=True) as admin,
    ):
        assert await seen_in_gaps(pool, admin, lambda one: sees(one, asset_id)) == []


async def seen_in_gaps(
    pool: AsyncPool, admin: AsyncConnection[Any], sees: Callable[[AsyncPool], Awaitable[bool]]
) -> list[int]:
    """Return the gaps in which the change was made and the version was seen."""
    seen: list[int] = []
    for gap in itertools.count():
        for statement in BEFORE:
            await admin.execute(statement.encode())
        caller = Caller(pool, Stops.STATEMENTS)
        answer = caller.start(lambda caller=caller: sees(caller.pool))
        await caller.settled(admin)
        for _ in range(gap):
            await caller.step(admin)
        if caller.over:
            assert gap > 1
            return seen
        for statement in AFTER:
            await admin.execute(statement.encode())
        while not caller.over:
            await caller.step(admin)
        seen += [gap] if answer.result() else []
    raise AssertionError("unreachable")


async def test_of_two_addresses_at_once_the_audit_names_what_each_replaced(
    business: Business, database: Database
) -> None:
    async def set_url(pool: AsyncPool, path: str) -> None:
        hooks = WebhookService(pool, OutgoingClient(LOCAL, None), Seal(KEY), URLS, LOCAL)
        await hooks.set_url(ADMIN, "ddh", WebhookAddressRequest(url=f"http://127.0.0.1:9/{path}"))

    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        one, other = Caller(business.pool, Stops.STATEMENTS), Caller(business.pool, Stops.NOWHERE)
        calls = [one.start(lambda: set_url(one.pool, "one"))]
        await one.settled(admin)
        await one.step(admin)
        calls.append(other.start(lambda: set_url(other.pool, "other")))
        await other.settled(admin)
        while not one.over:
            await one.step(admin)
        await asyncio.gather(*calls)
    rows = await business.engine.query(
        "SELECT before, after FROM dagapp.asset_audit WHERE action = 'webhook_address_set' ORDER BY audit_id"
    )
    assert rows[1]["before"] == rows[0]["after"]
