"""Claims, heartbeats and releases: every answer of architecture §3.5."""

from datetime import timedelta
from typing import Any

import pytest

from core.errors import Classification, ErrorDetail
from core.wire import (
    Beat,
    Capacity,
    Claim,
    ClaimOutcome,
    ClaimRequest,
    HeartbeatRequest,
    ItemOutcome,
    Release,
    ResultDisposition,
    TaskMessage,
    TaskResult,
    TaskStatus,
)
from repositories.database import transaction
from repositories.workers import WorkerRepository
from tests.support.engine import Engine, HandWorker, beats_of, completed, workflows_of

HEAVY = """
workflow_id: heavy
version: 1
nodes:
  start: {type: start, next: work}
  work: {handler: multi_phase, params: {phases: 2}, next: end}
  end: {type: end}
"""


PATIENT = """
workflow_id: patient
version: 1
nodes:
  start: {type: start, next: work}
  work: {handler: echo, heartbeat_timeout_seconds: 90, retry: {max_losses: 0}, next: end}
  end: {type: end}
"""


async def job_and_message(engine: Engine) -> tuple[str, TaskMessage]:
    job_id = await engine.create("echo_test")
    return job_id, await engine.message(job_id)


async def outcome(worker: HandWorker, message: TaskMessage, **more: Any) -> ClaimOutcome:
    (answer,) = await worker.claim(message, **more)
    return answer.outcome


