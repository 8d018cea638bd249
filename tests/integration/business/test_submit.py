"""Submit on a real database: all or nothing, ordered, and once per idempotency key."""

import asyncio
from typing import Any

import pytest

from core.dag.catalogue import WorkflowCatalogue
from core.errors import Conflict, Forbidden, GeodagError, NotFound, ParameterInvalid
from core.identity import Caller
from core.models.business import ProcessingState
from repositories.database import AsyncPool, transaction
from services.submit import SubmitService
from tests.support.business import FOREIGNER, READER, REVIEWER, SUBMITTER, URLS, Business, fresh_refs, submit_body
from tests.support.storage import Storage

NOTHING = {"assets": 0, "versions": 0, "requests": 0, "jobs": 0, "audit": 0, "messages": 0}
ONE = {"assets": 1, "versions": 1, "requests": 1, "jobs": 1, "audit": 1, "messages": 1}


async def refusal(business: Business, caller: Caller = SUBMITTER, **changes: Any) -> tuple[str, str | None]:
    """Return code and field of a refused submit, which must leave nothing behind."""
    before = await business.counts()
    with pytest.raises(GeodagError) as refused:
        await business.submit(caller, **changes)
    assert await business.counts() == before
    return refused.value.detail.code, refused.value.detail.field


async def test_a_submit_makes_asset_version_request_job_and_message_together(business: Business) -> None:
    accepted = await business.submit(title="Relief", tags=["dem"], access_level="public")
    assert await business.counts() == ONE
    assert accepted.asset_id == "a9234e9e7b1ae7c5151568522b54db33"
    assert (accepted.version_ordinal, accepted.revision) == (0, 1)
    assert accepted.status_url == f"https://gateway.test/api/platform/status/{accepted.request_id}"
    version = await business.row(accepted)
    assert (version["title"], version["tags"], version["submitted_by"]) == ("Relief", ["dem"], "sue")
    assert (version["approval_state"], version["processing_state"]) == ("pending_review", "queued")
    assert version["current_job_id"] == await business.job_of(accepted)
    assert version["source"]["size_bytes"] == 6
    assert version["source"]["etag"]


async def test_the_job_gets_everything_the_ingest_needs(business: Business) -> None:
    accepted = await business.submit(options={"nodata": -1, "crs": "EPSG:4326"}, priority=9)
    job = await business.engine.job(await business.job_of(accepted))
    inputs = job.input_params
    assert (job.workflow_id, job.priority, job.correlation_id, job.submitted_by) == (
        "raster_tiled",
        9,
        accepted.request_id,
        "sue",
    )
    assert inputs["options"] == {"nodata": -1.0, "crs": "EPSG:4326"}
    assert inputs["output_prefix"] == f"silver/{accepted.asset_id}/0/r1"
    assert inputs["href"] == f"https://serving.test/download/{accepted.asset_id}?version=0"
    assert inputs["item_id"] == f"{accepted.asset_id}-v0"
    assert inputs["properties"] == {
        "platform:platform_id": "ddh",
        "platform:dataset_id": "0038272",
        "platform:resource_id": "shapefile",
        "platform:version_id": "V1",
        "platform:request_id": accepted.request_id,
    }


async def test_a_workflow_that_is_not_loaded_leaves_nothing_of_the_submit(pool: AsyncPool, storage: Storage) -> None:
    business = Business(pool, storage, WorkflowCatalogue({}))
    assert await refusal(business) == ("NOT_FOUND", "workflow_id")
    assert await business.counts() == NOTHING


@pytest.mark.parametrize(
    ("changes", "caller", "code", "field"),
    [
        (
            {"source": {"container_name": "bronze", "blob_name": "ddh/none.tif"}},
            SUBMITTER,
            "FILE_NOT_FOUND",
            "file",
        ),
        ({"source": {"container_name": "bronze", "blob_name": "ddh"}}, SUBMITTER, "FORBIDDEN", "source"),
        ({"source": {"container_name": "bronze", "blob_name": "arcgis/x.tif"}}, SUBMITTER, "FORBIDDEN", "source"),
        ({"source": {"container_name": "bronze", "blob_name": "ddh/empty.tif"}}, SUBMITTER, "FILE_EMPTY", "file"),
        ({"platform_id": "nobody"}, SUBMITTER, "FORBIDDEN", "platform_id"),
        ({"platform_id": "arcgis"}, SUBMITTER, "FORBIDDEN", "platform_id"),
        ({}, FOREIGNER, "FORBIDDEN", "platform_id"),
        ({}, READER, "FORBIDDEN", "role"),
        ({}, REVIEWER, "FORBIDDEN", "role"),
        ({"platform_refs": {"dataset_id": "1"}}, SUBMITTER, "PARAMETER_MISSING", "platform_refs.resource_id"),
        ({"colour": "red"}, SUBMITTER, "PARAMETER_INVALID", "colour"),
        ({"previous_version_ordinal": 0}, SUBMITTER, "VERSION_STALE", "previous_version_ordinal"),
    ],
)
async def test_a_bad_submit_is_refused_and_leaves_nothing(
    business: Business, changes: dict[str, Any], caller: Caller, code: str, field: str
) -> None:
    business.put("ddh/empty.tif", b"")
    assert await refusal(business, caller, **changes) == (code, field)
    assert await business.counts() == NOTHING


