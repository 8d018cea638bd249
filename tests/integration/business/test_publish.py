"""What the end of a job makes of its version and request, in the transaction that ends the job."""

from typing import Any

import pytest

from core.models.engine import Job
from core.statuses import JobStatus
from repositories.database import transaction
from services.publish import on_job_ended, read_outputs
from tests.support.business import SUBMITTER, Business

GOOD: dict[str, Any] = {
    "blob_path": "silver/a/0/r1/t/cog.tif",
    "stac_item": {"id": "x"},
    "stac_item_id": "x",
    "stac_collection_id": "c",
}


def job(outputs: dict[str, Any] | None, status: JobStatus = JobStatus.COMPLETED) -> Job:
    return Job.model_validate(
        {
            "job_id": "j",
            "workflow_id": "w",
            "workflow_version": 1,
            "definition_hash": "h",
            "status": status,
            "input_params": {},
            "run_no": 1,
            "version": 2,
            "owner_epoch": 1,
            "priority": 5,
            "outputs": outputs,
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
        }
    )


async def test_a_finished_ingest_writes_its_declared_outputs_to_the_version(business: Business) -> None:
    accepted = await business.processed()
    row, task = await business.row(accepted), f"{await business.job_of(accepted)}_create_cog_0"
    assert (row["processing_state"], row["approval_state"]) == ("completed", "pending_review")
    assert row["blob_path"] == f"silver/{accepted.asset_id}/0/r1/{task}/cog.tif"
    assert (row["blob_sha256"], row["blob_size_bytes"], row["content_hash"]) == ("d" * 64, 1234, "c" * 64)
    assert (row["stac_item_id"], row["stac_collection_id"]) == (f"{accepted.asset_id}-v0", "ddh-raster")
    assert row["stac_item"]["properties"]["platform:request_id"] == accepted.request_id
    assert row["render"] == {"bidx": [1], "rescale": [[0, 1]]}
    assert row["report"]["verdict"] == "accept"
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, status.review, status.services) == ("completed", "pending_review", None)
    assert status.progress == {"current": 11, "total": 11}
    assert (await business.audit(accepted))[-1] == ("processed", "orchestrator", "system")


async def test_a_finished_ingest_is_not_in_the_catalogue_before_its_approval(business: Business) -> None:
    assert await business.catalogued(await business.processed()) is None


async def test_a_failed_ingest_fails_its_request_with_the_files_own_error(business: Business) -> None:
    accepted = await business.submit()
    await business.fail(await business.job_of(accepted))
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, status.review) == ("failed", None)
    assert [(e.code, e.field, e.message) for e in status.errors] == [("CRS_MISSING", "crs", "no CRS")]
    assert status.next_actions == ["resubmit", "supersede", "delete"]
    row = await business.row(accepted)
    assert (row["processing_state"], row["blob_path"], row["error"]["code"]) == ("failed", None, "CRS_MISSING")
    assert await business.catalogued(accepted) is None
    assert (await business.audit(accepted))[-1] == ("processing_failed", "orchestrator", "system")


async def test_an_error_that_no_partner_can_mend_says_nothing_of_the_inside(business: Business) -> None:
    accepted = await business.submit()
    job_id = await business.job_of(accepted)
    await business.fail(job_id, code="INTERNAL", message=f"task {job_id}_x broke", field="x", user_fixable=False)
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert [e.code for e in status.errors] == ["INTERNAL"]
    assert job_id not in status.model_dump_json()
    assert status.errors[0].node_id is None
    assert status.errors[0].attempts == ()


async def test_a_failed_version_is_resubmitted_under_its_label(business: Business) -> None:
    accepted = await business.submit()
    await business.fail(await business.job_of(accepted))
    again = await business.processed()
    assert (again.version_ordinal, again.revision) == (0, 2)
    row = await business.row(again)
    assert (row["processing_state"], row["error"]) == ("completed", None)
    old = await business.status.request(SUBMITTER, accepted.request_id)
    assert (old.state, old.review, old.next_actions) == ("failed", None, [])


