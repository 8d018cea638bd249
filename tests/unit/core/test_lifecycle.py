"""The life of a version and of an asset: the whole matrix of states, commands and callers, cell by cell.

What is expected is written here once more, in sets of states by hand, not read from the rules.
"""

from itertools import product

import pytest

from core.errors import Forbidden, GeodagError, InvalidTransition, NotFound, ParameterMissing
from core.identity import Caller, Role
from core.lifecycle import (
    ASSET_RULES,
    PROCESSING_TRANSITIONS,
    RULES,
    AssetCommand,
    AssetState,
    Command,
    VersionState,
    check_asset_command,
    check_command,
    check_own_work,
    check_reason,
    check_role,
    is_asset_open,
    is_open,
    next_actions,
)
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState
from core.statuses import check_transition

A, P, C = ApprovalState, ProcessingState, AssetCommand
ENDED = {P.COMPLETED, P.FAILED, P.CANCELLED}

UNRESOLVED_AND_ENDED = {(a, p, False) for a in (A.PENDING_REVIEW, A.REJECTED) for p in ENDED}
STARTS = {
    Command.SUBMIT: set[tuple[A, P, bool]](),
    Command.RESUBMIT: UNRESOLVED_AND_ENDED,
    Command.SUPERSEDE: UNRESOLVED_AND_ENDED,
    Command.APPROVE: {(A.PENDING_REVIEW, P.COMPLETED, False)},
    Command.REJECT: {(A.PENDING_REVIEW, P.COMPLETED, False)},
    Command.REVOKE: {(A.APPROVED, P.COMPLETED, False)},
    Command.DELETE: UNRESOLVED_AND_ENDED | {(A.REVOKED, p, False) for p in ENDED},
    Command.RESTORE: {(a, p, True) for a in (A.PENDING_REVIEW, A.REJECTED, A.REVOKED) for p in ENDED},
}
LEADS = {
    Command.SUBMIT: (A.PENDING_REVIEW, P.QUEUED),
    Command.RESUBMIT: (A.PENDING_REVIEW, P.QUEUED),
    Command.SUPERSEDE: (A.REVOKED, None),
    Command.APPROVE: (A.APPROVED, None),
    Command.REJECT: (A.REJECTED, None),
    Command.REVOKE: (A.REVOKED, None),
    Command.DELETE: (None, None),
    Command.RESTORE: (None, None),
}
MAY = {
    Command.SUBMIT: {Role.SUBMITTER},
    Command.RESUBMIT: {Role.SUBMITTER},
    Command.SUPERSEDE: {Role.SUBMITTER, Role.ADMIN},
    Command.APPROVE: {Role.REVIEWER, Role.ADMIN},
    Command.REJECT: {Role.REVIEWER, Role.ADMIN},
    Command.REVOKE: {Role.REVIEWER, Role.ADMIN},
    Command.DELETE: {Role.SUBMITTER, Role.ADMIN},
    Command.RESTORE: {Role.ADMIN},
    C.CLEAR: {Role.REVIEWER, Role.ADMIN},
    C.LOWER: {Role.ADMIN},
    C.EXPOSE: {Role.REVIEWER, Role.ADMIN},
    C.UNPUBLISH: {Role.REVIEWER, Role.ADMIN},
    C.DELETE: {Role.ADMIN},
    C.RESTORE: {Role.ADMIN},
}
UNCLEARED, OUO, PUBLIC = Clearance
ASSET_STARTS = {
    C.CLEAR: {(UNCLEARED, False), (OUO, False)},
    C.LOWER: {(OUO, False), (PUBLIC, False)},
    C.EXPOSE: {(UNCLEARED, False), (OUO, False), (PUBLIC, False)},
    C.UNPUBLISH: {(UNCLEARED, False), (OUO, False), (PUBLIC, False)},
    C.DELETE: {(UNCLEARED, False), (OUO, False), (PUBLIC, False)},
    C.RESTORE: {(UNCLEARED, True), (OUO, True), (PUBLIC, True)},
}
FOUR_EYES: set[Command | AssetCommand] = {Command.APPROVE, C.CLEAR}
WITH_REASON: set[Command | AssetCommand] = {Command.REJECT, Command.REVOKE, C.LOWER, C.UNPUBLISH, C.DELETE}


def version(approval: A, processing: P, deleted: bool = False, submitted_by: str = "sue") -> VersionState:
    return VersionState(0, "V0", 1, approval, processing, submitted_by, deleted)


