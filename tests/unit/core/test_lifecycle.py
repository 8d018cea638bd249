"""The life of a version: the whole matrix of states, commands and roles, and the rules between versions."""

from itertools import product

import pytest

from core.errors import Conflict, Forbidden, InvalidTransition, ParameterMissing
from core.identity import Caller, Role
from core.lifecycle import (
    PROCESSING_TRANSITIONS,
    RULES,
    Command,
    SubmitPlan,
    VersionState,
    check_decision,
    check_role,
    clearance_steps,
    is_open,
    latest_approved,
    next_actions,
    plan_submit,
)
from core.models.business import ApprovalState, Clearance, ProcessingState
from core.statuses import check_transition

A, P = ApprovalState, ProcessingState
DECISIONS = (Command.APPROVE, Command.REJECT)

# Written by hand: where each command starts.
STARTS = {
    Command.SUBMIT: set[tuple[A, P]](),
    Command.RESUBMIT: {
        (A.PENDING_REVIEW, P.COMPLETED),
        (A.PENDING_REVIEW, P.FAILED),
        (A.PENDING_REVIEW, P.CANCELLED),
        (A.REJECTED, P.COMPLETED),
        (A.REJECTED, P.FAILED),
        (A.REJECTED, P.CANCELLED),
    },
    Command.APPROVE: {(A.PENDING_REVIEW, P.COMPLETED)},
    Command.REJECT: {(A.PENDING_REVIEW, P.COMPLETED)},
}
MAY = {
    Command.SUBMIT: {Role.SUBMITTER},
    Command.RESUBMIT: {Role.SUBMITTER},
    Command.APPROVE: {Role.REVIEWER, Role.ADMIN},
    Command.REJECT: {Role.REVIEWER, Role.ADMIN},
}


def version(
    ordinal: int = 0,
    approval: ApprovalState = A.PENDING_REVIEW,
    processing: ProcessingState = P.COMPLETED,
    label: str | None = None,
    revision: int = 1,
    deleted: bool = False,
) -> VersionState:
    return VersionState(ordinal, label or f"V{ordinal}", revision, approval, processing, "sue", deleted)


def caller(*roles: Role, subject: str = "rob") -> Caller:
    return Caller(subject=subject, roles=frozenset(roles))


@pytest.mark.parametrize(("command", "approval", "processing"), list(product(Command, A, P)))
def test_a_command_starts_exactly_where_the_matrix_says(
    command: Command, approval: ApprovalState, processing: ProcessingState
) -> None:
    assert is_open(command, approval, processing) == ((approval, processing) in STARTS[command])


@pytest.mark.parametrize(("command", "role"), list(product(Command, Role)))
def test_a_command_is_for_its_roles_only(command: Command, role: Role) -> None:
    if role in MAY[command]:
        check_role(command, caller(role))
        return
    with pytest.raises(Forbidden):
        check_role(command, caller(role))


@pytest.mark.parametrize(("command", "approval", "processing"), list(product(DECISIONS, A, P)))
def test_a_decision_is_taken_once_and_only_about_a_processed_pending_version(
    command: Command, approval: ApprovalState, processing: ProcessingState
) -> None:
    about = version(approval=approval, processing=processing)
    if (approval, processing) in STARTS[command]:
        assert check_decision(command, about, caller(Role.REVIEWER)) is RULES[command]
        return
    with pytest.raises(InvalidTransition) as refused:
        check_decision(command, about, caller(Role.REVIEWER))
    assert refused.value.detail.next_actions == next_actions(approval, processing)


@pytest.mark.parametrize("command", DECISIONS)
def test_a_deleted_version_takes_no_decision(command: Command) -> None:
    with pytest.raises(InvalidTransition):
        check_decision(command, version(deleted=True), caller(Role.ADMIN))


@pytest.mark.parametrize("role", [Role.REVIEWER, Role.ADMIN])
def test_nobody_approves_what_he_submitted_himself(role: Role) -> None:
    with pytest.raises(Forbidden, match="somebody else"):
        check_decision(Command.APPROVE, version(), caller(role, Role.SUBMITTER, subject="sue"))


def test_rejecting_the_own_submit_is_no_conflict_of_interest() -> None:
    assert check_decision(Command.REJECT, version(), caller(Role.REVIEWER, subject="sue")) is RULES[Command.REJECT]


@pytest.mark.parametrize(
    ("approval", "processing", "ways_out"),
    [
        (A.PENDING_REVIEW, P.QUEUED, ("wait",)),
        (A.PENDING_REVIEW, P.PROCESSING, ("wait",)),
        (A.PENDING_REVIEW, P.COMPLETED, ("resubmit", "approve", "reject")),
        (A.PENDING_REVIEW, P.FAILED, ("resubmit",)),
        (A.REJECTED, P.COMPLETED, ("resubmit",)),
        (A.APPROVED, P.COMPLETED, ()),
        (A.REVOKED, P.COMPLETED, ()),
    ],
)
def test_the_ways_out_are_named_for_machines(
    approval: ApprovalState, processing: ProcessingState, ways_out: tuple[str, ...]
) -> None:
    assert next_actions(approval, processing) == ways_out


def test_the_first_submit_makes_version_zero() -> None:
    assert plan_submit("V1", None, []) == SubmitPlan(Command.SUBMIT, 0, 1)


@pytest.mark.parametrize(("processing"), [P.COMPLETED, P.FAILED, P.CANCELLED], ids=["completed", "failed", "cancelled"])
@pytest.mark.parametrize("approval", [A.PENDING_REVIEW, A.REJECTED], ids=["pending", "rejected"])
def test_an_unresolved_label_is_resubmitted_as_the_next_revision(
    approval: ApprovalState, processing: ProcessingState
) -> None:
    before = [version(0, A.APPROVED), version(1, approval, processing, revision=3)]
    assert plan_submit("V1", None, before) == SubmitPlan(Command.RESUBMIT, 1, 4)