async def test_a_granted_claim_leases_the_attempt_and_starts_the_node(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    (answer,) = await worker.claim(message)
    attempt = await engine.attempt(message.task_id)
    assert (answer.outcome, answer.lease_seconds, answer.handler) == (ClaimOutcome.GRANTED, 20.0, "echo")
    assert answer.params_digest == attempt["params_digest"]
    assert (attempt["state"], attempt["worker_id"], attempt["redispatch_at"]) == ("leased", "worker-1", None)
    assert (await engine.statuses(job_id))["echo_handler"] == "RUNNING"
    assert (await engine.events(job_id))[-1] == "node_started"


async def test_the_same_claim_gets_the_same_answer_again_and_starts_once(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    first = await worker.claim(message, claim_id="one")
    assert await worker.claim(message, claim_id="one") == first
    assert (await engine.events(job_id)).count("node_started") == 1


async def test_another_claim_on_a_leased_task_is_refused(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    await worker.claim(message, claim_id="one")
    assert await outcome(HandWorker(engine, "worker-2"), message, claim_id="two") is ClaimOutcome.LEASED


async def test_a_claim_with_a_wrong_token_or_of_an_unknown_task_is_unknown(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    forged = message.model_copy(update={"token": "ff" * 16})
    assert await outcome(worker, forged) is ClaimOutcome.UNKNOWN
    assert await outcome(worker, message.model_copy(update={"task_id": "nobody_knows_0"})) is ClaimOutcome.UNKNOWN
    assert await outcome(worker, message.model_copy(update={"task_id": "not a task id"})) is ClaimOutcome.UNKNOWN
    assert (await engine.attempt(message.task_id))["state"] == "queued"


async def test_a_claim_on_a_finished_task_is_finished(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    await worker.run(message)
    assert await outcome(worker, message) is ClaimOutcome.FINISHED


async def test_an_older_dispatch_is_superseded_and_the_newer_one_is_granted(engine: Engine, worker: HandWorker) -> None:
    job_id, old = await job_and_message(engine)
    await engine.query(
        "UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock() - interval '1 second' WHERE task_id = %s",
        old.task_id,
    )
    await engine.advance(job_id)
    (new,) = await engine.messages(job_id)
    assert (new.task_id, new.dispatch_no) == (old.task_id, 2)
    assert new.token != old.token
    assert await outcome(worker, old) is ClaimOutcome.SUPERSEDED
    assert await outcome(worker, new) is ClaimOutcome.GRANTED


async def test_a_claim_on_an_expired_attempt_is_superseded(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    assert await outcome(worker, message) is ClaimOutcome.SUPERSEDED


async def test_a_claim_on_a_revoked_attempt_is_cancelled(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    await engine.query("UPDATE dagapp.dag_attempts SET state = 'revoked' WHERE task_id = %s", message.task_id)
    assert await outcome(worker, message) is ClaimOutcome.CANCELLED


@pytest.mark.parametrize("switch", ["pause:all", "pause:workflow:echo_test", "pause:queue:functionapp-tasks"])
async def test_a_claim_under_a_pause_switch_parks_the_attempt(engine: Engine, worker: HandWorker, switch: str) -> None:
    _, message = await job_and_message(engine)
    await engine.query("INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES (%s, 'true', 'test')", switch)
    assert await outcome(worker, message) is ClaimOutcome.PAUSED
    assert (await engine.attempt(message.task_id))["state"] == "parked"


async def test_a_parked_attempt_is_sent_again_once_its_job_goes_on(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    await engine.query("UPDATE dagapp.dag_jobs SET paused_at = dagapp.clock() WHERE job_id = %s", job_id)
    assert await outcome(worker, message) is ClaimOutcome.PAUSED
    await engine.query("DELETE FROM dagqueue.messages")
    await engine.query("UPDATE dagapp.dag_jobs SET paused_at = NULL WHERE job_id = %s", job_id)
    await engine.advance(job_id)
    again = await engine.message(job_id)
    assert (again.task_id, again.dispatch_no) == (message.task_id, 2)
    assert (await worker.run(again)).disposition is ResultDisposition.APPLIED


async def test_claims_beyond_the_free_slots_do_not_fit(engine: Engine) -> None:
    messages = [(await job_and_message(engine))[1] for _ in range(3)]
    answers = await HandWorker(engine, slots=2).claim(*messages)
    assert [answer.outcome for answer in answers] == ["granted", "granted", "no_fit"]


async def test_one_call_claims_and_reports_many_tasks(engine: Engine, worker: HandWorker) -> None:
    messages = [(await job_and_message(engine))[1] for _ in range(20)]
    assert {answer.outcome for answer in await worker.claim(*messages)} == {ClaimOutcome.GRANTED}
    answers = await worker.complete(*messages)
    assert [answer.task_id for answer in answers] == [message.task_id for message in messages]
    assert {answer.disposition for answer in answers} == {ResultDisposition.APPLIED}
    assert len(engine.ended) == 20


async def test_a_heartbeat_renews_leases_and_keeps_progress(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    await worker.claim(message)
    await engine.query("UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock()")
    before = await engine.attempt(message.task_id)
    progress = {"current": 1, "total": 4, "message": "reading"}
    beat = Beat(task_id=message.task_id, token=message.token, progress=progress, peak_rss_bytes=4096)
    answer = await worker.beat(beat)
    await worker.beat(*beats_of([message]))
    after = await engine.attempt(message.task_id)
    assert answer.revoked == ()
    assert after["lease_expires_at"] > before["lease_expires_at"]
    assert (after["progress"], after["peak_rss_bytes"]) == (progress, 4096)


async def test_a_worker_that_said_goodbye_is_not_shown_any_more(engine: Engine, worker: HandWorker) -> None:
    async def shown() -> list[tuple[str, str]]:
        async with transaction(engine.pool) as conn:
            return [(one.worker_id, one.state) for one in await WorkerRepository(conn).recent(60)]

    for state in ("active", "draining", "stopped"):
        identity = worker.identity.model_copy(update={"state": state})
        await engine.claims.heartbeat(HeartbeatRequest(worker=identity, free=Capacity(slots=1), beats=()))
        assert await shown() == [("worker-1", state)] * (state != "stopped")
        message = await engine.message(await engine.create("echo_test"))
        claim = Claim(task_id=message.task_id, dispatch_no=message.dispatch_no, token=message.token, claim_id="c")
        (answer,) = await engine.claims.claim(ClaimRequest(worker=identity, free=Capacity(slots=1), claims=(claim,)))
        assert (answer.outcome == "granted") == (state == "active")


async def test_leases_of_a_node_with_a_heartbeat_timeout_last_that_long(engine: Engine) -> None:
    engine = Engine(engine.pool, workflows_of(PATIENT))
    worker = HandWorker(engine)
    job_id = await engine.create("patient")
    message = await engine.message(job_id)
    (answer,) = await worker.claim(message)
    granted = await engine.attempt(message.task_id)
    await engine.query("UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock()")
    await worker.beat(*beats_of([message]))
    renewed = await engine.attempt(message.task_id)
    assert (answer.lease_seconds, granted["lease_expires_at"] - granted["leased_at"]) == (90, timedelta(seconds=90))
    assert renewed["lease_expires_at"] - granted["leased_at"] > timedelta(seconds=89)
    await engine.query("UPDATE dagapp.dag_attempts SET lease_expires_at = lease_expires_at - interval '89 seconds'")
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status == "RUNNING"
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    assert (await engine.job(job_id)).error["code"] == "WORKER_LOST"


async def test_a_heartbeat_says_which_tasks_to_stop(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    _, other = await job_and_message(engine)
    await worker.claim(message, other)
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    forged = Beat(task_id=other.task_id, token="ff" * 16)
    answer = await worker.beat(*beats_of([message, other]), forged)
    assert [one.task_id for one in answer.revoked] == [message.task_id, other.task_id]
    assert "expired" in answer.revoked[0].reason
    assert "token" in answer.revoked[1].reason


async def test_a_heartbeat_records_the_worker(engine: Engine, worker: HandWorker) -> None:
    await worker.beat()
    await worker.beat()
    (row,) = await engine.query("SELECT worker_id, queue, state, free FROM dagapp.dag_workers")
    assert (row["worker_id"], row["queue"], row["state"]) == ("worker-1", "functionapp-tasks", "active")
    assert row["free"]["slots"] == 100


async def test_the_next_attempt_starts_from_the_last_checkpoint(engine: Engine) -> None:
    engine = Engine(engine.pool, workflows_of(HEAVY))
    worker = HandWorker(engine, queue="container-tasks")
    job_id = await engine.create("heavy")
    message = await engine.message(job_id)
    (first,) = await worker.claim(message)
    checkpoint = {"phase": "phase_1", "state": {"done": [1]}}
    await worker.beat(Beat(task_id=message.task_id, token=message.token, checkpoint=checkpoint))
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    await engine.query("UPDATE dagapp.dag_node_states SET not_before = dagapp.clock() WHERE status = 'WAITING'")
    await engine.advance(job_id)
    (second,) = await worker.claim(await engine.message(job_id))
    assert (first.checkpoint, second.checkpoint) == (None, checkpoint)
    assert "checkpoint_saved" in await engine.events(job_id)


async def test_a_checkpoint_of_an_attempt_that_lost_its_lease_is_refused(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    await engine.advance(job_id)
    await worker.beat(Beat(task_id=message.task_id, token=message.token, checkpoint={"phase": "late", "state": {}}))
    assert await engine.query("SELECT * FROM dagapp.dag_checkpoints") == []


async def test_a_checkpoint_of_other_params_is_not_handed_on(engine: Engine) -> None:
    worker = HandWorker(engine, queue="container-tasks")
    engine = worker.engine = Engine(engine.pool, workflows_of(HEAVY))
    job_id = await engine.create("heavy")
    message = await engine.message(job_id)
    await worker.claim(message)
    beat = Beat(task_id=message.task_id, token=message.token, checkpoint={"phase": "p", "state": {"done": 1}})
    await worker.beat(beat)
    await worker.report(Release(task_id=message.task_id, token=message.token))
    await engine.query("UPDATE dagapp.dag_checkpoints SET params_digest = %s", "0" * 64)
    (answer,) = await worker.claim(await engine.message(job_id))
    assert (answer.outcome, answer.checkpoint) == (ClaimOutcome.GRANTED, None)


async def test_a_checkpoint_above_the_limit_is_dropped_and_costs_no_lease(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    await worker.claim(message)
    beat = Beat(task_id=message.task_id, token=message.token, checkpoint={"phase": "p", "state": {"x": "y" * 70_000}})
    assert (await worker.beat(beat)).revoked == ()
    assert await engine.query("SELECT * FROM dagapp.dag_checkpoints") == []


async def test_a_checkpoint_that_cannot_be_stored_costs_no_lease(engine: Engine, worker: HandWorker) -> None:
    _, message = await job_and_message(engine)
    await worker.claim(message)
    bad = Beat(task_id=message.task_id, token=message.token, checkpoint={"phase": "x", "state": {"nul": "a\x00b"}})
    assert (await worker.beat(bad)).revoked == ()
    assert await engine.query("SELECT * FROM dagapp.dag_checkpoints") == []


async def test_two_beats_of_one_task_cost_no_lease_and_what_both_say_is_kept(
    engine: Engine, worker: HandWorker
) -> None:
    (_, message), (_, other) = await job_and_message(engine), await job_and_message(engine)
    await worker.claim(message, other)
    before = (await engine.attempt(other.task_id))["lease_expires_at"]
    (last,) = beats_of([message])
    outcomes = tuple(ItemOutcome(index=one, status=TaskStatus.COMPLETED, output={}) for one in (0, 1))
    first = last.model_copy(
        update={"checkpoint": {"phase": "a", "state": {}}, "progress": {"current": 1}, "outcomes": outcomes[:1]}
    )
    second = last.model_copy(update={"checkpoint": {"phase": "b", "state": {}}, "outcomes": outcomes[1:]})
    assert (await worker.beat(first, second, last, *beats_of([other]))).revoked == ()
    row = await engine.attempt(message.task_id)
    assert (await engine.attempt(other.task_id))["lease_expires_at"] > before
    assert (row["progress"], [one["index"] for one in row["outcomes"]]) == ({"current": 1}, [0, 1])
    assert await engine.query("SELECT phase FROM dagapp.dag_checkpoints") == [{"phase": "b"}]


async def test_a_release_sends_the_task_again_at_once_and_costs_no_budget(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    await worker.claim(message)
    (answer,) = await worker.report(Release(task_id=message.task_id, token=message.token))
    again = await engine.message(job_id)
    (node,) = await engine.query("SELECT * FROM dagapp.dag_node_states WHERE node_id = 'echo_handler'")
    assert answer.disposition is ResultDisposition.APPLIED
    assert (again.attempt, node["retries_used"], node["losses_used"]) == (1, 0, 0)
    assert (await engine.attempt(message.task_id))["state"] == "released"
    assert (await worker.run(again)).disposition is ResultDisposition.APPLIED


async def test_a_late_result_of_a_released_attempt_is_superseded(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    await worker.claim(message)
    await worker.report(Release(task_id=message.task_id, token=message.token))
    (answer,) = await worker.complete(message)
    assert answer.disposition is ResultDisposition.SUPERSEDED
    assert (await engine.job(job_id)).status == "RUNNING"


async def test_a_transient_failure_waits_and_is_sent_again(engine: Engine, worker: HandWorker) -> None:
    job_id, message = await job_and_message(engine)
    await worker.claim(message)
    error = ErrorDetail(code="FLAKY", message="try later", classification=Classification.TRANSIENT)
    failed = TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.FAILED, error=error)
    await worker.report(failed)
    job = await engine.job(job_id)
    assert (await engine.statuses(job_id))["echo_handler"] == "WAITING"
    assert job.wake_at is not None
    await engine.query("UPDATE dagapp.dag_node_states SET not_before = dagapp.clock() WHERE status = 'WAITING'")
    await engine.advance(job_id)
    again = await engine.message(job_id)
    assert again.attempt == 1
    assert completed(again).task_id.endswith("_1")