def asset(clearance: Clearance = OUO, deleted: bool = False) -> AssetState:
    return AssetState("a" * 32, "ddh", clearance, Exposure.LATEST_ONLY, None, deleted)


def caller(*roles: Role, subject: str = "rob", platform: str | None = "ddh") -> Caller:
    return Caller(subject=subject, roles=frozenset(roles), platform_id=platform)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("platform", ["ddh", "arcgis", None])
@pytest.mark.parametrize("command", Command)
def test_every_cell_of_the_versions_matrix(command: Command, platform: str | None, role: Role) -> None:
    for approval, processing, deleted in product(A, P, (False, True)):
        about = version(approval, processing, deleted)
        expected: type[GeodagError] | None = None
        if role not in MAY[command]:
            expected = Forbidden
        elif role is Role.SUBMITTER and platform != "ddh":
            expected = NotFound
        elif (approval, processing, deleted) not in STARTS[command]:
            expected = InvalidTransition
        cell = (approval, processing, deleted)
        if expected is None:
            assert check_command(command, about, caller(role, platform=platform), "ddh") is role, cell
            continue
        with pytest.raises(GeodagError) as refused:
            check_command(command, about, caller(role, platform=platform), "ddh")
        assert type(refused.value) is expected, cell


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("platform", ["ddh", "arcgis", None])
@pytest.mark.parametrize("command", AssetCommand)
def test_every_cell_of_the_assets_matrix(command: AssetCommand, platform: str | None, role: Role) -> None:
    for clearance, deleted in product(Clearance, (False, True)):
        about = asset(clearance, deleted)
        if role in MAY[command] and (clearance, deleted) in ASSET_STARTS[command]:
            assert check_asset_command(command, about, caller(role, platform=platform)) is role
            continue
        with pytest.raises(GeodagError) as refused:
            check_asset_command(command, about, caller(role, platform=platform))
        assert type(refused.value) is (InvalidTransition if role in MAY[command] else Forbidden)


@pytest.mark.parametrize("command", Command)
def test_a_command_leads_where_the_matrix_says(command: Command) -> None:
    rule = RULES[command]
    assert (rule.approval_to, rule.processing_to) == LEADS[command]
    assert (rule.deleted_from, rule.deleted_to) == (command is Command.RESTORE, command is Command.DELETE)
    for approval, processing, deleted in product(A, P, (False, True)):
        started = (approval, processing, deleted) in STARTS[command]
        assert is_open(command, approval, processing, deleted=deleted) == started


@pytest.mark.parametrize("command", AssetCommand)
def test_an_asset_is_deleted_and_restored_by_its_own_commands_only(command: AssetCommand) -> None:
    rule = ASSET_RULES[command]
    assert (rule.deleted_from, rule.deleted_to) == (command is C.RESTORE, command is C.DELETE)
    for clearance, deleted in product(Clearance, (False, True)):
        started = (clearance, deleted) in ASSET_STARTS[command]
        assert is_asset_open(command, clearance, deleted=deleted) == started


@pytest.mark.parametrize("command", [*Command, *AssetCommand])
def test_a_reason_is_asked_for_exactly_where_something_is_taken_away(command: Command | AssetCommand) -> None:
    check_reason(command, "because")
    if command not in WITH_REASON:
        check_reason(command, None)
        return
    for reason in (None, ""):
        with pytest.raises(ParameterMissing) as refused:
            check_reason(command, reason)
        assert refused.value.detail.field == "reason"


@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("role", Role)
def test_four_eyes_hold_for_every_role_that_decides(command: Command, role: Role) -> None:
    for approval, processing, deleted in STARTS[command]:
        about = version(approval, processing, deleted, submitted_by="sue")
        same = caller(role, Role.SUBMITTER, subject="sue")
        if command not in FOUR_EYES:
            allowed = {role, Role.SUBMITTER} & MAY[command]
            if allowed:
                assert check_command(command, about, same, "ddh") in allowed
            continue
        with pytest.raises(Forbidden, match="somebody else" if role in MAY[command] else "needs one of the roles"):
            check_command(command, about, same, "ddh")


@pytest.mark.parametrize("command", AssetCommand)
def test_nobody_raises_the_clearance_of_what_he_submitted_himself(command: AssetCommand) -> None:
    versions = [version(A.APPROVED, P.COMPLETED, submitted_by="sue"), version(A.APPROVED, P.COMPLETED)]
    if command in FOUR_EYES:
        with pytest.raises(Forbidden, match="somebody else"):
            check_own_work(command, caller(Role.ADMIN, subject="sue"), versions)
    else:
        check_own_work(command, caller(Role.ADMIN, subject="sue"), versions)
    check_own_work(command, caller(Role.ADMIN, subject="rob"), versions)


