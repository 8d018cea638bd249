"""Who sees which version through which door: every cell, against a table written down here by hand."""

from itertools import product

import pytest

from core.access import (
    PRIVATE_CACHE,
    PUBLIC_CACHE,
    AssetFacts,
    Decision,
    Door,
    Requested,
    VersionFacts,
    decide,
    parse_requested,
    visible,
)
from core.errors import ParameterInvalid
from core.identity import Caller, Role
from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState

CONTENT_DOORS = tuple(door for door in Door if door is not Door.STATUS)
DONE = ProcessingState.COMPLETED


def caller(*roles: Role, platform: str | None = None) -> Caller:
    return Caller(subject="someone", roles=frozenset(roles), platform_id=platform)


CALLERS: dict[str, Caller | None] = {
    "anonymous": None,
    "operator": caller(Role.OPERATOR),
    "worker": caller(Role.WORKER),
    "submitter": caller(Role.SUBMITTER, platform="ddh"),
    "foreign submitter": caller(Role.SUBMITTER, platform="arcgis"),
    "reader": caller(Role.READER, platform="ddh"),
    "foreign reader": caller(Role.READER, platform="arcgis"),
    "unbound reader": caller(Role.READER),
    "reviewer": caller(Role.REVIEWER),
    "admin": caller(Role.ADMIN),
    "submitter and reader": caller(Role.SUBMITTER, Role.READER, platform="ddh"),
}

# What content each caller sees of: the latest approved version by clearance; another approved version by exposure;
# versions in review. Written by hand from the contract's page, never computed from the code's table.
SEES_CLEARANCE = {
    "anonymous": {"public"},
    "operator": {"public"},
    "worker": {"public"},
    "submitter": {"public"},
    "foreign submitter": {"public"},
    "reader": {"ouo", "public"},
    "foreign reader": {"public"},
    "unbound reader": {"public"},
    "reviewer": {"uncleared", "ouo", "public"},
    "admin": {"uncleared", "ouo", "public"},
    "submitter and reader": {"ouo", "public"},
}
SEES_REVIEW = {"reviewer", "admin"}
SEES_STATUS = {"submitter", "reviewer", "admin", "submitter and reader"}


def asset(
    clearance: Clearance = Clearance.PUBLIC,
    exposure: Exposure = Exposure.LATEST_ONLY,
    latest: int | None = 1,
    deleted: bool = False,
) -> AssetFacts:
    return AssetFacts("a" * 32, "ddh", clearance, exposure, latest, deleted)


APPROVED_0 = VersionFacts(0, ApprovalState.APPROVED, DONE)
APPROVED_1 = VersionFacts(1, ApprovalState.APPROVED, DONE)


@pytest.mark.parametrize(
    ("who", "clearance", "door", "requested"), list(product(CALLERS, Clearance, CONTENT_DOORS, ("latest", 1)))
)
def test_the_latest_approved_version_is_shown_by_clearance(
    who: str, clearance: Clearance, door: Door, requested: Requested
) -> None:
    decision = decide(CALLERS[who], asset(clearance), [APPROVED_0, APPROVED_1], requested, door)
    assert decision.ordinal == (1 if clearance.value in SEES_CLEARANCE[who] else None)
    assert decision.cache_control == (PUBLIC_CACHE if clearance is Clearance.PUBLIC else PRIVATE_CACHE)


@pytest.mark.parametrize(
    ("who", "clearance", "exposure", "door"), list(product(CALLERS, Clearance, Exposure, CONTENT_DOORS))
)
def test_an_older_approved_version_is_shown_only_when_all_are_exposed(
    who: str, clearance: Clearance, exposure: Exposure, door: Door
) -> None:
    decision = decide(CALLERS[who], asset(clearance, exposure), [APPROVED_0, APPROVED_1], 0, door)
    exposed = exposure is Exposure.ALL_VERSIONS and clearance.value in SEES_CLEARANCE[who]
    assert decision.allowed == (exposed or who in SEES_REVIEW)


@pytest.mark.parametrize(
    ("who", "state", "clearance", "exposure", "door"),
    list(
        product(
            CALLERS,
            (ApprovalState.PENDING_REVIEW, ApprovalState.REJECTED),
            Clearance,
            Exposure,
            CONTENT_DOORS,
        )
    ),
)
def test_pending_and_rejected_versions_are_shown_to_reviewers_only_and_never_cached(
    who: str, state: ApprovalState, clearance: Clearance, exposure: Exposure, door: Door
) -> None:
    versions = [APPROVED_0, VersionFacts(1, state, DONE)]
    decision = decide(CALLERS[who], asset(clearance, exposure, latest=0), versions, 1, door)
    assert decision.allowed == (who in SEES_REVIEW)
    assert decision.cache_control == PRIVATE_CACHE