async def test_the_same_key_and_body_get_the_same_answer_even_when_the_file_is_gone(business: Business) -> None:
    first = await business.submit(key="k1")
    business.storage.remove("bronze/ddh/dem.tif")
    assert await business.submit(key="k1") == first
    assert await business.submit(idempotency_key="k1") == first
    assert await business.counts() == ONE


async def test_the_same_key_with_another_body_is_a_conflict(business: Business) -> None:
    await business.submit(key="k1")
    with pytest.raises(Conflict) as refused:
        await business.submit(key="k1", title="other")
    assert refused.value.detail.code == "IDEMPOTENCY_CONFLICT"
    assert await business.counts() == ONE


async def test_a_key_belongs_to_one_platform(business: Business) -> None:
    await business.submit(key="k1")
    business.put("arcgis/x.tif", b"pixels")
    other = await business.submit(
        FOREIGNER,
        key="k1",
        platform_id="arcgis",
        platform_refs={"item_id": "1", "layer_index": "0"},
        source={"container_name": "bronze", "blob_name": "arcgis/x.tif"},
    )
    assert other.version_ordinal == 0
    assert (await business.counts())["requests"] == 2


async def test_twenty_submits_under_one_key_at_once_are_one_request(business: Business) -> None:
    answers = await asyncio.gather(*(business.submit(key="k1") for _ in range(20)))
    assert len({answer.request_id for answer in answers}) == 1
    assert await business.counts() == ONE


async def test_different_bodies_under_one_key_at_once_give_one_request_and_conflicts(business: Business) -> None:
    tries = (business.submit(key="k1", title=f"t{n}", platform_refs=fresh_refs()) for n in range(8))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    codes = [a.detail.code for a in answers if isinstance(a, Conflict)]
    assert codes == ["IDEMPOTENCY_CONFLICT"] * 7
    assert await business.counts() == ONE


async def test_first_submits_of_one_asset_at_once_make_one_version_and_refusals(business: Business) -> None:
    tries = (business.submit(version_label=f"V{n}") for n in range(8))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    refused = [a.detail.code for a in answers if isinstance(a, Conflict)]
    assert refused == ["VERSION_UNRESOLVED"] * 7
    assert await business.counts() == ONE


async def test_submits_of_many_assets_at_once_do_not_disturb_each_other(business: Business) -> None:
    answers = await asyncio.gather(*(business.submit(platform_refs=fresh_refs()) for _ in range(12)))
    assert len({a.asset_id for a in answers}) == 12
    assert {a.version_ordinal for a in answers} == {0}


async def test_versions_submitted_at_once_after_an_approval_get_one_next_ordinal(business: Business) -> None:
    await business.approved()
    tries = (business.submit(version_label=f"W{n}") for n in range(6))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    made = [a for a in answers if not isinstance(a, BaseException)]
    assert [(a.version_ordinal, a.revision) for a in made] == [(1, 1)]


async def test_an_unresolved_version_blocks_the_next_with_the_ways_out(business: Business) -> None:
    await business.processed()
    with pytest.raises(Conflict) as refused:
        await business.submit(version_label="V2")
    assert refused.value.detail.code == "VERSION_UNRESOLVED"
    assert refused.value.detail.next_actions == ("resubmit", "supersede", "delete")


async def test_a_rejected_version_blocks_the_next_until_it_is_resubmitted_and_approved(business: Business) -> None:
    first = await business.processed()
    await business.reject(first)
    with pytest.raises(Conflict) as refused:
        await business.submit(version_label="V2")
    assert refused.value.detail.next_actions == ("resubmit", "supersede", "delete")
    again = await business.processed()
    assert (again.version_ordinal, again.revision) == (0, 2)
    await business.approve(again)
    assert (await business.submit(version_label="V2")).version_ordinal == 1


