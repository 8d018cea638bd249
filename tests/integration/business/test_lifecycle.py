"""Every command about versions and assets on a real database and a real pgstac: states, audit, catalogue, doors."""

from typing import Any

import pytest

from core.b2b import SubmitAccepted
from core.b2b_assets import (
    AssetAnswer,
    ClearanceRequest,
    ExposureRequest,
    RejectRequest,
    RevokeRequest,
    SupersedeRequest,
    UnpublishRequest,
)
from core.errors import Conflict, Forbidden, GeodagError, NotFound
from core.identity import Caller, Role
from tests.integration.business.test_approvals import unchanged_after
from tests.support.business import ADMIN, EVERYBODY, FOREIGNER, REVIEWER, SUBMITTER, Business

ALL_DOORS = {"tiles", "tilejson", "preview", "stac", "download"}
READER_TOO = Caller(subject="x", roles=frozenset({Role.SUBMITTER, Role.READER}), platform_id="ddh")


async def clear(business: Business, accepted: SubmitAccepted, level: str, caller: Caller = ADMIN) -> AssetAnswer:
    body = ClearanceRequest.model_validate({"clearance_level": level, "reason": "because"})
    return await business.approvals.set_clearance(caller, accepted.asset_id, body)


async def open_doors(business: Business, accepted: SubmitAccepted, caller: Caller = SUBMITTER) -> set[str]:
    return set((await business.status.request(caller, accepted.request_id)).services or {})


async def test_a_revocation_closes_every_door_and_takes_the_item_away(business: Business) -> None:
    first = await business.approved("public")
    second = await business.processed(version_label="V2")
    await business.approve(second, None)
    assert await open_doors(business, second) == ALL_DOORS
    answer = await business.revoke(second)
    assert (answer.approval_state, answer.latest_approved_version_ordinal) == ("revoked", 0)
    assert await business.catalogued(second) is None
    assert await business.catalogued(first) is not None
    assert await open_doors(business, second) == set()
    assert await open_doors(business, first) == ALL_DOORS
    status = await business.status.request(SUBMITTER, second.request_id)
    assert (status.review, status.reason, status.next_actions) == ("revoked", "recalled", ["delete"])
    row = await business.row(second)
    assert (row["reviewer"], row["rejection_reason"], row["deleted_at"]) == ("rob", "recalled", None)
    assert (await business.audit(second))[-1] == ("revoked", "rob", "reviewer")


async def test_a_revoked_version_lets_the_next_come_and_keeps_its_label(business: Business) -> None:
    accepted = await business.approved()
    await business.revoke(accepted)
    with pytest.raises(Conflict) as refused:
        await business.submit()
    assert refused.value.detail.code == "VERSION_LABEL_EXISTS"
    assert (await business.submit(version_label="V2", previous_version_ordinal=0)).version_ordinal == 1


async def test_a_rejected_version_is_superseded_by_its_owner_and_the_next_one_comes(business: Business) -> None:
    accepted = await business.processed()
    await business.reject(accepted)
    reviewed_at = (await business.row(accepted))["reviewed_at"]
    answer = await business.supersede(accepted)
    assert (answer.approval_state, answer.deleted) == ("revoked", False)
    row = await business.row(accepted)
    assert (row["reviewer"], row["reviewed_at"], row["rejection_reason"]) == ("rob", reviewed_at, "superseded")
    assert (await business.audit(accepted))[-1] == ("superseded", "sue", "submitter")
    assert (await business.submit(version_label="V2")).version_ordinal == 1


async def test_a_failed_version_is_deleted_and_its_label_used_again_under_the_next_ordinal(business: Business) -> None:
    accepted = await business.submit()
    await business.fail(await business.job_of(accepted))
    assert (await business.delete(accepted)).deleted
    row = await business.row(accepted)
    assert (row["deleted_by"], row["deleted_at"] is not None, row["approval_state"]) == ("sue", True, "pending_review")
    with pytest.raises(NotFound):
        await business.status.asset(SUBMITTER, accepted.asset_id)
    again = await business.submit()
    assert (again.version_ordinal, again.revision) == (1, 1)


