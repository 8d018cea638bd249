"""A submit that names a URL: the credential is sealed, goes to the worker of the fetch alone, and ends with the job."""

import base64
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from core.errors import CallerError
from core.models.engine import Job
from core.sources import READ_WHOLE_BYTES
from core.wire import TaskMessage
from edge.seal import Seal
from repositories.payloads import PayloadStore
from services.claims import ClaimService
from services.validate import ValidateService, ValidationUnfinished
from tests.support.business import SUBMITTER, Business, submit_body

URL = "https://data.example.org/exports/dem.tif"
SECRET = "sv=2024&sig=SECRET-aa11%2B&se=2026"


async def registered(business: Business) -> Business:
    """Let the platform name URLs."""
    rules = [{"container": "bronze", "prefix": "ddh/"}, {"url": "https://data.example.org/exports/"}]
    await business.engine.query(
        "UPDATE dagapp.platforms SET allowed_sources = %s WHERE platform_id = 'ddh'", Jsonb(rules)
    )
    return business


async def everything(business: Business) -> str:
    """Return every row of every table of ours as text."""
    tables = await business.engine.query(
        "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace::regnamespace::text IN ('dagapp', 'dagqueue')"
    )
    found = [str(await business.engine.query(f"SELECT t::text FROM {table['name']} AS t")) for table in tables]
    return "\n".join(found)


async def test_the_credential_is_sealed_reaches_the_fetch_alone_and_ends_with_the_job(business: Business) -> None:
    await registered(business)
    accepted = await business.submit(source={"url": f"{URL}?{SECRET}"}, title=None)
    job_id = await business.job_of(accepted)
    message = await business.engine.message(job_id)
    assert (message.handler, message.params["url"], message.params["file_name"]) == ("source.fetch", URL, "dem.tif")
    assert "SECRET-aa11" not in await everything(business)
    (answer,) = await business.worker.claim(message, claim_id="c1")
    assert answer.credential == SECRET
    assert "SECRET-aa11" not in repr(answer)
    (again,) = await business.worker.claim(message, claim_id="c1")
    (other,) = await business.worker.claim(message, claim_id="c2")
    (forged,) = await business.worker.claim(message.model_copy(update={"token": "00"}), claim_id="c1")
    assert (again.credential, other.credential, forged.credential) == (SECRET, None, None)

    await business.worker.complete(message, output=await business.output_of(message))
    validate = await business.engine.message(job_id)
    copy = f"bronze/fetched/{accepted.asset_id}/0/r1/{message.task_id}/dem.tif"
    assert (validate.params["source"], validate.params["expected_size_bytes"]) == (copy, 6)
    (claimed,) = await business.worker.claim(validate)
    assert claimed.credential is None
    await business.worker.complete(validate, output=await business.output_of(validate))
    assert len(await business.engine.query("SELECT job_id FROM dagapp.request_secrets")) == 1
    await business.finish(job_id, message, validate)
    assert await business.engine.query("SELECT job_id FROM dagapp.request_secrets") == []
    row = await business.row(accepted)
    assert (row["processing_state"], row["source"], row["title"]) == ("completed", {"url": URL}, "dem.tif")
    assert "SECRET-aa11" not in await everything(business)


async def test_a_job_that_fails_or_is_cancelled_forgets_the_credential_too(business: Business) -> None:
    await registered(business)
    failed = await business.submit(source={"url": f"{URL}?{SECRET}"})
    await business.fail(await business.job_of(failed), code="SOURCE_FORBIDDEN", message="403", field="source")
    cancelled = await business.requests.resubmit(SUBMITTER, failed.request_id, {"source": {"url": f"{URL}?{SECRET}"}})
    assert len(await business.engine.query("SELECT job_id FROM dagapp.request_secrets")) == 1
    await business.engine.order(await business.job_of(cancelled), "cancel")
    assert await business.engine.query("SELECT job_id FROM dagapp.request_secrets") == []


class Impatient:
    """Waits for no job."""

    def __init__(self, business: Business) -> None:
        self.business = business
        self.job_id = ""

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job:
        """Return the job as it is."""
        self.job_id = job_id
        return await self.business.engine.job(job_id)


async def validation(business: Business, **changes: Any) -> TaskMessage:
    """Return the task that a validation starts."""
    waiter = Impatient(business)
    store = PayloadStore(business.blobs)
    service = ValidateService(business.pool, business.submits, business.engine.jobs, waiter, store)
    with pytest.raises(ValidationUnfinished):
        await service.validate(SUBMITTER, submit_body(**changes))
    return await business.engine.message(waiter.job_id)


