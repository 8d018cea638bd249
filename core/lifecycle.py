"""The life of a version and of its asset: one table of commands, who may order them, where they start and lead.

A version has two states: *processing* (does its newest revision exist?) and *approval* (may it be shown?). A command
is allowed only where a rule says so, for the roles it names; docs/lifecycle.md prints the whole matrix. What commands
do to an asset and its versions together stands in `core.dossier`, the order between versions in `core.ordering`.
Everything here is pure: services load the facts under the asset's lock, ask, and write the answer in the same
transaction.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic.dataclasses import dataclass as checked

from core.errors import Forbidden, InvalidTransition, NotFound, ParameterMissing
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, Exposure, GeospatialAsset, ProcessingState
from core.statuses import Transitions


class Command(StrEnum):
    """What a person can order for a version."""

    SUBMIT = "submit"
    RESUBMIT = "resubmit"
    SUPERSEDE = "supersede"
    APPROVE = "approve"
    REJECT = "reject"
    REVOKE = "revoke"
    DELETE = "delete"
    RESTORE = "restore"


class AssetCommand(StrEnum):
    """What a person can order for an asset with all its versions."""

    CLEAR = "clear"
    LOWER = "lower"
    EXPOSE = "expose"
    UNPUBLISH = "unpublish"
    DELETE = "delete_asset"
    RESTORE = "restore_asset"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may order a command for a version, in which states, and where it leads.

    Submitters only ever act on assets of their own platform.
    """

    roles: Set[Role]
    approval_from: Set[ApprovalState]
    processing_from: Set[ProcessingState]
    approval_to: ApprovalState | None = None
    """None: it stays."""
    processing_to: ProcessingState | None = None
    """None: it stays."""
    deleted_from: bool = False
    deleted_to: bool = False
    four_eyes: bool = False
    """True: nobody decides about what he submitted himself."""
    needs_reason: bool = False


@dataclass(frozen=True, slots=True)
class AssetRule:
    """Who may order a command for an asset, at which clearance, and whether it gives or takes its life."""

    roles: Set[Role]
    clearance_from: Set[Clearance]
    deleted_from: bool = False
    deleted_to: bool = False
    four_eyes: bool = False
    """True: nobody decides about an asset of which he submitted an approved version himself."""
    needs_reason: bool = False


_SUBMITTERS: Final = frozenset({Role.SUBMITTER})
_OWNERS: Final = frozenset({Role.SUBMITTER, Role.ADMIN})
_REVIEWERS: Final = frozenset({Role.REVIEWER, Role.ADMIN})
_ADMINS: Final = frozenset({Role.ADMIN})
_ENDED: Final = frozenset({ProcessingState.COMPLETED, ProcessingState.FAILED, ProcessingState.CANCELLED})
_DONE: Final = frozenset({ProcessingState.COMPLETED})
_PENDING: Final = frozenset({ApprovalState.PENDING_REVIEW})
_ANY_CLEARANCE: Final = frozenset(Clearance)
_COMMANDS: Final = frozenset(map(str, Command))
_WORK: Final[Mapping[str, Set[Role]]] = {"wait": frozenset(Role), "cancel": _OWNERS}
"""Who may do what while a revision is made."""
UNRESOLVED: Final = frozenset({ApprovalState.PENDING_REVIEW, ApprovalState.REJECTED})
"""What blocks the next version (specification 003 §13.3.4)."""
_WITHDRAWABLE: Final = UNRESOLVED | {ApprovalState.REVOKED}

RULES: Final[Mapping[Command, Rule]] = {
    Command.SUBMIT: Rule(
        roles=_SUBMITTERS,
        approval_from=frozenset(),
        processing_from=frozenset(),
        approval_to=ApprovalState.PENDING_REVIEW,
        processing_to=ProcessingState.QUEUED,
    ),
    Command.RESUBMIT: Rule(
        roles=_SUBMITTERS,
        approval_from=UNRESOLVED,
        processing_from=_ENDED,
        approval_to=ApprovalState.PENDING_REVIEW,
        processing_to=ProcessingState.QUEUED,
    ),
    Command.SUPERSEDE: Rule(
        roles=_OWNERS, approval_from=UNRESOLVED, processing_from=_ENDED, approval_to=ApprovalState.REVOKED
    ),
    Command.APPROVE: Rule(
        roles=_REVIEWERS,
        approval_from=_PENDING,
        processing_from=_DONE,
        approval_to=ApprovalState.APPROVED,
        four_eyes=True,
    ),
    Command.REJECT: Rule(
        roles=_REVIEWERS,
        approval_from=_PENDING,
        processing_from=_DONE,
        approval_to=ApprovalState.REJECTED,
        needs_reason=True,
    ),
    Command.REVOKE: Rule(
        roles=_REVIEWERS,
        approval_from=frozenset({ApprovalState.APPROVED}),
        processing_from=_DONE,
        approval_to=ApprovalState.REVOKED,
        needs_reason=True,
    ),
    Command.DELETE: Rule(roles=_OWNERS, approval_from=_WITHDRAWABLE, processing_from=_ENDED, deleted_to=True),
    Command.RESTORE: Rule(roles=_ADMINS, approval_from=_WITHDRAWABLE, processing_from=_ENDED, deleted_from=True),
}
"""Command -> rule; SUBMIT starts from no version. Printed in docs/lifecycle.md, tested cell by cell."""

