import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.wire import ResultDisposition, TaskResult, TaskStatus, WorkerIdentity
from tests.integration.worker.conftest import SERVICE_KEY, Orchestrator
from tests.support.waiting import await_until
from worker.client import CallbackClient
from worker.reporter import Reporter, ResultStore

LOG = logging.getLogger("test")
WORKER = WorkerIdentity(worker_id="w", queue="q", host="h", pid=1, build_id="b")


def result(task_id: str) -> TaskResult:
    return TaskResult(task_id=task_id, token="aa", status=TaskStatus.COMPLETED, output={"a": 1})


def stored(state_dir: Path) -> list[str]:
    return sorted(path.name for path in (state_dir / "results").glob("*.json"))


@pytest.fixture
def reporter(orchestrator: Orchestrator, state_dir: Path) -> Callable[[], object]:
    @asynccontextmanager
    async def start() -> AsyncIterator[Reporter]:
        client = CallbackClient([orchestrator.url], SERVICE_KEY, 2.0)
        reporter = Reporter(ResultStore(state_dir / "results"), client, WORKER, LOG)
        running = asyncio.create_task(reporter.run())
        yield reporter
        running.cancel()
        await client.close()

    return start


@pytest.mark.parametrize("disposition", list(ResultDisposition))
async def test_a_result_is_forgotten_after_any_answer(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path, disposition: ResultDisposition
) -> None:
    orchestrator.disposition = disposition
    async with reporter() as running:
        running.add(result("t_n_0"))
        assert stored(state_dir) == ["t_n_0.json"]
        await asyncio.wait_for(running.drained(), 5)
    assert stored(state_dir) == []
    assert set(orchestrator.results) == {"t_n_0"}


async def test_results_wait_on_disk_while_nobody_answers_and_go_out_together(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    orchestrator.failing["task-results"] = 503
    async with reporter() as running:
        for number in range(50):
            running.add(result(f"t_n_{number}"))
        assert len(stored(state_dir)) == len(running.beats()) == 50
        orchestrator.failing.clear()
        await asyncio.wait_for(running.drained(), 10)
    assert len(orchestrator.results) == 50
    assert len(orchestrator.result_calls) < 5
    assert stored(state_dir) == []


async def test_leftovers_of_an_earlier_life_are_sent_at_the_start(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    ResultStore(state_dir / "results").write(result("old_n_0"))
    (state_dir / "results" / "broken.json").write_text('{"task_id": ')
    async with reporter() as running:
        await asyncio.wait_for(running.drained(), 5)
    assert set(orchestrator.results) == {"old_n_0"}
    assert stored(state_dir) == []
    assert (state_dir / "refused" / "broken.json").exists()


async def test_a_poison_result_is_set_aside_and_holds_nobody_up(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    orchestrator.poison = {"t_n_3"}
    async with reporter() as running:
        for number in range(9):
            running.add(result(f"t_n_{number}"))
        await asyncio.wait_for(running.drained(), 5)
    assert set(orchestrator.results) == {f"t_n_{n}" for n in range(9) if n != 3}
    assert [path.name for path in (state_dir / "refused").iterdir()] == ["t_n_3.json"]


async def test_a_refused_credential_loses_no_result(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    orchestrator.failing["task-results"] = 401
    async with reporter() as running:
        running.add(result("t_n_0"))
        await asyncio.sleep(0)
        assert stored(state_dir) == ["t_n_0.json"]
        orchestrator.failing.clear()
        await asyncio.wait_for(running.drained(), 10)
    assert set(orchestrator.results) == {"t_n_0"}


async def test_a_full_disk_does_not_lose_the_result(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    async with reporter() as running:
        (state_dir / "results").rmdir()
        running.add(result("t_n_0"))

        async def arrived() -> bool:
            return "t_n_0" in orchestrator.results

        await await_until(arrived, "the result arrived")