def test_somebody_with_several_roles_acts_in_one_that_may() -> None:
    both = caller(Role.SUBMITTER, Role.ADMIN, platform="arcgis")
    about = version(A.REJECTED, P.COMPLETED)
    assert check_command(Command.DELETE, about, both, "ddh") is Role.ADMIN
    with pytest.raises(NotFound):
        check_command(Command.RESUBMIT, about, both, "ddh")


def test_a_refusal_names_the_state_and_the_ways_out() -> None:
    with pytest.raises(InvalidTransition) as refused:
        check_command(Command.APPROVE, version(A.REJECTED, P.COMPLETED), caller(Role.REVIEWER), "ddh")
    assert refused.value.detail.value == "rejected/completed"
    assert refused.value.detail.next_actions == ()
    with pytest.raises(InvalidTransition) as decided:
        check_command(Command.APPROVE, version(A.APPROVED, P.COMPLETED), caller(Role.REVIEWER), "ddh")
    assert decided.value.detail.next_actions == ("revoke",)
    with pytest.raises(InvalidTransition) as withdrawn:
        check_command(Command.SUPERSEDE, version(A.REVOKED, P.COMPLETED), caller(Role.SUBMITTER), "ddh")
    assert withdrawn.value.detail.next_actions == ("delete",)
    with pytest.raises(InvalidTransition) as own:
        check_command(Command.DELETE, version(A.APPROVED, P.COMPLETED), caller(Role.SUBMITTER), "ddh")
    assert own.value.detail.next_actions == ()
    with pytest.raises(InvalidTransition) as work:
        check_command(Command.DELETE, version(A.PENDING_REVIEW, P.QUEUED), caller(Role.SUBMITTER), "ddh")
    assert work.value.detail.next_actions == ("wait", "cancel")
    with pytest.raises(InvalidTransition) as gone:
        check_command(Command.APPROVE, version(A.PENDING_REVIEW, P.COMPLETED, True), caller(Role.REVIEWER), "ddh")
    assert gone.value.detail.value == "pending_review/completed/deleted"
    assert gone.value.detail.next_actions == ()
    for role, ways in ((Role.REVIEWER, ()), (Role.ADMIN, ("restore_asset",))):
        with pytest.raises(InvalidTransition) as dead:
            check_asset_command(C.CLEAR, asset(deleted=True), caller(role))
        assert (dead.value.detail.value, dead.value.detail.next_actions) == ("deleted", ways)
    with pytest.raises(InvalidTransition) as again:
        check_command(Command.APPROVE, version(A.PENDING_REVIEW, P.COMPLETED, True), caller(Role.ADMIN), "ddh")
    assert again.value.detail.next_actions == ("restore",)


@pytest.mark.parametrize(("approval", "processing"), list(product(A, P)))
def test_the_ways_out_are_named_for_machines(approval: A, processing: P) -> None:
    expected: tuple[str, ...] = ()
    if processing not in ENDED:
        expected = ("wait", "cancel")
    elif approval is A.REJECTED or (approval is A.PENDING_REVIEW and processing is not P.COMPLETED):
        expected = ("resubmit", "supersede", "delete")
    elif approval is A.PENDING_REVIEW:
        expected = ("resubmit", "supersede", "approve", "reject", "delete")
    elif approval is A.REVOKED:
        expected = ("delete",)
    elif processing is P.COMPLETED:
        expected = ("revoke",)
    assert next_actions(approval, processing) == expected


@pytest.mark.parametrize(("command", "role"), list(product([*Command, *AssetCommand], Role)))
def test_a_role_is_checked_before_anything_is_read(command: Command | AssetCommand, role: Role) -> None:
    if role in MAY[command]:
        check_role(command, caller(role))
        return
    with pytest.raises(Forbidden) as refused:
        check_role(command, caller(role))
    assert refused.value.detail.field == "role"


@pytest.mark.parametrize("end", [P.COMPLETED, P.FAILED, P.CANCELLED])
def test_a_finished_revision_starts_again_only_from_queued(end: P) -> None:
    for target in P:
        if target is P.QUEUED:
            check_transition(PROCESSING_TRANSITIONS, end, target)
        else:
            with pytest.raises(InvalidTransition):
                check_transition(PROCESSING_TRANSITIONS, end, target)
