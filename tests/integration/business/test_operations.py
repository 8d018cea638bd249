"""Requests of several jobs on a real database: each goes on and ends in the transaction of its last job."""

import asyncio
import json
from typing import Any

import pytest

from core.b2b import SubmitAccepted
from core.b2b_requests import CancelRequest
from core.dag.orders import Kind
from core.errors import GeodagError
from core.operations import OperationCatalogue, load_operations
from core.statuses import JobStatus
from repositories.database import AsyncPool, transaction
from repositories.requests import RequestRepository
from services.commands import Order
from services.publish import StageNotStarted, on_job_ended
from tests.support.business import SUBMITTER, Business
from tests.support.engine import repository_workflows, workflows_of
from tests.support.storage import Storage

STEPS = ["validate_dataset", "process_raster", "create_stac_item"]
ECHO = """
workflow_id: {id}
name: Echo
version: 1
inputs: {{value: {{type: object, default: {{}}}}}}
outputs: {{value: "{{{{ inputs.value }}}}"}}
nodes:
  start: {{type: start, next: echo}}
  echo: {{handler: echo, params: {{value: "{{{{ inputs.value }}}}"}}, next: end}}
  end: {{type: end}}
"""
PARALLEL = """
operation: raster_parallel
stages:
  - jobs:
      a: {workflow: echo_a, inputs: {value: {stac_item_id: "{{ request.item_id }}"}}}
      b: {workflow: echo_b, inputs: {value: {stac_collection_id: "{{ request.collection_id }}"}}}
      c: {workflow: echo_a, inputs: {}}
outputs:
  blob_path: silver/x.tif
  stac_item_id: "{{ jobs.a.outputs.value.stac_item_id }}"
  stac_collection_id: "{{ jobs.b.outputs.value.stac_collection_id }}"
  stac_item: {id: "{{ request.item_id }}", collection: "{{ request.collection_id }}"}
"""


async def stepwise(business: Business, **changes: Any) -> SubmitAccepted:
    return await business.submit(workflow_id="raster_stepwise", **changes)


async def request_row(business: Business, accepted: SubmitAccepted) -> dict[str, Any]:
    (row,) = await business.engine.query(
        "SELECT * FROM dagapp.platform_requests WHERE request_id = %s", accepted.request_id
    )
    return row


def parallel(pool: AsyncPool, storage: Storage) -> Business:
    catalogue = workflows_of(ECHO.format(id="echo_a"), ECHO.format(id="echo_b"))
    operations: OperationCatalogue = load_operations({"p.yaml": PARALLEL}, frozenset(catalogue.ids()))
    assert not operations.broken, operations.broken
    return Business(pool, storage, catalogue, operations)


async def allow(pool: AsyncPool, operation: str) -> None:
    async with transaction(pool) as conn:
        await conn.execute(
            "UPDATE dagapp.platforms SET allowed_workflows = allowed_workflows || jsonb_build_array(%s::text)",
            (operation,),
        )


async def echo(business: Business, job_id: str) -> None:
    """Run the one task of an echo job."""
    message = await business.engine.message(job_id)
    await business.worker.run(message, output={"echoed_params": message.params})


async def test_the_three_jobs_of_the_specification_make_a_version_one_after_the_other(business: Business) -> None:
    accepted = await stepwise(business)
    seen = []
    for number, step in enumerate(STEPS, start=1):
        jobs = await business.jobs_of(accepted)
        assert list(jobs) == STEPS[:number]
        status = await business.status.request(SUBMITTER, accepted.request_id)
        assert status.progress["stage"] == number
        assert (status.progress["stages"], status.review) == (3, None)
        assert (await business.row(accepted))["current_job_id"] == jobs[step]
        seen.append(status.state)
        await business.finish(jobs[step])
    assert [str(state) for state in seen] == ["queued", "processing", "processing"]
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, status.review) == ("completed", "pending_review")
    row = await business.row(accepted)
    assert (row["processing_state"], row["content_hash"], row["blob_size_bytes"]) == ("completed", "c" * 64, 1234)
    assert row["render"] == {"bidx": [1], "rescale": [[0, 1]]}
    assert row["report"]["verdict"] == "accept"
    assert [one[0] for one in await business.audit(accepted)] == ["submitted", "processed"]
    await business.approve(accepted)
    assert await business.catalogued(accepted) is not None


