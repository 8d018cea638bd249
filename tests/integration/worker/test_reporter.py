import asyncio
import json
import logging
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from pydantic_core import PydanticSerializationError

from core.wire import Capacity, ResultDisposition, TaskResult, TaskStatus, WorkerIdentity
from tests.integration.worker.conftest import SERVICE_KEY, Orchestrator, serve
from tests.support.waiting import await_until
from worker.client import CallbackClient
from worker.intake import Intake
from worker.reporter import WORTH_A_CALL, WORTH_A_TURN, Reporter
from worker.result_log import COMPACT_BYTES, Entry, ResultLog
from worker.tasks import Slots

LOG = logging.getLogger("test")
WORKER = WorkerIdentity(worker_id="w", queue="q", host="h", pid=1, build_id="b")


def result(task_id: str) -> TaskResult:
    return TaskResult(task_id=task_id, token="aa", status=TaskStatus.COMPLETED, output={"a": 1})


def stored(state_dir: Path) -> list[str]:
    """Return what a worker would find that started now (without touching the file)."""
    found: set[str] = set()
    for line in (state_dir / "results.log").read_text().splitlines():
        if line.startswith("-"):
            found.discard(line[1:])
        else:
            found.add(json.loads(line[1:])["task_id"])
    return sorted(found)


@pytest.fixture
def reporter(orchestrator: Orchestrator, state_dir: Path) -> Callable[[], object]:
    @asynccontextmanager
    async def start() -> AsyncIterator[Reporter]:
        client = CallbackClient([orchestrator.url], SERVICE_KEY, 2.0)
        reporter = Reporter(ResultLog(state_dir, LOG), client, WORKER, LOG)
        running = asyncio.create_task(reporter.run())
        yield reporter
        running.cancel()
        await client.close()

    return start


async def test_results_go_where_the_last_tasks_came_from_as_long_as_it_answers(
    reporter: Callable, orchestrator: Orchestrator
) -> None:
    maker = Orchestrator(next=[])
    orchestrator.next = []
    runner, capacity = await serve(maker), Capacity(slots=1)
    client = CallbackClient([maker.url], SERVICE_KEY, 2.0)
    async with reporter() as running:
        running.intake = Intake({}, Slots(1, lambda: 0, 1), lambda *_: None, lambda _: capacity, enabled=True)
        for number, peer in enumerate([orchestrator, maker]):
            running.add(result(f"t_{number}_0"))
            await asyncio.wait_for(running.drained(), 5)
            assert set(peer.results) == {f"t_{number}_0"}
            running.follow(client)
        await runner.cleanup()
        running.add(result("t_2_0"))
        await asyncio.wait_for(running.drained(), 10)
        await client.close()
    assert set(orchestrator.results) == {"t_0_0", "t_2_0"}


@pytest.mark.parametrize("disposition", list(ResultDisposition))
async def test_a_result_is_forgotten_after_any_answer(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path, disposition: ResultDisposition
) -> None:
    orchestrator.disposition = disposition
    async with reporter() as running:
        running.add(result("t_n_0"))
        await asyncio.sleep(0)  # what ends in one iteration of the loop is stored together
        assert stored(state_dir) == ["t_n_0"]
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
        await asyncio.sleep(0)
        assert len(stored(state_dir)) == len(running.beats()) == 50
        orchestrator.failing.clear()
        await asyncio.wait_for(running.drained(), 10)
    assert len(orchestrator.results) == 50
    assert len(orchestrator.result_calls) < 5
    assert stored(state_dir) == []