ASSET_RULES: Final[Mapping[AssetCommand, AssetRule]] = {
    AssetCommand.CLEAR: AssetRule(
        roles=_REVIEWERS, clearance_from=frozenset({Clearance.UNCLEARED, Clearance.OUO}), four_eyes=True
    ),
    AssetCommand.LOWER: AssetRule(
        roles=_ADMINS, clearance_from=frozenset({Clearance.OUO, Clearance.PUBLIC}), needs_reason=True
    ),
    AssetCommand.EXPOSE: AssetRule(roles=_REVIEWERS, clearance_from=_ANY_CLEARANCE),
    AssetCommand.UNPUBLISH: AssetRule(roles=_REVIEWERS, clearance_from=_ANY_CLEARANCE, needs_reason=True),
    AssetCommand.DELETE: AssetRule(roles=_ADMINS, clearance_from=_ANY_CLEARANCE, deleted_to=True, needs_reason=True),
    AssetCommand.RESTORE: AssetRule(roles=_ADMINS, clearance_from=_ANY_CLEARANCE, deleted_from=True),
}
"""Command -> rule for a whole asset. Printed in docs/lifecycle.md, tested cell by cell."""

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
"""Moves of the engine within one revision; back to queued by RESUBMIT, or when an operator starts its job anew."""


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
    reviewer: str | None = None
    reason: str | None = None
    """Why it was rejected, revoked or superseded."""
    purged: bool = False
    """True: what it was made of is gone, long after its deletion."""

    def __str__(self) -> str:
        return f"version {self.version_ordinal} ({self.version_label})"


@checked(frozen=True, slots=True)
class AssetState:
    """What the rules read of an asset."""

    asset_id: str
    platform_id: str
    clearance_state: Clearance
    exposure: Exposure
    latest_approved_version_ordinal: int | None
    deleted: bool = False

    @classmethod
    def of(cls, asset: GeospatialAsset) -> "AssetState":
        """Return that of an asset's row."""
        return cls(
            asset_id=asset.asset_id,
            platform_id=asset.platform_id,
            clearance_state=asset.clearance_state,
            exposure=asset.exposure,
            latest_approved_version_ordinal=asset.latest_approved_version_ordinal,
            deleted=asset.deleted_at is not None,
        )

    def __str__(self) -> str:
        return f"asset {self.asset_id}"


def check_role(command: Command | AssetCommand, caller: Caller) -> None:
    """Raise `Forbidden` unless the caller holds a role that may order the command."""
    roles = _rule(command).roles
    if not caller.has(*roles):
        names = ", ".join(sorted(roles))
        raise Forbidden(f"{command} needs one of the roles {names}", field="role")


def acting_role(command: Command | AssetCommand, caller: Caller, platform_id: str) -> Role:
    """Return the role in which a caller orders a command for an asset of a platform.

    Raises:
        Forbidden: no role of his may.
        NotFound: he may only on his own platform, and another platform's asset is as unknown to him as none.
    """
    check_role(command, caller)
    held = caller.roles & _rule(command).roles
    if caller.platform_id != platform_id:
        held -= {Role.SUBMITTER}
    if not held:
        raise NotFound("there is no such asset", field="asset_id")
    return min(held, key=str)


def is_open(command: Command, approval: ApprovalState, processing: ProcessingState, *, deleted: bool = False) -> bool:
    """Return whether a command leads anywhere from a version's states."""
    rule = RULES[command]
    return rule.deleted_from == deleted and approval in rule.approval_from and processing in rule.processing_from


def is_asset_open(command: AssetCommand, clearance: Clearance, *, deleted: bool = False) -> bool:
    """Return whether a command leads anywhere from an asset's states."""
    rule = ASSET_RULES[command]
    return rule.deleted_from == deleted and clearance in rule.clearance_from


def next_actions(approval: ApprovalState, processing: ProcessingState) -> tuple[str, ...]:
    """Return what the table lets happen to a living version next: commands, or waiting while it is processed."""
    if processing not in _ENDED:
        return ("wait", "cancel")
    return tuple(command for command in Command if is_open(command, approval, processing))


