"""What a partner is told: status of a request, assets and versions. Pure; gateway and orchestrator share it.

Nothing here knows a job id, a node or a worker, and errors that a partner can not mend lose their inner details.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from pydantic.dataclasses import dataclass as checked

from core import lifecycle
from core.access import AssetFacts, Audience, Door, VersionFacts, audiences, decide, visible
from core.b2b import StatusView
from core.b2b_assets import AssetView, VersionView
from core.decisions import DecisionRow, decision_views
from core.errors import ErrorDetail
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState, RequestState

Json = dict[str, Any]

_COUNTS: Final = ("current", "total")
_FINAL: Final = frozenset({RequestState.COMPLETED, RequestState.FAILED, RequestState.CANCELLED})
_DELETED: Final = "the version was deleted; only an admin can restore it"
_INNER: Final[Mapping[str, str]] = {
    "WORKER_LOST": "the processing was interrupted too often",
    "TASK_TIMEOUT": "the processing took longer than it may",
    "TASK_OUT_OF_MEMORY": "the processing needed more memory than it may use",
    "TASK_OUT_OF_DISK": "the processing needed more disk than it may use",
}


@checked(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One request with its version and asset, as `dagapi.requests` shows them."""

    request_id: str
    platform_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    state: RequestState
    progress: Json
    errors: Sequence[Any]
    warnings: Sequence[Any]
    processing_state: ProcessingState
    review: ApprovalState | None
    """None once a newer revision took this request's place."""
    reason: str | None
    submitted_by: str
    """Of the newest revision."""
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    deleted: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PublicUrls:
    """Where partners reach the doors; no trailing slashes."""

    gateway: str
    serving: str = ""
    external: str = ""
    """Where the external zone is read; empty: nowhere."""

    def status(self, request_id: str) -> str:
        """Return where a request is polled."""
        return f"{self.gateway}/api/platform/status/{request_id}"

    def version(self, asset_id: str, ordinal: int) -> str:
        """Return where a version and its report are read."""
        return f"{self.gateway}/api/assets/{asset_id}/versions/{ordinal}"

    def download(self, asset_id: str, ordinal: int) -> str:
        """Return the download door of one version; what a STAC item's asset refers to."""
        return f"{self.serving}/download/{asset_id}?version={ordinal}"

    def export(self, external_blob_path: str | None) -> str | None:
        """Return where the copy of a public version is read; None when there is none, or no such place."""
        if external_blob_path is None or not self.external:
            return None
        return f"{self.external}/{quote(external_blob_path.partition('/')[2])}"

    def services(self, asset_id: str, ordinal: int) -> dict[str, str]:
        """Return every content door of one version."""
        base, query = self.serving, f"?version={ordinal}"
        return {
            "tiles": f"{base}/tiles/{asset_id}/{{z}}/{{x}}/{{y}}{query}",
            "tilejson": f"{base}/tiles/{asset_id}/tilejson.json{query}",
            "preview": f"{base}/preview/{asset_id}.png{query}",
            "stac": f"{base}/stac/{asset_id}{query}",
            "download": self.download(asset_id, ordinal),
        }


@checked(frozen=True, slots=True, kw_only=True)
class AssetRow:
    """One live asset, as `dagapi.assets` shows it."""

    asset_id: str
    platform_id: str
    platform_refs: Json
    data_type: str
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    created_at: datetime
    updated_at: datetime


