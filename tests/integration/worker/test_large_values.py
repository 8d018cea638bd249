"""Large params and outputs through a whole worker: by reference in messages and results, verified, patient."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from core import payloads
from core.errors import Classification, StorageUnavailable
from core.ids import digest
from core.payloads import PayloadRef, decode, encode, task_prefix, value_prefix
from core.ports import BlobInfo, BlobRef, BlobRepository
from core.wire import TaskResult, TaskStatus
from repositories.blobs_folder import FolderBlobRepository
from repositories.payloads import PayloadStore
from tests.integration.worker.conftest import Dispatcher
from tests.integration.worker.running import running
from tests.support.storage import Storage

pytestmark = pytest.mark.usefixtures("environment")

ITEMS = [{"index": number, "name": "ä" * 90} for number in range(100_000)]


@pytest.fixture
def store(blobs: BlobRepository) -> PayloadStore:
    return PayloadStore(blobs)


async def dispatch_large(
    dispatch: Dispatcher, store: PayloadStore, task_id: str, handler: str, params: dict[str, Any]
) -> PayloadRef:
    """Store params as an orchestrator does and dispatch their reference."""
    ref = await store.put(value_prefix(task_id.split("_")[0]), encode(params, "params"))
    dispatch.orchestrator.digests[task_id] = digest(params)
    await dispatch(task_id, handler, params_ref=ref, timeout_seconds=120)  # 20 MB on a machine that has other work
    return ref


def size_of(path: str) -> int:
    return os.path.getsize(path)


async def test_params_and_output_of_20_megabytes_go_through_a_subprocess_by_reference(
    dispatch: Dispatcher, store: PayloadStore, environment: dict[str, str]
) -> None:
    async with running():
        ref = await dispatch_large(dispatch, store, "job_a_0", "chunk_processor", {"items": ITEMS})
        result = await dispatch.result("job_a_0", 120)
        log_bytes = size_of(f"{environment['WORKER_STATE_DIR']}/results.log")
    assert ref.size_bytes > 19_000_000
    assert (result.status, result.output) == (TaskStatus.COMPLETED, None)
    assert result.output_ref is not None
    assert result.output_ref.size_bytes > 19_000_000
    assert payloads.is_output_of(result.output_ref, "job_a_0")
    kept = decode(result.output_ref, await store.get(result.output_ref))
    assert kept == {"processed": 100_000, "results": ITEMS}
    assert log_bytes < 2000


async def test_an_inline_handler_sees_large_params_as_if_they_had_been_in_the_message(
    dispatch: Dispatcher, store: PayloadStore
) -> None:
    params = {"x": "y" * 300_000}
    async with running():
        await dispatch_large(dispatch, store, "job_a_0", "echo", params)
        result = await dispatch.result("job_a_0")
    assert result.output_ref is not None
    assert decode(result.output_ref, await store.get(result.output_ref)) == {"echoed_params": params}


@pytest.mark.parametrize(("code", "damage"), [("PAYLOAD_MISSING", None), ("PAYLOAD_CORRUPT", b"{}")])
async def test_lost_params_fail_the_task_for_good_and_name_the_blob(
    dispatch: Dispatcher, store: PayloadStore, storage: Storage, code: str, damage: bytes | None
) -> None:
    ref = await store.put(value_prefix("job"), encode({"x": "y" * 100_000}, "params"))
    path = f"silver/{ref.blob}"
    storage.remove(path) if damage is None else storage.put(path, damage)
    async with running():
        await dispatch("job_a_0", "echo", params_ref=ref)
        error = error_of(await dispatch.result("job_a_0"))
    assert (error.code, error.field, error.classification) == (code, ref.blob, Classification.PERMANENT)


@pytest.mark.parametrize("case", ["another job's", "other than dispatched", "no mapping"])
async def test_params_that_are_not_what_was_dispatched_are_not_run(
    dispatch: Dispatcher, store: PayloadStore, environment: dict[str, str], case: str
) -> None:
    params: Any = [1] if case == "no mapping" else {"x": 1}
    prefix = value_prefix("other" if case == "another job's" else "job")
    ref = await store.put(prefix, encode(params, "params"))
    if case != "other than dispatched":
        dispatch.orchestrator.digests["job_a_0"] = digest(params)
    async with running():
        await dispatch("job_a_0", "echo", params_ref=ref)
        error = error_of(await dispatch.result("job_a_0"))
    assert (error.code, error.classification) == ("INTERNAL", Classification.TRANSIENT)
    assert "other params" in error.message


def error_of(result: TaskResult) -> Any:
    assert result.error is not None
    return result.error


class Flaky(FolderBlobRepository):
    """A storage that is away for some calls."""

    failures = 3

    async def create(self, ref: BlobRef, data: bytes) -> BlobInfo:
        self._maybe_fail()
        return await super().create(ref, data)

    async def read(self, ref: BlobRef, max_bytes: int) -> bytes:
        self._maybe_fail()
        return await super().read(ref, max_bytes)

    def _maybe_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("the storage is away")


async def test_a_storage_that_is_away_delays_params_and_results_and_the_handler_runs_once(
    dispatch: Dispatcher, store: PayloadStore, blob_root: Path, environment: dict[str, str]
) -> None:
    async with running(blobs=Flaky(blob_root)):
        await dispatch_large(dispatch, store, "job_a_0", "echo", {"x": "y" * 100_000})
        result = await dispatch.result("job_a_0")
    assert result.output_ref is not None
    assert result.output_ref.blob.startswith(task_prefix("job", "job_a_0"))
    assert lines_of(environment["WORKER_JOURNAL_FILE"]) == ["job_a_0 started", "job_a_0 finished"]


async def test_a_storage_that_stays_away_fails_the_task_transiently_in_its_time(
    dispatch: Dispatcher, blob_root: Path
) -> None:
    class Away(Flaky):
        failures = 1_000_000

    async with running(blobs=Away(blob_root)):
        await dispatch("job_a_0", "echo", {"x": "y" * 100_000}, timeout_seconds=1)
        error = error_of(await dispatch.result("job_a_0"))
    assert error.classification is Classification.TRANSIENT
    assert error.code in {"STORAGE_UNAVAILABLE", "TASK_TIMEOUT"}


async def test_an_output_beyond_the_largest_value_is_refused_with_the_way_out(
    dispatch: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "MAX_BYTES", 100_000)
    async with running():
        await dispatch("job_a_0", "echo", {"x": "y" * 150_000})
        error = error_of(await dispatch.result("job_a_0"))
    assert (error.code, error.field) == ("VALUE_TOO_LARGE", "output")
    assert "file" in error.remediation


def lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


async def test_each_phase_leaves_a_line_and_its_checkpoint_goes_out_at_once(
    dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    orchestrator = dispatch.orchestrator
    async with running(worker_heartbeat_seconds=60):
        await dispatch.until(lambda: orchestrator.beats, "the first beat, after which the worker would be silent")
        await dispatch("job_a_0", "multi_phase", {"phases": 3, "seconds_per_phase": 0.5})
        started = asyncio.get_running_loop().time()
        result = await dispatch.result("job_a_0")
        assert asyncio.get_running_loop().time() - started < 20
    assert result.output == {"phases_run": [0, 1, 2], "resumed_from": 0}
    lines = lines_of(environment["WORKER_JOURNAL_FILE"])
    assert lines[1:-1] == [f"job_a_0 phase {number}" for number in range(3)]
    sent = [beat.checkpoint for call in orchestrator.beats for beat in call.beats if beat.checkpoint]
    assert sent[:2] == [{"phase": f"phase_{number}", "state": {"done": number + 1}} for number in range(2)]
