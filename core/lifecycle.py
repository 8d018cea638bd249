"""The life of a version: one table of commands, and the rules of order, labels and clearance between versions.

A version has two states: *processing* (does its newest revision exist?) and *approval* (may it be shown?). A command
is allowed only where `RULES` says so, for the roles it names. Everything here is pure: services load the facts under
the asset's lock, ask, and write the answer in the same transaction.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic.dataclasses import dataclass as checked

from core.errors import Conflict, Forbidden, InvalidTransition, ParameterMissing
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, ProcessingState
from core.statuses import Transitions


class Command(StrEnum):
    """What a person can order for a version."""

    SUBMIT = "submit"
    RESUBMIT = "resubmit"
    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may order a command, in which states, and where it leads."""

    roles: Set[Role]
    approval_from: Set[ApprovalState]
    processing_from: Set[ProcessingState]
    approval_to: ApprovalState
    processing_to: ProcessingState
    four_eyes: bool = False
    """True: nobody decides about what he submitted himself."""


_REVIEWERS: Final = frozenset({Role.REVIEWER, Role.ADMIN})
_ENDED: Final = frozenset({ProcessingState.COMPLETED, ProcessingState.FAILED, ProcessingState.CANCELLED})
_UNRESOLVED: Final = frozenset({ApprovalState.PENDING_REVIEW, ApprovalState.REJECTED})

RULES: Final[Mapping[Command, Rule]] = {
    Command.SUBMIT: Rule(
        roles=frozenset({Role.SUBMITTER}),
        approval_from=frozenset(),
        processing_from=frozenset(),
        approval_to=ApprovalState.PENDING_REVIEW,
        processing_to=ProcessingState.QUEUED,
    ),
    Command.RESUBMIT: Rule(
        roles=frozenset({Role.SUBMITTER}),
        approval_from=_UNRESOLVED,
        processing_from=_ENDED,
        approval_to=ApprovalState.PENDING_REVIEW,
        processing_to=ProcessingState.QUEUED,
    ),
    Command.APPROVE: Rule(
        roles=_REVIEWERS,
        approval_from=frozenset({ApprovalState.PENDING_REVIEW}),
        processing_from=frozenset({ProcessingState.COMPLETED}),
        approval_to=ApprovalState.APPROVED,
        processing_to=ProcessingState.COMPLETED,
        four_eyes=True,
    ),
    Command.REJECT: Rule(
        roles=_REVIEWERS,
        approval_from=frozenset({ApprovalState.PENDING_REVIEW}),
        processing_from=frozenset({ProcessingState.COMPLETED}),
        approval_to=ApprovalState.REJECTED,
        processing_to=ProcessingState.COMPLETED,
    ),
}
"""Command -> rule; SUBMIT starts from no version. Printed in docs/architecture.md."""

PROCESSING_TRANSITIONS: Final[Transitions[ProcessingState]] = {
    ProcessingState.QUEUED: frozenset(
        {
            ProcessingState.PROCESSING,
            ProcessingState.COMPLETED,
            ProcessingState.FAILED,
            ProcessingState.CANCELLED,
        }
    ),
    ProcessingState.PROCESSING: frozenset(
        {ProcessingState.COMPLETED, ProcessingState.FAILED, ProcessingState.CANCELLED}
    ),
    ProcessingState.COMPLETED: frozenset({ProcessingState.QUEUED}),
    ProcessingState.FAILED: frozenset({ProcessingState.QUEUED}),
    ProcessingState.CANCELLED: frozenset({ProcessingState.QUEUED}),
}
"""Moves of the engine within one revision; back to queued only by RESUBMIT."""


@checked(frozen=True, slots=True)
class VersionState:
    """What the rules read of one version."""

    version_ordinal: int
    version_label: str
    revision: int
    approval_state: ApprovalState
    processing_state: ProcessingState
    submitted_by: str
    deleted: bool = False

    def __str__(self) -> str:
        return f"version {self.version_ordinal} ({self.version_label})"


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """Where a submit leads: a new version, or the next revision of an unresolved one."""

    command: Command
    version_ordinal: int
    revision: int


def check_role(command: Command, caller: Caller) -> None:
    """Raise `Forbidden` unless the caller holds a role that may order the command."""
    roles = RULES[command].roles
    if not caller.has(*roles):
        names = ", ".join(sorted(roles))
        raise Forbidden(f"{command} needs one of the roles {names}", field="role")


def is_open(command: Command, approval: ApprovalState, processing: ProcessingState) -> bool:
    """Return whether a command leads anywhere from a pair of states."""
    rule = RULES[command]
    return approval in rule.approval_from and processing in rule.processing_from


