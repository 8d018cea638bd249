"""Storage, broker and identity endpoint are away for some seconds, one after the other, while a platform works.

Everything enters with tokens over TLS. Whoever asks meanwhile is told to come again, and nothing is lost.
"""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient, ContentSettings

from cli.stack.cluster import TEST_CONFIG
from cli.stack.layout import BlobsKind, QueueKind, Shape
from cli.stack.stack import Stack
from tests.acceptance.platform import Answer, Json, Platform, http
from tests.acceptance.rasters import geotiff, noise, terrain
from tests.acceptance.verdicts import check_applied_once
from tests.support.waiting import wait_until

TOKEN_SECONDS = 16.0
"""Replaced after half of that."""
AWAY_SECONDS = 6.0
GRACE_SECONDS = 15.0
JOBS = 20
SIZE = 2000


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """Yield a platform on everything that stands in for Azure."""
    home = Path(tempfile.mkdtemp(prefix="geodag-outages-"))
    home.chmod(0o755)
    shape = Shape(
        orchestrators=1,
        queue=QueueKind.SERVICEBUS,
        blobs=BlobsKind.AZURITE,
        identity=True,
        token_seconds=TOKEN_SECONDS,
        overrides={"worker": {"WORKER_JOURNAL_FILE": str(home / "journal")}},
    )
    stack = Stack(home / "stack", ports={}, shape=shape, database_config=TEST_CONFIG)
    stack.start()
    try:
        yield Platform(stack, home / "journal")
    finally:
        stack.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def published(platform: Platform) -> str:
    """Return the asset of a raster that everybody may download."""
    accepted = platform.accepted(geotiff(terrain()), "published")
    assert platform.finished(accepted["request_id"])["state"] == "completed"
    assert platform.approve(accepted["asset_id"], 0).status == 200
    return str(accepted["asset_id"])


@contextmanager
def away(platform: Platform, part: str) -> Iterator[float]:
    """Take a part away until the end of the block; yields since when."""
    platform.stack.supervisor.stop_part(part, GRACE_SECONDS)
    try:
        yield time.monotonic()
    finally:
        platform.stack.supervisor.start_part(part)
        platform.stack.wait_ready(60, (part,))


@contextmanager
def frozen(platform: Platform, part: str) -> Iterator[float]:
    """Let a part take connections and answer nothing until the end of the block; yields since when."""
    platform.stack.kill(part, signal.SIGSTOP)
    try:
        yield time.monotonic()
    finally:
        platform.stack.kill(part, signal.SIGCONT)


def lasts(since: float, seconds: float) -> None:
    """Return once something has lasted for so long."""
    wait_until(lambda: time.monotonic() - since >= seconds, "the outage to last", seconds + 1, every=0.1)


def download(platform: Platform, asset: str) -> Answer:
    """Return what serving says to who wants the file."""
    return http("GET", f"{platform.serving}/download/{asset}", timeout_seconds=60)


def event(platform: Platform) -> int:
    """Return the last event so far."""
    return int(platform.value("SELECT coalesce(max(event_id), 0) FROM dagapp.dag_job_events"))


def completed(platform: Platform, jobs: list[str], seconds: float = 90) -> None:
    """Return once all jobs are completed."""
    done = "SELECT count(*) FROM dagapp.dag_jobs WHERE status = 'COMPLETED' AND job_id = ANY(%s)"
    wait_until(lambda: platform.value(done, jobs) == len(jobs), "every job completed", seconds, every=0.2)


def told_to_come_again(answer: Answer, *codes: str) -> None:
    """Check that an answer says so, and nothing of where anything lies."""
    assert answer.status == 503, answer.body[:500]
    assert answer.json["code"] in codes
    assert answer.headers["retry-after"]
    assert b"silver" not in answer.body


def test_a_storage_that_is_away_costs_time_and_nothing_else(platform: Platform, published: str) -> None:
    content, before = download(platform, published).body, event(platform)
    rasters = [platform.accepted(geotiff(noise(SIZE, seed)), f"away-{seed}") for seed in (1, 2, 3)]
    large = platform.create_job("large_values", {"count": 3000, "bytes_each": 200})
    address = granted(platform)
    first = rasters[0]["request_id"]
    wait_until(lambda: platform.worker_of(first, "create_cog"), "a COG is being written", 60, every=0.005)
    with away(platform, "azurite") as since:
        told_to_come_again(download(platform, published), "STORAGE_UNAVAILABLE")
        told_to_come_again(put(address), "STORAGE_UNAVAILABLE")
        lasts(since, AWAY_SECONDS)
    states = [platform.finished(one["request_id"], 120) for one in rasters]
    assert [(one["state"], one["errors"]) for one in states] == [("completed", [])] * len(rasters)
    completed(platform, [large])
    assert download(platform, published).body == content
    assert put(address).status == 201, "the name is still free"
    check_applied_once(platform, before)


