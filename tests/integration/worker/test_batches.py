"""Batches of a fan-out through a whole worker."""

from collections.abc import Sequence
from typing import Any

import pytest

from core.ids import digest
from core.payloads import PayloadRef, encode
from core.ports import BlobRepository
from core.wire import ItemOutcome, TaskStatus
from repositories.payloads import PayloadStore
from tests.integration.worker.conftest import Dispatcher
from tests.integration.worker.running import running
from tests.support.storage import Storage

pytestmark = pytest.mark.usefixtures("environment")


def of_items(*params: dict[str, Any]) -> dict[str, Any]:
    """Return the params of a batch whose items have these params."""
    return {"items": [{"index": index, "params": one} for index, one in enumerate(params)]}


def statuses(outcomes: Sequence[ItemOutcome] | None) -> dict[int, str]:
    """Return what became of each item."""
    return {one.index: one.status.value for one in outcomes or ()}


async def test_the_handler_runs_once_for_each_wanted_item_with_its_own_params(dispatch: Dispatcher) -> None:
    async with running():
        await dispatch("job_a_0", "echo", of_items({"v": 0}, {"v": 1}, {"v": 2}), items=(2, 0))
        result = await dispatch.result("job_a_0")
    assert (result.status, result.output) == (TaskStatus.COMPLETED, None)
    assert [(one.index, one.output) for one in result.outcomes or ()] == [
        (2, {"echoed_params": {"v": 2}}),
        (0, {"echoed_params": {"v": 0}}),
    ]
    assert result.metrics["items"] == 2


async def test_the_failure_of_an_item_is_its_own_and_the_next_one_runs(dispatch: Dispatcher) -> None:
    params = of_items({"code": "ODD"}, {"code": "LATER", "transient": True}, {"code": 1}, {"novel": 1})
    async with running():
        await dispatch("job_a_0", "fail", params, items=(0, 1, 2, 3, 7))
        result = await dispatch.result("job_a_0")
    errors = {one.index: one.error for one in result.outcomes or ()}
    assert {index: error and error.code for index, error in errors.items()} == {
        0: "ODD",
        1: "LATER",
        2: "PARAMETER_INVALID",
        3: "UNAVAILABLE",
        7: "INTERNAL",
    }


async def test_each_item_has_its_own_time(dispatch: Dispatcher) -> None:
    params = of_items({"seconds": 0}, {"seconds": 60}, {"seconds": 0})
    async with running():
        await dispatch("job_a_0", "sleep", params, items=(0, 1, 2), timeout_seconds=1.5)
        result = await dispatch.result("job_a_0")
    assert statuses(result.outcomes) == {0: "completed", 1: "failed", 2: "completed"}
    error = (result.outcomes or ())[1].error
    assert error is not None
    assert error.code == "TASK_TIMEOUT"
    assert "0.5 seconds" in error.message


async def test_items_in_subprocesses_survive_each_others_death_and_keep_their_files_apart(
    dispatch: Dispatcher, environment: dict[str, str], storage: Storage
) -> None:
    async with running():
        await dispatch("job_a_0", "kill_itself", of_items({"signal": "SIGKILL"}, {"signal": "SIGSEGV"}), items=(0, 1))
        died = await dispatch.result("job_a_0")
        storage.put("bronze/in.txt", b"in")
        one = {"source": "bronze/in.txt", "output_prefix": "silver/out", "file": "a.bin"}
        await dispatch("job_b_0", "write_file", of_items(one, one), items=(0, 1))
        written = await dispatch.result("job_b_0")
    assert statuses(died.outcomes) == {0: "failed", 1: "failed"}
    paths = [(one.output or {})["blob_path"] for one in written.outcomes or ()]
    assert [path.rpartition("/")[0] for path in paths] == ["silver/out/job_b_0/0", "silver/out/job_b_0/1"]


async def test_what_is_done_goes_out_with_heartbeats_and_the_rest_is_given_back_at_a_drain(
    dispatch: Dispatcher,
) -> None:
    params = of_items({"seconds": 0}, {"seconds": 60}, {"seconds": 60})
    peer = dispatch.orchestrator

    def heard() -> dict[int, str]:
        return statuses([one for call in peer.beats for beat in call.beats for one in beat.outcomes or ()])

    async with running() as run:
        await dispatch("job_a_0", "sleep", params, items=(0, 1, 2), timeout_seconds=200)
        await dispatch.until(heard, "the first item is told")
        calls = len(peer.beats)
        await dispatch.until(lambda: len(peer.beats) > calls + 1, "it is told once")
        await run.drain()
    assert heard() == {0: "completed"}
    assert sum(len(beat.outcomes or ()) for call in peer.beats for beat in call.beats) == 1
    assert [release.outcomes for call in peer.releases for release in call.releases] == [None]


async def test_large_params_of_a_batch_are_fetched_and_large_outputs_stored_by_item(
    dispatch: Dispatcher, environment: dict[str, str], blobs: BlobRepository
) -> None:
    store = PayloadStore(blobs)
    params = of_items({"v": "x" * 40_000}, {"v": "y" * 40_000}, {"v": 1})
    ref: PayloadRef = await store.put("payloads/job/values/", encode(params, "params"))
    dispatch.orchestrator.digests["job_a_0"] = digest(params)
    async with running():
        await dispatch("job_a_0", "echo", {}, params_ref=ref, items=(0, 1, 2))
        result = await dispatch.result("job_a_0")
    outcomes = result.outcomes or ()
    assert [one.output_ref is None for one in outcomes] == [False, False, True]
    assert outcomes[0].output_ref is not None
    assert await store.get(outcomes[0].output_ref) == encode({"echoed_params": {"v": "x" * 40_000}}, "output")
