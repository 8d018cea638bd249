"""Requests beside a single submit: many at once, again with changes, not any more."""

from typing import Any

import pytest

from core import b2b
from core.b2b import SubmitAccepted
from core.b2b_requests import BatchRequest, CancelRequest
from core.errors import Conflict, DatabaseUnavailable, Forbidden, GeodagError, NotFound, ParameterInvalid
from core.identity import Caller, Role
from core.models.business import RequestState
from tests.support.business import ADMIN, EVERYBODY, FOREIGNER, SUBMITTER, Business, fresh_refs, submit_body

GONE = {"container_name": "bronze", "blob_name": "ddh/none.tif"}


async def batch(business: Business, *bodies: dict[str, Any], key: str | None = None) -> list[str]:
    """Return, in order, the request that each submit made, or the code of its refusal."""
    answer = await business.requests.submit_many(SUBMITTER, BatchRequest(submits=list(bodies)), key)
    assert [result.index for result in answer.results] == list(range(len(bodies)))
    return [r.accepted.request_id if r.accepted else r.error.code if r.error else "" for r in answer.results]


async def test_each_submit_of_a_batch_is_accepted_or_refused_on_its_own(business: Business) -> None:
    refs = fresh_refs()
    found = await batch(
        business,
        submit_body(platform_refs=refs),
        submit_body(platform_refs=refs, version_label="V2"),
        submit_body(platform_refs=fresh_refs(), source=GONE),
        submit_body(platform_refs=fresh_refs(), colour="red"),
        submit_body(platform_refs=fresh_refs(), dry_run=True),
        submit_body(platform_id="arcgis"),
        submit_body(platform_refs=fresh_refs(), dry_run=False),
    )
    assert found[1:6] == [
        "VERSION_UNRESOLVED",
        "FILE_NOT_FOUND",
        "PARAMETER_INVALID",
        "PARAMETER_INVALID",
        "FORBIDDEN",
    ]
    assert found[0].startswith("req_")
    assert found[6].startswith("req_")
    counts = await business.counts()
    assert (counts["requests"], counts["jobs"], counts["versions"]) == (2, 2, 2)


async def test_what_is_no_submit_is_refused_on_its_own_and_throttled_ones_say_when_again(business: Business) -> None:
    submits: list[Any] = [
        "x",
        submit_body(platform_refs=fresh_refs()),
        None,
        [],
        submit_body(platform_refs=fresh_refs()),
    ]
    body = b2b.parse(BatchRequest, {"submits": submits})
    await business.engine.query("UPDATE dagapp.platforms SET max_open_requests = 1 WHERE platform_id = 'ddh'")
    found = (await business.requests.submit_many(SUBMITTER, body)).results
    errors = [(r.error.code, r.error.field, r.error.retry_after_seconds) if r.error else None for r in found]
    assert errors == [
        ("PARAMETER_INVALID", "body", None),
        None,
        ("PARAMETER_INVALID", "body", None),
        ("PARAMETER_INVALID", "body", None),
        ("QUOTA_EXCEEDED", errors[4][1] if errors[4] else None, 30),
    ]


async def test_a_batch_that_is_sent_again_under_its_key_gets_the_same_answers(business: Business) -> None:
    bodies = [submit_body(platform_refs=fresh_refs()) for _ in range(3)]
    bodies.append(submit_body(platform_refs=fresh_refs(), idempotency_key="own"))
    first = await batch(business, *bodies, key="batch 1".replace(" ", "-"))
    assert await batch(business, *bodies, key="batch-1") == first
    assert len(set(first)) == 4
    assert (await business.counts())["requests"] == 4
    with pytest.raises(Conflict) as other:
        await batch(business, bodies[0] | {"title": "other"}, *bodies[1:], key="batch-1")
    assert (other.value.detail.code, other.value.detail.field) == ("IDEMPOTENCY_CONFLICT", "idempotency_key")
    for key in ("a b", "", "x" * 256):
        with pytest.raises(ParameterInvalid) as wrong:
            await batch(business, bodies[0], key=key)
        assert wrong.value.detail.field == "idempotency_key"


async def test_a_repeated_batch_is_refused_again_what_was_refused_unless_waiting_helps(business: Business) -> None:
    one, two, three = (submit_body(platform_refs=fresh_refs()) for _ in range(3))
    key = "k" * 255
    body = BatchRequest(submits=[one, one | {"tags": ["again"]}, two, three])
    await business.engine.query("UPDATE dagapp.platforms SET max_open_requests = 2 WHERE platform_id = 'ddh'")
    first = (await business.requests.submit_many(SUBMITTER, body, key)).results
    assert [r.error.code if r.error else None for r in first] == [
        None,
        "VERSION_UNRESOLVED",
        None,
        "QUOTA_EXCEEDED",
    ]
    assert first[0].accepted is not None
    await business.finish(await business.job_of(first[0].accepted))
    again = (await business.requests.submit_many(SUBMITTER, body, key)).results
    assert again[:3] == first[:3]
    assert again[3].accepted is not None
    assert (await business.requests.submit_many(SUBMITTER, body, key)).results == again