def open_to(
    actions: Iterable[str], caller: Caller, platform_id: str, submitted_by: str | None = None
) -> tuple[str, ...]:
    """Return those of some next actions that a caller may order: by role, on his platform, and not about his own work.

    Args:
        actions: As of `next_actions`: commands for a version or an asset, `wait` and `cancel`.
        caller: Who asks.
        platform_id: Whose asset it is.
        submitted_by: Who submitted the version.
    """
    held = caller.roles if caller.platform_id == platform_id else caller.roles - {Role.SUBMITTER}
    return tuple(action for action in actions if _is_open_to(action, held, own=caller.subject == submitted_by))


def _is_open_to(action: str, held: Set[Role], *, own: bool) -> bool:
    if action in _WORK:
        return not _WORK[action].isdisjoint(held)
    rule = _rule(Command(action) if action in _COMMANDS else AssetCommand(action))
    return not rule.roles.isdisjoint(held) and not (own and rule.four_eyes)


def ways_out(version: VersionState, caller: Caller, platform_id: str) -> tuple[str, ...]:
    """Return the next actions of a version that are open to a caller."""
    if version.deleted:
        return () if version.purged else open_to((Command.RESTORE,), caller, platform_id)
    actions = next_actions(version.approval_state, version.processing_state)
    return open_to(actions, caller, platform_id, version.submitted_by)


def purged(version_ordinal: int) -> InvalidTransition:
    """Return why nothing can begin with a version whose files were removed."""
    return InvalidTransition(
        f"version {version_ordinal} was deleted long ago and its files are gone",
        code="VERSION_PURGED",
        field="version_ordinal",
        value=version_ordinal,
        remediation="Submit it again as the next version.",
    )


def check_command(command: Command, version: VersionState, caller: Caller, platform_id: str) -> Role:
    """Return the role in which a caller may order a command for a version, or raise why it may not happen.

    Raises:
        Forbidden: wrong role, or the reviewer submitted this version himself.
        NotFound: the version is of another platform.
        InvalidTransition: the version is not in a state the command starts from.
    """
    role = acting_role(command, caller, platform_id)
    approval, processing = version.approval_state, version.processing_state
    if version.purged:
        raise purged(version.version_ordinal)
    if not is_open(command, approval, processing, deleted=version.deleted):
        gone = " and deleted" if version.deleted else ""
        raise InvalidTransition(
            f"{version} is {approval}{gone} and its processing is {processing}; {command} does not start there",
            field="version_ordinal",
            value=f"{approval}/{processing}{'/deleted' if version.deleted else ''}",
            next_actions=ways_out(version, caller, platform_id),
        )
    if RULES[command].four_eyes and caller.subject == version.submitted_by:
        raise _own_work(command, version)
    return role


def check_asset_command(command: AssetCommand, asset: AssetState, caller: Caller) -> Role:
    """Return the role in which a caller may order a command for an asset, or raise why it may not happen.

    Raises:
        Forbidden, NotFound: as `acting_role`.
        InvalidTransition: the asset is not in a state the command starts from.
    """
    role = acting_role(command, caller, asset.platform_id)
    if not is_asset_open(command, asset.clearance_state, deleted=asset.deleted):
        state = "deleted" if asset.deleted else str(asset.clearance_state)
        raise InvalidTransition(
            f"{asset} is {state}; {command} does not start there",
            field="asset_id",
            value=state,
            next_actions=open_to((AssetCommand.RESTORE,), caller, asset.platform_id) if asset.deleted else (),
        )
    return role


def check_own_work(command: AssetCommand, caller: Caller, versions: Iterable[VersionState]) -> None:
    """Raise `Forbidden` when a command of four eyes is about versions that the caller submitted himself."""
    own = sorted((v for v in versions if v.submitted_by == caller.subject), key=lambda v: v.version_ordinal)
    if ASSET_RULES[command].four_eyes and own:
        raise _own_work(command, own[0])


def check_reason(command: Command | AssetCommand, reason: str | None) -> None:
    """Raise `ParameterMissing` when a command needs a reason and has none."""
    if _rule(command).needs_reason and not reason:
        raise ParameterMissing(f"{command} needs a reason", field="reason")


def _rule(command: Command | AssetCommand) -> Rule | AssetRule:
    return RULES[command] if isinstance(command, Command) else ASSET_RULES[command]


def _own_work(command: Command | AssetCommand, version: VersionState) -> Forbidden:
    return Forbidden(
        f"{version} was submitted by the same person; somebody else must {command} it",
        field="reviewer",
        remediation="Ask another reviewer.",
    )