async def test_findings_of_the_ingest_become_warnings_of_the_request(business: Business) -> None:
    accepted = await business.submit()
    finding = {"code": "NODATA_DROPPED", "level": "warning", "message": "dropped"}
    ended = job(GOOD).model_copy(
        update={
            "job_id": await business.job_of(accepted),
            "correlation_id": accepted.request_id,
            "warnings": [finding],
        }
    )
    async with transaction(business.pool) as conn:
        await on_job_ended(conn, ended)
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, status.warnings) == ("completed", [finding])
    assert (await business.row(accepted))["findings"] == [finding]


async def test_warnings_of_the_report_are_told_to_the_partner(business: Business) -> None:
    accepted = await business.submit()
    warning = {"code": "FLIPPED_TO_NORTH_UP", "level": "warning", "message": "flipped"}
    info = {"code": "CRS_FROM_SUBMIT", "level": "info", "message": "from the submit"}
    outputs = {**GOOD, "report": {"verdict": "accept_with_fixes", "findings": [info, warning]}}
    names = {"job_id": await business.job_of(accepted), "correlation_id": accepted.request_id}
    async with transaction(business.pool) as conn:
        await on_job_ended(conn, job(outputs).model_copy(update=names))
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert status.warnings == [warning]
    assert (await business.row(accepted))["findings"] == [warning]


async def test_a_cancelled_job_cancels_its_request(business: Business) -> None:
    accepted = await business.submit()
    ended = job(None, JobStatus.CANCELLED).model_copy(
        update={"job_id": await business.job_of(accepted), "correlation_id": accepted.request_id}
    )
    async with transaction(business.pool) as conn:
        await on_job_ended(conn, ended)
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, (await business.row(accepted))["processing_state"]) == ("cancelled", "cancelled")


async def test_the_end_of_an_overtaken_job_does_not_touch_the_newer_revision(business: Business) -> None:
    first = await business.submit()
    old_job = await business.job_of(first)
    await business.fail(old_job)
    again = await business.submit()
    late = job(GOOD).model_copy(update={"job_id": old_job, "correlation_id": first.request_id})
    async with transaction(business.pool) as conn:
        await on_job_ended(conn, late)
    row = await business.row(again)
    assert (row["processing_state"], row["blob_path"]) == ("queued", None)


async def test_outputs_that_no_version_can_store_fail_the_request(business: Business) -> None:
    accepted = await business.submit()
    ended = job({"surprise": 1}).model_copy(
        update={"job_id": await business.job_of(accepted), "correlation_id": accepted.request_id}
    )
    async with transaction(business.pool) as conn:
        await on_job_ended(conn, ended)
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, [e.code for e in status.errors]) == ("failed", ["OUTPUTS_INVALID"])
    assert (await business.row(accepted))["processing_state"] == "failed"


async def test_a_job_without_a_request_changes_nothing(business: Business) -> None:
    accepted = await business.submit()
    async with transaction(business.pool) as conn:
        await on_job_ended(conn, job(GOOD))
        await on_job_ended(conn, job(GOOD).model_copy(update={"correlation_id": "of somebody else"}))
    assert (await business.row(accepted))["processing_state"] == "queued"


@pytest.mark.parametrize("missing", ["blob_path", "stac_item", "stac_item_id", "stac_collection_id"])
def test_what_publishing_needs_must_be_declared(missing: str) -> None:
    outputs, error = read_outputs({k: v for k, v in GOOD.items() if k != missing})
    assert outputs is None
    assert error is not None
    assert missing in error["message"]


def test_a_table_stands_for_a_blob() -> None:
    outputs, error = read_outputs({k: v for k, v in GOOD.items() if k != "blob_path"} | {"table_name": "geo.x"})
    assert (outputs and outputs.table_name, error) == ("geo.x", None)


@pytest.mark.parametrize("outputs", [{}, GOOD | {"extra": 1}, GOOD | {"blob_size_bytes": "many"}])
def test_unknown_or_wrong_outputs_are_refused(outputs: dict[str, Any]) -> None:
    assert read_outputs(outputs)[0] is None
