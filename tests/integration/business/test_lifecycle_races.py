"""Two people at once: after every race the database is as one of the two orders would have left it, and no other way.

What each order leaves is computed by the pure rules; states, audit and catalogue are compared with it.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from core import dossier
from core.b2b_assets import ApproveRequest, ClearanceRequest, RejectRequest, RevokeRequest
from core.dossier import Dossier
from core.errors import GeodagError
from core.ids import asset_id
from core.lifecycle import Command, VersionState
from core.models.business import ApprovalState, Clearance, ProcessingState
from core.ordering import plan_submit
from core.stac import collection_document
from repositories import pgstac
from repositories.database import transaction
from services.settling import open_dossier
from services.work import Connection
from tests.support.business import ADMIN, REVIEWER, SUBMITTER, Business, item

ROUNDS = int(os.environ.get("GEODAG_RACE_ROUNDS", "200"))
COLLECTION = "ddh-raster"
A, P = ApprovalState, ProcessingState
OTHER_REVIEWER = REVIEWER.model_copy(update={"subject": "ruth"})


@dataclass(frozen=True)
class Runner:
    """One side of a race: what the service is asked, and what the rules make of it."""

    start: Callable[[Business, str, dict[str, str]], Awaitable[Any]]
    rules: Callable[[Dossier], Dossier]


def approve(caller: Any = REVIEWER) -> Runner:
    return Runner(
        lambda b, asset, refs: b.approvals.approve(caller, asset, 1, ApproveRequest(clearance_level="public")),
        lambda d: dossier.decide(d, Command.APPROVE, 1, caller, level=Clearance.PUBLIC).after,
    )


REJECT = Runner(
    lambda b, asset, refs: b.approvals.reject(OTHER_REVIEWER, asset, 1, RejectRequest(reason="blurred")),
    lambda d: dossier.decide(d, Command.REJECT, 1, OTHER_REVIEWER, reason="blurred").after,
)
DELETE = Runner(
    lambda b, asset, refs: b.approvals.delete(SUBMITTER, asset, 1, None),
    lambda d: dossier.decide(d, Command.DELETE, 1, SUBMITTER).after,
)
REVOKE = Runner(
    lambda b, asset, refs: b.approvals.revoke(REVIEWER, asset, 0, RevokeRequest(reason="recalled")),
    lambda d: dossier.decide(d, Command.REVOKE, 0, REVIEWER, reason="recalled").after,
)


def clear(caller: Any) -> Runner:
    return Runner(
        lambda b, asset, refs: b.approvals.set_clearance(caller, asset, ClearanceRequest(clearance_level="public")),
        lambda d: dossier.set_clearance(d, caller, Clearance.PUBLIC, None).after,
    )


def submit(label: str, title: str = "t") -> Runner:
    def rules(before: Dossier) -> Dossier:
        plan = plan_submit(label, None, before.versions)
        new = VersionState(plan.version_ordinal, label, plan.revision, A.PENDING_REVIEW, P.QUEUED, "sue")
        others = tuple(v for v in before.versions if v.version_ordinal != plan.version_ordinal)
        return Dossier(before.asset, (*others, new))

    return Runner(lambda b, asset, refs: b.submit(platform_refs=refs, version_label=label, title=title), rules)


PENDING, APPROVED = (A.APPROVED, A.PENDING_REVIEW), (A.APPROVED,)
RACES: dict[str, tuple[Sequence[A], Runner, Runner, int]] = {
    "approve / approve": (PENDING, approve(), approve(OTHER_REVIEWER), 1),
    "approve / reject": (PENDING, approve(), REJECT, 1),
    "submit / submit": (APPROVED, submit("W1"), submit("W2"), 1),
    "approve / resubmit": (PENDING, approve(), submit("V1"), 1),
    "delete / approve": (PENDING, DELETE, approve(), 1),
    "clearance / clearance": (APPROVED, clear(REVIEWER), clear(ADMIN), 1),
    "revoke / submit": (APPROVED, REVOKE, submit("W1"), 2),
}
"""Versions at the start, the two sides, and how many of them win: a revocation never stands in a submit's way, so both
orders allow both (docs/lifecycle.md says why)."""


async def seed(conn: Connection, refs: dict[str, str], approvals: Sequence[A]) -> str:
    """Write an asset cleared ouo, with processed versions; the approved ones are catalogued."""
    asset = str(asset_id("ddh", refs))
    latest = max((n for n, state in enumerate(approvals) if state is A.APPROVED), default=None)
    await conn.execute(
        "INSERT INTO dagapp.geospatial_assets (asset_id, platform_id, platform_refs, data_type, clearance_state,"
        " latest_approved_version_ordinal) VALUES (%s, 'ddh', %s, 'raster', 'ouo', %s)",
        (asset, Jsonb(refs), latest),
    )
    for ordinal, state in enumerate(approvals):
        document = _item(asset, ordinal)
        await conn.execute(
            "INSERT INTO dagapp.asset_versions (asset_id, version_ordinal, version_label, title, access_level,"
            " submitted_by, source, approval_state, processing_state, stac_item_id, stac_collection_id, stac_item)"
            " VALUES (%s, %s, %s, 't', 'ouo', 'sue', '{}', %s, 'completed', %s, %s, %s)",
            (asset, ordinal, f"V{ordinal}", str(state), document["id"], COLLECTION, Jsonb(document)),
        )
        if state is A.APPROVED:
            await pgstac.write_item(conn, document)
    return asset


def _item(asset: str, ordinal: int) -> dict[str, Any]:
    params = {
        "item_id": f"{asset}-v{ordinal}",
        "collection_id": COLLECTION,
        "title": "t",
        "properties": {},
        "href": "x",
    }
    return item(params)


def outcomes(before: Dossier, first: Runner, second: Runner) -> list[Dossier]:
    """Return what the two orders lead to; a refused command changes nothing."""
    ends = []
    for order in ((first, second), (second, first)):
        now = before
        for runner in order:
            try:
                now = runner.rules(now)
            except GeodagError:
                continue
        ends.append(now)
    return ends


def check_nothing_is_half(before: Dossier, after: Dossier, items: set[int], audit: Sequence[dict[str, Any]]) -> None:
    """Compare catalogue and audit with the states: each changed state has the row that says so."""
    assert items == after.catalogued()
    clearance, approval = (
        before.asset.clearance_state.value,
        {v.version_ordinal: v.approval_state for v in before.versions},
    )
    for row in audit:
        told = row["after"]
        clearance = told.get("clearance_state", clearance)
        if "approval_state" in told:
            was = None if row["before"] is None else row["before"]["approval_state"]
            assert was == approval.get(row["version_ordinal"])
            approval[row["version_ordinal"]] = A(told["approval_state"])
    assert clearance == after.asset.clearance_state
    assert approval == {v.version_ordinal: v.approval_state for v in after.versions}


async def dossiers(business: Business, assets: Sequence[str]) -> list[Dossier]:
    """Return what the platform knows of each asset."""
    async with transaction(business.pool) as conn:
        return [(await open_dossier(conn, asset, ADMIN))[0] for asset in assets]


async def rows_by_asset(business: Business, query: str, assets: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a query, which has a column asset_id, of each asset."""
    found: dict[str, list[dict[str, Any]]] = {asset: [] for asset in assets}
    for row in await business.engine.query(query, assets):
        found[row["asset_id"]].append(row)
    return found