async def test_a_deleted_version_is_restored_when_its_place_is_free(business: Business) -> None:
    accepted = await business.processed()
    before = await business.row(accepted)
    told = await business.status.request(SUBMITTER, accepted.request_id)
    await business.delete(accepted)
    gone = await business.status.request(SUBMITTER, accepted.request_id)
    assert (gone.deleted, gone.review, gone.report_url, gone.next_actions) == (True, None, None, [])
    where = (accepted.asset_id, accepted.version_ordinal)
    with pytest.raises(Forbidden):
        await business.approvals.restore(SUBMITTER, *where, SupersedeRequest())
    answer = await business.approvals.restore(ADMIN, *where, SupersedeRequest(reason="by mistake"))
    assert not answer.deleted
    assert await business.status.request(SUBMITTER, accepted.request_id) == told
    after = await business.row(accepted)
    assert {k: v for k, v in after.items() if k != "updated_at"} == {
        k: v for k, v in before.items() if k != "updated_at"
    }
    assert (await business.approve(accepted)).approval_state == "approved"


async def test_a_deleted_version_is_not_restored_over_its_successor(business: Business) -> None:
    accepted = await business.processed()
    await business.delete(accepted)
    again = await business.processed()
    restore = business.approvals.restore(ADMIN, accepted.asset_id, accepted.version_ordinal, SupersedeRequest())
    error = await unchanged_after(business, again, restore)
    assert error.detail.code == "VERSION_LABEL_EXISTS"


@pytest.mark.parametrize("command", ["supersede", "delete"])
async def test_another_platforms_version_is_as_unknown_as_none(business: Business, command: str) -> None:
    accepted = await business.processed()
    error = await unchanged_after(business, accepted, getattr(business, command)(accepted, FOREIGNER))
    assert isinstance(error, NotFound)


async def test_an_approved_version_is_not_deleted_before_it_is_revoked(business: Business) -> None:
    accepted = await business.approved()
    for caller in (SUBMITTER, ADMIN):
        error = await unchanged_after(business, accepted, business.delete(accepted, caller))
        assert error.detail.code == "INVALID_TRANSITION"
    await business.revoke(accepted)
    assert (await business.delete(accepted)).deleted


async def test_lowering_acts_on_every_door_and_raising_opens_them_again(business: Business) -> None:
    accepted = await business.approved("public")
    assert await open_doors(business, accepted) == ALL_DOORS
    assert (await clear(business, accepted, "ouo")).clearance_state == "ouo"
    assert (await open_doors(business, accepted), await open_doors(business, accepted, READER_TOO)) == (
        set(),
        ALL_DOORS,
    )
    assert await business.catalogued(accepted) is not None
    asset = await business.asset(accepted)
    assert (asset["cleared_by"], asset["made_public_at"], asset["made_public_by"]) == ("rob", None, None)
    assert (await clear(business, accepted, "uncleared")).clearance_state == "uncleared"
    assert await open_doors(business, accepted, READER_TOO) == set()
    assert await open_doors(business, accepted, REVIEWER) == ALL_DOORS
    assert await business.catalogued(accepted) is None
    asset = await business.asset(accepted)
    assert (asset["cleared_at"], asset["cleared_by"]) == (None, None)
    assert (await clear(business, accepted, "public", REVIEWER)).clearance_state == "public"
    assert await business.catalogued(accepted) is not None
    assert [action for action, _, _ in await business.audit(accepted)][-4:] == [
        "clearance_lowered",
        "clearance_lowered",
        "cleared",
        "cleared",
    ]


async def test_only_an_admin_lowers_and_only_with_a_reason(business: Business) -> None:
    accepted = await business.approved("public")
    refused = [
        (await unchanged_after(business, accepted, clear(business, accepted, "ouo", caller))).detail.code
        for caller in EVERYBODY
        if caller is not ADMIN
    ]
    assert set(refused) == {"FORBIDDEN"}
    silent = business.approvals.set_clearance(ADMIN, accepted.asset_id, ClearanceRequest(clearance_level="ouo"))
    error = await unchanged_after(business, accepted, silent)
    assert (error.detail.code, error.detail.field) == ("PARAMETER_MISSING", "reason")


async def test_exposure_is_set_once_and_recorded_once(business: Business) -> None:
    first = await business.approved("public")
    second = await business.processed(version_label="V2")
    await business.approve(second, None)
    assert await open_doors(business, first) == set()
    body = ExposureRequest(exposure="all_versions", reason="history is wanted")
    for _ in range(2):
        answer = await business.approvals.set_exposure(REVIEWER, first.asset_id, body)
        assert answer.exposure == "all_versions"
    assert await open_doors(business, first) == ALL_DOORS
    assert [action for action, _, _ in await business.audit(first)].count("exposed") == 1


