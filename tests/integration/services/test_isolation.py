"""One job's trouble is its own: it neither stops the others nor stays for ever."""

from dataclasses import replace

import pytest

from core.models.engine import Job
from core.ports import BlobRepository
from core.statuses import NodeStatus
from core.wire import ResultDisposition
from repositories.database import AsyncPool
from services.evaluation import MAX_EVALUATION_FAILURES
from services.loading import lock_jobs
from services.work import StaleWrite, pipelined
from tests.integration.services.fans import Fans
from tests.support.engine import Engine, HandWorker, workflows_of


async def break_definition(engine: Engine, job_id: str) -> None:
    """Give a job a definition that no build can read, as after a bad migration."""
    await engine.query(
        "INSERT INTO dagapp.dag_workflows (definition_hash, workflow_id, version, definition)"
        " VALUES ('broken', 'echo_test', 99, '{\"surprise\": true}') ON CONFLICT DO NOTHING"
    )
    await engine.query("UPDATE dagapp.dag_jobs SET definition_hash = 'broken' WHERE job_id = %s", job_id)


async def test_a_job_that_cannot_be_evaluated_does_not_hold_up_the_others(engine: Engine, worker: HandWorker) -> None:
    bad, good = await engine.create("echo_test"), await engine.create("echo_test")
    messages = [await engine.message(bad), await engine.message(good)]
    await worker.claim(*messages)
    await break_definition(engine, bad)
    answers = await worker.complete(*messages)
    assert [answer.disposition for answer in answers] == [ResultDisposition.APPLIED] * 2
    assert (await engine.job(good)).status == "COMPLETED"
    job = await engine.job(bad)
    assert (job.status, job.evaluation_failures) == ("RUNNING", 1)
    assert job.wake_at is not None


