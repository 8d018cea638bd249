"""Two instances on one database: any serves any call, one takes over from the other, each leaves in order."""

import asyncio

import pytest
from psycopg import AsyncConnection, sql

from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.databases import Database
from tests.support.doors import Door
from tests.support.engine import Engine
from tests.support.waiting import await_until


async def silence(door: Door) -> None:
    """Let an instance stop as a SIGSTOP would: no loop, no heartbeat, while its row says that it lives."""
    door.context.loop.stop()
    door.context.heartbeat.stop()


async def test_any_instance_serves_any_call(start: StartOrchestrator) -> None:
    async with start() as one, start() as two:
        engine = Engine(one.context.pool)
        job_id = await one.create("echo_test")
        waiting = asyncio.create_task(two.job(job_id, wait=20))
        message = await engine.message(job_id)
        assert (await two.claim(message))["outcome"] == "granted"
        assert (await one.complete(message))["disposition"] == "applied"
        async with asyncio.timeout(1.5):
            assert (await waiting)["status"] == "COMPLETED"


async def test_jobs_of_a_silent_instance_are_taken_over_within_the_threshold(start: StartOrchestrator) -> None:
    async with start() as one, start() as two:
        engine = Engine(one.context.pool)
        job_id = await one.create("echo_test")
        assert (await engine.job(job_id)).owner_id == one.context.owner_id
        await silence(one)

        async def taken() -> bool:
            return (await engine.job(job_id)).owner_id == two.context.owner_id

        await await_until(taken, "taken over", timeout_seconds=1.0 + 2.0)
        assert (await engine.job(job_id)).owner_epoch == 2
        message = await engine.message(job_id)
        await two.claim(message)
        assert (await two.complete(message))["disposition"] == "applied"


async def test_an_instance_that_leaves_gives_its_jobs_to_another_at_once(start: StartOrchestrator) -> None:
    async with start(orchestrator_threshold_seconds=60.0) as two:
        async with start(orchestrator_threshold_seconds=60.0) as one:
            engine = Engine(two.context.pool)
            job_id = await one.create("echo_test")

        async def taken() -> bool:
            return (await engine.job(job_id)).owner_id == two.context.owner_id

        await await_until(taken, "taken over", timeout_seconds=3)
        rows = await engine.query("SELECT owner_id, state FROM dagapp.dag_orchestrators")
    assert {row["state"] for row in rows if row["owner_id"] == one.context.owner_id} == {"stopped"}


async def test_a_draining_instance_is_not_ready_and_still_serves_callbacks(start: StartOrchestrator) -> None:
    async with start() as one, start() as two:
        engine = Engine(two.context.pool)
        job_id = await one.create("echo_test")
        message = await engine.message(job_id)
        one.context.life.draining = True
        one.context.loop.stop()
        assert await one.call("GET", "/readyz") == (503, {"status": "draining"})
        await one.claim(message)
        assert (await one.complete(message))["disposition"] == "applied"
        later = await one.create("echo_test")

        async def taken() -> bool:
            return (await engine.job(later)).owner_id == two.context.owner_id

        await await_until(taken, "a job created while draining goes to the other", timeout_seconds=3)
        one.context.life.draining = False


async def test_an_expired_lease_is_found_by_the_owner_alone(start: StartOrchestrator) -> None:
    async with start(lease_seconds=0.6) as one:
        engine = Engine(one.context.pool)
        job_id = await one.create("echo_test")
        await one.claim(await engine.message(job_id))

        async def sent_again() -> bool:
            return (await engine.message(job_id)).attempt == 1

        await await_until(sent_again, "the task of a silent worker is sent again", timeout_seconds=8)


async def test_a_backoff_ends_on_time_without_any_call(start: StartOrchestrator) -> None:
    async with start() as one:
        engine = Engine(one.context.pool)
        job_id = await one.create("retry_test", {"failure_rate": 0})
        message = await engine.message(job_id)
        await one.claim(message)
        error = {"code": "FLAKY", "message": "later", "classification": "transient"}
        result = {"task_id": message.task_id, "token": message.token, "status": "failed", "error": error}
        status, answer = await one.call("POST", "/api/v1/callbacks/task-result", body=result, service="worker")
        assert (status, answer["answers"][0]["disposition"]) == (200, "applied")

        async def sent_again() -> bool:
            return (await engine.message(job_id)).attempt == 1

        await await_until(sent_again, "tried again after its second", timeout_seconds=4)


async def test_a_result_that_had_to_wait_is_applied_by_the_woken_owner(start: StartOrchestrator) -> None:
    async with start(orchestrator_poll_interval=30.0) as one:
        engine = Engine(one.context.pool)
        await await_until(lambda: asyncio.sleep(0, one.context.listener.hears.is_set()), "the listener hears")
        job_id = await one.create("echo_test")
        message = await engine.message(job_id)
        await one.claim(message)
        async with engine.pool.connection() as holder:
            await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (job_id,))
            assert (await one.complete(message))["disposition"] == "applied"
            await holder.rollback()
        one.context.loop.wake()
        assert (await one.job(job_id, wait=10))["status"] == "COMPLETED"


async def test_one_unwritable_job_does_not_stop_the_others(start: StartOrchestrator, database: Database) -> None:
    async with start(lease_seconds=1.0) as one:
        engine = Engine(one.context.pool)
        bad, *good = [await one.create("echo_test") for _ in range(3)]
        for job_id in (bad, *good):
            await one.claim(await engine.message(job_id))
        async with await AsyncConnection.connect(database.admin, autocommit=True) as conn:
            check = sql.SQL("ALTER TABLE dagapp.dag_job_events ADD CONSTRAINT never CHECK (job_id <> {}) NOT VALID")
            await conn.execute(check.format(sql.Literal(bad)))

        async def good_ones_sent_again() -> bool:
            return all([(await engine.message(job_id)).attempt == 1 for job_id in good])

        await await_until(good_ones_sent_again, "the tasks of a silent worker are sent again", timeout_seconds=8)
        assert (await engine.message(bad)).attempt == 0


@pytest.mark.parametrize("count", [30])
async def test_the_waiters_of_many_jobs_are_all_told(start: StartOrchestrator, count: int) -> None:
    async with start() as one, start() as two:
        engine = Engine(one.context.pool)
        jobs = [await one.create("echo_test") for _ in range(count)]
        waiting = [asyncio.create_task(two.job(job_id, wait=30)) for job_id in jobs]
        messages = [await engine.message(job_id) for job_id in jobs]
        for message in messages:
            await one.claim(message)
        for message in messages:
            await one.complete(message)
        async with asyncio.timeout(20):
            assert {job["status"] for job in await asyncio.gather(*waiting)} == {"COMPLETED"}
