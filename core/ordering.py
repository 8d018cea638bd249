"""The order between the versions of an asset: ordinals, labels, lineage (specification 003 §13.3.4).

At most one live version is unresolved, and then it is the newest one; every rule here keeps that true.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.errors import Conflict
from core.lifecycle import UNRESOLVED, Command, VersionState, is_open, next_actions
from core.models.business import ApprovalState

WaysOut = Callable[[VersionState], tuple[str, ...]]
"""What whoever asks may do about an unresolved version."""


def every_way_out(version: VersionState) -> tuple[str, ...]:
    """Return what anybody may do about a version."""
    return next_actions(version.approval_state, version.processing_state)


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """Where a submit leads: a new version, or the next revision of an unresolved one."""

    command: Command
    version_ordinal: int
    revision: int
    replaces: VersionState | None = field(default=None, compare=False)
    """The version as its last revision left it, when this is a resubmit."""


def plan_submit(
    label: str,
    previous_version_ordinal: int | None,
    versions: Sequence[VersionState],
    ways_out: WaysOut = every_way_out,
) -> SubmitPlan:
    """Return what a submit of `label` becomes, given every version of the asset, deleted ones included.

    Raises:
        Conflict: VERSION_LABEL_EXISTS, VERSION_UNRESOLVED or VERSION_STALE.
    """
    live = _live(versions)
    same = next((v for v in live if v.version_label == label), None)
    plan = _plan_new(versions) if same is None else _plan_revision(same, ways_out)
    _check_resolved(live, plan.version_ordinal, ways_out)
    _check_previous(previous_version_ordinal, live, plan)
    return plan


def check_restore(version: VersionState, versions: Sequence[VersionState], ways_out: WaysOut = every_way_out) -> None:
    """Raise `Conflict` when a deleted version would come back into a place that others have taken meanwhile.

    Raises:
        Conflict: VERSION_LABEL_EXISTS, VERSION_UNRESOLVED or VERSION_OVERTAKEN.
    """
    live = _live(versions)
    if same := next((v for v in live if v.version_label == version.version_label), None):
        raise _label_exists(same, "Delete that version first, or leave this one deleted.")
    if version.approval_state not in UNRESOLVED:
        return
    _check_resolved(live, version.version_ordinal, ways_out)
    if newer := [v for v in live if v.version_ordinal > version.version_ordinal]:
        raise Conflict(
            f"{version} is unresolved and {newer[0]} came after it; versions are approved in order",
            code="VERSION_OVERTAKEN",
            field="version_ordinal",
            value=version.version_ordinal,
            remediation="Submit its data as a new version.",
        )


def check_revision(stated: int | None, version: VersionState) -> None:
    """Raise `Conflict` VERSION_STALE when a reviewer decides about another revision than the present one."""
    if stated is not None and stated != version.revision:
        raise Conflict(
            f"revision is {stated}, but {version} is at revision {version.revision}",
            code="VERSION_STALE",
            field="revision",
            value=stated,
            expected=version.revision,
            remediation="Look at the present revision, then decide.",
        )


def check_revises(plan: SubmitPlan, ordinal: int, revision: int) -> None:
    """Raise `Conflict` unless a submit becomes the revision that follows a known one.

    Raises:
        Conflict: VERSION_STALE; the version is gone, or has a newer revision.
    """
    if plan.version_ordinal == ordinal and plan.revision == revision + 1:
        return
    newest = plan.revision - 1 if plan.version_ordinal == ordinal else None
    found = "is gone" if newest is None else f"is at revision {newest}"
    raise Conflict(
        f"the request is about revision {revision} of version {ordinal}, which {found}",
        code="VERSION_STALE",
        field="request_id",
        value=revision,
        expected=newest,
        remediation="Resubmit the newest request of that version.",
    )


def latest_approved(versions: Sequence[VersionState]) -> int | None:
    """Return the ordinal that `version=latest` means, or None while nothing is approved."""
    return max((v.version_ordinal for v in _live(versions) if v.approval_state is ApprovalState.APPROVED), default=None)


def _live(versions: Sequence[VersionState]) -> list[VersionState]:
    return sorted((v for v in versions if not v.deleted), key=lambda v: v.version_ordinal)


def _plan_new(versions: Sequence[VersionState]) -> SubmitPlan:
    """Ordinals of deleted versions stay used: gaps are fine, reuse is not."""
    return SubmitPlan(Command.SUBMIT, max((v.version_ordinal for v in versions), default=-1) + 1, revision=1)


def _plan_revision(same: VersionState, ways_out: WaysOut) -> SubmitPlan:
    if same.approval_state not in UNRESOLVED:
        raise _label_exists(same, "Submit under another version label.")
    if not is_open(Command.RESUBMIT, same.approval_state, same.processing_state):
        raise _unresolved(same, ways_out)
    return SubmitPlan(Command.RESUBMIT, same.version_ordinal, same.revision + 1, same)


def _label_exists(same: VersionState, remediation: str) -> Conflict:
    return Conflict(
        f"{same} is already {same.approval_state}; a new version needs a new label",
        code="VERSION_LABEL_EXISTS",
        field="version_label",
        value=same.version_label,
        remediation=remediation,
    )


def _check_resolved(live: Sequence[VersionState], ordinal: int, ways_out: WaysOut) -> None:
    """An unresolved version blocks every other."""
    for version in live:
        if version.version_ordinal != ordinal and version.approval_state in UNRESOLVED:
            raise _unresolved(version, ways_out)


def _unresolved(version: VersionState, ways_out: WaysOut) -> Conflict:
    return Conflict(
        f"{version} is unresolved: {version.approval_state}, processing {version.processing_state}",
        code="VERSION_UNRESOLVED",
        field="version_label",
        value=version.version_ordinal,
        remediation="Resolve that version first.",
        next_actions=ways_out(version),
    )


def _check_previous(stated: int | None, live: Sequence[VersionState], plan: SubmitPlan) -> None:
    if stated is None:
        return
    actual = max((v.version_ordinal for v in live if v.version_ordinal < plan.version_ordinal), default=None)
    if stated != actual:
        found = "there is none" if actual is None else f"it is {actual}"
        raise Conflict(
            f"previous_version_ordinal is {stated}, but {found}",
            code="VERSION_STALE",
            field="previous_version_ordinal",
            value=stated,
            expected=actual,
            remediation="Leave it out." if actual is None else f"Read the asset's versions again, then send {actual}.",
        )
