"""What commands do to an asset and its versions together, and the laws that hold whatever is ordered."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import dossier
from core.dossier import Dossier, Outcome, clearance_steps
from core.errors import Conflict, Forbidden, GeodagError, InvalidTransition, NotFound, ParameterMissing
from core.identity import Caller, Role
from core.lifecycle import UNRESOLVED, AssetState, Command, VersionState
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState
from core.ordering import plan_submit

A, P = ApprovalState, ProcessingState
UNCLEARED, OUO, PUBLIC = Clearance
REVIEWER = Caller(subject="rob", roles=frozenset({Role.REVIEWER}))
ADMIN = Caller(subject="ada", roles=frozenset({Role.ADMIN}))
OWNER = Caller(subject="sue", roles=frozenset({Role.SUBMITTER}), platform_id="ddh")
BOTH = Caller(subject="sue", roles=frozenset({Role.SUBMITTER, Role.REVIEWER}), platform_id="ddh")


def file(*approvals: A, clearance: Clearance = OUO, exposure: Exposure = Exposure.LATEST_ONLY) -> Dossier:
    versions = tuple(VersionState(n, f"V{n}", 1, a, P.COMPLETED, "sue") for n, a in enumerate(approvals))
    latest = max((n for n, a in enumerate(approvals) if a is A.APPROVED), default=None)
    return Dossier(AssetState("a" * 32, "ddh", clearance, exposure, latest), versions)


def acts(outcome: Outcome) -> list[tuple[str, int | None, dict[str, Any], dict[str, Any]]]:
    return [(act.action, act.version_ordinal, dict(act.before), dict(act.after)) for act in outcome.acts]


def test_an_approval_clears_step_by_step_and_makes_latest() -> None:
    outcome = dossier.decide(file(A.PENDING_REVIEW, clearance=UNCLEARED), Command.APPROVE, 0, REVIEWER, level=PUBLIC)
    assert acts(outcome) == [
        (
            "approved",
            0,
            {"latest_approved_version_ordinal": None, "approval_state": "pending_review"},
            {"latest_approved_version_ordinal": 0, "approval_state": "approved"},
        ),
        ("cleared", 0, {"clearance_state": "uncleared"}, {"clearance_state": "ouo"}),
        ("cleared", 0, {"clearance_state": "ouo"}, {"clearance_state": "public"}),
    ]
    assert (outcome.entering(), outcome.leaving(), outcome.role) == ((0,), (), Role.REVIEWER)
    assert outcome.after.external() == {0}
    assert outcome.after.version(0).reviewer == "rob"


def test_a_revocation_of_the_newest_makes_the_one_before_it_latest_again() -> None:
    outcome = dossier.decide(file(A.APPROVED, A.APPROVED), Command.REVOKE, 1, ADMIN, reason="wrong place")
    assert outcome.after.asset.latest_approved_version_ordinal == 0
    assert (outcome.entering(), outcome.leaving()) == ((), (1,))
    assert outcome.after.version(1).reason == "wrong place"
    assert [act.reason for act in outcome.acts] == ["wrong place"]


def test_a_superseded_version_stays_in_the_history_and_blocks_nobody() -> None:
    rejected = file(A.APPROVED, A.REJECTED)
    outcome = dossier.decide(rejected, Command.SUPERSEDE, 1, OWNER)
    assert (outcome.after.version(1).approval_state, outcome.after.version(1).reason) == (A.REVOKED, "superseded")
    assert [act.action for act in outcome.acts] == ["superseded"]
    assert plan_submit("V2", 1, outcome.after.versions).version_ordinal == 2


def test_a_decision_about_another_revision_than_the_present_one_is_refused() -> None:
    with pytest.raises(Conflict) as refused:
        dossier.decide(file(A.PENDING_REVIEW), Command.APPROVE, 0, REVIEWER, revision=2)
    assert refused.value.detail.expected == 1


def test_a_restored_version_is_as_it_was() -> None:
    before = file(A.APPROVED, A.REJECTED)
    deleted = dossier.decide(before, Command.DELETE, 1, OWNER).after
    assert deleted.version(1).deleted
    outcome = dossier.decide(deleted, Command.RESTORE, 1, ADMIN)
    assert outcome.after == before
    assert acts(outcome) == [("restored", 1, {"deleted": True}, {"deleted": False})]


@pytest.mark.parametrize(
    ("current", "wanted", "steps"),
    [
        (OUO, PUBLIC, [("cleared", "ouo", "public")]),
        (UNCLEARED, PUBLIC, [("cleared", "uncleared", "ouo"), ("cleared", "ouo", "public")]),
        (PUBLIC, OUO, [("clearance_lowered", "public", "ouo")]),
        (PUBLIC, UNCLEARED, [("clearance_lowered", "public", "ouo"), ("clearance_lowered", "ouo", "uncleared")]),
    ],
)
def test_clearance_goes_up_and_down_step_by_step(
    current: Clearance, wanted: Clearance, steps: list[tuple[str, str, str]]
) -> None:
    outcome = dossier.set_clearance(file(A.APPROVED, clearance=current), ADMIN, wanted, "because")
    found = [(a.action, a.before["clearance_state"], a.after["clearance_state"]) for a in outcome.acts]
    assert (found, outcome.after.asset.clearance_state) == (steps, wanted)


def test_what_is_lowered_to_nothing_leaves_the_catalogue_and_comes_back_when_raised() -> None:
    down = dossier.set_clearance(file(A.APPROVED, A.APPROVED, clearance=PUBLIC), ADMIN, UNCLEARED, "leaked")
    assert (down.leaving(), down.after.external()) == ((0, 1), frozenset())
    up = dossier.set_clearance(down.after, REVIEWER, OUO, None)
    assert (up.entering(), up.after.external()) == ((0, 1), frozenset())


def test_clearance_is_refused_where_it_says_nothing_new_or_nothing_is_reviewed() -> None:
    for level in (OUO, PUBLIC):
        with pytest.raises(InvalidTransition):
            dossier.set_clearance(file(A.APPROVED, clearance=level), ADMIN, level, "again")
    with pytest.raises(InvalidTransition, match="no version"):
        dossier.set_clearance(file(A.PENDING_REVIEW, clearance=UNCLEARED), REVIEWER, PUBLIC, None)
    with pytest.raises(ParameterMissing):
        dossier.set_clearance(file(A.APPROVED, clearance=PUBLIC), ADMIN, OUO, None)
    with pytest.raises(Forbidden):
        dossier.set_clearance(file(A.APPROVED, clearance=PUBLIC), REVIEWER, OUO, "no")
    with pytest.raises(Forbidden, match="somebody else"):
        dossier.set_clearance(file(A.APPROVED), BOTH, PUBLIC, None)


def test_the_same_exposure_changes_and_records_nothing() -> None:
    same = dossier.set_exposure(file(A.APPROVED), REVIEWER, Exposure.LATEST_ONLY, None)
    assert (same.acts, same.after) == ((), same.before)
    other = dossier.set_exposure(file(A.APPROVED), REVIEWER, Exposure.ALL_VERSIONS, None)
    assert acts(other) == [("exposed", None, {"exposure": "latest_only"}, {"exposure": "all_versions"})]


def test_unpublish_revokes_every_approved_version_or_the_named_one() -> None:
    everything = dossier.unpublish(file(A.APPROVED, A.REVOKED, A.APPROVED), ADMIN, "recalled", None)
    assert [(a.action, a.version_ordinal) for a in everything.acts] == [("unpublished", 0), ("unpublished", 2)]
    assert everything.after.asset.latest_approved_version_ordinal is None
    one = dossier.unpublish(file(A.APPROVED, A.APPROVED), ADMIN, "recalled", 0)
    assert one.leaving() == (0,)
    assert one.after.asset.latest_approved_version_ordinal == 1
    with pytest.raises(InvalidTransition):
        dossier.unpublish(file(A.PENDING_REVIEW), ADMIN, "recalled", None)
    with pytest.raises(InvalidTransition):
        dossier.unpublish(file(A.APPROVED, A.REVOKED), ADMIN, "recalled", 1)
    with pytest.raises(ParameterMissing):
        dossier.unpublish(file(A.APPROVED), ADMIN, None, None)


def test_a_deleted_asset_closes_everything_and_comes_back_as_it_was() -> None:
    before = file(A.APPROVED, A.PENDING_REVIEW, clearance=PUBLIC)
    gone = dossier.delete_asset(before, ADMIN, "not ours")
    assert (gone.leaving(), gone.after.external()) == ((0,), frozenset())
    assert acts(gone) == [("asset_deleted", None, {"deleted": False}, {"deleted": True})]
    with pytest.raises(NotFound):
        dossier.decide(gone.after, Command.APPROVE, 1, REVIEWER)
    back = dossier.restore_asset(gone.after, ADMIN, None)
    assert (back.after, back.entering()) == (before, (0,))


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
def test_an_approval_takes_clearance_up_only(
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


# Laws: whatever is ordered, in whatever order.

ORDERS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 3), st.sampled_from([P.COMPLETED, P.FAILED])),
    st.tuples(
        st.sampled_from([c for c in Command if c not in (Command.SUBMIT, Command.RESUBMIT)]),
        st.integers(0, 4),
        st.sampled_from(Clearance),
    ),
    st.tuples(st.just("clear"), st.just(0), st.sampled_from(Clearance)),
    st.tuples(st.sampled_from(["unpublish", "delete", "restore"]), st.just(0), st.none()),
)


def play(before: Dossier, order: tuple[Any, int, Any]) -> Outcome | Dossier:
    """Carry an order out, as an admin who submitted nothing; a submit ends processing at once."""
    what, number, how = order
    match what:
        case "submit":
            if before.asset.deleted:
                raise NotFound("deleted")
            plan = plan_submit(f"V{number}", None, before.versions)
            new = VersionState(plan.version_ordinal, f"V{number}", plan.revision, A.PENDING_REVIEW, how, "sue")
            others = tuple(v for v in before.versions if v.version_ordinal != new.version_ordinal)
            return Dossier(before.asset, (*others, new)).change_version(new)
        case "clear":
            return dossier.set_clearance(before, ADMIN, how, "because")
        case "unpublish":
            return dossier.unpublish(before, ADMIN, "because", None)
        case "delete":
            return dossier.delete_asset(before, ADMIN, "because")
        case "restore":
            return dossier.restore_asset(before, ADMIN, "because")
        case _:
            return dossier.decide(before, what, number, ADMIN, reason="because", level=how)


@given(st.lists(ORDERS, max_size=30))
def test_whatever_is_ordered_the_order_of_versions_holds(orders: list[tuple[Any, int, Any]]) -> None:
    now, catalogue, told = file(clearance=UNCLEARED), set[int](), dict[tuple[int | None, str], Any]()
    for order in orders:
        try:
            played = play(now, order)
        except GeodagError:
            continue
        now = played.after if isinstance(played, Outcome) else played
        if isinstance(played, Outcome):
            assert catalogue.isdisjoint(played.entering())
            assert catalogue.issuperset(played.leaving())
            catalogue = (catalogue | set(played.entering())) - set(played.leaving())
            for act in played.acts:
                for name, value in act.before.items():
                    where = (
                        None if name in ("clearance_state", "latest_approved_version_ordinal") else act.version_ordinal
                    )
                    assert told.get((where, name), value) == value  # the audit has no gap
                    told[where, name] = act.after[name]
        else:
            told = {key: value for key, value in told.items() if key[1] != "approval_state"}
        live = [v for v in now.versions if not v.deleted]
        unresolved = [v.version_ordinal for v in live if v.approval_state in UNRESOLVED]
        assert len(unresolved) <= 1
        assert all(n == max(v.version_ordinal for v in live) for n in unresolved)
        assert len({v.version_label for v in live}) == len(live)
        assert len({v.version_ordinal for v in now.versions}) == len(now.versions)
        assert catalogue == now.catalogued()
        assert now.external() <= now.catalogued()
        approved = [v.version_ordinal for v in live if v.approval_state is A.APPROVED]
        assert now.asset.latest_approved_version_ordinal == max(approved, default=None)


def test_an_outcome_names_exactly_the_versions_that_changed() -> None:
    outcome = dossier.decide(file(A.APPROVED, A.PENDING_REVIEW), Command.REJECT, 1, REVIEWER, reason="blurred")
    assert outcome.changed_versions() == (
        replace(outcome.before.versions[1], approval_state=A.REJECTED, reviewer="rob", reason="blurred"),
    )
