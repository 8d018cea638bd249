"""Reviewers' decisions on a real database and a real pgstac."""

import asyncio
from typing import Any

import pytest

from core.b2b import SubmitAccepted
from core.b2b_assets import ApproveRequest, CommentRequest, RejectRequest, SupersedeRequest
from core.errors import CallerError, Forbidden, GeodagError, InvalidTransition, NotFound, ParameterMissing
from core.identity import Caller, Role
from repositories import pgstac
from repositories.database import transaction
from services.settling import CatalogueEntryMissing
from tests.support.business import ADMIN, EVERYBODY, FOREIGNER, REVIEWER, SUBMITTER, Business

WAYS_OUT = ("resubmit", "supersede", "delete")
SAME_PERSON = Caller(subject="sue", roles=frozenset({Role.REVIEWER, Role.SUBMITTER}), platform_id="ddh")


async def unchanged_after(business: Business, accepted: SubmitAccepted, decision: Any) -> GeodagError:
    """Return the refusal of a decision that must leave version, asset, audit and catalogue as they were."""

    async def picture() -> tuple[Any, ...]:
        return (
            await business.row(accepted),
            await business.asset(accepted),
            await business.audit(accepted),
            await business.catalogued(accepted),
        )

    before = await picture()
    with pytest.raises(GeodagError) as refused:
        await decision
    assert await picture() == before
    return refused.value


async def test_an_approval_catalogues_clears_and_makes_latest_at_once(business: Business) -> None:
    accepted = await business.processed()
    answer = await business.approve(accepted, "ouo")
    assert (answer.approval_state, answer.clearance_state, answer.latest_approved_version_ordinal) == (
        "approved",
        "ouo",
        0,
    )
    row, asset = await business.row(accepted), await business.asset(accepted)
    assert (row["approval_state"], row["reviewer"]) == ("approved", "rob")
    assert row["reviewed_at"] is not None
    assert (asset["clearance_state"], asset["cleared_by"], asset["made_public_at"]) == ("ouo", "rob", None)
    assert asset["latest_approved_version_ordinal"] == 0
    item = await business.catalogued(accepted)
    assert item is not None
    assert item["properties"]["platform:request_id"] == accepted.request_id
    assert (await business.audit(accepted))[-2:] == [("approved", "rob", "reviewer"), ("cleared", "rob", "reviewer")]


async def test_uncleared_to_public_passes_ouo_with_two_audit_rows(business: Business) -> None:
    accepted = await business.processed()
    await business.approve(accepted, "public", ADMIN)
    asset = await business.asset(accepted)
    assert (asset["clearance_state"], asset["cleared_by"], asset["made_public_by"]) == ("public", "ada", "ada")
    rows = await business.engine.query(
        "SELECT before, after FROM dagapp.asset_audit WHERE action = 'cleared' ORDER BY audit_id"
    )
    assert [(r["before"]["clearance_state"], r["after"]["clearance_state"]) for r in rows] == [
        ("uncleared", "ouo"),
        ("ouo", "public"),
    ]


async def test_an_uncleared_asset_needs_a_level(business: Business) -> None:
    accepted = await business.processed()
    error = await unchanged_after(business, accepted, business.approve(accepted, None))
    assert isinstance(error, ParameterMissing)
    assert error.detail.field == "clearance_level"


async def test_a_cleared_asset_needs_none_and_is_never_lowered(business: Business) -> None:
    await business.approved("public")
    second = await business.processed(version_label="V2")
    lowered = await unchanged_after(business, second, business.approve(second, "ouo"))
    assert lowered.detail.code == "INVALID_TRANSITION"
    assert (await business.approve(second, None)).clearance_state == "public"


async def test_latest_moves_with_the_second_approval_only(business: Business) -> None:
    await business.approved()
    second = await business.processed(version_label="V2")
    assert (await business.asset(second))["latest_approved_version_ordinal"] == 0
    answer = await business.approve(second, None)
    assert (answer.version_ordinal, answer.latest_approved_version_ordinal) == (1, 1)


async def test_a_version_that_is_not_processed_is_not_approved(business: Business) -> None:
    accepted = await business.submit()
    error = await unchanged_after(business, accepted, business.approve(accepted))
    assert (error.detail.code, error.detail.next_actions) == ("INVALID_TRANSITION", ("wait",))
    await business.fail(await business.job_of(accepted))
    error = await unchanged_after(business, accepted, business.approve(accepted))
    assert (error.detail.code, error.detail.next_actions) == ("INVALID_TRANSITION", ())