async def test_every_job_carries_the_request_and_its_priority(business: Business) -> None:
    accepted = await stepwise(business, priority=9)
    await business.finish((await business.jobs_of(accepted))["validate_dataset"])
    for job_id in (await business.jobs_of(accepted)).values():
        job = await business.engine.job(job_id)
        assert (job.correlation_id, job.priority, job.submitted_by) == (accepted.request_id, 9, "sue")


@pytest.mark.parametrize("failing", range(3))
async def test_a_failed_job_ends_the_request_and_nothing_comes_after_it(business: Business, failing: int) -> None:
    accepted = await stepwise(business)
    for step in STEPS[:failing]:
        await business.finish((await business.jobs_of(accepted))[step])
    await business.fail((await business.jobs_of(accepted))[STEPS[failing]])
    assert list(await business.jobs_of(accepted)) == STEPS[: failing + 1]
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert (status.state, [error.code for error in status.errors]) == ("failed", ["CRS_MISSING"])
    row = await business.row(accepted)
    assert (row["processing_state"], row["blob_path"], row["error"]["code"]) == ("failed", None, "CRS_MISSING")
    assert (await business.submit()).revision == 2


async def test_a_failed_step_that_an_operator_repeats_goes_on_to_the_end(business: Business) -> None:
    accepted = await stepwise(business)
    await business.finish((await business.jobs_of(accepted))["validate_dataset"])
    failed = (await business.jobs_of(accepted))["process_raster"]
    ended = await business.fail(failed)
    await business.engine.commands.order(failed, Order(Kind.RETRY, "otto"))
    assert (await business.status.request(SUBMITTER, accepted.request_id)).state == "processing"
    assert (await business.row(accepted))["processing_state"] == "queued"
    await business.finish(failed, ended)
    await business.finish((await business.jobs_of(accepted))["create_stac_item"])
    assert (await business.row(accepted))["processing_state"] == "completed"


async def test_a_cancel_reaches_the_step_that_is_under_way(business: Business) -> None:
    accepted = await stepwise(business)
    await business.finish((await business.jobs_of(accepted))["validate_dataset"])
    view = await business.requests.cancel(SUBMITTER, accepted.request_id, CancelRequest())
    assert view.state == "cancelled"
    assert list(await business.jobs_of(accepted)) == STEPS[:2]


