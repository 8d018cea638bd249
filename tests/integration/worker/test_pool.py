"""Real subprocesses doing everything a hostile or unlucky handler can do."""

import asyncio
import logging
import os
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.errors import Classification
from tests.support.waiting import await_until
from worker.child_process import ChildDied, ChildSettings, PeakMemory
from worker.files import place_scratch
from worker.frames import BrokenFrame, Done, Failed, Log, Progress, Run, Saved, Setup
from worker.jail import child_environment
from worker.pool import PoolSettings, ProcessPool, TimedOut

HERE = Path(__file__).parent
MB = 1 << 20


class Bench:
    """A pool of one process and what it said."""

    def __init__(self, pool: ProcessPool, scratch: Path) -> None:
        self.pool = pool
        self.scratch = scratch
        self.heard: list[Progress | Saved | Log | PeakMemory] = []
        self.stop = asyncio.Event()
        self.count = 0

    async def run(
        self, name: str, *, timeout_seconds: float = 20, memory_bytes: int = 0, checkpoint: Any = None, **params: Any
    ) -> Done | Failed:
        self.count += 1
        run = Run(
            task_id=f"j_n_{self.count}",
            job_id="j",
            node_id="n",
            attempt=self.count,
            target=f"jail_handlers:{name}",
            params_type="core.handler_models:AnyParams",
            params=params,
            scratch=str(place_scratch(self.scratch, f"j_n_{self.count}")),
            memory_bytes=memory_bytes,
            checkpoint=checkpoint,
        )
        return await self.pool.run(run, self.heard.append, timeout_seconds=timeout_seconds, stop=self.stop)

    def said(self, kind: type) -> list[Any]:
        return [frame for frame in self.heard if isinstance(frame, kind)]


@pytest.fixture
def make_bench(scratch: Path) -> Callable[..., Bench]:
    def make(**settings: Any) -> Bench:
        child = ChildSettings(child_environment(64), Setup(import_paths=(str(HERE),)))
        pool = ProcessPool(PoolSettings(1, child, **settings), logging.getLogger("test"))
        return Bench(pool, scratch)

    return make


@pytest.fixture
async def bench(make_bench: Callable[..., Bench]) -> AsyncIterator[Bench]:
    bench = make_bench(terminate_seconds=1.0)
    await bench.pool.start()
    yield bench
    await bench.pool.close()


def done(reply: Done | Failed) -> dict[str, Any]:
    assert isinstance(reply, Done), reply
    return reply.output


def error(reply: Done | Failed) -> Any:
    assert isinstance(reply, Failed), reply
    assert reply.error is not None
    return reply.error


async def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_a_subprocess_sees_no_environment_but_the_allow_list(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_SERVICE_KEY", "secret")
    seen = done(await bench.run("look_around", value=1.5))
    assert set(seen["environ"]) == set(child_environment(64))
    assert seen["param"] == 1.5


async def test_a_subprocess_works_in_its_own_scratch_without_core_dumps_or_foreign_descriptors(bench: Bench) -> None:
    with socket.socket(), tempfile.TemporaryFile():
        seen = done(await bench.run("look_around", value=1))
    assert seen["cwd"] == seen["tmp"] == str(bench.scratch / "j_n_1")
    assert seen["core"] == "0"
    assert seen["session"]
    kinds = sorted(target.split(":")[0] for target in seen["fds"].values())
    assert [kind for kind in kinds if not kind.startswith(("/proc/", "/dev/null"))] == ["pipe", "socket"]


async def test_a_subprocess_imports_nothing_its_handler_does_not_need(bench: Bench) -> None:
    assert done(await bench.run("look_around", value=1))["modules"] == []


async def test_a_warm_subprocess_is_reused_until_it_is_used_up(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_tasks_per_child=2, min_seconds_per_child=0)
    await bench.pool.start()
    pids = [done(await bench.run("look_around", value=n))["pid"] for n in range(4)]
    await bench.pool.close()
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_many_quick_tasks_use_up_no_young_subprocess(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_tasks_per_child=2, min_seconds_per_child=3600)
    await bench.pool.start()
    pids = {done(await bench.run("look_around", value=n))["pid"] for n in range(5)}
    await bench.pool.close()
    assert len(pids) == 1


async def test_memory_above_the_limit_is_out_of_memory_and_the_next_task_is_unharmed(bench: Bench) -> None:
    assert error(await bench.run("allocate", size_bytes=600 * MB, memory_bytes=300 * MB)).code == "TASK_OUT_OF_MEMORY"
    assert done(await bench.run("allocate", size_bytes=100 * MB, memory_bytes=300 * MB)) == {"size_bytes": 100 * MB}
    assert done(await bench.run("allocate", size_bytes=600 * MB)) == {"size_bytes": 600 * MB}


async def test_shared_memory_above_the_limit_is_killed_as_out_of_memory(bench: Bench) -> None:
    with pytest.raises(ChildDied) as caught:
        await bench.run("map_shared", size_bytes=400 * MB, memory_bytes=200 * MB)
    assert caught.value.out_of_memory


async def test_the_peak_is_that_of_the_task_not_of_the_process(bench: Bench) -> None:
    big = await bench.run("allocate", size_bytes=400 * MB)
    small = await bench.run("allocate", size_bytes=1 * MB)
    assert big.peak_rss_bytes is not None
    assert small.peak_rss_bytes is not None
    assert big.peak_rss_bytes > 400 * MB
    assert small.peak_rss_bytes < 200 * MB


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
async def test_a_subprocess_that_dies_is_named_with_its_signal_and_replaced(bench: Bench, name: str) -> None:
    with pytest.raises(ChildDied, match=name) as caught:
        await bench.run("kill_itself", signal=name)
    assert not caught.value.out_of_memory
    assert done(await bench.run("look_around", value=1))["param"] == 1


async def test_a_subprocess_that_exits_is_a_death_but_sys_exit_is_a_failure(bench: Bench) -> None:
    with pytest.raises(ChildDied, match="exit code 3"):
        await bench.run("exit_quietly")
    assert error(await bench.run("exit_politely")).code == "INTERNAL"


async def test_hung_native_code_is_killed_at_the_timeout_with_what_it_started(bench: Bench) -> None:
    await bench.run("look_around", value=0)
    with pytest.raises(TimedOut):
        await bench.run("hang", timeout_seconds=3)
    state = bench.said(Saved)[0].state
    for pid in (state["pid"], state["sleeper"]):
        await await_until(lambda pid=pid: gone(pid), "the process is gone")
    assert done(await bench.run("look_around", value=1))["param"] == 1


@pytest.mark.parametrize("handler", ["hang", "ignore_sigterm"])
async def test_a_cancelled_call_terminates_the_process_and_kills_one_that_does_not_go(
    make_bench: Callable[..., Bench], handler: str
) -> None:
    grace_seconds = 3.0
    bench = make_bench(terminate_seconds=grace_seconds)
    await bench.pool.start()
    call = asyncio.create_task(bench.run(handler))

    async def running() -> list[Any]:
        return bench.said(Saved)

    pid = (await await_until(running, "the handler runs"))[0].state["pid"]
    started = asyncio.get_running_loop().time()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    took = asyncio.get_running_loop().time() - started
    assert await gone(pid)
    assert (took >= grace_seconds) is (handler == "ignore_sigterm")
    await bench.pool.close()


async def test_a_handler_that_is_told_to_stop_can_stop_by_itself(bench: Bench) -> None:
    call = asyncio.create_task(bench.run("wait_for_cancel"))

    async def waiting() -> list[Any]:
        return bench.said(Saved)

    await await_until(waiting, "the handler waits")
    bench.stop.set()
    reply = await call
    assert isinstance(reply, Failed)
    assert reply.error is None


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nan", "is nan"),
        ("inf", "is -inf"),
        ("nul", r"U\+0000"),
        ("set", "is a set"),
        ("key", "a key of type int"),
        ("huge", "5001 bits"),
        ("array", "is a ndarray"),
    ],
)
async def test_an_output_that_is_not_json_fails_naming_the_path(bench: Bench, what: str, said: str) -> None:
    failure = error(await bench.run("answer", what=what))
    assert failure.field.startswith("output.deep[0].bad")
    assert re.search(said, failure.message)