async def test_nothing_is_decided_twice(business: Business) -> None:
    approved = await business.approved()
    for decision in (business.approve(approved), business.reject(approved)):
        assert isinstance(await unchanged_after(business, approved, decision), InvalidTransition)


async def test_the_submitter_does_not_approve_his_own_version(business: Business) -> None:
    accepted = await business.processed()
    error = await unchanged_after(business, accepted, business.approve(accepted, caller=SAME_PERSON))
    assert isinstance(error, Forbidden)


@pytest.mark.parametrize("caller", [c for c in EVERYBODY if not c.has(Role.REVIEWER, Role.ADMIN)])
async def test_other_roles_decide_nothing(business: Business, caller: Caller) -> None:
    accepted = await business.processed()
    for decision in (business.approve(accepted, caller=caller), business.reject(accepted, caller)):
        assert isinstance(await unchanged_after(business, accepted, decision), Forbidden)


async def test_a_rejection_keeps_reason_and_reviewer_and_stays_out_of_the_catalogue(business: Business) -> None:
    accepted = await business.processed()
    answer = await business.reject(accepted)
    assert (answer.approval_state, answer.clearance_state, answer.latest_approved_version_ordinal) == (
        "rejected",
        "uncleared",
        None,
    )
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.review, status.reason, status.next_actions) == ("rejected", "wrong place", list(WAYS_OUT))
    assert await business.catalogued(accepted) is None
    assert (await business.audit(accepted))[-1] == ("rejected", "rob", "reviewer")


async def test_of_two_approvals_at_once_one_wins_and_one_is_told(business: Business) -> None:
    accepted = await business.processed()
    answers = await asyncio.gather(
        *(business.approve(accepted, caller=who) for who in (REVIEWER, ADMIN) * 3), return_exceptions=True
    )
    refused = [a for a in answers if isinstance(a, BaseException)]
    assert len(refused) == 5
    assert all(isinstance(a, InvalidTransition) for a in refused), refused
    assert [a for a, _, _ in await business.audit(accepted)].count("approved") == 1


async def test_approval_and_rejection_at_once_give_one_decision(business: Business) -> None:
    accepted = await business.processed()
    answers = await asyncio.gather(business.approve(accepted), business.reject(accepted, ADMIN), return_exceptions=True)
    assert sum(isinstance(a, InvalidTransition) for a in answers) == 1
    approved = (await business.row(accepted))["approval_state"] == "approved"
    assert (await business.catalogued(accepted) is not None) == approved


