"""What a command does to an asset and its versions together: states before and after, what to record, what to show.

A `Dossier` is an asset with every version, read under its lock. Each function here asks the rules of
`core.lifecycle` and answers with an `Outcome`; whoever gets one writes its difference and its acts in one transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from core import lifecycle
from core.errors import InvalidTransition, NotFound, ParameterMissing
from core.identity import Caller, Role
from core.lifecycle import AssetCommand, AssetState, Command, VersionState
from core.models.business import ApprovalState, Clearance, Exposure
from core.ordering import check_restore, check_revision, latest_approved

Facts = Mapping[str, Any]

LADDER: Final = (Clearance.UNCLEARED, Clearance.OUO, Clearance.PUBLIC)
"""Clearance rises and falls one step at a time."""
ACTIONS: Final[Mapping[Command, str]] = {
    Command.SUBMIT: "submitted",
    Command.RESUBMIT: "resubmitted",
    Command.SUPERSEDE: "superseded",
    Command.APPROVE: "approved",
    Command.REJECT: "rejected",
    Command.REVOKE: "revoked",
    Command.DELETE: "deleted",
    Command.RESTORE: "restored",
}
"""What the audit calls a command once it has happened."""


@dataclass(frozen=True, slots=True)
class Dossier:
    """An asset and every version of it, deleted ones included."""

    asset: AssetState
    versions: tuple[VersionState, ...]

    def version(self, ordinal: int) -> VersionState:
        """Return a version, live or deleted; raises `NotFound`."""
        found = next((v for v in self.versions if v.version_ordinal == ordinal), None)
        if found is None or self.asset.deleted:
            raise NotFound(f"there is no version {ordinal} of {self.asset}", field="version_ordinal", value=ordinal)
        return found

    def approved(self) -> tuple[VersionState, ...]:
        """Return the live versions that are approved."""
        return tuple(v for v in self.versions if v.approval_state is ApprovalState.APPROVED and not v.deleted)

    def catalogued(self) -> frozenset[int]:
        """Return the ordinals that stand in the catalogue: approved ones of a living asset that is cleared."""
        shown = not self.asset.deleted and self.asset.clearance_state is not Clearance.UNCLEARED
        return frozenset(v.version_ordinal for v in self.approved()) if shown else frozenset()

    def external(self) -> frozenset[int]:
        """Return the ordinals that belong into the external zone: catalogued ones of a public asset."""
        return self.catalogued() if self.asset.clearance_state is Clearance.PUBLIC else frozenset()

    def change_version(self, version: VersionState) -> "Dossier":
        """Return the dossier with one version replaced and `latest` computed again."""
        versions = tuple(version if v.version_ordinal == version.version_ordinal else v for v in self.versions)
        asset = replace(self.asset, latest_approved_version_ordinal=latest_approved(versions))
        return Dossier(asset, versions)

    def change_asset(self, **changes: Any) -> "Dossier":
        """Return the dossier with other states of the asset."""
        return Dossier(replace(self.asset, **changes), self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One row of the audit."""

    action: str
    version_ordinal: int | None
    before: Facts
    after: Facts
    reason: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command carried out: the dossier before and after, and who did what in which role."""

    before: Dossier
    after: Dossier
    role: Role
    acts: tuple[Act, ...]

    def changed_versions(self) -> tuple[VersionState, ...]:
        """Return the versions that are not as they were."""
        known = {v.version_ordinal: v for v in self.before.versions}
        return tuple(v for v in self.after.versions if v != known[v.version_ordinal])

    def entering(self) -> tuple[int, ...]:
        """Return the ordinals that enter the catalogue, lowest first."""
        return tuple(sorted(self.after.catalogued() - self.before.catalogued()))

    def leaving(self) -> tuple[int, ...]:
        """Return the ordinals that leave the catalogue, lowest first."""
        return tuple(sorted(self.before.catalogued() - self.after.catalogued()))


def decide(
    dossier: Dossier,
    command: Command,
    ordinal: int,
    caller: Caller,
    *,
    reason: str | None = None,
    revision: int | None = None,
    level: Clearance | None = None,
) -> Outcome:
    """Return what a command does to one version.

    Args:
        dossier: As read under the asset's lock.
        command: Any but SUBMIT and RESUBMIT, which `core.ordering` plans.
        ordinal: The version.
        caller: Who orders it.
        reason: Why; needed to reject and to revoke.
        revision: The revision the caller looked at, when he says so.
        level: The clearance an approval gives the asset.

    Raises:
        CallerError: as `lifecycle.check_command`, `ordering.check_revision`, `ordering.check_restore` and
            `clearance_steps` say.
    """
    version = dossier.version(ordinal)
    role = lifecycle.check_command(command, version, caller, dossier.asset.platform_id)
    check_revision(revision, version)
    lifecycle.check_reason(command, reason)
    if command is Command.RESTORE:
        platform_id = dossier.asset.platform_id
        check_restore(version, dossier.versions, lambda v: lifecycle.ways_out(v, caller, platform_id))
    steps = clearance_steps(dossier.asset.clearance_state, level) if command is Command.APPROVE else ()
    after = dossier.change_version(_moved(version, command, caller, reason))
    act = _act(ACTIONS[command], dossier, after, ordinal, reason)
    cleared = tuple(_cleared(step, ordinal, reason) for step in steps)
    if steps:
        after = after.change_asset(clearance_state=steps[-1][1])
    return Outcome(dossier, after, role, (act, *cleared))


def set_clearance(dossier: Dossier, caller: Caller, level: Clearance, reason: str | None) -> Outcome:
    """Return what another clearance does to an asset; each step is an act of its own.

    Raises:
        Forbidden: lowering needs an admin; raising needs somebody who submitted none of the approved versions.
        ParameterMissing: lowering without a reason.
        InvalidTransition: it has that clearance already, or nothing is approved that could be cleared.
    """
    current = dossier.asset.clearance_state
    command = AssetCommand.CLEAR if LADDER.index(level) >= LADDER.index(current) else AssetCommand.LOWER
    role = lifecycle.check_asset_command(command, dossier.asset, caller)
    if level is current:
        raise InvalidTransition(
            f"the clearance of {dossier.asset} is {current} already", field="clearance_level", value=str(level)
        )
    lifecycle.check_reason(command, reason)
    if command is AssetCommand.CLEAR:
        _check_something_approved(dossier)
        lifecycle.check_own_work(command, caller, dossier.approved())
    acts = tuple(_cleared(step, None, reason) for step in _steps(current, level))
    return Outcome(dossier, dossier.change_asset(clearance_state=level), role, acts)


def set_exposure(dossier: Dossier, caller: Caller, exposure: Exposure, reason: str | None) -> Outcome:
    """Return what another exposure does to an asset; the present one changes nothing and records nothing."""
    role = lifecycle.check_asset_command(AssetCommand.EXPOSE, dossier.asset, caller)
    after = dossier.change_asset(exposure=exposure)
    acts = (_act("exposed", dossier, after, None, reason),) if after != dossier else ()
    return Outcome(dossier, after, role, acts)


def unpublish(dossier: Dossier, caller: Caller, reason: str | None, ordinal: int | None) -> Outcome:
    """Return what taking all approved versions down does, or one of them: they are revoked.

    Raises:
        InvalidTransition: nothing is approved, or not that version.
    """
    role = lifecycle.check_asset_command(AssetCommand.UNPUBLISH, dossier.asset, caller)
    lifecycle.check_reason(AssetCommand.UNPUBLISH, reason)
    if ordinal is not None:
        lifecycle.check_command(Command.REVOKE, dossier.version(ordinal), caller, dossier.asset.platform_id)
    else:
        _check_something_approved(dossier)
    after, acts = dossier, []
    for version in dossier.approved():
        if ordinal in (None, version.version_ordinal):
            before, after = after, after.change_version(_moved(version, Command.REVOKE, caller, reason))
            acts.append(_act("unpublished", before, after, version.version_ordinal, reason))
    return Outcome(dossier, after, role, tuple(acts))


def delete_asset(dossier: Dossier, caller: Caller, reason: str | None) -> Outcome:
    """Return what the deletion of an asset does: every door of every version is closed until it is restored."""
    role = lifecycle.check_asset_command(AssetCommand.DELETE, dossier.asset, caller)
    lifecycle.check_reason(AssetCommand.DELETE, reason)
    after = dossier.change_asset(deleted=True)
    return Outcome(dossier, after, role, (_act("asset_deleted", dossier, after, None, reason),))


def restore_asset(dossier: Dossier, caller: Caller, reason: str | None) -> Outcome:
    """Return what bringing an asset back does: its versions are as they were."""
    role = lifecycle.check_asset_command(AssetCommand.RESTORE, dossier.asset, caller)
    after = dossier.change_asset(deleted=False)
    return Outcome(dossier, after, role, (_act("asset_restored", dossier, after, None, reason),))


def clearance_steps(current: Clearance, wanted: Clearance | None) -> tuple[tuple[Clearance, Clearance], ...]:
    """Return the steps an approval takes an asset's clearance through; uncleared to public passes ouo.

    Raises:
        ParameterMissing: the asset is uncleared and no level was given.
        InvalidTransition: the level would be lowered, which is a decision of its own.
    """
    if wanted is None:
        if current is Clearance.UNCLEARED:
            raise ParameterMissing(
                "clearance_level is required while the asset is uncleared; expected ouo or public",
                field="clearance_level",
            )
        return ()
    if LADDER.index(wanted) < LADDER.index(current):
        raise InvalidTransition(
            f"an approval does not lower the clearance from {current} to {wanted}",
            field="clearance_level",
            value=str(wanted),
        )
    return _steps(current, wanted)


def _steps(current: Clearance, wanted: Clearance) -> tuple[tuple[Clearance, Clearance], ...]:
    """Return the rungs of the ladder from one level to another, up or down."""
    start, end = LADDER.index(current), LADDER.index(wanted)
    rungs = LADDER[start : end + 1] if end >= start else LADDER[end : start + 1][::-1]
    return tuple(pairwise(rungs))


def _moved(version: VersionState, command: Command, caller: Caller, reason: str | None) -> VersionState:
    """Return a version after a command; who decided and why stay as they were when nothing was decided."""
    rule = lifecycle.RULES[command]
    if rule.approval_to is None:
        return replace(version, deleted=rule.deleted_to)
    reviewer = version.reviewer if command is Command.SUPERSEDE else caller.subject
    why = None if command is Command.APPROVE else reason or "superseded"
    return replace(version, approval_state=rule.approval_to, reviewer=reviewer, reason=why)


def _check_something_approved(dossier: Dossier) -> None:
    if not dossier.approved():
        raise InvalidTransition(
            f"no version of {dossier.asset} is approved", field="asset_id", value=dossier.asset.asset_id
        )


def _cleared(step: tuple[Clearance, Clearance], ordinal: int | None, reason: str | None) -> Act:
    before, after = step
    return Act(
        action="cleared" if LADDER.index(after) > LADDER.index(before) else "clearance_lowered",
        version_ordinal=ordinal,
        before={"clearance_state": str(before)},
        after={"clearance_state": str(after)},
        reason=reason,
    )


def _act(action: str, before: Dossier, after: Dossier, ordinal: int | None, reason: str | None) -> Act:
    """Return the act that says exactly what differs."""
    old, new = _facts(before, ordinal), _facts(after, ordinal)
    changed = [name for name in old if old[name] != new[name]]
    return Act(
        action=action,
        version_ordinal=ordinal,
        before={name: old[name] for name in changed},
        after={name: new[name] for name in changed},
        reason=reason,
    )


def _facts(dossier: Dossier, ordinal: int | None) -> Facts:
    asset = dossier.asset
    facts: dict[str, Any] = {"latest_approved_version_ordinal": asset.latest_approved_version_ordinal}
    if ordinal is None:
        return facts | {"exposure": str(asset.exposure), "deleted": asset.deleted}
    version = next(v for v in dossier.versions if v.version_ordinal == ordinal)
    return facts | {"approval_state": str(version.approval_state), "deleted": version.deleted}
