"""How a worker lives and leaves: heartbeats, drain, leftovers, health."""

import asyncio
import os

import psutil
import pytest

from core.wire import ResultDisposition
from tests.integration.worker import inline_handlers
from tests.integration.worker.conftest import Dispatcher
from tests.integration.worker.running import checkpoints, running
from tests.support.waiting import await_until
from worker import heartbeat
from worker.state_dir import FolderTaken

pytestmark = pytest.mark.usefixtures("environment")


async def test_heartbeats_keep_the_lease_of_a_result_that_nobody_has_taken_yet(dispatch: Dispatcher) -> None:
    orchestrator = dispatch.orchestrator
    orchestrator.failing["task-results"] = 503
    async with running():
        await dispatch("job_a_0", "echo")
        await dispatch.until(
            lambda: [b for call in orchestrator.beats[-1:] for b in call.beats if b.task_id == "job_a_0"], "a beat"
        )
        orchestrator.failing.clear()
        await dispatch.result("job_a_0")


async def test_a_short_lease_is_renewed_in_time_although_the_worker_beats_slowly(dispatch: Dispatcher) -> None:
    orchestrator = dispatch.orchestrator
    orchestrator.lease_seconds = 0.9
    async with running(worker_heartbeat_seconds=60):
        await dispatch.until(lambda: orchestrator.beats, "the first beat, after which the worker would be silent")
        await dispatch("job_a_0", "sleep", {"seconds": 600})
        clock = asyncio.get_running_loop().time
        await dispatch.until(lambda: orchestrator.claims, "the claim")
        granted = clock()
        await dispatch.until(lambda: len([call for call in orchestrator.beats if call.beats]) == 6, "renewals")
        assert 1.2 < clock() - granted < 5


async def test_a_task_that_cannot_be_stopped_loses_its_lease_while_the_worker_beats_on(
    dispatch: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "_OVERTIME_SECONDS", 0.3)
    monkeypatch.setattr(inline_handlers, "LET_GO", asyncio.Event())
    orchestrator = dispatch.orchestrator
    async with running():
        await dispatch("job_a_0", "inline.deaf", timeout_seconds=0.5)
        await dispatch.until(lambda: orchestrator.beats and orchestrator.beats[-1].beats, "its lease is renewed")
        await dispatch.until(lambda: not orchestrator.beats[-1].beats, "its lease is not renewed any more")
        calls = len(orchestrator.beats)
        await dispatch.until(lambda: len(orchestrator.beats) > calls + 2, "the worker beats on")
        assert not any(call.beats for call in orchestrator.beats[calls:])
        inline_handlers.LET_GO.set()


async def test_a_drain_gives_leases_back_with_checkpoints_within_five_seconds(
    dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    async with running(worker_slots_process=2) as run:
        await dispatch("job_a_0", "wait_for_cancel")
        await dispatch("job_b_0", "hang")
        await dispatch("job_c_0", "sleep", {"seconds": 600})
        await dispatch.until(lambda: len(checkpoints(dispatch.orchestrator)) == 2, "both saved")
        pid = checkpoints(dispatch.orchestrator)["job_b_0"]["state"]["pid"]
        started = asyncio.get_running_loop().time()
        await run.drain()
        assert asyncio.get_running_loop().time() - started < 5
    released = dispatch.orchestrator.released()
    assert set(released) == {"job_a_0", "job_b_0", "job_c_0"}
    assert released["job_a_0"] == {"phase": "waiting", "state": {"n": 1}}
    assert not psutil.pid_exists(pid)
    assert dispatch.orchestrator.results == {}
    assert os.listdir(environment["WORKER_SCRATCH_DIR"]) == [".lock"]


async def test_a_worker_without_work_leaves_when_it_is_told_to(dispatch: Dispatcher) -> None:
    await dispatch("job_a_0", "echo")
    async with running(worker_exit_when_idle_seconds=1.5) as run:
        await asyncio.wait_for(run.task, 20)
    await dispatch.result("job_a_0", 0)


async def test_a_drain_gives_unclaimed_messages_back(dispatch: Dispatcher) -> None:
    dispatch.orchestrator.failing["claims"] = 503
    async with running() as run:
        await dispatch("job_a_0", "echo")
        await dispatch.until(lambda: dispatch.orchestrator.claims_asked, "the claim was asked")
        await run.drain()
    dispatch.orchestrator.failing.clear()
    async with running():
        await dispatch.result("job_a_0", 4)


async def test_a_drain_without_orchestrators_keeps_results_for_the_next_start(dispatch: Dispatcher) -> None:
    dispatch.orchestrator.failing["task-results"] = 503
    async with running() as run:
        await dispatch("job_a_0", "echo")
        await dispatch.until(lambda: dispatch.orchestrator.claims, "claimed")
        await dispatch.empty()
        await run.drain()
    dispatch.orchestrator.failing.clear()
    async with running():
        await dispatch.result("job_a_0")


async def test_a_superseded_result_is_forgotten(dispatch: Dispatcher, environment: dict[str, str]) -> None:
    dispatch.orchestrator.disposition = ResultDisposition.SUPERSEDED
    async with running():
        await dispatch("job_a_0", "echo")
        await dispatch.result("job_a_0")
    with open(f"{environment['WORKER_STATE_DIR']}/results.log") as log:  # noqa: ASYNC230 - a few bytes
        assert log.read().endswith("-job_a_0\n")


async def test_a_second_worker_on_the_same_folder_does_not_start() -> None:
    async with running():
        with pytest.raises(FolderTaken):
            async with running():
                pass


async def test_health_tells_slots_tasks_and_the_listener(dispatch: Dispatcher) -> None:
    async with running() as run:
        await dispatch("job_a_0", "sleep", {"seconds": 600})
        await dispatch.until(
            lambda: any(call.beats and call.free.slots == 64 for call in dispatch.orchestrator.beats),
            "a beat tells of the task and of a subprocess that waits",
        )
        status, health = await run.health()
        assert status == 200
        assert health["free_slots"] == {"inline": 63, "subprocess": 1}
        assert [task["task_id"] for task in health["running"]] == ["job_a_0"]
        assert health["ready"] is True
        assert (await run.health("readyz"))[0] == (await run.health("livez"))[0] == 200

        async def hears() -> bool:
            return (await run.health())[1]["listening"]

        await await_until(hears, "notifications arrive")