def next_actions(approval: ApprovalState, processing: ProcessingState) -> tuple[str, ...]:
    """Return the ways out of a pair of states, for machines: commands, or `wait` while it is processed."""
    if processing not in _ENDED:
        return ("wait",)
    return tuple(command for command in Command if is_open(command, approval, processing))


def check_decision(command: Command, version: VersionState, caller: Caller) -> Rule:
    """Return the rule of an approval or rejection, or raise why it may not happen.

    Raises:
        Forbidden: wrong role, or the reviewer submitted this version himself.
        InvalidTransition: the version is not in a state the command starts from.
    """
    check_role(command, caller)
    rule = RULES[command]
    approval, processing = version.approval_state, version.processing_state
    if version.deleted or not is_open(command, approval, processing):
        raise InvalidTransition(
            f"{version} is {approval} and its processing is {processing}; {command} does not start there",
            field="version_ordinal",
            value=f"{approval}/{processing}",
            next_actions=next_actions(approval, processing),
        )
    if rule.four_eyes and caller.subject == version.submitted_by:
        raise Forbidden(
            f"{version} was submitted by the same person; somebody else must {command} it",
            field="reviewer",
            remediation="Ask another reviewer.",
        )
    return rule


def plan_submit(label: str, previous_version_ordinal: int | None, versions: Sequence[VersionState]) -> SubmitPlan:
    """Return what a submit of `label` becomes, given every version of the asset, deleted ones included.

    Raises:
        Conflict: VERSION_LABEL_EXISTS, VERSION_UNRESOLVED or VERSION_STALE.
    """
    live = sorted((v for v in versions if not v.deleted), key=lambda v: v.version_ordinal)
    same = next((v for v in live if v.version_label == label), None)
    plan = _plan_new(versions) if same is None else _plan_revision(same)
    _check_resolved(live, plan)
    _check_previous(previous_version_ordinal, live, plan)
    return plan


def _plan_new(versions: Sequence[VersionState]) -> SubmitPlan:
    """Ordinals of deleted versions stay used: gaps are fine, reuse is not."""
    return SubmitPlan(Command.SUBMIT, max((v.version_ordinal for v in versions), default=-1) + 1, revision=1)


def _plan_revision(same: VersionState) -> SubmitPlan:
    if same.approval_state not in _UNRESOLVED:
        raise Conflict(
            f"{same} is already {same.approval_state}; a new version needs a new label",
            code="VERSION_LABEL_EXISTS",
            field="version_label",
            value=same.version_label,
            remediation="Submit under another version label.",
        )
    if not is_open(Command.RESUBMIT, same.approval_state, same.processing_state):
        raise _unresolved(same)
    return SubmitPlan(Command.RESUBMIT, same.version_ordinal, same.revision + 1)


def _check_resolved(live: Sequence[VersionState], plan: SubmitPlan) -> None:
    """Versions are approved in order: an unresolved one blocks every other (specification 003 §13.3.4)."""
    for version in live:
        if version.version_ordinal != plan.version_ordinal and version.approval_state in _UNRESOLVED:
            raise _unresolved(version)


def _unresolved(version: VersionState) -> Conflict:
    return Conflict(
        f"{version} is unresolved: {version.approval_state}, processing {version.processing_state}",
        code="VERSION_UNRESOLVED",
        field="version_label",
        value=version.version_ordinal,
        remediation="Resolve that version first.",
        next_actions=next_actions(version.approval_state, version.processing_state),
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
            remediation="Read the asset's versions again.",
        )


def latest_approved(versions: Sequence[VersionState]) -> int | None:
    """Return the ordinal that `version=latest` means, or None while nothing is approved."""
    approved = (v.version_ordinal for v in versions if v.approval_state is ApprovalState.APPROVED and not v.deleted)
    return max(approved, default=None)


def clearance_steps(current: Clearance, wanted: Clearance | None) -> tuple[tuple[Clearance, Clearance], ...]:
    """Return the steps an approval takes an asset's clearance through; uncleared to public passes ouo.

    Raises:
        ParameterMissing: the asset is uncleared and no level was given.
        InvalidTransition: the level would be lowered, which is a decision of its own.
    """
    ladder = (Clearance.UNCLEARED, Clearance.OUO, Clearance.PUBLIC)
    if wanted is None:
        if current is Clearance.UNCLEARED:
            raise ParameterMissing(
                "clearance_level is required while the asset is uncleared; expected ouo or public",
                field="clearance_level",
            )
        return ()
    start, end = ladder.index(current), ladder.index(wanted)
    if end < start:
        raise InvalidTransition(
            f"an approval does not lower the clearance from {current} to {wanted}",
            field="clearance_level",
            value=str(wanted),
        )
    return tuple(zip(ladder[start:end], ladder[start + 1 : end + 1], strict=True))
