"""The audit answers who did what, when, why, from what to what; and replayed, it gives the present state."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.b2b import SubmitAccepted
from core.b2b_assets import ClearanceRequest, CommentRequest, ExposureRequest, SupersedeRequest, UnpublishRequest
from core.errors import ParameterInvalid
from core.models.business import AuditEntry
from repositories.audit import AuditFilter
from services.audit import AuditService
from tests.support.business import ADMIN, REVIEWER, SUBMITTER, Business, fresh_refs

VERSION_FACTS = ("approval_state", "processing_state", "revision")
ASSET_FACTS = ("clearance_state", "exposure", "latest_approved_version_ordinal")


async def story(business: Business) -> SubmitAccepted:
    """Let everything happen to one asset that can."""
    refs = {"platform_refs": fresh_refs()}
    first = await business.processed(**refs)
    await business.reject(first)
    first = await business.approved("public", **refs)
    second = await business.submit(version_label="V2", **refs)
    await business.fail(await business.job_of(second))
    second = await business.processed(version_label="V2", **refs)
    await business.reviews.comment(REVIEWER, second.asset_id, 1, CommentRequest(text="where?"))
    await business.approve(second, None)
    await business.revoke(second)
    third = await business.processed(version_label="V3", **refs)
    await business.supersede(third)
    fourth = await business.processed(version_label="V4", **refs)
    await business.delete(fourth)
    await business.approvals.restore(ADMIN, fourth.asset_id, 3, SupersedeRequest(reason="by mistake"))
    await business.approve(fourth, None)
    await business.approvals.set_exposure(REVIEWER, first.asset_id, ExposureRequest(exposure="all_versions"))
    lowered = ClearanceRequest(clearance_level="uncleared", reason="leaked")
    await business.approvals.set_clearance(ADMIN, first.asset_id, lowered)
    await business.approvals.set_clearance(REVIEWER, first.asset_id, ClearanceRequest(clearance_level="ouo"))
    await business.approvals.delete_asset(ADMIN, first.asset_id, "not ours")
    await business.approvals.restore_asset(ADMIN, first.asset_id, SupersedeRequest())
    await business.approvals.unpublish(
        REVIEWER, first.asset_id, UnpublishRequest(version_ordinal=0, reason="recalled", dry_run=False)
    )
    return first


async def read(business: Business, limit: int = 500, **wanted: Any) -> list[AuditEntry]:
    page = await AuditService(business.pool).find(AuditFilter(**wanted), after=None, limit=limit)
    return list(page.rows)


async def test_the_audit_replayed_gives_the_present_state(business: Business) -> None:
    accepted = await story(business)
    state: dict[tuple[int | None, str], Any] = {}
    for entry in reversed(await read(business, asset_id=accepted.asset_id)):
        assert entry.platform_id == "ddh"
        for name, value in (entry.after or {}).items():
            where = entry.version_ordinal if name in (*VERSION_FACTS, "deleted") else None
            before = (entry.before or {}).get(name)
            if before is not None:
                assert state.get((where, name), before) == before, entry
            state[where, name] = value
    versions = await business.engine.query(
        "SELECT * FROM dagapp.asset_versions WHERE asset_id = %s ORDER BY version_ordinal", accepted.asset_id
    )
    assert [row["approval_state"] for row in versions] == ["revoked", "revoked", "revoked", "approved"]
    for row in versions:
        for name in VERSION_FACTS:
            assert state[row["version_ordinal"], name] == row[name], (row["version_ordinal"], name)
        assert state.get((row["version_ordinal"], "deleted"), False) == (row["deleted_at"] is not None)
    asset = await business.asset(accepted)
    assert {name: state[None, name] for name in ASSET_FACTS} == {name: asset[name] for name in ASSET_FACTS}
    assert state[None, "deleted"] is False


async def test_every_action_has_its_actor_role_and_time_and_what_takes_away_its_reason(business: Business) -> None:
    accepted = await story(business)
    entries = await read(business, asset_id=accepted.asset_id)
    assert {entry.action for entry in entries} == {
        "submitted", "resubmitted", "processed", "processing_failed", "approved", "rejected", "revoked", "superseded",
        "deleted", "restored", "cleared", "clearance_lowered", "exposed", "unpublished", "asset_deleted",
        "asset_restored", "commented",
    }  # fmt: skip
    by_role = {(entry.actor, entry.actor_role) for entry in entries}
    assert by_role == {
        ("sue", "submitter"),
        ("rob", "reviewer"),
        ("ada", "admin"),
        ("orchestrator", "system"),
    }
    takes_away = {"rejected", "revoked", "clearance_lowered", "unpublished", "asset_deleted"}
    assert all(entry.reason for entry in entries if entry.action in takes_away)
    assert all(entry.before != entry.after for entry in entries)
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=10) < entry.created_at < now + timedelta(minutes=1) for entry in entries)


async def test_the_audit_is_asked_by_what_who_and_when(business: Business) -> None:
    accepted = await story(business)
    other = await business.processed(platform_refs=fresh_refs())
    everything = await read(business)
    assert len(await read(business, asset_id=other.asset_id)) == 2
    assert {e.action for e in await read(business, actor="ada")} == {
        "restored", "clearance_lowered", "asset_deleted", "asset_restored",
    }  # fmt: skip
    assert [e.version_ordinal for e in await read(business, action="unpublished")] == [0]
    assert {e.request_id for e in await read(business, request_id=other.request_id)} == {other.request_id}
    assert {e.version_ordinal for e in await read(business, asset_id=accepted.asset_id, version_ordinal=2)} == {2}
    middle = everything[10].created_at
    assert len(await read(business, since=middle)) + len(await read(business, until=middle)) == len(everything)
    assert await read(business, platform_id="arcgis") == []


async def test_the_audit_is_read_page_by_page_the_newest_first(business: Business) -> None:
    await story(business)
    service, seen, after = AuditService(business.pool), list[int](), None
    while True:
        page = await service.find(AuditFilter(), after=after, limit=7)
        seen += [entry.audit_id for entry in page.rows]
        if (after := page.next_after) is None:
            break
    assert seen == sorted(seen, reverse=True) == [entry.audit_id for entry in await read(business)]
    with pytest.raises(ParameterInvalid):
        await service.find(AuditFilter(), after="x", limit=7)


async def test_an_upload_address_is_recorded_without_its_token(business: Business) -> None:
    address = await business.uploads.grant(SUBMITTER, {"platform_id": "ddh", "filename": "a.tif"}, datetime.now(UTC))
    (entry,) = await read(business, platform_id="ddh")
    assert (entry.action, entry.actor, entry.asset_id) == ("upload_granted", "sue", None)
    assert entry.after == {"blob": f"{address.container_name}/{address.blob_name}"}
    assert address.upload_url.rpartition("/")[2] not in entry.model_dump_json()