@pytest.mark.parametrize(("who", "door"), list(product(CALLERS, CONTENT_DOORS)))
def test_latest_never_means_a_version_that_is_not_approved(who: str, door: Door) -> None:
    pending = VersionFacts(0, ApprovalState.PENDING_REVIEW, DONE)
    assert not decide(CALLERS[who], asset(latest=None), [pending], "latest", door).allowed


@pytest.mark.parametrize(("who", "door", "exposure"), list(product(CALLERS, CONTENT_DOORS, Exposure)))
def test_a_revoked_version_is_hidden_from_everybody(who: str, door: Door, exposure: Exposure) -> None:
    revoked = VersionFacts(1, ApprovalState.REVOKED, DONE)
    assert not decide(CALLERS[who], asset(exposure=exposure, latest=0), [APPROVED_0, revoked], 1, door).allowed


@pytest.mark.parametrize(
    ("who", "door", "state"),
    list(product(CALLERS, CONTENT_DOORS, [s for s in ProcessingState if s is not DONE])),
)
def test_a_version_without_finished_content_has_no_content_doors(who: str, door: Door, state: ProcessingState) -> None:
    version = VersionFacts(0, ApprovalState.PENDING_REVIEW, state)
    assert not decide(CALLERS[who], asset(latest=None), [version], 0, door).allowed


@pytest.mark.parametrize(("who", "door"), list(product(CALLERS, Door)))
def test_what_is_deleted_or_unknown_is_hidden_from_everybody(who: str, door: Door) -> None:
    gone = VersionFacts(1, ApprovalState.APPROVED, DONE, deleted=True)
    hidden = [
        decide(CALLERS[who], None, [], "latest", door),
        decide(CALLERS[who], asset(deleted=True), [APPROVED_1], "latest", door),
        decide(CALLERS[who], asset(), [gone], 1, door),
        decide(CALLERS[who], asset(), [APPROVED_1], 7, door),
        decide(CALLERS[who], asset(), [], "latest", door),
    ]
    assert hidden == [Decision(None, PRIVATE_CACHE)] * 5


@pytest.mark.parametrize(("who", "approval", "processing"), list(product(CALLERS, ApprovalState, ProcessingState)))
def test_status_shows_every_version_to_its_submitters_and_to_reviewers(
    who: str, approval: ApprovalState, processing: ProcessingState
) -> None:
    version = VersionFacts(0, approval, processing)
    decision = decide(CALLERS[who], asset(Clearance.UNCLEARED, latest=None), [version], 0, Door.STATUS)
    assert decision.allowed == (who in SEES_STATUS)
    assert decision.cache_control == PRIVATE_CACHE


def test_status_shows_a_reader_what_he_may_open() -> None:
    shown = decide(CALLERS["reader"], asset(Clearance.OUO), [APPROVED_0, APPROVED_1], 1, Door.STATUS)
    older = decide(CALLERS["reader"], asset(Clearance.OUO), [APPROVED_0, APPROVED_1], 0, Door.STATUS)
    assert (shown.ordinal, older.ordinal) == (1, None)


def test_status_of_a_public_version_is_never_for_shared_caches() -> None:
    decision = decide(CALLERS["submitter"], asset(), [APPROVED_1], 1, Door.STATUS)
    assert decision == Decision(1, PRIVATE_CACHE)


def test_a_list_holds_exactly_the_versions_that_the_door_shows() -> None:
    versions = [APPROVED_0, APPROVED_1, VersionFacts(2, ApprovalState.PENDING_REVIEW, DONE)]
    shown = {who: visible(CALLERS[who], asset(), versions, Door.TILES) for who in ("anonymous", "reader", "reviewer")}
    assert shown == {"anonymous": {1}, "reader": {1}, "reviewer": {0, 1, 2}}


def test_facts_take_the_texts_of_the_database() -> None:
    facts = AssetFacts("a" * 32, "ddh", "public", "all_versions", 0)  # type: ignore[arg-type]
    version = VersionFacts(0, "approved", "completed")  # type: ignore[arg-type]
    assert decide(None, facts, [version], "latest", Door.TILES).ordinal == 0


@pytest.mark.parametrize(("text", "wanted"), [(None, "latest"), ("latest", "latest"), ("0", 0), ("12", 12)])
def test_a_version_is_latest_or_a_number(text: str | None, wanted: Requested) -> None:
    assert parse_requested(text) == wanted


@pytest.mark.parametrize("text", ["", "-1", "1.0", "LATEST", "１", "1e3", "9999999999", "0x1", " 1"])
def test_any_other_version_is_refused_by_name(text: str) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        parse_requested(text)
    assert refused.value.detail.field == "version"
