"""What partners are told, and what never leaves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from core.decisions import DecisionRow
from core.errors import ErrorDetail
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState, RequestState
from core.status_view import (
    AssetRow,
    PublicUrls,
    RequestFacts,
    VersionRow,
    asset_view,
    may_see_request,
    partner_error,
    status_view,
    version_view,
    visible_versions,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URLS = PublicUrls("https://gateway.test", "https://serving.test")
SUBMITTER = Caller(subject="sue", roles=frozenset({Role.SUBMITTER}), platform_id="ddh")
READER = Caller(subject="rita", roles=frozenset({Role.READER}), platform_id="ddh")
REVIEWER = Caller(subject="rob", roles=frozenset({Role.REVIEWER}))
WAYS_OUT = ["resubmit", "supersede", "delete"]


def facts(**changes: Any) -> RequestFacts:
    good: dict[str, Any] = {
        "request_id": "req_1",
        "platform_id": "ddh",
        "asset_id": "a" * 32,
        "version_ordinal": 0,
        "revision": 1,
        "state": RequestState.COMPLETED,
        "progress": {"current": 6, "total": 6},
        "errors": [],
        "warnings": [],
        "processing_state": ProcessingState.COMPLETED,
        "review": ApprovalState.APPROVED,
        "reason": None,
        "submitted_by": "sue",
        "clearance_state": Clearance.PUBLIC,
        "exposure": Exposure.LATEST_ONLY,
        "latest_approved_version_ordinal": 0,
        "deleted": False,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return RequestFacts(**(good | changes))


def version(ordinal: int, approval: ApprovalState, **changes: Any) -> VersionRow:
    good: dict[str, Any] = {
        "asset_id": "a" * 32,
        "platform_id": "ddh",
        "version_ordinal": ordinal,
        "version_label": f"V{ordinal}",
        "revision": 1,
        "title": "t",
        "description": None,
        "tags": [],
        "access_level": "ouo",
        "approval_state": approval,
        "processing_state": ProcessingState.COMPLETED,
        "rejection_reason": None,
        "content_hash": None,
        "blob_size_bytes": None,
        "stac_item_id": None,
        "stac_collection_id": None,
        "report": None,
        "findings": [],
        "error": None,
        "submitted_by": "sue",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return VersionRow(**(good | changes))


ASSET = AssetRow(
    asset_id="a" * 32,
    platform_id="ddh",
    platform_refs={"dataset_id": "1"},
    data_type="raster",
    clearance_state=Clearance.OUO,
    exposure=Exposure.LATEST_ONLY,
    latest_approved_version_ordinal=0,
    created_at=NOW,
    updated_at=NOW,
)


def test_a_partner_reads_his_own_error_but_no_node_of_it() -> None:
    error = ErrorDetail(code="CRS_MISSING", message="none", field="crs", user_fixable=True, node_id="validate")
    told = partner_error(error.model_dump(mode="json"))
    assert (told.code, told.message, told.field, told.node_id) == ("CRS_MISSING", "none", "crs", None)


@pytest.mark.parametrize("code", ["INTERNAL", "WORKER_LOST", "TASK_OUT_OF_MEMORY"])
def test_an_inner_error_keeps_only_its_code_and_the_id_that_finds_it(code: str) -> None:
    error = ErrorDetail(code=code, message="worker-7 at /srv", field="f", value="v", remediation="r", error_id="e1")
    told = partner_error(error.model_dump(mode="json"))
    assert (told.code, told.error_id) == (code, "e1")
    assert "worker-7" not in told.model_dump_json()
    assert (told.field, told.value, told.remediation) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "caller", "shown"),
    [
        ({}, SUBMITTER, True),
        ({"clearance_state": "ouo"}, SUBMITTER, False),
        ({"clearance_state": "ouo"}, READER, True),
        ({"review": "pending_review", "latest_approved_version_ordinal": None}, READER, False),
        ({"review": "pending_review", "latest_approved_version_ordinal": None}, REVIEWER, True),
        ({"review": "revoked", "latest_approved_version_ordinal": None}, REVIEWER, False),
        ({"latest_approved_version_ordinal": 1}, SUBMITTER, False),
        ({"latest_approved_version_ordinal": 1, "exposure": "all_versions"}, SUBMITTER, True),
        ({"review": None}, REVIEWER, False),
        ({"deleted": True}, REVIEWER, False),
    ],
)
def test_services_are_null_until_the_caller_may_see_them(changes: dict[str, Any], caller: Caller, shown: bool) -> None:
    assert (status_view(facts(**changes), caller, URLS).services is not None) == shown


@pytest.mark.parametrize("state", [RequestState.QUEUED, RequestState.PROCESSING])
def test_a_running_request_has_neither_review_nor_report(state: RequestState) -> None:
    view = status_view(facts(state=state, processing_state="queued", review="pending_review"), SUBMITTER, URLS)
    assert (view.review, view.report_url, view.next_actions) == (None, None, ["wait", "cancel"])


def test_a_finished_request_names_its_report() -> None:
    assert status_view(facts(), SUBMITTER, URLS).report_url == (
        f"https://gateway.test/api/assets/{'a' * 32}/versions/0"
    )


def test_a_deleted_version_is_told_and_nothing_that_comes_of_it_any_more() -> None:
    waiting = facts(review="pending_review")
    gone = facts(review="pending_review", deleted=True)
    before, after = (status_view(one, SUBMITTER, URLS) for one in (waiting, gone))
    assert (before.deleted, before.review, before.reason) == (False, "pending_review", None)
    assert (after.deleted, after.review, after.next_actions, after.report_url) == (True, None, [], None)
    assert after.reason == "the version was deleted; only an admin can restore it"


def test_requests_are_for_submitters_of_the_platform_and_for_reviewers() -> None:
    assert [may_see_request(c, "ddh") for c in (SUBMITTER, REVIEWER, READER)] == [True, True, False]
    assert [may_see_request(c, "arcgis") for c in (SUBMITTER, REVIEWER, READER)] == [False, True, False]


def test_lists_hold_what_each_caller_may_know_of() -> None:
    versions = [version(0, ApprovalState.APPROVED), version(1, ApprovalState.PENDING_REVIEW)]
    seen = {c.subject: visible_versions(c, ASSET, versions) for c in (SUBMITTER, READER, REVIEWER)}
    assert {who: [v.version_ordinal for v in found] for who, found in seen.items()} == {
        "sue": [0, 1],
        "rita": [0],
        "rob": [0, 1],
    }
    assert visible_versions(SUBMITTER, None, versions) == []


def test_a_version_is_told_with_its_ways_out_and_without_inner_errors() -> None:
    error = ErrorDetail(code="INTERNAL", message="host db-1").model_dump(mode="json")
    row = version(1, ApprovalState.PENDING_REVIEW, processing_state="failed", error=error)
    view = version_view(row, SUBMITTER, [], URLS).model_dump(mode="json")
    assert (view["next_actions"], view["error"]["code"], "db-1" in str(view)) == (WAYS_OUT, "INTERNAL", False)
    assert view["created_at"] == "2026-01-01T00:00:00Z"


def test_an_asset_is_told_with_the_ordinals_that_were_shown() -> None:
    view = asset_view(ASSET, [version(0, ApprovalState.APPROVED)]).model_dump(mode="json")
    assert (view["clearance_state"], view["version_ordinals"]) == ("ouo", [0])


@pytest.mark.parametrize(
    ("caller", "approval", "processing", "expected"),
    [
        (SUBMITTER, "pending_review", "completed", WAYS_OUT),
        (SUBMITTER, "pending_review", "processing", ["wait", "cancel"]),
        (REVIEWER, "pending_review", "completed", ["approve", "reject"]),
        (REVIEWER, "pending_review", "processing", ["wait"]),
        (REVIEWER, "rejected", "completed", []),
        (REVIEWER, "approved", "completed", ["revoke"]),
        (SUBMITTER, "approved", "completed", []),
        (SUBMITTER, "revoked", "completed", ["delete"]),
        (REVIEWER, "revoked", "completed", []),
        (READER, "pending_review", "completed", []),
        (Caller(subject="art", roles=frozenset({Role.SUBMITTER}), platform_id="arcgis"), "rejected", "completed", []),
        (Caller(subject="ann", roles=frozenset({Role.ADMIN})), "rejected", "failed", ["supersede", "delete"]),
        (Caller(subject="sue", roles=frozenset({Role.REVIEWER})), "pending_review", "completed", ["reject"]),
    ],
)
def test_next_actions_are_those_of_who_asks(
    caller: Caller, approval: str, processing: str, expected: list[str]
) -> None:
    row = version(1, ApprovalState(approval), processing_state=processing)
    assert version_view(row, caller, [], URLS).next_actions == expected
    told = status_view(facts(review=approval, processing_state=processing), caller, URLS)
    assert told.next_actions == expected


def test_decisions_are_told_to_those_who_take_part_without_the_names_of_reviewers_to_a_platform() -> None:
    common: dict[str, Any] = {"asset_id": "a" * 32, "platform_id": "ddh", "reason": "feet", "created_at": NOW}
    rows = [
        DecisionRow(version_ordinal=1, revision=1, action="rejected", actor="rob", actor_role="reviewer", **common),
        DecisionRow(version_ordinal=0, revision=1, action="approved", actor="rob", actor_role="reviewer", **common),
        DecisionRow(version_ordinal=1, revision=2, action="superseded", actor="sue", actor_role="submitter", **common),
    ]
    seen = {
        caller.subject: [
            (one.revision, one.decision, one.decided_by, one.role, one.reason)
            for one in version_view(version(1, ApprovalState.REVOKED), caller, rows, URLS).decisions
        ]
        for caller in (SUBMITTER, REVIEWER, READER)
    }
    assert seen == {
        "sue": [(1, "rejected", None, "reviewer", "feet"), (2, "superseded", "sue", "submitter", "feet")],
        "rob": [(1, "rejected", "rob", "reviewer", "feet"), (2, "superseded", "sue", "submitter", "feet")],
        "rita": [],
    }


def test_the_external_url_is_where_the_copy_lies_once_there_is_one() -> None:
    outside = PublicUrls("https://gateway.test", external="https://files.test")
    path = "external/aaa/0/r1/0123/my cog.tif"
    shown = version(0, ApprovalState.APPROVED, external_blob_path=path)
    assert version_view(shown, SUBMITTER, [], outside).external_url == "https://files.test/aaa/0/r1/0123/my%20cog.tif"
    assert version_view(shown, SUBMITTER, [], URLS).external_url is None
    assert version_view(version(0, ApprovalState.APPROVED), SUBMITTER, [], outside).external_url is None