async def test_many_results_of_other_jobs_go_out_beside_a_call_under_way(
    reporter: Callable, orchestrator: Orchestrator
) -> None:
    """Not before they are many, and none of the jobs that the call under way tells of."""
    calls, orchestrator.silent = orchestrator.result_calls, asyncio.Event()

    async def under_way(count: int) -> bool:
        return len(calls) == count

    async with reporter() as running:
        running.add(result("slow_n_0"))
        await await_until(lambda: under_way(1), "the first call is under way")
        later = [f"slow_n_{number}" for number in range(1, 1 + WORTH_A_CALL)]
        others = [f"other{number}_n_0" for number in range(WORTH_A_CALL)]
        for task_id in (*later, *others):
            running.add(result(task_id))
            await asyncio.sleep(0)
        await await_until(lambda: under_way(2), "the second call is under way")
        orchestrator.silent.set()
        await asyncio.wait_for(running.drained(), 5)
    assert [[one.task_id for one in call.results] for call in calls] == [["slow_n_0"], others, later]


@pytest.mark.parametrize(
    ("followed", "exchanges", "beside"),
    [("same", True, True), ("other", True, False), ("nobody", True, False), ("same", False, False)],
    ids=["there", "now elsewhere", "nowhere in particular", "without tasks in answer"],
)
async def test_many_results_of_one_job_go_out_beside_a_call_to_the_instance_that_has_it(
    reporter: Callable, orchestrator: Orchestrator, followed: str, exchanges: bool, beside: bool
) -> None:
    """There calls about a job take turns; anywhere else the second would find it locked. A few wait for the answer."""
    orchestrator.silent = asyncio.Event()
    orchestrator.next = [] if exchanges else None
    client, other = (CallbackClient([orchestrator.url], SERVICE_KEY, 5.0) for _ in range(2))
    many = [f"job_n_{number}" for number in range(1, 1 + WORTH_A_TURN)]

    def calls() -> list[list[str]]:
        return [[one.task_id for one in call.results] for call in (*orchestrator.exchanges, *orchestrator.result_calls)]

    async def under_way() -> bool:
        return len(calls()) > 0

    async def both_under_way() -> bool:
        return len(calls()) == 2

    async with reporter() as running:
        slots, capacity = Slots(1, lambda: 0, 1000), Capacity(slots=1)
        running.intake = Intake({}, slots, lambda *_: None, lambda _: capacity, enabled=True)
        running.follow(client)
        running.add(result("job_n_0"))
        await await_until(under_way, "the first call is under way")
        if followed != "same":
            running.follow(other if followed == "other" else None)
        for task_id in many:
            running.add(result(task_id))
        if beside:
            await await_until(both_under_way, "the second call is under way")
        else:
            for _ in range(20):
                await asyncio.sleep(0)
        assert calls()[1:] == ([many] if beside else [])
        orchestrator.silent.set()
        await asyncio.wait_for(running.drained(), 5)
    await client.close()
    await other.close()
    assert calls() == [["job_n_0"], many]


async def test_what_was_not_answered_goes_out_again_with_what_came_meanwhile(
    reporter: Callable, orchestrator: Orchestrator
) -> None:
    orchestrator.failing["task-results"] = 503

    async def failed() -> bool:
        return orchestrator.failed > 0

    async with reporter() as running:
        running.add(result("job_n_0"))
        await await_until(failed, "the first call has failed")
        running.add(result("job_n_1"))
        running.add(result("other_n_0"))
        orchestrator.failing.clear()
        await asyncio.wait_for(running.drained(), 10)
    assert set(orchestrator.results) == {"job_n_0", "job_n_1", "other_n_0"}


