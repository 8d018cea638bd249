"""Reviewers at work: comments, decisions on many versions, reminders."""

from typing import Any

import pytest

from core.b2b import SubmitAccepted
from core.b2b_assets import CommentRequest, DecisionsRequest
from core.errors import DatabaseUnavailable, Forbidden, NotFound
from core.identity import Caller, Role
from repositories.database import transaction
from tests.support.business import ADMIN, EVERYBODY, FOREIGNER, REVIEWER, SUBMITTER, Business, fresh_refs


def decision(accepted: SubmitAccepted, kind: str = "approve", **said: Any) -> dict[str, Any]:
    return {"asset_id": accepted.asset_id, "version_ordinal": accepted.version_ordinal, "decision": kind, **said}


async def decide(business: Business, *decisions: dict[str, Any], caller: Caller = REVIEWER) -> list[str]:
    """Return, in order, the state that each decision led to, or the code of its refusal."""
    body = DecisionsRequest.model_validate({"decisions": list(decisions)})
    answer = await business.reviews.decide_many(caller, body)
    assert [(r.asset_id, r.version_ordinal) for r in answer.results] == [
        (d["asset_id"], d["version_ordinal"]) for d in decisions
    ]
    return [r.answer.approval_state if r.answer else r.error.code if r.error else "" for r in answer.results]


async def overdue(business: Business, accepted: SubmitAccepted) -> None:
    async with transaction(business.pool) as conn:
        await conn.execute(
            "UPDATE dagapp.asset_versions SET review_due_at = dagapp.clock() - make_interval(days => 1),"
            " reminded_at = reminded_at - make_interval(days => 2) WHERE asset_id = %s",
            (accepted.asset_id,),
        )


async def test_each_of_many_decisions_is_taken_or_refused_on_its_own(business: Business) -> None:
    good = await business.processed(platform_refs=fresh_refs())
    blurred = await business.processed(platform_refs=fresh_refs())
    silent = await business.processed(platform_refs=fresh_refs())
    running = await business.submit(platform_refs=fresh_refs())
    published = await business.approved(platform_refs=fresh_refs())
    states = await decide(
        business,
        decision(good, clearance_level="ouo"),
        decision(blurred, "reject", reason="blurred"),
        decision(silent, "reject"),
        decision(silent, "reject", reason="x", clearance_level="ouo"),
        decision(silent, clearance_level="ouo", revision=7),
        decision(silent),
        decision(running, clearance_level="ouo"),
        decision(published, "revoke", reason="recalled"),
        decision(good, clearance_level="ouo"),
        {**decision(good), "asset_id": "f" * 32},
    )
    assert states == [
        "approved",
        "rejected",
        "PARAMETER_MISSING",
        "PARAMETER_INVALID",
        "VERSION_STALE",
        "PARAMETER_MISSING",
        "INVALID_TRANSITION",
        "revoked",
        "INVALID_TRANSITION",
        "NOT_FOUND",
    ]
    assert (await business.row(silent))["approval_state"] == "pending_review"
    assert await business.catalogued(good) is not None
    assert await business.catalogued(published) is None


async def test_many_decisions_need_a_reviewer(business: Business) -> None:
    accepted = await business.processed()
    for caller in EVERYBODY:
        if not caller.has(Role.REVIEWER, Role.ADMIN):
            with pytest.raises(Forbidden):
                await decide(business, decision(accepted, clearance_level="ouo"), caller=caller)


async def test_without_a_database_nothing_more_is_tried(business: Business, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = await business.processed()
    calls = 0

    async def away(*_: Any) -> None:
        nonlocal calls
        calls += 1
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(business.approvals, "approve", away)
    assert await decide(business, *[decision(accepted)] * 3) == ["DATABASE_UNAVAILABLE"] * 3
    assert calls == 1


async def test_a_comment_is_kept_with_its_revision_and_in_the_audit(business: Business) -> None:
    first = await business.processed()
    comment = await business.reviews.comment(REVIEWER, first.asset_id, 0, CommentRequest(text="where is\nthis?"))
    assert (comment.author, comment.author_role, comment.revision) == ("rob", "reviewer", 1)
    answered = await business.reviews.comment(SUBMITTER, first.asset_id, 0, CommentRequest(text="in Bhutan"))
    assert (answered.author, answered.author_role) == ("sue", "submitter")
    by_admin = await business.reviews.comment(ADMIN, first.asset_id, 0, CommentRequest(text="fine"))
    assert by_admin.author_role == "admin"
    assert [one for one in await business.audit(first) if one[0] == "commented"] == [
        ("commented", "rob", "reviewer"),
        ("commented", "sue", "submitter"),
        ("commented", "ada", "admin"),
    ]


async def test_nobody_else_comments_and_nobody_on_what_is_gone(business: Business) -> None:
    accepted = await business.processed()
    body = CommentRequest(text="hello")
    for caller in EVERYBODY:
        if caller.subject not in {"sue", "rob", "ada"}:
            with pytest.raises(NotFound):
                await business.reviews.comment(caller, accepted.asset_id, 0, body)
    for asset_id, ordinal in (("f" * 32, 0), (accepted.asset_id, 7)):
        with pytest.raises(NotFound):
            await business.reviews.comment(REVIEWER, asset_id, ordinal, body)
    await business.delete(accepted)
    with pytest.raises(NotFound):
        await business.reviews.comment(REVIEWER, accepted.asset_id, 0, body)
    assert await business.engine.query("SELECT 1 FROM dagapp.version_comments") == []
    assert FOREIGNER in EVERYBODY


async def test_a_review_is_due_by_the_platform_s_own_period(business: Business) -> None:
    async with transaction(business.pool) as conn:
        await conn.execute("UPDATE dagapp.platforms SET review_days = 3")
    row = await business.row(await business.processed())
    assert (row["review_due_at"] - row["processed_at"]).days == 3
    assert row["reminded_at"] is None


async def test_what_waits_too_long_is_reminded_of_once_a_day(business: Business) -> None:
    accepted = await business.processed()
    assert await business.reviews.remind() == 0
    await overdue(business, accepted)
    assert await business.reviews.remind() == 1
    assert await business.reviews.remind() == 0
    assert (await business.row(accepted))["reminded_at"] is not None
    assert (await business.audit(accepted))[-1] == ("review_reminded", "orchestrator", "system")
    await overdue(business, accepted)
    assert await business.reviews.remind() == 1


async def test_nobody_is_reminded_of_what_is_decided_deleted_or_in_work(business: Business) -> None:
    approved = await business.approved(platform_refs=fresh_refs())
    rejected = await business.processed(platform_refs=fresh_refs())
    await business.reject(rejected)
    deleted = await business.processed(platform_refs=fresh_refs())
    await business.delete(deleted)
    gone = await business.processed(platform_refs=fresh_refs())
    await business.approvals.delete_asset(ADMIN, gone.asset_id, "not ours")
    again = await business.processed(platform_refs=(refs := fresh_refs()))
    await business.submit(platform_refs=refs)
    for accepted in (approved, rejected, deleted, gone, again):
        await overdue(business, accepted)
    assert await business.reviews.remind() == 0