async def test_unpublish_tells_first_and_acts_when_told(business: Business) -> None:
    first = await business.approved("public")
    second = await business.processed(version_label="V2")
    await business.approve(second, None)

    async def unpublish(**body: Any) -> tuple[bool, list[int]]:
        answer = await business.approvals.unpublish(ADMIN, first.asset_id, UnpublishRequest(**body))
        return answer.dry_run, answer.version_ordinals

    before = [await business.row(first), await business.row(second), await business.audit(first)]
    assert await unpublish() == (True, [0, 1])
    assert await unpublish(version_ordinal=1) == (True, [1])
    assert [await business.row(first), await business.row(second), await business.audit(first)] == before
    with pytest.raises(GeodagError) as refused:
        await unpublish(dry_run=False)
    assert refused.value.detail.field == "reason"
    assert await unpublish(dry_run=False, reason="recalled") == (False, [0, 1])
    for accepted in (first, second):
        assert await business.catalogued(accepted) is None
        assert await open_doors(business, accepted) == set()
        assert (await business.row(accepted))["approval_state"] == "revoked"
    assert (await business.asset(first))["latest_approved_version_ordinal"] is None
    with pytest.raises(Conflict):
        await unpublish(dry_run=False, reason="again")


async def test_a_deleted_asset_is_gone_for_everybody_and_comes_back_whole(business: Business) -> None:
    accepted = await business.approved("public")
    pending = await business.processed(version_label="V2")
    reason = "published by mistake"
    assert (await business.approvals.delete_asset(ADMIN, accepted.asset_id, reason)).deleted
    assert await business.catalogued(accepted) is None
    for caller in EVERYBODY:
        with pytest.raises(NotFound):
            await business.status.asset(caller, accepted.asset_id)
    for decision in (business.approve(pending, None), business.revoke(accepted), business.delete(pending)):
        assert isinstance(await unchanged_after(business, accepted, decision), NotFound)
    with pytest.raises(Conflict) as refused:
        await business.submit(version_label="V3")
    assert (refused.value.detail.next_actions, refused.value.detail.remediation) == ((), "Ask an admin to restore it.")
    with pytest.raises(Conflict):
        await business.approvals.delete_asset(ADMIN, accepted.asset_id, reason)
    answer = await business.approvals.restore_asset(ADMIN, accepted.asset_id, SupersedeRequest())
    assert (answer.deleted, answer.latest_approved_version_ordinal) == (False, 0)
    assert await business.catalogued(accepted) is not None
    assert await open_doors(business, accepted) == ALL_DOORS
    assert (await business.approve(pending, None)).latest_approved_version_ordinal == 1


async def test_a_reviewer_decides_about_the_revision_he_looked_at(business: Business) -> None:
    first = await business.processed()
    await business.reject(first)
    again = await business.processed()
    body = RejectRequest(reason="x", revision=1)
    decision = business.approvals.reject(REVIEWER, again.asset_id, 0, body)
    error = await unchanged_after(business, again, decision)
    assert (error.detail.code, error.detail.expected) == ("VERSION_STALE", 2)


@pytest.mark.parametrize("caller", [c for c in EVERYBODY if not c.has(Role.REVIEWER, Role.ADMIN)])
async def test_other_roles_take_nothing_down(business: Business, caller: Caller) -> None:
    accepted = await business.approved("public")
    asset_id = accepted.asset_id
    for decision in (
        business.revoke(accepted, caller),
        business.approvals.unpublish(caller, asset_id, UnpublishRequest(reason="x", dry_run=False)),
        business.approvals.unpublish(caller, asset_id, UnpublishRequest()),
        business.approvals.delete_asset(caller, asset_id, "x"),
        business.approvals.restore_asset(caller, asset_id, SupersedeRequest()),
        business.approvals.set_exposure(caller, asset_id, ExposureRequest(exposure="all_versions")),
        clear(business, accepted, "ouo", caller),
    ):
        assert isinstance(await unchanged_after(business, accepted, decision), Forbidden)


async def test_what_is_not_there_is_answered_so(business: Business) -> None:
    accepted = await business.processed()
    for asset_id, ordinal in (("f" * 32, 0), (accepted.asset_id, 7)):
        with pytest.raises(NotFound):
            await business.approvals.revoke(REVIEWER, asset_id, ordinal, RevokeRequest(reason="x"))
    for decision in (
        business.approvals.set_clearance(ADMIN, "f" * 32, ClearanceRequest(clearance_level="ouo")),
        business.approvals.unpublish(ADMIN, "f" * 32, UnpublishRequest()),
        business.approvals.delete_asset(ADMIN, "f" * 32, "x"),
    ):
        with pytest.raises(NotFound):
            await decision