async def test_a_cancel_that_comes_between_two_steps_reaches_the_next_one(
    business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = await stepwise(business)
    first = (await business.jobs_of(accepted))["validate_dataset"]
    order, calls = business.engine.commands.order, 0

    async def overtaken(job_id: str, wanted: Order) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            await business.finish(first)
        return await order(job_id, wanted)

    monkeypatch.setattr(business.engine.commands, "order", overtaken)
    view = await business.requests.cancel(SUBMITTER, accepted.request_id, CancelRequest())
    assert (view.state, calls) == ("cancelled", 2)


async def test_jobs_that_end_at_the_same_moment_end_their_request_once(pool: AsyncPool, storage: Storage) -> None:
    business = parallel(pool, storage)
    await allow(pool, "raster_parallel")
    for number in range(8):
        accepted = await business.submit(
            workflow_id="raster_parallel", platform_refs={"dataset_id": str(number), "resource_id": "x"}
        )
        jobs = await business.jobs_of(accepted)
        assert list(jobs) == ["a", "b", "c"]
        await asyncio.gather(*(echo(business, job_id) for job_id in jobs.values()))
        row = await business.row(accepted)
        assert (row["processing_state"], row["stac_collection_id"]) == ("completed", "ddh-raster")
        assert [one[0] for one in await business.audit(accepted)] == ["submitted", "processed"]


async def test_of_parallel_jobs_a_failure_waits_for_the_others(pool: AsyncPool, storage: Storage) -> None:
    business = parallel(pool, storage)
    await allow(pool, "raster_parallel")
    accepted = await business.submit(workflow_id="raster_parallel")
    jobs = await business.jobs_of(accepted)
    await business.fail(jobs["b"], code="FILE_TRUNCATED")
    assert (await request_row(business, accepted))["state"] == "queued"
    await echo(business, jobs["a"])
    await business.fail(jobs["c"], code="CRS_MISSING")
    row = await request_row(business, accepted)
    assert (row["state"], [error["code"] for error in row["errors"]]) == ("failed", ["FILE_TRUNCATED", "CRS_MISSING"])


async def test_an_operation_that_changed_meanwhile_goes_on_as_it_began(business: Business) -> None:
    accepted = await stepwise(business)
    business.submits._operations = OperationCatalogue({})
    for step in STEPS:
        await business.finish((await business.jobs_of(accepted))[step])
    assert (await business.row(accepted))["processing_state"] == "completed"


async def test_outputs_that_the_next_step_misses_fail_the_request_and_name_them(business: Business) -> None:
    accepted = await stepwise(business)
    job_id = (await business.jobs_of(accepted))["validate_dataset"]
    async with transaction(business.pool) as conn:
        await conn.execute(
            "UPDATE dagapp.platform_requests SET operation = jsonb_set(operation,"
            " '{stages,1,jobs,process_raster,inputs,raster}', '\"{{ jobs.validate_dataset.outputs.nothing }}\"')"
        )
    await business.finish(job_id)
    row = await request_row(business, accepted)
    assert (row["state"], row["errors"][0]["code"]) == ("failed", "OPERATION_FAILED")
    assert "jobs.validate_dataset.outputs.nothing" in row["errors"][0]["message"]
    status = await business.status.request(SUBMITTER, accepted.request_id)
    assert "validate_dataset" not in status.model_dump_json()


async def test_inputs_that_the_next_workflow_refuses_fail_the_request(business: Business) -> None:
    accepted = await stepwise(business)
    job_id = (await business.jobs_of(accepted))["validate_dataset"]
    async with transaction(business.pool) as conn:
        await conn.execute(
            "UPDATE dagapp.platform_requests SET operation = jsonb_set(operation,"
            " '{stages,1,jobs,process_raster,inputs,raster}', '\"no mapping\"')"
        )
    await business.finish(job_id)
    row = await request_row(business, accepted)
    assert (row["state"], row["errors"][0]["code"], row["errors"][0]["field"]) == (
        "failed",
        "OPERATION_FAILED",
        "inputs.raster",
    )
    assert list(await business.jobs_of(accepted)) == STEPS[:1]


async def test_a_stage_that_nobody_starts_rolls_the_end_back(business: Business) -> None:
    accepted = await stepwise(business)
    job = await business.engine.job((await business.jobs_of(accepted))["validate_dataset"])
    ended = job.model_copy(update={"status": JobStatus.COMPLETED, "outputs": {"raster": {}, "source": "x"}})
    with pytest.raises(StageNotStarted):
        async with transaction(business.pool) as conn:
            await on_job_ended(conn, ended)


async def test_a_crash_while_the_next_step_begins_leaves_the_step_before_unended(
    business: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = await stepwise(business)
    first = (await business.jobs_of(accepted))["validate_dataset"]
    message = await business.engine.message(first)
    linked = RequestRepository.link_job

    async def dies(*_: Any, **__: Any) -> None:
        raise OSError("the process died here")

    monkeypatch.setattr(RequestRepository, "link_job", dies)
    await business.worker.run(message, output=await business.output_of(message))
    assert list(await business.jobs_of(accepted)) == STEPS[:1]
    assert (await business.engine.job(first)).status is JobStatus.RUNNING
    assert (await business.counts())["jobs"] == 1

    monkeypatch.setattr(RequestRepository, "link_job", linked)
    await business.engine.advance(first)
    assert (await business.engine.job(first)).status is JobStatus.COMPLETED
    assert list(await business.jobs_of(accepted)) == STEPS[:2]


async def test_a_rejected_version_goes_through_every_step_again(business: Business) -> None:
    accepted = await stepwise(business)
    for step in STEPS:
        await business.finish((await business.jobs_of(accepted))[step])
    await business.reject(accepted)
    again = await business.requests.resubmit(SUBMITTER, accepted.request_id, {"title": "Better"})
    assert (again.version_ordinal, again.revision) == (accepted.version_ordinal, 2)
    for step in STEPS:
        await business.finish((await business.jobs_of(again))[step])
    row = await business.row(again)
    assert (row["processing_state"], row["title"], row["revision"]) == ("completed", "Better", 2)
    assert f"/{accepted.version_ordinal}/r2/" in row["blob_path"]


async def test_a_file_behind_a_url_is_fetched_by_the_first_step_and_the_next_reads_the_copy(business: Business) -> None:
    rules = '[{"url": "https://data.example.org/exports/"}]'
    await business.engine.query("UPDATE dagapp.platforms SET allowed_sources = %s::jsonb", rules)
    accepted = await stepwise(business, source={"url": "https://data.example.org/exports/dem.tif?sig=S3CRET"})
    jobs = await business.jobs_of(accepted)
    secrets = await business.engine.query("SELECT job_id FROM dagapp.request_secrets")
    assert [row["job_id"] for row in secrets] == [jobs["validate_dataset"]]
    await business.finish(jobs["validate_dataset"])
    assert await business.engine.query("SELECT job_id FROM dagapp.request_secrets") == []
    process = await business.engine.job((await business.jobs_of(accepted))["process_raster"])
    assert process.input_params["source"].startswith(f"bronze/fetched/{accepted.asset_id}/0/r1/")


async def test_of_a_stage_that_can_not_begin_whole_nothing_begins(pool: AsyncPool, storage: Storage) -> None:
    business = parallel(pool, storage)
    await allow(pool, "raster_parallel")
    accepted = await business.submit(workflow_id="raster_parallel")
    later = {"stages": [{"jobs": {"d": {"workflow": "echo_a", "inputs": {}}, "e": {"workflow": "gone", "inputs": {}}}}]}
    await business.engine.query(
        "UPDATE dagapp.platform_requests SET operation = jsonb_set(operation, '{stages}',"
        " (operation -> 'stages') || (%s::jsonb -> 'stages'))",
        json.dumps(later),
    )
    jobs = await business.jobs_of(accepted)
    for job_id in jobs.values():
        await echo(business, job_id)
    row = await request_row(business, accepted)
    assert (row["state"], row["errors"][0]["code"]) == ("failed", "OPERATION_FAILED")
    assert await business.jobs_of(accepted) == jobs
    assert (await business.counts())["jobs"] == len(jobs)


async def test_an_operation_is_only_for_platforms_that_may_and_its_workflows_must_be_there(
    pool: AsyncPool, storage: Storage
) -> None:
    business = Business(pool, storage, repository_workflows())
    async with transaction(pool) as conn:
        await conn.execute("UPDATE dagapp.platforms SET allowed_workflows = '[\"raster_ingest\"]'")
    with pytest.raises(GeodagError) as refused:
        await stepwise(business)
    assert (refused.value.detail.code, refused.value.detail.field) == ("FORBIDDEN", "workflow_id")
    assert (await business.counts())["requests"] == 0