@checked(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One live version, as `dagapi.versions` shows it."""

    asset_id: str
    platform_id: str
    version_ordinal: int
    version_label: str
    revision: int
    title: str
    description: str | None
    tags: Sequence[str]
    access_level: str
    approval_state: ApprovalState
    processing_state: ProcessingState
    rejection_reason: str | None
    content_hash: str | None
    blob_size_bytes: int | None
    stac_item_id: str | None
    stac_collection_id: str | None
    report: Json | None
    findings: Sequence[Any]
    error: Json | None
    submitted_by: str
    created_at: datetime
    updated_at: datetime
    external_blob_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetFilter:
    """Which assets a list is about; None means any."""

    platform_id: str | None = None
    refs: Mapping[str, str] | None = None
    data_type: str | None = None
    published: bool = False
    """Only those with an approved version that is cleared."""


def partner_error(detail: Mapping[str, Any]) -> ErrorDetail:
    """Return an error as a partner may read it: what he can not mend is told by code and `error_id` alone."""
    error = ErrorDetail.model_validate(detail).model_copy(update={"node_id": None, "attempts": ()})
    if error.user_fixable:
        return error
    message = _INNER.get(error.code, "the processing failed for a reason that is not in the request")
    return error.model_copy(update={"message": message, "field": None, "value": None, "remediation": None})


def visible_versions(caller: Caller, asset: AssetRow | None, versions: Sequence[VersionRow]) -> list[VersionRow]:
    """Return the versions a caller may know of; none means that the asset is as good as unknown to him."""
    if asset is None:
        return []
    facts = AssetFacts(
        asset_id=asset.asset_id,
        platform_id=asset.platform_id,
        clearance_state=asset.clearance_state,
        exposure=asset.exposure,
        latest_approved_version_ordinal=asset.latest_approved_version_ordinal,
    )
    states = [VersionFacts(v.version_ordinal, v.approval_state, v.processing_state) for v in versions]
    shown = visible(caller, facts, states)
    return [v for v in versions if v.version_ordinal in shown]


def listed_for(caller: Caller, wanted: AssetFilter) -> AssetFilter | None:
    """Return what a caller's list may be read with, None when it is empty for sure; `visible_versions` decides later.

    Reviewers list everything, submitters their platform's assets, readers what is published of them.
    """
    if caller.has(Role.REVIEWER, Role.ADMIN):
        return wanted
    if caller.platform_id is None or wanted.platform_id not in (None, caller.platform_id):
        return None
    if not caller.has(Role.SUBMITTER, Role.READER):
        return None
    published = wanted.published or not caller.has(Role.SUBMITTER)
    return replace(wanted, platform_id=caller.platform_id, published=published)


def asset_view(asset: AssetRow, versions: Sequence[VersionRow]) -> AssetView:
    """Return an asset as its platform's people and reviewers read it, with the ordinals they may know of."""
    facts = {name: getattr(asset, name) for name in AssetView.model_fields if hasattr(asset, name)}
    return AssetView(**facts, version_ordinals=[v.version_ordinal for v in versions])


def version_view(
    version: VersionRow, caller: Caller, decisions: Sequence[DecisionRow], urls: PublicUrls
) -> VersionView:
    """Return a version with its validation report and what was decided about it; errors as for partners."""
    actions = lifecycle.next_actions(version.approval_state, version.processing_state)
    facts = {name: getattr(version, name) for name in VersionView.model_fields if hasattr(version, name)}
    told = {
        "tags": list(version.tags),
        "findings": list(version.findings),
        "error": None if version.error is None else partner_error(version.error),
        "next_actions": list(lifecycle.open_to(actions, caller, version.platform_id, version.submitted_by)),
        "external_url": urls.export(version.external_blob_path),
        "decisions": decision_views(decisions, version.version_ordinal, caller),
    }
    return VersionView(**facts | told)


def may_see_request(caller: Caller, platform_id: str) -> bool:
    """Return whether a caller may poll requests of a platform: its submitters, reviewers and admins."""
    return not audiences(caller, platform_id).isdisjoint({Audience.SUBMITTER, Audience.REVIEWER})


def status_view(facts: RequestFacts, caller: Caller, urls: PublicUrls) -> StatusView:
    """Return what this caller learns of a request."""
    return StatusView(
        request_id=facts.request_id,
        asset_id=facts.asset_id,
        version_ordinal=facts.version_ordinal,
        revision=facts.revision,
        state=facts.state,
        progress=_progress(facts.progress),
        review=facts.review if facts.state is RequestState.COMPLETED and not facts.deleted else None,
        reason=_DELETED if facts.deleted else facts.reason,
        deleted=facts.deleted,
        errors=[partner_error(e) for e in facts.errors],
        warnings=list(facts.warnings),
        report_url=_report_url(facts, urls),
        services=_services(facts, caller, urls),
        next_actions=list(_next_actions(facts, caller)),
    )


def _progress(progress: Json) -> Json:
    """Return how far a request is, without the counts of jobs that have no rows any more."""
    return progress if progress.get("total") != 0 else {k: v for k, v in progress.items() if k not in _COUNTS}


def _report_url(facts: RequestFacts, urls: PublicUrls) -> str | None:
    """Return where the report is read, once there is one and as long as it is there."""
    if facts.deleted or facts.state not in _FINAL:
        return None
    return urls.version(facts.asset_id, facts.version_ordinal)


def _services(facts: RequestFacts, caller: Caller, urls: PublicUrls) -> dict[str, str] | None:
    if facts.review is None:
        return None
    asset = AssetFacts(
        asset_id=facts.asset_id,
        platform_id=facts.platform_id,
        clearance_state=facts.clearance_state,
        exposure=facts.exposure,
        latest_approved_version_ordinal=facts.latest_approved_version_ordinal,
        deleted=facts.deleted,
    )
    version = VersionFacts(facts.version_ordinal, facts.review, facts.processing_state)
    if not decide(caller, asset, [version], facts.version_ordinal, Door.TILES).allowed:
        return None
    return urls.services(facts.asset_id, facts.version_ordinal)


def _next_actions(facts: RequestFacts, caller: Caller) -> tuple[str, ...]:
    if facts.review is None or facts.deleted:
        return ()
    actions = lifecycle.next_actions(facts.review, facts.processing_state)
    return lifecycle.open_to(actions, caller, facts.platform_id, facts.submitted_by)
