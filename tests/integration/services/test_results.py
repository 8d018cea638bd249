"""Results are stored once, fenced by attempt, and applied whoever holds the job."""

import pytest

from core.errors import Finding
from core.wire import ResultDisposition, TaskResult, TaskStatus
from services.work import pipelined
from tests.support.engine import Engine, HandWorker, completed

APPLIED, DUPLICATE = ResultDisposition.APPLIED, ResultDisposition.DUPLICATE
SUPERSEDED, REJECTED = ResultDisposition.SUPERSEDED, ResultDisposition.REJECTED


async def test_the_same_result_twice_is_one_result(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.run(message)
    events = await engine.events(job_id)
    (again,) = await worker.complete(message)
    assert again.disposition is DUPLICATE
    assert await engine.events(job_id) == events
    assert len(engine.ended) == 1


async def test_the_same_result_twice_in_one_call_is_one_result(engine: Engine, worker: HandWorker) -> None:
    message = await engine.message(await engine.create("echo_test"))
    await worker.claim(message)
    answers = await worker.complete(message, message)
    assert [answer.disposition for answer in answers] == [APPLIED, DUPLICATE]


async def test_a_result_with_a_wrong_token_changes_nothing_and_blocks_nobody(
    engine: Engine, worker: HandWorker
) -> None:
    messages = [await engine.message(await engine.create("echo_test")) for _ in range(2)]
    await worker.claim(*messages)
    forged = completed(messages[0]).model_copy(update={"token": "ff" * 16})
    answers = await worker.report(forged, completed(messages[1]), completed(messages[0]))
    assert [answer.disposition for answer in answers] == [REJECTED, APPLIED, APPLIED]


async def test_a_result_that_nobody_was_granted_is_rejected(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    (answer,) = await worker.complete(await engine.message(job_id))
    assert answer.disposition is REJECTED
    assert (await engine.statuses(job_id))["echo_handler"] == "DISPATCHED"


async def test_a_result_of_an_unknown_task_is_rejected(engine: Engine, worker: HandWorker) -> None:
    ghosts = [
        TaskResult(task_id=name, token="00" * 16, status=TaskStatus.COMPLETED, output={}) for name in ("a_b_0", "x")
    ]
    assert [answer.disposition for answer in await worker.report(*ghosts)] == [REJECTED, REJECTED]


async def test_a_result_after_its_lease_expired_is_stored_as_superseded(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    (answer,) = await worker.complete(message)
    (row,) = await engine.query("SELECT * FROM dagapp.dag_task_results")
    assert answer.disposition is SUPERSEDED
    assert (row["task_id"], row["processed"], row["disposition"]) == (message.task_id, True, "superseded")
    assert (await engine.events(job_id))[-1] == "result_superseded"


async def test_an_expired_lease_is_a_lost_worker_and_the_task_is_tried_again(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    await engine.advance(job_id)
    (node,) = await engine.query("SELECT * FROM dagapp.dag_node_states WHERE node_id = 'echo_handler'")
    again = await engine.message(job_id)
    assert (node["losses_used"], node["retries_used"], again.attempt) == (1, 0, 1)
    assert (await engine.attempt(message.task_id))["state"] == "expired"
    assert (await worker.run(again)).disposition is APPLIED
    assert (await engine.job(job_id)).status == "COMPLETED"


async def test_no_lease_expires_while_nobody_could_renew(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    engine.may_expire_leases = False
    await engine.advance(job_id)
    assert (await engine.attempt(message.task_id))["state"] == "leased"
    (answer,) = await worker.complete(message)
    assert answer.disposition is APPLIED


async def test_a_result_while_somebody_holds_the_job_waits_in_the_inbox(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (job_id,))
        (answer,) = await worker.complete(message)
        (row,) = await engine.query("SELECT processed FROM dagapp.dag_task_results")
        assert (answer.disposition, row["processed"]) == (APPLIED, False)
        assert (await engine.attempt(message.task_id))["state"] == "reported"
        await holder.rollback()
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status == "COMPLETED"


async def test_a_result_that_had_to_wait_wakes_the_owner(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    async with engine.pool.connection() as listener, engine.pool.connection() as holder:
        await listener.set_autocommit(True)
        await listener.execute('LISTEN "dag_owner_owner-1"')
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (job_id,))
        await worker.complete(message)
        heard = [(one.channel, one.payload) async for one in listener.notifies(timeout=5, stop_after=1)]
        await holder.rollback()
        await listener.execute("UNLISTEN *")
        await listener.set_autocommit(False)
    assert heard == [("dag_owner_owner-1", "")]


async def test_a_late_result_of_a_finished_job_is_set_aside(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.run(message)
    await engine.query("UPDATE dagapp.dag_task_results SET processed = false, disposition = NULL")
    await engine.advance(job_id)
    (row,) = await engine.query("SELECT processed, disposition FROM dagapp.dag_task_results")
    assert (row["processed"], row["disposition"]) == (True, "superseded")
    assert len(engine.ended) == 1


@pytest.mark.parametrize("output", [{"x": float("nan")}, {"deep": [{"y": float("inf")}]}, {"text": "a\x00b"}])
async def test_an_output_that_is_not_json_fails_the_node_naming_the_path(
    engine: Engine, worker: HandWorker, output: dict[str, object]
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    (answer,) = await worker.report(completed(message, output))
    job = await engine.job(job_id)
    assert answer.disposition is APPLIED
    assert job.status == "FAILED"
    assert job.error is not None
    assert job.error["code"] == "OUTPUT_INVALID"
    assert "output." in job.error["message"]


async def test_endless_findings_and_metrics_are_cut_and_cost_nobody_the_work(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    findings = tuple(Finding(code="ODD", level="info", message=f"{n} " + "x" * 1000) for n in range(100))
    await worker.report(completed(message).model_copy(update={"findings": findings, "metrics": {"m": "y" * 70_000}}))
    (row,) = await engine.query("SELECT findings, metrics FROM dagapp.dag_task_results WHERE job_id = %s", job_id)
    assert (await engine.job(job_id)).status == "COMPLETED"
    assert row["metrics"] == {"left_out_bytes": 70_008}
    kept, last = row["findings"][:-1], row["findings"][-1]
    assert (last["code"], last["message"]) == ("FINDINGS_CUT", f"{100 - len(kept)} more findings were left out")
    assert 50 < len(kept) < 66


async def test_metrics_that_are_not_json_are_left_out_and_cost_nobody_the_work(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await worker.report(completed(message).model_copy(update={"metrics": {"ratio": float("nan")}}))
    (row,) = await engine.query("SELECT metrics FROM dagapp.dag_task_results WHERE job_id = %s", job_id)
    assert (await engine.job(job_id)).status == "COMPLETED"
    assert "metrics.ratio" in row["metrics"]["left_out"]


async def test_a_poison_result_is_set_aside_and_blocks_nobody(engine: Engine, worker: HandWorker) -> None:
    messages = [await engine.message(await engine.create("echo_test")) for _ in range(2)]
    await worker.claim(*messages)
    nothing = TaskResult(task_id=messages[0].task_id, token=messages[0].token, status=TaskStatus.COMPLETED)
    answers = await worker.report(nothing, completed(messages[1]))
    assert [answer.disposition for answer in answers] == [REJECTED, APPLIED]
    assert (await engine.job(messages[1].job_id)).status == "COMPLETED"
    assert (await engine.job(messages[0].job_id)).status == "FAILED"


async def test_every_advance_makes_the_version_grow(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    before = (await engine.job(job_id)).version
    await worker.run(await engine.message(job_id))
    assert (await engine.job(job_id)).version == before + 1


async def test_an_advance_that_changes_nothing_writes_nothing(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    before, events = await engine.job(job_id), await engine.events(job_id)
    await engine.advance(job_id)
    assert await engine.job(job_id) == before
    assert await engine.events(job_id) == events


async def test_a_job_is_not_created_when_its_transaction_rolls_back(engine: Engine) -> None:
    async def create_and_fail() -> None:
        async with pipelined(engine.pool) as conn:
            await engine.jobs.create_job(conn, workflow_id="echo_test", inputs={})
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await create_and_fail()
    assert await engine.query("SELECT job_id FROM dagapp.dag_jobs") == []
    assert await engine.messages() == []