async def test_a_batch_needs_a_submitter_and_stops_without_a_database(
    business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    for caller in EVERYBODY:
        if not caller.has(Role.SUBMITTER):
            with pytest.raises(Forbidden):
                await business.requests.submit_many(caller, BatchRequest(submits=[submit_body()]))
    calls = 0

    async def away(*_: Any) -> None:
        nonlocal calls
        calls += 1
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(business.submits, "submit", away)
    assert await batch(business, *[submit_body()] * 3) == ["DATABASE_UNAVAILABLE"] * 3
    assert calls == 1


async def test_a_rejected_version_is_resubmitted_with_changes_as_its_next_revision(business: Business) -> None:
    first = await business.processed(title="old", tags=["dem"], idempotency_key="k")
    await business.reject(first)
    business.put("ddh/better.tif", b"better pixels")
    changes = {"title": "new", "source": {"container_name": "bronze", "blob_name": "ddh/better.tif"}}
    again = await business.requests.resubmit(SUBMITTER, first.request_id, changes, "again")
    assert (again.asset_id, again.version_ordinal, again.revision) == (first.asset_id, 0, 2)
    row = await business.row(again)
    assert (row["title"], row["tags"], row["source"]["blob_name"]) == ("new", ["dem"], "ddh/better.tif")
    assert await business.requests.resubmit(SUBMITTER, first.request_id, changes, "again") == again
    assert (await business.audit(again))[-1] == ("resubmitted", "sue", "submitter")


async def test_a_failed_version_is_resubmitted_as_it_was(business: Business) -> None:
    first = await business.submit()
    await business.fail(await business.job_of(first))
    again = await business.requests.resubmit(SUBMITTER, first.request_id, {})
    assert again.revision == 2


@pytest.mark.parametrize("name", ["platform_id", "platform_refs", "version_label", "data_type", "dry_run"])
async def test_a_revision_is_of_the_same_version(business: Business, name: str) -> None:
    first = await business.processed()
    with pytest.raises(GeodagError) as refused:
        await business.requests.resubmit(SUBMITTER, first.request_id, {name: "x"})
    assert (refused.value.detail.code, refused.value.detail.field) == ("PARAMETER_INVALID", name)


async def test_only_the_newest_request_of_an_unresolved_version_is_resubmitted(business: Business) -> None:
    first = await business.processed()
    second = await business.requests.resubmit(SUBMITTER, first.request_id, {})
    await business.finish(await business.job_of(second))
    with pytest.raises(Conflict) as stale:
        await business.requests.resubmit(SUBMITTER, first.request_id, {})
    assert (stale.value.detail.code, stale.value.detail.value, stale.value.detail.expected) == ("VERSION_STALE", 1, 2)
    await business.delete(second)
    with pytest.raises(Conflict) as gone:
        await business.requests.resubmit(SUBMITTER, second.request_id, {})
    assert (gone.value.detail.code, gone.value.detail.expected) == ("VERSION_STALE", None)
    third = await business.approved()
    with pytest.raises(Conflict) as approved:
        await business.requests.resubmit(SUBMITTER, third.request_id, {})
    assert approved.value.detail.code == "VERSION_LABEL_EXISTS"


async def test_a_request_is_cancelled_by_its_platform_and_its_version_can_be_submitted_again(
    business: Business,
) -> None:
    accepted = await business.submit()
    view = await business.requests.cancel(SUBMITTER, accepted.request_id, CancelRequest(reason="wrong file"))
    assert (view.state, view.next_actions) == (RequestState.CANCELLED, ["resubmit", "supersede", "delete"])
    row = await business.row(accepted)
    assert row["processing_state"] == "cancelled"
    assert (await business.audit(accepted))[1:] == [
        ("cancel_ordered", "sue", "submitter"),
        ("processing_cancelled", "orchestrator", "system"),
    ]
    (job,) = await business.engine.query(
        "SELECT status FROM dagapp.dag_jobs WHERE job_id = %s", await business.job_of(accepted)
    )
    assert job["status"] == "CANCELLED"
    assert (await business.submit()).revision == 2


async def test_what_has_ended_is_not_cancelled(business: Business) -> None:
    done = await business.processed()
    failed = await business.submit(platform_refs=fresh_refs())
    await business.fail(await business.job_of(failed))
    cancelled = await business.submit(platform_refs=fresh_refs())
    await business.requests.cancel(ADMIN, cancelled.request_id, CancelRequest())
    for accepted in (done, failed, cancelled):
        before = await business.audit(accepted)
        with pytest.raises(Conflict) as refused:
            await business.requests.cancel(SUBMITTER, accepted.request_id, CancelRequest())
        assert refused.value.detail.code == "INVALID_TRANSITION"
        assert await business.audit(accepted) == before


@pytest.mark.parametrize("caller", [c for c in EVERYBODY if c.subject not in {"sue", "ada"}])
async def test_another_s_request_is_as_unknown_as_none(business: Business, caller: Caller) -> None:
    accepted = await business.submit()
    for request_id in (accepted.request_id, "req_none", "x" * 200, "\0"):
        with pytest.raises(NotFound):
            await business.requests.cancel(caller, request_id, CancelRequest())
    if caller is FOREIGNER:
        with pytest.raises(NotFound):
            await business.requests.resubmit(caller, accepted.request_id, {})
    assert (await business.row(accepted))["processing_state"] == "queued"


async def test_a_cancel_that_comes_with_the_end_changes_nothing_that_was_made(business: Business) -> None:
    accepted: SubmitAccepted = await business.submit()
    job_id = await business.job_of(accepted)

    async def ended_meanwhile(job: str, order: Any) -> None:
        await business.finish(job_id)
        raise Conflict("the job is COMPLETED", code="INVALID_TRANSITION")

    commands = type("Commands", (), {"order": staticmethod(ended_meanwhile)})()
    business.requests._commands = commands
    with pytest.raises(Conflict) as refused:
        await business.requests.cancel(SUBMITTER, accepted.request_id, CancelRequest())
    assert refused.value.detail.value == "completed"
    assert (await business.row(accepted))["processing_state"] == "completed"