async def test_a_resubmit_forgets_what_the_last_revision_made(business: Business) -> None:
    first = await business.processed()
    await business.reject(first)
    again = await business.submit(title="better")
    row = await business.row(again)
    assert (row["revision"], row["title"], row["approval_state"], row["processing_state"]) == (
        2,
        "better",
        "pending_review",
        "queued",
    )
    forgotten = ("blob_path", "stac_item", "reviewer", "reviewed_at", "rejection_reason", "content_hash", "report")
    assert [row[name] for name in forgotten] == [None] * len(forgotten)
    assert row["current_request_id"] == again.request_id
    assert (await business.audit(again))[-1] == ("resubmitted", "sue", "submitter")


async def test_the_label_of_an_approved_version_is_taken(business: Business) -> None:
    await business.approved()
    assert await refusal(business) == ("VERSION_LABEL_EXISTS", "version_label")


async def test_an_asset_keeps_its_data_type(business: Business) -> None:
    first = await business.approved()
    await business.engine.query(
        "UPDATE dagapp.geospatial_assets SET data_type = 'vector' WHERE asset_id = %s", first.asset_id
    )
    assert await refusal(business, version_label="V2") == ("PARAMETER_INVALID", "data_type")


async def test_a_check_stores_nothing_and_says_where_a_submit_would_lead(business: Business) -> None:
    checked, plan = await business.submits.check(SUBMITTER, submit_body())
    assert (checked.submission.asset_id, plan.version_ordinal) == ("a9234e9e7b1ae7c5151568522b54db33", 0)
    assert await business.counts() == NOTHING
    await business.processed()
    with pytest.raises(Conflict):
        await business.submits.check(SUBMITTER, submit_body(version_label="V2"))


@pytest.mark.parametrize("url", ["http://partner.example/hook", "https://10.0.0.1/hook", "https://0x7f000001/hook"])
async def test_a_callback_url_that_leads_inside_is_refused_and_nothing_is_stored(business: Business, url: str) -> None:
    assert await refusal(business, callback_url=url) == ("CALLBACK_URL_FORBIDDEN", "callback_url")
    assert await business.counts() == NOTHING


class BrokenJobs:
    """Creates a real job and then fails, as a lost connection would between two statements."""

    def __init__(self, business: Business) -> None:
        self._jobs = business.engine.jobs

    async def create_job(self, conn: Any, **wish: Any) -> str:
        await self._jobs.create_job(conn, **wish)
        raise NotFound("broken on purpose")


async def test_a_failure_after_the_job_was_made_rolls_the_job_back_too(business: Business) -> None:
    submits = SubmitService(business.pool, business.blobs, BrokenJobs(business), URLS)
    with pytest.raises(NotFound, match="on purpose"):
        await submits.submit(SUBMITTER, submit_body(), None)
    assert await business.counts() == NOTHING


async def test_a_deleted_asset_takes_no_submit(business: Business) -> None:
    first = await business.approved()
    async with transaction(business.pool) as conn:
        await conn.execute("UPDATE dagapp.geospatial_assets SET deleted_at = dagapp.clock()")
    assert await refusal(business, version_label="V2") == ("INVALID_TRANSITION", "platform_refs")
    assert (await business.row(first))["processing_state"] == ProcessingState.COMPLETED


async def test_a_platform_that_is_switched_off_takes_no_submit(business: Business) -> None:
    async with transaction(business.pool) as conn:
        await conn.execute("UPDATE dagapp.platforms SET is_active = false WHERE platform_id = 'ddh'")
    with pytest.raises(ParameterInvalid):
        await business.submit()


async def test_nobody_but_the_own_platform_submits_to_an_asset(business: Business) -> None:
    with pytest.raises(Forbidden):
        await business.submit(FOREIGNER)


async def test_a_dry_run_looks_at_the_key_and_keeps_nothing_under_it(business: Business) -> None:
    for key in ("a b", "", "x" * 256):
        with pytest.raises(ParameterInvalid) as refused:
            await business.submits.check(SUBMITTER, submit_body(), key)
        assert (refused.value.detail.code, refused.value.detail.field) == ("PARAMETER_INVALID", "idempotency_key")
    await business.submits.check(SUBMITTER, submit_body(), "k")
    assert (await business.submit(key="k", title="other")).revision == 1
