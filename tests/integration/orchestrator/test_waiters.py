"""Waiting for the end of a job: told by this instance or by another, and never by what is out of date."""

import asyncio

import pytest

from core.errors import DatabaseUnavailable, NotFound
from core.models.engine import Job
from orchestrator import waiters as waiters_of_jobs
from orchestrator.waiters import JobWaiters
from repositories.database import AsyncPool, async_pool
from services.evaluation import ended_jobs
from services.work import pipelined
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, completed

PROMPTLY_SECONDS = 20.0


@pytest.fixture(autouse=True)
def _only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no waiter look by itself while a test runs, however slow the machine is."""
    monkeypatch.setattr(waiters_of_jobs, "SAFETY_SECONDS", 60.0)


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    return Engine(pool)


async def new_job(engine: Engine) -> Job:
    order = await engine.jobs.order(workflow_id="echo_test", inputs={})
    async with pipelined(engine.pool) as conn:
        (job,) = await engine.jobs.create_many(conn, [order])
    return job


async def end(engine: Engine, job: Job) -> Job:
    """Run a job to its end and return it as the transaction wrote it."""
    message, worker = await engine.message(job.job_id), HandWorker(engine)
    await worker.claim(message)
    _, steps = await engine.results.report(worker.worker_id, [completed(message)])
    (ended,) = ended_jobs(steps)
    return ended


async def test_what_this_instance_ended_is_handed_over_as_it_is_stored(engine: Engine) -> None:
    job, waiters = await new_job(engine), JobWaiters(engine.pool)
    waiting = asyncio.create_task(waiters.wait_for_end(job.job_id, 30))
    ended = await end(engine, job)
    assert ended == await engine.job(job.job_id)
    waiters.ended([ended])
    async with asyncio.timeout(PROMPTLY_SECONDS):
        assert await waiting == ended


async def test_a_job_that_this_instance_created_is_not_read_before_its_end(engine: Engine, database: Database) -> None:
    job = await new_job(engine)
    async with async_pool("host=127.0.0.1 port=1", name="dead", min_size=0) as dead:
        waiters = JobWaiters(dead, hears=lambda: True)
        waiters.created([job], waiters.ends)
        waiting = asyncio.create_task(waiters.wait_for_end(job.job_id, 30))
        ended = await end(engine, job)
        waiters.ended([ended])
        assert await waiting == ended


async def test_an_end_elsewhere_is_found_by_the_look_that_its_notification_asks_for(engine: Engine) -> None:
    job, waiters = await new_job(engine), JobWaiters(engine.pool, hears=lambda: True)
    waiters.created([job], waiters.ends)
    waiting = asyncio.create_task(waiters.wait_for_end(job.job_id, 30))
    await asyncio.sleep(0)
    ended = await end(engine, job)
    waiters.check()
    async with asyncio.timeout(PROMPTLY_SECONDS):
        assert await waiting == ended
    assert await waiters.wait_for_end(job.job_id, 30) == ended


@pytest.mark.parametrize("hears", [True, False])
async def test_a_job_that_may_have_ended_meanwhile_is_read(engine: Engine, hears: bool) -> None:
    job, waiters = await new_job(engine), JobWaiters(engine.pool, hears=lambda: hears)
    before = waiters.ends
    ended = await end(engine, job)
    if hears:
        waiters.check()
    waiters.created([job], before)
    async with asyncio.timeout(PROMPTLY_SECONDS):
        assert await waiters.wait_for_end(job.job_id, 30) == ended


async def test_many_callers_are_answered_by_one_read_each_with_its_own(engine: Engine) -> None:
    jobs, waiters = [await new_job(engine) for _ in range(20)], JobWaiters(engine.pool)
    found = await asyncio.gather(*(waiters.wait_for_end(job.job_id, 0) for job in jobs))
    assert [job.job_id for job in found] == [job.job_id for job in jobs]
    with pytest.raises(NotFound):
        await waiters.wait_for_end("no-such-job", 0)


async def test_a_caller_hears_that_the_database_is_away(engine: Engine) -> None:
    async with async_pool("host=127.0.0.1 port=1", name="dead", min_size=0) as dead:
        with pytest.raises(DatabaseUnavailable):
            await JobWaiters(dead).wait_for_end("job", 0)


async def test_callers_are_let_go_when_the_instance_ends(engine: Engine) -> None:
    job, waiters = await new_job(engine), JobWaiters(engine.pool)
    waiting = asyncio.create_task(waiters.wait_for_end(job.job_id, 30))
    await asyncio.sleep(0.05)
    waiters.close()
    async with asyncio.timeout(PROMPTLY_SECONDS):
        assert (await waiting).status == "RUNNING"