async def test_a_collection_that_was_lost_is_made_again(business: Business) -> None:
    accepted = await business.processed()
    async with transaction(business.pool) as conn:
        await conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET stac_item = stac_item || '{"collection": "ddh-lost"}', stac_collection_id = 'ddh-lost'
            """
        )
    await business.approve(accepted)
    async with transaction(business.pool) as conn:
        made = await pgstac.read_collection(conn, "ddh-lost")
        found = await pgstac.read_item(conn, "ddh-lost", f"{accepted.asset_id}-v0")
    assert (made and made["title"], found is not None) == ("Data Hub: raster", True)


async def test_a_document_of_another_collection_is_not_published(business: Business) -> None:
    accepted = await business.processed()
    async with transaction(business.pool) as conn:
        await conn.execute('UPDATE dagapp.asset_versions SET stac_item = stac_item || \'{"collection": "none"}\'')
    assert isinstance(await unchanged_after(business, accepted, business.approve(accepted)), CatalogueEntryMissing)


LISTS = {
    "gone": None,
    "none": b"[]",
    "cut": b'{"tiles": [{"blob_',
    "bare": b'{"tiles": [{"blob_path": "a", "size_bytes": 1}]}',
}


@pytest.mark.parametrize("kind", LISTS)
async def test_a_version_without_a_list_of_its_tiles_is_not_approved(business: Business, kind: str) -> None:
    accepted = await business.processed()
    if (listed := LISTS[kind]) is not None:
        business.put(f"{kind}.json", listed, "silver")
    async with transaction(business.pool) as conn:
        await conn.execute("UPDATE dagapp.asset_versions SET tiles_path = %s", (f"silver/{kind}.json",))
    assert isinstance(await unchanged_after(business, accepted, business.approve(accepted)), CatalogueEntryMissing)


async def test_a_version_without_a_document_is_not_approved(business: Business) -> None:
    accepted = await business.processed()
    async with transaction(business.pool) as conn:
        await conn.execute("UPDATE dagapp.asset_versions SET stac_item = NULL")
    assert isinstance(await unchanged_after(business, accepted, business.approve(accepted)), CatalogueEntryMissing)


@pytest.mark.parametrize(("asset_id", "ordinal"), [("f" * 32, 0), (None, 7)])
async def test_what_does_not_exist_is_not_decided(business: Business, asset_id: str | None, ordinal: int) -> None:
    accepted = await business.processed()
    where = (asset_id or accepted.asset_id, ordinal)
    with pytest.raises(NotFound):
        await business.approvals.approve(REVIEWER, *where, ApproveRequest(clearance_level="ouo"))
    with pytest.raises(NotFound):
        await business.approvals.reject(REVIEWER, *where, RejectRequest(reason="x"))


async def test_services_appear_for_whoever_may_see_them_after_the_approval(business: Business) -> None:
    accepted = await business.processed()
    both = Caller(subject="x", roles=frozenset({Role.SUBMITTER, Role.READER}), platform_id="ddh")

    async def services(caller: Caller) -> dict[str, str] | None:
        return (await business.status.request(caller, accepted.request_id)).services

    assert [await services(c) for c in (SUBMITTER, both)] == [None, None]
    assert await services(REVIEWER) is not None
    await business.approve(accepted, "ouo")
    assert await services(SUBMITTER) is None
    assert (await services(both) or {})["preview"] == (
        f"https://serving.test/preview/{accepted.asset_id}.png?version=0"
    )


async def test_a_public_approval_shows_the_services_to_the_submitter(business: Business) -> None:
    accepted = await business.approved("public")
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert set(status.services or {}) == {"tiles", "tilejson", "preview", "stac", "download"}


async def test_requests_of_another_platform_are_unknown(business: Business) -> None:
    accepted = await business.submit()
    for caller in EVERYBODY:
        if caller.subject in {"sue", "rob", "ada"}:
            assert (await business.status.request(caller, accepted.request_id)).request_id == accepted.request_id
            continue
        with pytest.raises(NotFound) as hidden:
            await business.status.request(caller, accepted.request_id)
        with pytest.raises(NotFound) as unknown:
            await business.status.request(caller, "req_nothing")
        assert str(hidden.value) == str(unknown.value)


async def test_a_running_request_says_so_and_counts_its_progress(business: Business) -> None:
    accepted = await business.submit()
    before = await business.status.request(SUBMITTER, accepted.request_id)
    message = await business.engine.message(await business.job_of(accepted))
    await business.worker.claim(message)
    running = await business.status.request(SUBMITTER, accepted.request_id)
    assert (before.state, running.state) == ("queued", "processing")
    assert running.progress == {"current": 2, "total": 11}
    assert (running.services, running.report_url, running.next_actions) == (None, None, ["wait", "cancel"])


async def test_versions_are_listed_for_whoever_may_know_of_them(business: Business) -> None:
    first = await business.approved("ouo")
    await business.processed(version_label="V2")
    seen: dict[str, list[int]] = {}
    for caller in EVERYBODY:
        try:
            listed = await business.status.versions(caller, first.asset_id)
            seen[caller.subject] = [one.version_ordinal for one in listed.versions]
            assert (await business.status.asset(caller, first.asset_id)).version_ordinals == seen[caller.subject]
        except CallerError:
            seen[caller.subject] = []
    assert seen == {
        "sue": [0, 1],
        "artur": [],
        "rita": [0],
        "rob": [0, 1],
        "ada": [0, 1],
        "otto": [],
        "gateway": [],
        "worker": [],
    }


@pytest.mark.parametrize("ordinal", [0, 7])
async def test_an_asset_of_another_platform_is_as_unknown_as_none_whatever_is_ordered(
    business: Business, ordinal: int
) -> None:
    hidden, nobodys = (await business.submit()).asset_id, "0" * 32
    orders = (
        lambda asset: business.approvals.supersede(FOREIGNER, asset, ordinal, SupersedeRequest()),
        lambda asset: business.approvals.delete(FOREIGNER, asset, ordinal, None),
        lambda asset: business.reviews.comment(FOREIGNER, asset, ordinal, CommentRequest(text="hello")),
    )
    for order in orders:
        refusals = []
        for asset in (hidden, nobodys):
            with pytest.raises(NotFound) as refused:
                await order(asset)
            refusals.append(refused.value.detail.model_copy(update={"value": None}))
            assert refused.value.detail.value == asset
        assert refusals[0] == refusals[1]
