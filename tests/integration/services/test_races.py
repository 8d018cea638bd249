"""Two connections at the same attempt or job, held at the worst moment; never two winners, never a deadlock."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from core.wire import ClaimOutcome, Release, ResultDisposition, TaskMessage
from tests.support.engine import Engine, HandWorker, beats_of
from tests.support.waiting import await_until


async def leased(engine: Engine, worker: HandWorker) -> tuple[str, TaskMessage]:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    return job_id, message


async def waiting_for_locks(engine: Engine, count: int) -> None:
    async def enough() -> bool:
        rows = await engine.query(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return len(rows) >= count

    await await_until(enough, f"{count} transactions wait for a lock", timeout_seconds=1.8)


async def at_once(engine: Engine, table: str, key: str, value: str, *calls: Any) -> Sequence[Any]:
    """Start calls while a row is held, let it go once all of them wait for it, and return their answers."""
    async with engine.pool.connection() as holder:
        await holder.execute(f"SELECT FROM dagapp.{table} WHERE {key} = %s FOR UPDATE", (value,))
        tasks = [asyncio.ensure_future(call) for call in calls]
        await waiting_for_locks(engine, len(tasks))
        await holder.rollback()
    return await asyncio.gather(*tasks)


async def test_of_two_workers_that_claim_at_once_one_gets_the_task(engine: Engine) -> None:
    message = await engine.message(await engine.create("echo_test"))
    claims = [HandWorker(engine, f"worker-{n}").claim(message) for n in range(2)]
    answers = await at_once(engine, "dag_attempts", "task_id", message.task_id, *claims)
    assert sorted(answer[0].outcome for answer in answers) == [ClaimOutcome.GRANTED, ClaimOutcome.LEASED]


async def test_of_two_equal_results_at_once_one_is_a_duplicate(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await leased(engine, worker)
    reports = [worker.complete(message) for _ in range(2)]
    answers = await at_once(engine, "dag_attempts", "task_id", message.task_id, *reports)
    assert sorted(answer[0].disposition for answer in answers) == ["applied", "duplicate"]
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status == "COMPLETED"
    assert len(engine.ended) == 1


async def test_a_result_and_an_expiry_at_once_have_one_winner(engine: Engine, worker: HandWorker) -> None:
    for _ in range(5):
        job_id, message = await leased(engine, worker)
        await engine.lapse(message.task_id)
        calls = worker.complete(message), engine.advance(job_id)
        answers, _ = await at_once(engine, "dag_attempts", "task_id", message.task_id, *calls)
        await engine.advance(job_id)
        state = (await engine.attempt(message.task_id))["state"]
        if answers[0].disposition is ResultDisposition.APPLIED:
            assert (state, (await engine.job(job_id)).status) == ("reported", "COMPLETED")
        else:
            assert (answers[0].disposition, state) == (ResultDisposition.SUPERSEDED, "expired")
            assert (await engine.message(job_id)).attempt == 1


async def test_a_result_and_a_release_at_once_have_one_winner(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await leased(engine, worker)
    release = Release(task_id=message.task_id, token=message.token)
    calls = worker.complete(message), worker.report(release)
    completed, released = await at_once(engine, "dag_attempts", "task_id", message.task_id, *calls)
    await engine.advance(job_id)
    state = (await engine.attempt(message.task_id))["state"]
    if state == "reported":
        assert released[0].disposition is ResultDisposition.DUPLICATE
        assert (await engine.job(job_id)).status == "COMPLETED"
    else:
        assert completed[0].disposition is ResultDisposition.SUPERSEDED
        assert (await engine.message(job_id)).attempt == 1


async def test_a_heartbeat_and_an_expiry_at_once_have_one_winner(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await leased(engine, worker)
    await engine.lapse(message.task_id)
    calls = worker.beat(*beats_of([message])), engine.advance(job_id)
    answer, _ = await at_once(engine, "dag_attempts", "task_id", message.task_id, *calls)
    state = (await engine.attempt(message.task_id))["state"]
    assert (state, len(answer.revoked)) in {("leased", 0), ("expired", 1)}


async def test_a_claim_and_a_redispatch_at_once_leave_one_valid_token(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock()")
    calls = worker.claim(message), engine.advance(job_id)
    answers, _ = await at_once(engine, "dag_attempts", "task_id", message.task_id, *calls)
    attempt = await engine.attempt(message.task_id)
    if answers[0].outcome is ClaimOutcome.GRANTED:
        assert (attempt["state"], attempt["dispatch_no"]) == ("leased", 1)
    else:
        assert (answers[0].outcome, attempt["dispatch_no"]) == (ClaimOutcome.SUPERSEDED, 2)
        assert (await worker.run(await engine.message(job_id))).disposition is ResultDisposition.APPLIED


@pytest.mark.parametrize("rounds", [3])
async def test_many_callers_at_the_same_jobs_never_deadlock(engine: Engine, worker: HandWorker, rounds: int) -> None:
    for _ in range(rounds):
        jobs = [await engine.create("echo_test") for _ in range(12)]
        messages = [await engine.message(job_id) for job_id in jobs]
        await worker.claim(*messages)
        backwards = list(reversed(messages))
        await asyncio.gather(
            worker.complete(*messages),
            worker.complete(*backwards),
            worker.beat(*beats_of(backwards)),
            worker.claim(*messages),
            engine.advance(*jobs),
            engine.advance(*reversed(jobs)),
        )
        await engine.advance(*jobs)
        assert {(await engine.job(job_id)).status for job_id in jobs} == {"COMPLETED"}
    assert len(engine.ended) == 12 * rounds
