"""A job from creation to its end through claims and results."""

from core.wire import ResultDisposition
from tests.support.engine import Engine, HandWorker


async def test_creating_a_job_sends_its_first_task_in_the_same_transaction(engine: Engine) -> None:
    job_id = await engine.create("echo_test", {"message": "hi"}, submitted_by="tester")
    (message,) = await engine.messages(job_id)
    assert message.handler == "echo"
    assert message.params == {"message": "hi"}
    assert (await engine.job(job_id)).status == "RUNNING"
    assert await engine.statuses(job_id) == {"start": "COMPLETED", "echo_handler": "DISPATCHED", "end": "PENDING"}


async def test_a_result_ends_the_job_with_its_declared_outputs_in_one_transaction(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test", {"message": "hi"})
    answer = await worker.run(await engine.message(job_id))
    job = await engine.job(job_id)
    assert answer.disposition is ResultDisposition.APPLIED
    assert (job.status, job.outputs, job.wake_at) == ("COMPLETED", {"echoed": {"message": "hi"}}, None)
    assert [one.job_id for one in engine.ended] == [job_id]
    assert await engine.events(job_id) == [
        "job_created", "node_ready", "node_completed", "node_ready", "node_dispatched", "job_started",
        "node_started", "node_completed", "node_ready", "node_completed", "job_completed",
    ]  # fmt: skip