def put(address: Json) -> Answer:
    """Return what is said to who brings a file to its address."""
    return http("PUT", address["upload_url"], body=b"x" * 1000, timeout_seconds=60)


def granted(platform: Platform) -> Json:
    """Return an upload address."""
    wish = {"platform_id": "ddh", "filename": "later.tif"}
    answer = http("POST", f"{platform.gateway}/api/platform/uploads", headers=platform.as_("submitter-ddh"), body=wish)
    assert answer.status == 201, answer.body
    address: Json = answer.json
    return address


def test_what_answers_nothing_for_a_while_is_waited_for(platform: Platform, published: str) -> None:
    content, before = download(platform, published).body, event(platform)
    jobs = [platform.create_job("large_values", {"count": 3000, "bytes_each": 200})]
    accepted = platform.accepted(geotiff(terrain(seed=2)), "frozen")
    with ThreadPoolExecutor(1) as beside:
        with frozen(platform, "azurite") as since, frozen(platform, "servicebus"):
            waiting = beside.submit(download, platform, published)
            jobs += [platform.create_job("echo_test", {"message": f"m{number}"}) for number in range(JOBS)]
            lasts(since, AWAY_SECONDS)
        answer = waiting.result(60)
    assert (answer.status, answer.body) == (200, content)
    assert platform.finished(accepted["request_id"], 120)["state"] == "completed"
    completed(platform, jobs)
    check_applied_once(platform, before)


def test_a_file_that_the_storage_finds_damaged_is_no_download(platform: Platform, published: str) -> None:
    asked = "SELECT blob_path FROM dagapp.asset_versions WHERE asset_id = %s"
    container, _, name = platform.value(asked, published).partition("/")
    azurite = platform.stack.plan.azurite
    access, ca = azurite.connection_string, str(azurite.certificate)
    with BlobServiceClient.from_connection_string(access, connection_verify=ca) as service:
        blob = service.get_blob_client(container, name)
        settings = blob.get_blob_properties().content_settings
        blob.set_http_headers(ContentSettings(content_md5=bytearray(16)))
        told_to_come_again(download(platform, published), "STORAGE_UNAVAILABLE")
        blob.set_http_headers(settings)
    assert download(platform, published).status == 200


def test_a_broker_that_is_away_delays_what_is_accepted_meanwhile(platform: Platform) -> None:
    before = event(platform)
    jobs = [platform.create_job("sleep_test", {"seconds": 2.0}) for _ in range(JOBS)]
    with away(platform, "servicebus") as since:
        jobs += [platform.create_job("echo_test", {"message": f"m{number}"}) for number in range(JOBS)]
        lasts(since, AWAY_SECONDS)
    completed(platform, jobs)
    check_applied_once(platform, before)
    used = "SELECT coalesce(sum(losses_used + retries_used), 0) FROM dagapp.dag_node_states WHERE job_id = ANY(%s)"
    assert platform.value(used, jobs) == 0
    left = "SELECT count(*) FROM dagqueue.messages"
    wait_until(lambda: platform.value(left) == 0, "nothing left in the outbox", 30)


def test_an_identity_endpoint_that_is_away_longer_than_tokens_live_is_told_and_gone_with_it(
    platform: Platform, published: str
) -> None:
    content, before = download(platform, published).body, event(platform)
    with away(platform, "identity") as since:
        assert download(platform, published).body == content, "the tokens that there are still open everything"
        jobs = [platform.create_job("echo_test", {"message": f"m{number}"}) for number in range(3)]
        lasts(since, TOKEN_SECONDS)
        codes = ("IDENTITY_UNAVAILABLE", "DATABASE_UNAVAILABLE", "STORAGE_UNAVAILABLE")
        told_to_come_again(download(platform, published), *codes)
    wait_until(lambda: download(platform, published).status == 200, "downloads again", 30, every=0.5)
    assert download(platform, published).body == content
    accepted = platform.accepted(geotiff(terrain()), "after-the-identity")
    assert platform.finished(accepted["request_id"])["state"] == "completed"
    completed(platform, jobs)
    check_applied_once(platform, before)