async def test_leftovers_of_an_earlier_life_are_sent_at_the_start(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    ResultLog(state_dir, LOG).write([Entry.of(result("old_n_0"))])
    with (state_dir / "results.log").open("a") as log:
        log.write('-gone_n_0\n+{"task_id": ')
    async with reporter() as running:
        await asyncio.wait_for(running.drained(), 5)
    assert set(orchestrator.results) == {"old_n_0"}
    assert stored(state_dir) == []
    assert [path.read_text() for path in (state_dir / "refused").iterdir()] == ['+{"task_id": ']


async def test_a_poison_result_is_set_aside_and_holds_nobody_up(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    orchestrator.poison = {"t_n_3"}
    async with reporter() as running:
        for number in range(9):
            running.add(result(f"t_n_{number}"))
        await asyncio.wait_for(running.drained(), 5)
    assert set(orchestrator.results) == {f"t_n_{n}" for n in range(9) if n != 3}
    assert [json.loads(path.read_text())["task_id"] for path in (state_dir / "refused").iterdir()] == ["t_n_3"]


async def test_a_refused_credential_loses_no_result(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    orchestrator.failing["task-results"] = 401
    async with reporter() as running:
        running.add(result("t_n_0"))
        await asyncio.sleep(0)
        assert stored(state_dir) == ["t_n_0"]
        orchestrator.failing.clear()
        await asyncio.wait_for(running.drained(), 10)
    assert set(orchestrator.results) == {"t_n_0"}


async def test_a_full_disk_does_not_lose_the_result(
    reporter: Callable, orchestrator: Orchestrator, state_dir: Path
) -> None:
    async with reporter() as running:
        size = (state_dir / "results.log").stat().st_size
        with files_limited_to(size + 10):
            running.add(result("t_n_0"))
            await asyncio.sleep(0)
            assert (state_dir / "results.log").stat().st_size == size
        await asyncio.wait_for(running.drained(), 5)
    assert set(orchestrator.results) == {"t_n_0"}


async def test_a_result_for_which_there_is_no_room_on_the_disk_keeps_no_other_one_out_of_the_log(
    reporter: Callable, state_dir: Path
) -> None:
    async with reporter() as running:
        with files_limited_to(20_000):
            for task_id in ("t_n_0", "t_large_0", "t_n_1"):
                text = "x" * (50_000 if "large" in task_id else 5)
                running.add(result(task_id).model_copy(update={"output": {"text": text}}))
            await asyncio.sleep(0)
            assert stored(state_dir) == ["t_n_0", "t_n_1"]
        await asyncio.wait_for(running.drained(), 5)


async def test_a_result_that_no_json_can_be_made_of_is_its_own_tasks_trouble_and_nobody_elses(
    reporter: Callable, orchestrator: Orchestrator
) -> None:
    async with reporter() as running:
        running.add(result("t_n_0"))
        with pytest.raises(PydanticSerializationError):
            running.add(result("t_bad_0").model_copy(update={"metrics": {"it": object()}}))
        running.add(result("t_n_1"))
        await asyncio.wait_for(running.drained(), 5)
    assert set(orchestrator.results) == {"t_n_0", "t_n_1"}


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_file_is_emptied_when_it_is_long_and_everything_is_answered(state_dir: Path) -> None:
    log = ResultLog(state_dir, LOG)
    large = result("t_n_0").model_copy(update={"output": {"text": "x" * COMPACT_BYTES}})
    log.write([Entry.of(large)])
    assert (state_dir / "results.log").stat().st_size > COMPACT_BYTES
    log.forget("t_n_0")
    assert (state_dir / "results.log").stat().st_size == 0


def test_the_order_and_the_answers_survive_a_restart(state_dir: Path) -> None:
    log = ResultLog(state_dir, LOG)
    for number in range(5):
        log.write([Entry.of(result(f"t_n_{number}"))])
    log.forget("t_n_1")
    log.forget("t_n_4")
    for _ in range(2):
        log = ResultLog(state_dir, LOG)
        assert [each.task_id for each in log.unanswered()] == ["t_n_0", "t_n_2", "t_n_3"]


def test_the_file_does_not_grow_while_something_is_always_unanswered(state_dir: Path) -> None:
    log = ResultLog(state_dir, LOG)
    text = "x" * 50_000
    log.write([Entry.of(result("t_first_0"))])
    for number in range(100):
        log.write([Entry.of(result(f"t_{number}_0").model_copy(update={"output": {"a": text}}))])
        log.forget(f"t_{number - 1}_0" if number else "t_none_0")
    assert (state_dir / "results.log").stat().st_size < 2 * COMPACT_BYTES
    assert stored(state_dir) == ["t_99_0", "t_first_0"]
    log.forget("t_first_0")
    assert {one.task_id for one in ResultLog(state_dir, LOG).unanswered()} == {"t_99_0"}