CATALOGUED = """
    SELECT left(id, 32) AS asset_id, right(id, 1)::integer AS ordinal FROM pgstac.items WHERE left(id, 32) = ANY(%s)"""
AUDIT = "SELECT * FROM dagapp.asset_audit WHERE asset_id = ANY(%s) ORDER BY audit_id"
SUBMITTED = """
    SELECT r.asset_id, count(DISTINCT r.request_id) AS requests, count(j.job_id) AS jobs
    FROM dagapp.platform_requests AS r LEFT JOIN dagapp.platform_request_jobs AS j ON j.request_id = r.request_id
    WHERE r.asset_id = ANY(%s) GROUP BY r.asset_id"""


@pytest.mark.parametrize("race", RACES)
async def test_two_at_once_end_as_one_after_the_other(business: Business, race: str) -> None:
    approvals, first, second, winners = RACES[race]
    async with transaction(business.pool) as conn:
        await pgstac.ensure_collection(conn, collection_document(COLLECTION, "Data Hub: raster"))
    await business.engine.query("UPDATE dagapp.platforms SET requests_per_minute = 60000, max_open_requests = 60000")
    all_refs = [{"dataset_id": f"{race} {number}", "resource_id": uuid.uuid4().hex} for number in range(ROUNDS)]
    async with transaction(business.pool) as conn:
        assets = [await seed(conn, refs, approvals) for refs in all_refs]
    befores = await dossiers(business, assets)
    for number, (refs, asset) in enumerate(zip(all_refs, assets, strict=True)):
        runners = (first, second) if number % 2 else (second, first)
        answers = await asyncio.gather(
            *(runner.start(business, asset, refs) for runner in runners), return_exceptions=True
        )
        refused = [a for a in answers if isinstance(a, BaseException)]
        assert len(answers) - len(refused) == winners, answers
        assert all(isinstance(a, GeodagError) and a.detail.code != "INTERNAL" for a in refused), answers
    afters = await dossiers(business, assets)
    catalogued = await rows_by_asset(business, CATALOGUED, assets)
    audit = await rows_by_asset(business, AUDIT, assets)
    submitted = await rows_by_asset(business, SUBMITTED, assets)
    for asset, before, after in zip(assets, befores, afters, strict=True):
        ends = outcomes(before, first, second)
        assert after in ends, (before, after)
        assert winners == 1 or ends[0] == ends[1]  # both win only where the order makes no difference
        check_nothing_is_half(before, after, {row["ordinal"] for row in catalogued[asset]}, audit[asset])
        assert all(row["requests"] == row["jobs"] == 1 for row in submitted[asset])