@pytest.mark.parametrize("approval", [A.APPROVED, A.REVOKED])
def test_a_decided_label_is_not_used_again(approval: ApprovalState) -> None:
    with pytest.raises(Conflict) as refused:
        plan_submit("V0", None, [version(0, approval)])
    assert (refused.value.detail.code, refused.value.detail.field) == ("VERSION_LABEL_EXISTS", "version_label")


@pytest.mark.parametrize(
    ("approval", "processing"),
    [pair for pair in product(A, P) if pair[0] in {A.PENDING_REVIEW, A.REJECTED}],
)
def test_an_unresolved_version_blocks_the_next_and_says_the_ways_out(
    approval: ApprovalState, processing: ProcessingState
) -> None:
    with pytest.raises(Conflict) as refused:
        plan_submit("V1", None, [version(0, approval, processing)])
    detail = refused.value.detail
    assert (detail.code, detail.value) == ("VERSION_UNRESOLVED", 0)
    assert detail.next_actions == next_actions(approval, processing) != ()


@pytest.mark.parametrize("processing", [P.QUEUED, P.PROCESSING])
def test_a_version_in_work_is_not_resubmitted(processing: ProcessingState) -> None:
    with pytest.raises(Conflict) as refused:
        plan_submit("V0", None, [version(0, A.PENDING_REVIEW, processing)])
    assert (refused.value.detail.code, refused.value.detail.next_actions) == ("VERSION_UNRESOLVED", ("wait",))


@pytest.mark.parametrize("approval", [A.APPROVED, A.REVOKED])
def test_a_resolved_version_lets_the_next_come(approval: ApprovalState) -> None:
    assert plan_submit("V1", None, [version(0, approval)]) == SubmitPlan(Command.SUBMIT, 1, 1)


def test_the_ordinal_of_a_deleted_version_is_not_used_again_but_its_label_may_be() -> None:
    before = [version(0, A.APPROVED), version(1, A.REJECTED, deleted=True)]
    assert plan_submit("V1", None, before) == SubmitPlan(Command.SUBMIT, 2, 1)


@pytest.mark.parametrize(
    ("stated", "before", "label"),
    [
        (0, [], "V0"),
        (1, [version(0, A.APPROVED)], "V1"),
        (0, [version(0, A.APPROVED), version(1, A.APPROVED)], "V2"),
        (1, [version(0, A.APPROVED), version(1, A.REJECTED)], "V1"),
    ],
)
def test_a_stale_picture_of_the_versions_is_refused(stated: int, before: list[VersionState], label: str) -> None:
    with pytest.raises(Conflict) as refused:
        plan_submit(label, stated, before)
    assert (refused.value.detail.code, refused.value.detail.field) == ("VERSION_STALE", "previous_version_ordinal")


@pytest.mark.parametrize(
    ("stated", "before", "label"),
    [
        (0, [version(0, A.APPROVED)], "V1"),
        (1, [version(0, A.APPROVED), version(1, A.APPROVED), version(2, deleted=True)], "V3"),
        (0, [version(0, A.APPROVED), version(1, A.REJECTED)], "V1"),
    ],
)
def test_a_true_picture_of_the_versions_is_accepted(stated: int, before: list[VersionState], label: str) -> None:
    assert plan_submit(label, stated, before).version_ordinal >= stated


def test_latest_is_the_highest_approved_ordinal_whatever_comes_after_it() -> None:
    versions = [version(0, A.APPROVED), version(1, A.APPROVED), version(2, A.REJECTED), version(3, A.REVOKED)]
    assert latest_approved(versions) == 1
    assert latest_approved([version(0, A.APPROVED, deleted=True)]) is None
    assert latest_approved([]) is None


UNCLEARED, OUO, PUBLIC = Clearance.UNCLEARED, Clearance.OUO, Clearance.PUBLIC


@pytest.mark.parametrize(
    ("current", "wanted", "steps"),
    [
        (UNCLEARED, OUO, ((UNCLEARED, OUO),)),
        (UNCLEARED, PUBLIC, ((UNCLEARED, OUO), (OUO, PUBLIC))),
        (OUO, PUBLIC, ((OUO, PUBLIC),)),
        (OUO, OUO, ()),
        (PUBLIC, PUBLIC, ()),
        (OUO, None, ()),
        (PUBLIC, None, ()),
    ],
)
def test_clearance_rises_step_by_step(
    current: Clearance, wanted: Clearance | None, steps: tuple[tuple[Clearance, Clearance], ...]
) -> None:
    assert clearance_steps(current, wanted) == steps


def test_an_uncleared_asset_needs_a_level() -> None:
    with pytest.raises(ParameterMissing) as refused:
        clearance_steps(UNCLEARED, None)
    assert refused.value.detail.field == "clearance_level"


@pytest.mark.parametrize(("current", "wanted"), [(PUBLIC, OUO), (PUBLIC, UNCLEARED), (OUO, UNCLEARED)])
def test_an_approval_never_lowers_the_clearance(current: Clearance, wanted: Clearance) -> None:
    with pytest.raises(InvalidTransition):
        clearance_steps(current, wanted)


@pytest.mark.parametrize("end", [P.COMPLETED, P.FAILED, P.CANCELLED])
def test_a_finished_revision_starts_again_only_from_queued(end: ProcessingState) -> None:
    for target in P:
        if target is P.QUEUED:
            check_transition(PROCESSING_TRANSITIONS, end, target)
        else:
            with pytest.raises(InvalidTransition):
                check_transition(PROCESSING_TRANSITIONS, end, target)