async def test_numbers_of_numpy_and_large_integers_stay_exact(bench: Bench) -> None:
    assert done(await bench.run("answer", what="numbers")) == {"deep": [{"bad": [0.5, 2**53 + 1, True, 2**70]}]}


async def test_what_native_code_prints_neither_blocks_nor_breaks_the_protocol(bench: Bench) -> None:
    assert done(await bench.run("print_much")) == {"ok": True}


async def test_a_data_error_keeps_its_code_and_loses_what_json_cannot_hold(bench: Bench) -> None:
    failure = error(await bench.run("refuse"))
    assert (failure.code, failure.field, failure.user_fixable) == ("CRS_MISSING", "crs", True)
    assert failure.classification is Classification.PERMANENT
    assert failure.value == "nan"
    assert "\0" not in failure.message


async def test_an_unforeseen_error_is_internal_and_quotes_nothing(bench: Bench) -> None:
    failure = error(await bench.run("break_down"))
    assert (failure.code, failure.classification) == ("INTERNAL", Classification.PERMANENT)
    assert "secret" not in failure.model_dump_json()
    logged = bench.said(Log)[0]
    assert logged.extra["error_id"] == failure.error_id
    assert "secret of the file" in logged.extra["traceback"]


async def test_a_full_disk_is_out_of_disk_even_when_wrapped(bench: Bench) -> None:
    failure = error(await bench.run("fill_disk"))
    assert (failure.code, failure.classification) == ("TASK_OUT_OF_DISK", Classification.TRANSIENT)


async def test_progress_of_every_block_is_thinned_out_but_the_last_arrives(bench: Bench) -> None:
    assert done(await bench.run("report_much")) == {"ok": True}
    reports = bench.said(Progress)
    assert len(reports) < 100
    assert reports[-1].current == reports[-1].total == 10_000


async def test_nonsense_on_the_pipe_is_broken_and_ends_the_process(bench: Bench) -> None:
    with pytest.raises(BrokenFrame):
        await bench.run("send_garbage")
    assert done(await bench.run("look_around", value=1))["param"] == 1


async def test_a_checkpoint_reaches_the_next_attempt(bench: Bench) -> None:
    run = Run(
        task_id="j_m_1",
        job_id="j",
        node_id="m",
        attempt=1,
        target="handlers.examples:multi_phase",
        params_type="core.example_params:MultiPhaseParams",
        params={"phases": 4, "seconds_per_phase": 0.0},
        scratch=str(place_scratch(bench.scratch, "j_m_1")),
        memory_bytes=0,
        checkpoint={"phase": "phase_1", "state": {"done": 2}},
    )
    reply = await bench.pool.run(run, bench.heard.append, timeout_seconds=20, stop=bench.stop)
    assert done(reply) == {"phases_run": [2, 3], "resumed_from": 2}
    assert bench.said(Saved)[-1].state == {"done": 4}


async def test_closing_the_pool_leaves_no_process(bench: Bench) -> None:
    pid = done(await bench.run("look_around", value=1))["pid"]
    await bench.pool.close()
    assert await gone(pid)
    assert os.getpid() != pid
