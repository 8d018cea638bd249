"""Ordinals, labels and lineage between the versions of an asset."""

from itertools import product

import pytest

from core.errors import Conflict
from core.lifecycle import Command, VersionState, next_actions
from core.models.business import ApprovalState, ProcessingState
from core.ordering import SubmitPlan, check_restore, check_revision, latest_approved, plan_submit

A, P = ApprovalState, ProcessingState


def version(
    ordinal: int = 0,
    approval: ApprovalState = A.PENDING_REVIEW,
    processing: ProcessingState = P.COMPLETED,
    label: str | None = None,
    revision: int = 1,
    deleted: bool = False,
) -> VersionState:
    return VersionState(ordinal, label or f"V{ordinal}", revision, approval, processing, "sue", deleted)


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
    assert (refused.value.detail.code, refused.value.detail.next_actions) == ("VERSION_UNRESOLVED", ("wait", "cancel"))


@pytest.mark.parametrize("approval", [A.APPROVED, A.REVOKED])
def test_a_resolved_version_lets_the_next_come(approval: ApprovalState) -> None:
    assert plan_submit("V1", None, [version(0, approval)]) == SubmitPlan(Command.SUBMIT, 1, 1)


def test_the_ordinal_of_a_deleted_version_is_not_used_again_but_its_label_may_be() -> None:
    before = [version(0, A.APPROVED), version(1, A.REJECTED, deleted=True)]
    assert plan_submit("V1", None, before) == SubmitPlan(Command.SUBMIT, 2, 1)


@pytest.mark.parametrize(
    ("stated", "before", "label", "right"),
    [
        (0, [], "V0", None),
        (1, [version(0, A.APPROVED)], "V1", 0),
        (0, [version(0, A.APPROVED), version(1, A.APPROVED)], "V2", 1),
        (1, [version(0, A.APPROVED), version(1, A.REJECTED)], "V1", 0),
        (1, [version(0, A.APPROVED), version(1, A.REVOKED, deleted=True)], "V2", 0),
    ],
)
def test_a_stale_picture_of_the_versions_is_refused_with_the_right_value(
    stated: int, before: list[VersionState], label: str, right: int | None
) -> None:
    with pytest.raises(Conflict) as refused:
        plan_submit(label, stated, before)
    detail = refused.value.detail
    assert (detail.code, detail.field) == ("VERSION_STALE", "previous_version_ordinal")
    assert (detail.value, detail.expected) == (stated, right)


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


def test_a_reviewer_who_looked_at_another_revision_is_told_the_present_one() -> None:
    check_revision(None, version(revision=2))
    check_revision(2, version(revision=2))
    with pytest.raises(Conflict) as refused:
        check_revision(1, version(revision=2))
    detail = refused.value.detail
    assert (detail.code, detail.field, detail.value, detail.expected) == ("VERSION_STALE", "revision", 1, 2)


def test_a_deleted_version_comes_back_when_its_place_is_still_free() -> None:
    gone = version(1, A.REJECTED, deleted=True)
    check_restore(gone, [version(0, A.APPROVED), gone])
    check_restore(gone, [version(0, A.APPROVED), gone, version(2, deleted=True)])
    revoked = version(1, A.REVOKED, deleted=True)
    check_restore(revoked, [version(0, A.APPROVED), revoked, version(2)])


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ([version(2, A.APPROVED, label="V1")], "VERSION_LABEL_EXISTS"),
        ([version(2, A.PENDING_REVIEW)], "VERSION_UNRESOLVED"),
        ([version(2, A.APPROVED)], "VERSION_OVERTAKEN"),
        ([version(2, A.REVOKED)], "VERSION_OVERTAKEN"),
    ],
)
def test_a_deleted_version_does_not_come_back_into_a_place_that_is_taken(others: list[VersionState], code: str) -> None:
    gone = version(1, A.REJECTED, deleted=True)
    with pytest.raises(Conflict) as refused:
        check_restore(gone, [version(0, A.APPROVED), gone, *others])
    assert refused.value.detail.code == code


def test_latest_is_the_highest_approved_ordinal_whatever_comes_after_it() -> None:
    versions = [version(0, A.APPROVED), version(1, A.APPROVED), version(2, A.REJECTED), version(3, A.REVOKED)]
    assert latest_approved(versions) == 1
    assert latest_approved([version(0, A.APPROVED, deleted=True)]) is None
    assert latest_approved([]) is None