async def test_a_check_of_a_url_reads_its_header_with_the_credential_and_copies_nothing(business: Business) -> None:
    await registered(business)
    message = await validation(business, source={"url": f"{URL}?{SECRET}"})
    params = {"url": URL, "file_name": "dem.tif", "options": {}}
    assert (message.handler, message.params) == ("raster.inspect", params)
    (claimed,) = await business.worker.claim(message)
    assert claimed.credential == SECRET
    await business.engine.order(message.job_id, "cancel")
    assert await business.engine.query("SELECT job_id FROM dagapp.request_secrets") == []


async def test_a_check_of_a_blob_reads_a_large_one_by_its_header(business: Business) -> None:
    small = await validation(business)
    assert (small.handler, small.params["header_only"]) == ("raster.validate", False)
    business.put("ddh/large.tif", bytes(READ_WHOLE_BYTES + 1))
    large = await validation(business, source={"container_name": "bronze", "blob_name": "ddh/large.tif"})
    assert large.params["header_only"] is True
    assert (large.params["source"], large.params["expected_size_bytes"]) == (
        "bronze/ddh/large.tif",
        READ_WHOLE_BYTES + 1,
    )


async def test_a_newer_credential_for_the_same_file_is_the_same_request(business: Business) -> None:
    await registered(business)
    first = await business.submit(key="k1", source={"url": f"{URL}?{SECRET}"})
    again = await business.submit(key="k1", source={"url": f"{URL}?sig=newer"})
    assert again == first
    (row,) = await business.engine.query("SELECT body FROM dagapp.platform_requests")
    assert row["body"]["source"] == {"url": URL}


async def test_a_credential_under_a_key_that_is_gone_is_missing_and_stops_no_other_claim(business: Business) -> None:
    await registered(business)
    accepted = await business.submit(source={"url": f"{URL}?{SECRET}"})
    other = await business.engine.create("echo_test")
    messages = [await business.engine.message(await business.job_of(accepted)), await business.engine.message(other)]
    business.engine.claims = ClaimService(business.pool, 20.0, Seal(base64.b64encode(b"o" * 32).decode()))
    answers = await business.worker.claim(*messages)
    assert [(answer.outcome, answer.credential) for answer in answers] == [("granted", None)] * 2


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ({"url": f"https://evil.test/dem.tif?{SECRET}"}, "FORBIDDEN"),
        ({"url": f"https://data.example.org/private/dem.tif?{SECRET}"}, "FORBIDDEN"),
        ({"url": f"https://data.example.org/exports/../private/dem.tif?{SECRET}"}, "PARAMETER_INVALID"),
        ({"url": f"file:///etc/passwd?{SECRET}"}, "PARAMETER_INVALID"),
        ({"url": f"/vsicurl?header_file=/etc/hostname&url=http://127.0.0.1:9/x&{SECRET}"}, "PARAMETER_INVALID"),
        ({"url": f"{URL}?{SECRET}", "container_name": "bronze"}, "PARAMETER_INVALID"),
        ({"url": ["x"]}, "PARAMETER_INVALID"),
    ],
)
async def test_what_a_platform_may_not_name_is_refused_without_the_credential(
    business: Business, source: dict[str, Any], code: str
) -> None:
    await registered(business)
    before = await business.counts()
    with pytest.raises(CallerError) as refused:
        await business.submit(source=source)
    assert (refused.value.detail.code, refused.value.detail.field in ("source", "url")) == (code, True)
    assert "SECRET" not in refused.value.detail.model_dump_json()
    assert await business.counts() == before


@pytest.mark.parametrize(
    "url",
    ["http://data.example.org/a", "https://127.0.0.1/a", "https://[::1]/a", "https://2130706433/a", "https://10.0.0.5/a",
     "https://169.254.169.254/a", "https://intranet/a", "https://data.example.org:22/a"],
)  # fmt: skip
async def test_even_a_registered_prefix_does_not_lead_inside(business: Business, url: str) -> None:
    rules = [{"url": url.removesuffix("a")}]
    await business.engine.query("UPDATE dagapp.platforms SET allowed_sources = %s", Jsonb(rules))
    with pytest.raises(CallerError) as refused:
        await business.submit(source={"url": f"{url}?{SECRET}"})
    assert (refused.value.detail.code, refused.value.detail.field) == ("SOURCE_URL_FORBIDDEN", "source")
