"""Dead letters on real PostgreSQL: no run hangs because of one, and operators settle each once."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from core.errors import Conflict, NotFound
from core.statuses import JobStatus
from core.wire import TaskMessage
from tests.support.engine import Engine, HandWorker


async def bury(engine: Engine, message: TaskMessage, body: Any, reason: str = "not a task message") -> None:
    """Set a message aside as a worker does, with another body."""
    await engine.query("UPDATE dagqueue.messages SET body = %s WHERE task_id = %s", Jsonb(body), message.task_id)
    await engine.query(
        "WITH removed AS (DELETE FROM dagqueue.messages WHERE task_id = %s RETURNING *)"
        " INSERT INTO dagqueue.dead_letters (message_id, queue, task_id, body, reason, delivery_count, enqueued_at)"
        " SELECT message_id, queue, task_id, body, %s, delivery_count, enqueued_at FROM removed",
        message.task_id,
        reason,
    )


async def letters(engine: Engine, **how: Any) -> Any:
    return await engine.dead_letters.list(**{"only_open": True, "before": None, "limit": 50, **how})


@pytest.mark.parametrize("body", [[], "{not json", {"token": "s3cret", "surprise": 1}, None, 5, True])
async def test_a_message_that_nobody_can_read_ends_its_run_visibly(engine: Engine, body: Any) -> None:
    """Case D05."""
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await bury(engine, message, body)
    assert await engine.dead_letters.take_over() == 1
    await engine.advance(job_id)
    job = await engine.job(job_id)
    assert job.status is JobStatus.FAILED
    assert job.error is not None
    assert (job.error["code"], job.error["node_id"]) == ("MESSAGE_UNREADABLE", "echo_handler")
    assert (await engine.attempt(message.task_id))["state"] == "revoked"
    (letter,) = await letters(engine)
    assert (letter.classification, letter.task_id, letter.job_id) == ("unreadable", message.task_id, job_id)
    assert "s3cret" not in letter.model_dump_json()
    assert "dead_letter_found" in await engine.events(job_id)
    assert await engine.query("SELECT * FROM dagqueue.dead_letters") == []


async def test_its_job_runs_to_its_end_when_it_is_retried(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    await bury(engine, await engine.message(job_id), [])
    await engine.dead_letters.take_over()
    await engine.advance(job_id)
    await engine.order(job_id, "retry")
    await worker.run(await engine.message(job_id))
    assert (await engine.job(job_id)).status is JobStatus.COMPLETED


async def test_what_the_broker_gave_up_is_sent_again_by_itself(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await bury(engine, message, message.model_dump(mode="json"), "MaxDeliveryCountExceeded")
    assert await engine.dead_letters.take_over() == 1
    assert await letters(engine) == []
    (letter,) = await letters(engine, only_open=False)
    assert (letter.classification, letter.resolution, letter.resolved_by) == ("undelivered", "replayed", "geodag")
    await engine.advance(job_id)
    again = await engine.message(job_id)
    assert (again.task_id, again.dispatch_no) == (message.task_id, 2)
    await worker.run(again)
    assert (await engine.job(job_id)).status is JobStatus.COMPLETED


async def test_a_forged_message_does_not_touch_the_task_it_names(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    forged = message.model_copy(update={"token": "f" * 32})
    await bury(engine, message, forged.model_dump(mode="json"), "the token is not the task's")
    await engine.dead_letters.take_over()
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status is JobStatus.RUNNING
    (letter,) = await letters(engine)
    assert letter.classification == "bad_token"


async def test_a_task_whose_message_is_a_dead_letter_says_so_until_it_is_sent_again(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    await worker.beat()
    message = await engine.message(job_id)
    await bury(engine, message, message.model_copy(update={"token": "f" * 32}).model_dump(mode="json"))
    await engine.dead_letters.take_over()
    (letter,) = await letters(engine)
    again_at = (await engine.attempt(message.task_id))["redispatch_at"].isoformat()
    said = {"dead_letter_id": letter.dead_letter_id, "classification": "bad_token", "until": again_at}

    async def waits() -> Any:
        return (await engine.insight.node(job_id, "echo_handler")).waiting_for

    assert await waits() == {"kind": "dead_letter", "detail": said}
    await engine.pause("all")
    assert (await waits())["kind"] == "paused"
    await engine.pause("all", on=False)
    await engine.dead_letters.discard(letter.dead_letter_id, "op")
    assert await waits() == {"kind": "dead_letter", "detail": said}
    await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock()")
    await engine.advance(job_id)
    assert (await waits())["kind"] == "queue"


async def test_a_letter_of_an_older_message_is_no_reason_to_wait(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    await worker.beat()
    message = await engine.message(job_id)
    await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock()")
    await engine.advance(job_id)
    await engine.query(
        "INSERT INTO dagqueue.dead_letters (message_id, queue, task_id, body, reason, delivery_count, enqueued_at)"
        " VALUES (%s, 'functionapp-tasks', %s, %s, 'no', 1, dagapp.clock())",
        f"{message.task_id}.1",
        message.task_id,
        Jsonb(message.model_dump(mode="json")),
    )
    await engine.dead_letters.take_over()
    assert [letter.classification for letter in await letters(engine)] == ["stale"]
    waits = (await engine.insight.node(job_id, "echo_handler")).waiting_for
    assert waits is not None
    assert waits["kind"] == "queue"


async def test_a_replay_sends_the_same_attempt_again_and_says_so_once(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await bury(engine, message, message.model_copy(update={"token": "f" * 32}).model_dump(mode="json"))
    await engine.dead_letters.take_over()
    (letter,) = await letters(engine)
    settled = await engine.dead_letters.replay(letter.dead_letter_id, "op", "it was a test")
    assert (settled.resolution, settled.resolved_by) == ("replayed", "op")
    (due,) = await engine.query("SELECT job_id FROM dagapp.dag_jobs WHERE wake_at <= dagapp.clock()")
    await engine.advance(due["job_id"])
    again = await engine.message(job_id)
    assert (again.task_id, again.dispatch_no) == (message.task_id, 2)
    await worker.run(again)
    assert (await engine.job(job_id)).status is JobStatus.COMPLETED
    for settle in (engine.dead_letters.replay, engine.dead_letters.discard):
        with pytest.raises(Conflict) as caught:
            await settle(letter.dead_letter_id, "op")
        assert (caught.value.detail.code, caught.value.detail.value) == ("DEAD_LETTER_RESOLVED", "replayed")
        assert str(caught.value) == f"dead letter {letter.dead_letter_id} is settled: replayed by op"
    assert await letters(engine) == []
    assert len(await letters(engine, only_open=False)) == 1
    (event,) = await engine.query(
        "SELECT event_data FROM dagapp.dag_job_events WHERE event_type = 'dead_letter_replayed'"
    )
    assert (event["event_data"]["actor"], event["event_data"]["reason"]) == ("op", "it was a test")


async def test_a_replay_sends_nothing_when_the_attempt_is_over(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await bury(engine, await engine.message(job_id), [])
    await engine.dead_letters.take_over()
    await engine.advance(job_id)
    (letter,) = await letters(engine)
    assert (await engine.dead_letters.replay(letter.dead_letter_id, "op")).resolution == "attempt_over"
    assert await engine.messages(job_id) == []
    with pytest.raises(Conflict, match=r"is settled: its attempt was over when it was replayed by op$"):
        await engine.dead_letters.discard(letter.dead_letter_id, "op")


async def test_a_letter_about_nothing_is_kept_listed_and_discarded(engine: Engine) -> None:
    await engine.query(
        "INSERT INTO dagqueue.dead_letters (message_id, queue, task_id, body, reason, delivery_count, enqueued_at)"
        " VALUES ('x.1', 'functionapp-tasks', 'x', '[]', 'unreadable', 3, dagapp.clock())"
    )
    assert await engine.dead_letters.take_over() == 1
    (letter,) = await letters(engine)
    assert (letter.classification, letter.job_id, letter.delivery_count) == ("unreadable", None, 3)
    assert (await engine.dead_letters.discard(letter.dead_letter_id, "op")).resolution == "discarded"
    with pytest.raises(NotFound):
        await engine.dead_letters.discard(letter.dead_letter_id + 1, "op")


async def test_many_letters_are_taken_in_batches_and_listed_in_pages(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.dead_letters.BATCH", 2)
    await engine.query(
        "INSERT INTO dagqueue.dead_letters (message_id, queue, task_id, body, reason, delivery_count, enqueued_at)"
        " SELECT n || '.1', 'q', 'x', '[]', 'r', 0, dagapp.clock() FROM generate_series(1, 5) AS n"
    )
    assert await engine.dead_letters.take_over() == 5
    first = await letters(engine, limit=3)
    rest = await letters(engine, limit=3, before=first[-1].dead_letter_id)
    assert [one.message_id for one in (*first, *rest)] == ["5.1", "4.1", "3.1", "2.1", "1.1"]


async def test_a_dead_letter_of_a_task_that_runs_leaves_it_alone(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await bury(engine, message, [])
    await engine.dead_letters.take_over()
    await engine.advance(job_id)
    await worker.complete(message)
    assert (await engine.job(job_id)).status is JobStatus.COMPLETED
