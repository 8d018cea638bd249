"""Decisions about versions and assets. One transaction each: states, clearance, catalogue and audit.

The asset's lock orders decisions, so of two at once one wins and the other finds the state already changed.
"""

from collections.abc import Callable
from typing import Any

from core import dossier, lifecycle
from core.b2b_assets import (
    ApproveRequest,
    AssetAnswer,
    ClearanceRequest,
    ExposureRequest,
    RejectRequest,
    ReviewAnswer,
    RevokeRequest,
    SupersedeRequest,
    UnpublishAnswer,
    UnpublishRequest,
)
from core.dossier import Dossier, Outcome
from core.identity import Caller
from core.lifecycle import AssetCommand, Command
from core.models.business import Clearance, Exposure
from core.ports import BlobRepository
from repositories.database import AsyncPool, transaction
from services.external import ExternalJobs
from services.settling import open_dossier, settle

Decide = Callable[[Dossier], Outcome]
DRY_RUN_REASON = "dry run"


class ApprovalService:
    """What reviewers, admins and owners decide."""

    def __init__(
        self, pool: AsyncPool, blobs: BlobRepository | None = None, external: ExternalJobs | None = None
    ) -> None:
        self._pool = pool
        self._blobs = blobs
        self._external = external

    async def approve(self, caller: Caller, asset_id: str, ordinal: int, body: ApproveRequest) -> ReviewAnswer:
        """Approve a completed version: it is catalogued and, by the clearance, visible when this returns.

        Raises:
            InvalidTransition: not pending, not processed, or somebody was faster.
            Forbidden: wrong role, or the reviewer's own submit.
            ParameterMissing: no `clearance_level` for an uncleared asset.
            Conflict: VERSION_STALE, when another revision was looked at.
        """
        level = None if body.clearance_level is None else Clearance(body.clearance_level)
        return await self._decide(
            caller, Command.APPROVE, asset_id, ordinal, reason=body.reason, revision=body.revision, level=level
        )

    async def reject(self, caller: Caller, asset_id: str, ordinal: int, body: RejectRequest) -> ReviewAnswer:
        """Reject a completed version; it blocks the next one until it is resolved."""
        return await self._decide(caller, Command.REJECT, asset_id, ordinal, reason=body.reason, revision=body.revision)

    async def revoke(self, caller: Caller, asset_id: str, ordinal: int, body: RevokeRequest) -> ReviewAnswer:
        """Take an approval back: every door is closed and the catalogue has no item when this returns."""
        return await self._decide(caller, Command.REVOKE, asset_id, ordinal, reason=body.reason, revision=body.revision)

    async def supersede(self, caller: Caller, asset_id: str, ordinal: int, body: SupersedeRequest) -> ReviewAnswer:
        """Give an unresolved version up, so that the next one may come; it stays in the history."""
        return await self._decide(caller, Command.SUPERSEDE, asset_id, ordinal, reason=body.reason)

    async def delete(self, caller: Caller, asset_id: str, ordinal: int, reason: str | None) -> ReviewAnswer:
        """Delete a version softly: its ordinal stays used, its label is free again."""
        return await self._decide(caller, Command.DELETE, asset_id, ordinal, reason=reason)

    async def restore(self, caller: Caller, asset_id: str, ordinal: int, body: SupersedeRequest) -> ReviewAnswer:
        """Bring a deleted version back as it was.

        Raises:
            Conflict: VERSION_LABEL_EXISTS, VERSION_UNRESOLVED or VERSION_OVERTAKEN.
        """
        return await self._decide(caller, Command.RESTORE, asset_id, ordinal, reason=body.reason)

    async def set_clearance(self, caller: Caller, asset_id: str, body: ClearanceRequest) -> AssetAnswer:
        """Raise or lower the clearance of an asset; it acts on every door when this returns."""
        level = Clearance(body.clearance_level)
        return await self._order(
            caller,
            AssetCommand.CLEAR,
            asset_id,
            lambda file: dossier.set_clearance(file, caller, level, body.reason),
        )

    async def set_exposure(self, caller: Caller, asset_id: str, body: ExposureRequest) -> AssetAnswer:
        """Say which approved versions have live URLs."""
        exposure = Exposure(body.exposure)
        return await self._order(
            caller,
            AssetCommand.EXPOSE,
            asset_id,
            lambda file: dossier.set_exposure(file, caller, exposure, body.reason),
        )

    async def delete_asset(self, caller: Caller, asset_id: str, reason: str | None) -> AssetAnswer:
        """Delete an asset softly with everything in it."""
        return await self._order(
            caller, AssetCommand.DELETE, asset_id, lambda file: dossier.delete_asset(file, caller, reason)
        )

    async def restore_asset(self, caller: Caller, asset_id: str, body: SupersedeRequest) -> AssetAnswer:
        """Bring a deleted asset back; what was approved is catalogued again."""
        return await self._order(
            caller, AssetCommand.RESTORE, asset_id, lambda file: dossier.restore_asset(file, caller, body.reason)
        )

    async def unpublish(self, caller: Caller, asset_id: str, body: UnpublishRequest) -> UnpublishAnswer:
        """Take approved versions down, or tell what that would do: a dry run writes nothing."""
        lifecycle.check_role(AssetCommand.UNPUBLISH, caller)
        reason = body.reason or (DRY_RUN_REASON if body.dry_run else None)
        async with transaction(self._pool) as conn:
            file, data_type = await open_dossier(conn, asset_id, caller)
            outcome = dossier.unpublish(file, caller, reason, body.version_ordinal)
            if not body.dry_run:
                await settle(conn, caller, outcome, data_type, self._blobs, self._external)
        taken = [act.version_ordinal for act in outcome.acts if act.version_ordinal is not None]
        return UnpublishAnswer(**_asset_facts(outcome), dry_run=body.dry_run, version_ordinals=taken)

    async def _decide(self, caller: Caller, command: Command, asset_id: str, ordinal: int, **said: Any) -> ReviewAnswer:
        lifecycle.check_role(command, caller)
        outcome = await self._carry_out(
            caller, asset_id, lambda file: dossier.decide(file, command, ordinal, caller, **said)
        )
        version, asset = outcome.after.version(ordinal), outcome.after.asset
        return ReviewAnswer(
            asset_id=asset_id,
            version_ordinal=ordinal,
            revision=version.revision,
            approval_state=version.approval_state,
            deleted=version.deleted,
            clearance_state=asset.clearance_state,
            latest_approved_version_ordinal=asset.latest_approved_version_ordinal,
        )

    async def _order(self, caller: Caller, command: AssetCommand, asset_id: str, decide: Decide) -> AssetAnswer:
        lifecycle.check_role(command, caller)
        return AssetAnswer(**_asset_facts(await self._carry_out(caller, asset_id, decide)))

    async def _carry_out(self, caller: Caller, asset_id: str, decide: Decide) -> Outcome:
        async with transaction(self._pool) as conn:
            file, data_type = await open_dossier(conn, asset_id, caller)
            outcome = decide(file)
            await settle(conn, caller, outcome, data_type, self._blobs, self._external)
        return outcome


def _asset_facts(outcome: Outcome) -> dict[str, Any]:
    asset = outcome.after.asset
    return {
        "asset_id": asset.asset_id,
        "clearance_state": asset.clearance_state,
        "exposure": asset.exposure,
        "latest_approved_version_ordinal": asset.latest_approved_version_ordinal,
        "deleted": asset.deleted,
    }
