"""The loop against trouble of single jobs: whatever is wrong with one, the others get on."""

import time
from typing import Any

import pytest

from core.models.engine import Job
from core.statuses import JobStatus
from orchestrator.heartbeat import Pulse
from orchestrator.loop import Loop
from repositories.database import AsyncPool
from services.recover import OutageGuard, RecoverService
from tests.support.engine import Engine, HandWorker


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    return Engine(pool)


def loop_of(engine: Engine, poll_interval: float = 1.0) -> Loop:
    guard = OutageGuard(time.monotonic() - 100, 15.0, 20.0)
    guard.beat(time.monotonic() - 50)
    recover = RecoverService(engine.pool, "owner-1", 15.0)
    return Loop(
        engine.pool,
        engine.advance_service,
        recover,
        guard,
        Pulse(),
        "owner-1",
        poll_interval,
        hears=lambda: True,
        on_ended=lambda _jobs: None,
    )


async def two_jobs_to_end(engine: Engine) -> tuple[str, str]:
    """Return two jobs of one batch whose last results wait in the inbox."""
    worker, jobs = HandWorker(engine), [await engine.create("echo_test") for _ in range(2)]
    messages = [await engine.message(job_id) for job_id in jobs]
    await worker.claim(*messages)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs FOR UPDATE")
        await worker.complete(*messages)
        await holder.rollback()
    assert [(await engine.job(job_id)).status for job_id in jobs] == ["RUNNING", "RUNNING"]
    return jobs[0], jobs[1]


async def test_a_hook_that_raises_holds_up_its_own_job_only(engine: Engine) -> None:
    bad, good = await two_jobs_to_end(engine)

    async def refuse(conn: Any, job: Job) -> None:
        if job.job_id == bad:
            raise ValueError("no end today")

    engine.advance_service.writer._on_job_ended = refuse
    loop = loop_of(engine)
    await loop.step()
    assert (await engine.job(good)).status == "COMPLETED"
    assert (await engine.job(bad)).status == "RUNNING"


async def test_an_attempt_that_somebody_holds_holds_up_its_own_job_only(engine: Engine) -> None:
    """As a worker that is stopped in a fenced transaction does."""
    held, free = await two_jobs_to_end(engine)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_attempts WHERE job_id = %s FOR SHARE", (held,))
        loop = loop_of(engine)
        await loop.step()
        assert (await engine.job(free)).status == "COMPLETED"
        await holder.rollback()
    assert (await engine.job(held)).status == "RUNNING"


async def test_the_loop_counts_as_alive_while_it_works_through_many_batches(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.loop.BATCH", 1)
    await two_jobs_to_end(engine)
    loop, beaten = loop_of(engine), []
    monkeypatch.setattr(Pulse, "step", lambda _pulse: beaten.append(1))
    await loop.step()
    assert len(beaten) == 2


async def test_what_is_left_in_a_long_inbox_is_taken_at_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.loading.MAX_RESULTS", 1)
    monkeypatch.setattr("orchestrator.loop.MAX_RESULTS", 1)
    jobs = await two_jobs_to_end(engine)
    loop = loop_of(engine)
    assert await loop.step() == 0.0
    await loop.step()
    assert {(await engine.job(job_id)).status for job_id in jobs} == {"COMPLETED"}


async def test_a_job_left_alone_does_not_keep_the_loop_spinning(engine: Engine) -> None:
    bad, _ = await two_jobs_to_end(engine)

    async def refuse(conn: Any, job: Job) -> None:
        raise ValueError("no end today")

    engine.advance_service.writer._on_job_ended = refuse
    await engine.query("UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock() WHERE job_id = %s", bad)
    loop = loop_of(engine)
    await loop.step()
    assert await loop.step() == 1.0


async def test_a_job_left_alone_hides_no_timer_of_another_and_is_looked_at_when_its_time_is_over(
    engine: Engine,
) -> None:
    bad, good = await two_jobs_to_end(engine)

    async def refuse(conn: Any, job: Job) -> None:
        raise ValueError("no end today")

    engine.advance_service.writer._on_job_ended = refuse
    await engine.query("UPDATE dagapp.dag_task_results SET processed = true WHERE job_id = %s", good)
    due_in = "UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock() + make_interval(secs => %s) WHERE job_id = %s"
    await engine.query(due_in, 0, bad)
    await engine.query(due_in, 20, good)
    loop = loop_of(engine, poll_interval=1000.0)
    await loop.step()
    assert 0 < await loop.step() <= 20
    await engine.query(due_in, 500, good)
    assert 20 < await loop.step() <= 30
    loop._deferred[bad] = 0.0
    assert await loop.step() <= 30
    assert loop._deferred[bad] > 0


async def test_a_job_of_which_nothing_can_be_written_ends_and_says_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is known makes such a decision; one that does must not keep its job for ever."""
    monkeypatch.setattr("orchestrator.loop.DEFER_SECONDS", 0.0)
    bad, good = await two_jobs_to_end(engine)

    async def write_what_cannot_be(conn: Any, job: Job) -> None:
        if job.job_id == bad and job.status is JobStatus.COMPLETED:
            await conn.execute("SELECT %s::jsonb", ('"\\u0000"',))

    engine.advance_service.writer._on_job_ended = write_what_cannot_be
    loop, counted = loop_of(engine), []
    while (job := await engine.job(bad)).status is JobStatus.RUNNING:
        counted.append(job.evaluation_failures)
        await loop.step()
    assert counted == [0, 1, 2, 3, 4]
    assert (job.status, (job.error or {})["code"]) == ("FAILED", "INTERNAL")
    assert "Unwritable" in (job.error or {})["message"]
    assert (await engine.job(good)).status == "COMPLETED"