async def test_five_failed_evaluations_in_a_row_fail_the_job_as_internal(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await break_definition(engine, job_id)
    await worker.complete(message)
    for _ in range(MAX_EVALUATION_FAILURES - 1):
        assert (await engine.job(job_id)).status == "RUNNING"
        await engine.advance(job_id)
    job = await engine.job(job_id)
    assert job.status == "FAILED"
    assert job.error is not None
    assert job.error["code"] == "INTERNAL"
    assert set((await engine.statuses(job_id)).values()) == {"COMPLETED", "CANCELLED"}
    assert [one.job_id for one in engine.ended] == [job_id]
    assert (await engine.events(job_id))[-1] == "job_failed"
    (row,) = await engine.query("SELECT processed, disposition FROM dagapp.dag_task_results")
    assert (row["processed"], row["disposition"]) == (True, "poison")


async def test_the_log_of_a_job_that_could_not_be_evaluated_says_what_its_rows_say(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans = await Fans.start(pool, blobs, [1, 2, 3])
    messages = await fans.fresh()
    await fans.worker.claim(*messages[:2])
    await fans.worker.complete(messages[0])
    await break_definition(fans.engine, fans.job_id)
    for _ in range(MAX_EVALUATION_FAILURES):
        await fans.engine.advance(fans.job_id)
    said: dict[str, str] = {}
    for event in await fans.engine.query(
        "SELECT node_id, event_status, event_data FROM dagapp.dag_job_events"
        " WHERE job_id = %s AND node_id IS NOT NULL ORDER BY event_id",
        fans.job_id,
    ):
        ranges = event["event_data"].get("children")
        ids = [f"many__{n}" for first, last in ranges for n in range(first, last + 1)] if ranges else [event["node_id"]]
        if event["event_status"] in set(NodeStatus):
            said |= dict.fromkeys(ids, event["event_status"])
    assert said == await fans.engine.statuses(fans.job_id)
    assert sorted((await fans.children()).values()) == ["CANCELLED", "CANCELLED", "COMPLETED"]
    assert (await fans.engine.events(fans.job_id)).count("attempts_revoked") == 1


async def test_a_good_evaluation_forgets_the_failures_before_it(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    (row,) = await engine.query("SELECT definition_hash FROM dagapp.dag_jobs")
    await break_definition(engine, job_id)
    await engine.advance(job_id)
    assert (await engine.job(job_id)).evaluation_failures == 1
    await engine.query("UPDATE dagapp.dag_jobs SET definition_hash = %s", row["definition_hash"])
    await engine.advance(job_id)
    assert (await engine.job(job_id)).evaluation_failures == 0
    assert (await worker.run(await engine.message(job_id))).disposition is ResultDisposition.APPLIED


async def test_a_job_that_would_end_at_its_creation_ends_in_the_first_advance(engine: Engine) -> None:
    """Whoever creates it first writes rows that the hook of its end looks for."""
    text = "workflow_id: empty\nversion: 1\nnodes:\n  start: {type: start, next: end}\n  end: {type: end}\n"
    engine = Engine(engine.pool, workflows_of(text))
    job_id = await engine.create("empty")
    job = await engine.job(job_id)
    assert (job.status, engine.ended) == ("PENDING", [])
    assert job.wake_at is not None
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status == "COMPLETED"
    assert [one.job_id for one in engine.ended] == [job_id]


async def test_a_failing_hook_leaves_the_job_as_it_was_and_the_result_in_the_inbox(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    writer, note_end = engine.advance_service.writer, engine.advance_service.writer._on_job_ended

    async def refuse(conn: object, job: object) -> None:
        raise RuntimeError("no end today")

    writer._on_job_ended = refuse
    (answer,) = await worker.complete(message)
    assert answer.disposition is ResultDisposition.APPLIED
    assert (await engine.job(job_id)).status == "RUNNING"
    assert (await engine.statuses(job_id))["echo_handler"] == "RUNNING"
    (row,) = await engine.query("SELECT processed, disposition FROM dagapp.dag_task_results")
    assert (row["processed"], row["disposition"]) == (False, None)
    with pytest.raises(RuntimeError, match="no end today"):
        await engine.advance(job_id)
    writer._on_job_ended = note_end
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status == "COMPLETED"
    assert len(engine.ended) == 1


async def test_a_write_that_finds_another_status_rolls_back(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)

    async def advance_and_interfere() -> None:
        async with pipelined(engine.pool) as conn:
            locked = await lock_jobs(conn, [job_id], [message.task_id])
            await conn.execute("UPDATE dagapp.dag_jobs SET version = version + 1 WHERE job_id = %s", (job_id,))
            await conn.execute("UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock() - interval '1 hour'")
            expired = {
                key: [one.model_copy(update={"lease_expires_at": one.leased_at}) for one in group]
                for key, group in locked.attempts.items()
            }
            await engine.advance_service.advance_locked(conn, replace(locked, attempts=expired), [job_id])

    with pytest.raises(StaleWrite):
        await advance_and_interfere()
    assert (await engine.statuses(job_id))["echo_handler"] == "RUNNING"


async def test_a_result_whose_job_cannot_end_waits_in_the_inbox_and_holds_up_no_other(
    engine: Engine, worker: HandWorker
) -> None:
    """A worker sends the same batch until it is answered: one job must not keep the results of all others from it."""
    bad, good = await engine.create("echo_test"), await engine.create("echo_test")
    messages = [await engine.message(bad), await engine.message(good)]
    await worker.claim(*messages)

    async def refuse(conn: object, job: Job) -> None:
        if job.job_id == bad:
            raise RuntimeError("no end today")

    engine.advance_service.writer._on_job_ended = refuse
    answers = await worker.complete(*messages)
    assert [answer.disposition for answer in answers] == [ResultDisposition.APPLIED] * 2
    rows = await engine.query("SELECT job_id FROM dagapp.dag_task_results WHERE NOT processed")
    assert bad in {row["job_id"] for row in rows}
    assert (await engine.attempt(messages[0].task_id))["state"] == "reported"
    await engine.advance(good)
    assert (await engine.job(good)).status == "COMPLETED"
