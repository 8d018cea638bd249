"""Starting an ingest anew: until its version was approved, and never past a review at the same moment."""

import asyncio
from typing import Any

import pytest

from core.errors import Conflict, InvalidTransition
from services.commands import Order
from tests.support.business import Business


async def settle_messages(business: Business) -> None:
    """Delete the messages of what was claimed, as workers do."""
    await business.engine.query("DELETE FROM dagqueue.messages")


async def test_a_failed_ingest_is_retried_and_its_version_can_be_approved_then(business: Business) -> None:
    accepted = await business.submit()
    job_id = await business.job_of(accepted)
    await business.fail(job_id)
    row = await business.row(accepted)
    assert (row["processing_state"], row["error"]["code"]) == ("failed", "CRS_MISSING")
    await settle_messages(business)
    await business.engine.order(job_id, "retry")
    row = await business.row(accepted)
    assert (row["processing_state"], row["error"]) == ("queued", None)
    (request,) = await business.engine.query("SELECT state, errors FROM dagapp.platform_requests")
    assert request == {"state": "queued", "errors": []}
    await business.finish(job_id)
    assert (await business.row(accepted))["processing_state"] == "completed"
    await business.approve(accepted)
    actions = [action for action, _, _ in await business.audit(accepted)]
    assert actions == ["submitted", "processing_failed", "processing_restarted", "processed", "approved", "cleared"]


@pytest.mark.parametrize("kind", ["retry", "rerun"])
async def test_an_approved_version_is_not_made_again(business: Business, kind: str) -> None:
    accepted = await business.approved()
    job_id = await business.job_of(accepted)
    for dry_run in (True, False):
        with pytest.raises(Conflict) as caught:
            await business.engine.commands.order(job_id, Order(kind, "op"), dry_run=dry_run)
        assert (caught.value.detail.code, caught.value.detail.value) == ("VERSION_APPROVED", "approved")
    assert (await business.engine.job(job_id)).run_no == 1


async def test_an_approval_waits_for_the_end_of_a_rerun(business: Business) -> None:
    accepted = await business.processed()
    job_id = await business.job_of(accepted)
    await settle_messages(business)
    await business.engine.order(job_id, "rerun")
    with pytest.raises(InvalidTransition):
        await business.approve(accepted)
    await business.finish(job_id)
    await business.approve(accepted)


async def test_of_an_approval_and_a_rerun_at_once_one_wins(business: Business) -> None:
    for number in range(10):
        accepted = await business.processed(platform_refs={"dataset_id": f"d{number}", "resource_id": "r"})
        job_id = await business.job_of(accepted)
        calls: list[Any] = [business.approve(accepted), business.engine.order(job_id, "rerun")]
        approval, rerun = await asyncio.gather(*calls, return_exceptions=True)
        row, job = await business.row(accepted), await business.engine.job(job_id)
        if isinstance(rerun, Conflict):
            assert (row["approval_state"], job.run_no) == ("approved", 1)
        else:
            assert isinstance(approval, InvalidTransition), approval
            assert (row["approval_state"], row["processing_state"], job.run_no) == ("pending_review", "queued", 2)
