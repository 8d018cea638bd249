"""A worker as its own process: signals, crashes, outages."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from core.handlers_catalog import HEAVY_QUEUE
from core.wire import ResultDisposition, TaskStatus
from tests.integration.worker.conftest import Dispatcher, serve
from tests.support.databases import Database

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def environment(worker_environment: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **worker_environment}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(**changes: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "worker.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", "worker.main"], env=environment | changes, stderr=log)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "worker.log").read_text()


def children(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


async def claimed(dispatch: Dispatcher, count: int = 1) -> None:
    calls = dispatch.orchestrator.claims
    await dispatch.until(lambda: sum(len(call.claims) for call in calls) >= count, "claimed")


async def test_sigterm_ends_the_process_within_five_seconds_with_leases_given_back(
    start: Start, dispatch: Dispatcher, tmp_path: Path
) -> None:
    process = start()
    await dispatch("job_a_0", "sleep", {"seconds": 600})
    await claimed(dispatch)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    await dispatch.until(lambda: process.poll() is not None, "the process ended")
    assert time.monotonic() - began < 5
    assert process.returncode == 0, log_of(tmp_path)
    assert set(dispatch.orchestrator.released()) == {"job_a_0"}
    assert dispatch.orchestrator.releases[0].worker.state == "draining"
    goodbye = dispatch.orchestrator.beats[-1]
    assert (goodbye.worker.state, goodbye.free.slots, goodbye.beats) == ("stopped", 0, ())


async def test_sigterm_without_any_orchestrator_still_ends_in_time(
    start: Start, dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    process = start()
    await dispatch("job_a_0", "sleep", {"seconds": 600})
    await claimed(dispatch)
    dispatch.orchestrator.failing = dict.fromkeys(("claims", "heartbeats", "task-results", "releases"), 503)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    await dispatch.until(lambda: process.poll() is not None, "the process ended")
    assert time.monotonic() - began < 5.5


async def test_kill_9_takes_the_subprocesses_along(start: Start, dispatch: Dispatcher) -> None:
    process = start(WORKER_QUEUE=HEAVY_QUEUE, WORKER_TYPE="heavy")
    await dispatch("job_a_0", "multi_phase", {"phases": 1, "seconds_per_phase": 600.0}, queue=HEAVY_QUEUE)
    await claimed(dispatch)
    found = await dispatch.until(lambda: children(process), "a subprocess")
    process.kill()
    await dispatch.until(lambda: not any(child.is_running() for child in found), "the subprocesses are gone")


async def test_a_result_outlives_kill_9_and_is_sent_by_the_next_life(
    start: Start, dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    dispatch.orchestrator.failing["task-results"] = 503
    first = start()
    await dispatch("job_a_0", "echo", {"x": 1})
    results = Path(environment["WORKER_STATE_DIR"]) / "results.log"
    await dispatch.until(lambda: results.exists() and "job_a_0" in results.read_text(), "stored")
    first.kill()
    first.wait()
    dispatch.orchestrator.failing.clear()
    start()
    assert (await dispatch.result("job_a_0")).output == {"echoed_params": {"x": 1}}
    await dispatch.until(lambda: results.read_text().endswith("-job_a_0\n"), "forgotten")


async def test_a_stopped_worker_that_was_overtaken_kills_its_task_when_it_wakes(
    start: Start, dispatch: Dispatcher
) -> None:
    process = start(WORKER_QUEUE=HEAVY_QUEUE, WORKER_TYPE="heavy")
    await dispatch("job_a_0", "multi_phase", {"phases": 1000, "seconds_per_phase": 0.2}, queue=HEAVY_QUEUE)
    orchestrator = dispatch.orchestrator
    await dispatch.until(lambda: any(beat.progress for c in orchestrator.beats for beat in c.beats), "it works")
    found = children(process)
    process.send_signal(signal.SIGSTOP)
    orchestrator.revoked["job_a_0"] = "superseded"
    orchestrator.disposition = ResultDisposition.SUPERSEDED
    process.send_signal(signal.SIGCONT)
    await dispatch.until(lambda: not any(child.is_running() for child in found), "the task is killed")
    await dispatch("job_b_0", "chunk_processor", {"items": [1]}, queue=HEAVY_QUEUE)
    assert (await dispatch.result("job_b_0")).status is TaskStatus.COMPLETED
    assert "job_a_0" not in orchestrator.results


@pytest.mark.embedded  # the connections are those by which the embedded queue is received
async def test_a_worker_survives_the_loss_of_its_database_connections(
    start: Start, dispatch: Dispatcher, database: Database
) -> None:
    start()
    await dispatch("job_a_0", "echo")
    await dispatch.result("job_a_0")
    with psycopg.connect(database.admin, autocommit=True) as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'geodag_worker'"
            " AND datname = current_database()"
        ).fetchone()
    assert ended is not None
    assert ended[0] >= 2
    for number in range(5):
        await dispatch(f"job_b_{number}", "echo")
        await dispatch.result(f"job_b_{number}")


async def test_a_worker_survives_an_outage_of_all_orchestrators_and_loses_no_result(
    start: Start, dispatch: Dispatcher, environment: dict[str, str]
) -> None:
    peer = dispatch.orchestrator
    runner = await serve(peer)
    port = runner.addresses[0][1]
    start(DAG_CALLBACK_URL=f"http://127.0.0.1:{port}/api/v1/callbacks")
    await dispatch("job_a_0", "sleep", {"seconds": 1.0})
    await claimed(dispatch)
    await runner.cleanup()
    await dispatch("job_b_0", "echo")
    journal = Path(environment["WORKER_JOURNAL_FILE"])
    await dispatch.until(lambda: "job_a_0 finished" in journal.read_text(), "finished without an orchestrator")
    runner = await serve(peer, port)
    assert (await dispatch.result("job_a_0")).status is TaskStatus.COMPLETED
    assert (await dispatch.result("job_b_0")).status is TaskStatus.COMPLETED
    await runner.cleanup()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {
                "WORKER_QUEUE": "",
                "WORKER_SLOT_INLINE": "3",
                "DAG_CALLBACK_URL": "localhost:1",
                "WORKER_SERVICE_KEY": "",
            },
            ["WORKER_QUEUE", "WORKER_SLOT_INLINE", "DAG_CALLBACK_URL", "WORKER_SERVICE_KEY"],
        ),
        ({"WORKER_QUEUE": "typo"}, ["WORKER_QUEUE"]),
        ({"WORKER_STATE_DIR": "/tmp/x/y", "WORKER_SCRATCH_DIR": "/tmp/x"}, ["WORKER_STATE_DIR"]),
    ],
)
def test_a_wrong_environment_stops_the_start_and_names_the_variable(
    start: Start, tmp_path: Path, changes: dict[str, Any], named: list[str]
) -> None:
    process = start(**changes)
    assert process.wait(20) == 78
    assert [name for name in named if name not in log_of(tmp_path)] == []
