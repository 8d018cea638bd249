"""Reviewers' decisions. One transaction: the version's state, the asset's clearance, the catalogue and the audit.

The asset's lock orders decisions, so of two at once one wins and the other finds the state already changed.
"""

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from core import lifecycle
from core.b2b import ApproveRequest, RejectRequest, ReviewAnswer
from core.errors import GeodagError, NotFound
from core.identity import Caller
from core.lifecycle import Command, Rule, VersionState
from core.models.business import Clearance, GeospatialAsset
from core.stac import collection_document
from repositories import pgstac
from repositories.assets import AssetRepository, CatalogueEntry
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.platforms import PlatformRepository


class CatalogueEntryMissing(GeodagError):
    """A completed version has no STAC document, or a wrong one; it can not be published."""

    code = "CATALOGUE_ENTRY_MISSING"


@dataclass(frozen=True, slots=True)
class _Review:
    """One decision in its transaction, asset and versions locked."""

    conn: AsyncConnection[Any]
    caller: Caller
    command: Command
    rule: Rule
    asset: GeospatialAsset
    versions: tuple[VersionState, ...]
    version: VersionState
    entry: CatalogueEntry

    @property
    def role(self) -> str:
        """The role the caller decides in."""
        return min(str(role) for role in self.rule.roles & self.caller.roles)


class ApprovalService:
    """Approve and reject."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    async def approve(self, caller: Caller, asset_id: str, ordinal: int, body: ApproveRequest) -> ReviewAnswer:
        """Approve a completed version: it is catalogued and, by the clearance, visible when this returns.

        Raises:
            InvalidTransition: not pending, not processed, or somebody was faster.
            Forbidden: wrong role, or the reviewer's own submit.
            ParameterMissing: no `clearance_level` for an uncleared asset.
        """
        async with transaction(self._pool) as conn:
            review = await _open(conn, caller, Command.APPROVE, asset_id, ordinal)
            wanted = None if body.clearance_level is None else Clearance(body.clearance_level)
            steps = lifecycle.clearance_steps(review.asset.clearance_state, wanted)
            await _store(review, rejection_reason=None, reason=body.reason)
            for before, after in steps:
                await _clear(review, before, after, body.reason)
            await _catalogue(review)
            return await _answer(review, steps[-1][1] if steps else review.asset.clearance_state)

    async def reject(self, caller: Caller, asset_id: str, ordinal: int, body: RejectRequest) -> ReviewAnswer:
        """Reject a completed version; it blocks the next one until it is resubmitted.

        Raises:
            InvalidTransition, Forbidden: as for `approve`.
        """
        async with transaction(self._pool) as conn:
            review = await _open(conn, caller, Command.REJECT, asset_id, ordinal)
            await _store(review, rejection_reason=body.reason, reason=body.reason)
            return await _answer(review, review.asset.clearance_state)


async def _open(conn: AsyncConnection[Any], caller: Caller, command: Command, asset_id: str, ordinal: int) -> _Review:
    """Lock asset and versions and ask the transition table."""
    lifecycle.check_role(command, caller)
    assets = AssetRepository(conn)
    asset = await assets.lock(asset_id)
    versions = await assets.lock_versions(asset_id)
    version = next((v for v in versions if v.version_ordinal == ordinal and not v.deleted), None)
    entry = await assets.catalogue_entry(asset_id, ordinal)
    if asset is None or asset.deleted_at is not None or version is None or entry is None:
        raise NotFound(f"there is no version {ordinal} of asset {asset_id}", field="version_ordinal", value=ordinal)
    rule = lifecycle.check_decision(command, version, caller)
    return _Review(conn, caller, command, rule, asset, tuple(versions), version, entry)


async def _store(review: _Review, *, rejection_reason: str | None, reason: str | None) -> None:
    version, state = review.version, review.rule.approval_to
    await AssetRepository(review.conn).store_review(
        review.asset.asset_id, version.version_ordinal, state, review.caller.subject, rejection_reason
    )
    await _audit(review, str(state), reason, {"approval_state": version.approval_state}, {"approval_state": state})


async def _clear(review: _Review, before: Clearance, after: Clearance, reason: str | None) -> None:
    await AssetRepository(review.conn).store_clearance(review.asset.asset_id, after, review.caller.subject)
    await _audit(review, "cleared", reason, {"clearance_state": before}, {"clearance_state": after})


async def _audit(
    review: _Review, action: str, reason: str | None, before: dict[str, Any], after: dict[str, Any]
) -> None:
    await AuditRepository(review.conn).add(
        NewAuditEntry(
            asset_id=review.asset.asset_id,
            version_ordinal=review.version.version_ordinal,
            action=action,
            actor=review.caller.subject,
            actor_role=review.role,
            reason=reason,
            before=before,
            after=after,
            request_id=review.entry.current_request_id,
        )
    )


async def _catalogue(review: _Review) -> None:
    """Write the document the ingest stored to pgstac and read it back; a lost collection is made again."""
    entry, asset = review.entry, review.asset
    if entry.stac_item is None or entry.stac_collection_id is None:
        raise CatalogueEntryMissing(f"{review.version} of asset {asset.asset_id} has no STAC item")
    if entry.stac_item.get("collection") != entry.stac_collection_id:
        raise CatalogueEntryMissing(f"the STAC item of {review.version} names another collection")
    platform = await PlatformRepository(review.conn).get(asset.platform_id)
    title = f"{platform.display_name if platform else asset.platform_id}: {asset.data_type}"
    await pgstac.ensure_collection(review.conn, collection_document(entry.stac_collection_id, title))
    await pgstac.write_item(review.conn, entry.stac_item)


async def _answer(review: _Review, clearance: Clearance) -> ReviewAnswer:
    """Recompute what `latest` means and say where the version stands now."""
    version, state = review.version, review.rule.approval_to
    decided = VersionState(
        version_ordinal=version.version_ordinal,
        version_label=version.version_label,
        revision=version.revision,
        approval_state=state,
        processing_state=version.processing_state,
        submitted_by=version.submitted_by,
    )
    others = [v for v in review.versions if v.version_ordinal != version.version_ordinal]
    latest = lifecycle.latest_approved([*others, decided])
    if latest != review.asset.latest_approved_version_ordinal:
        await AssetRepository(review.conn).store_latest(review.asset.asset_id, latest)
    return ReviewAnswer(
        asset_id=review.asset.asset_id,
        version_ordinal=version.version_ordinal,
        approval_state=state,
        clearance_state=clearance,
        latest_approved_version_ordinal=latest,
    )
