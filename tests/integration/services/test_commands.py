"""Orders of operators on real PostgreSQL: at once, through the inbox, for many jobs, and in races with results."""

import asyncio
from typing import Any

import pytest

from core.errors import CallerError, Conflict, NotFound, ParameterInvalid, ParameterMissing
from core.job_filter import JobFilter
from core.models.engine import Job
from core.statuses import JobStatus
from core.wire import TaskResult, TaskStatus
from repositories.jobs import JobRepository
from services import commands
from services.commands import Order
from tests.support.engine import Engine, HandWorker, completed, workflows_of
from tests.support.waiting import await_until


async def failed(engine: Engine, worker: HandWorker, workflow_id: str = "echo_test", code: str = "BROKEN") -> str:
    """Return a job whose first task failed for good."""
    job_id = await engine.create(workflow_id)
    message = await engine.message(job_id)
    await worker.claim(message)
    error = {"code": code, "message": "it broke"}
    failure = {"task_id": message.task_id, "token": message.token, "status": TaskStatus.FAILED, "error": error}
    await worker.report(TaskResult.model_validate(failure))
    assert (await engine.job(job_id)).status is JobStatus.FAILED
    return job_id


async def events(engine: Engine, job_id: str, kind: str) -> list[dict[str, Any]]:
    rows = await engine.query(
        "SELECT event_data FROM dagapp.dag_job_events WHERE job_id = %s AND event_type = %s ORDER BY event_id",
        job_id,
        kind,
    )
    return [row["event_data"] for row in rows]


async def test_a_cancelled_job_has_no_messages_and_its_worker_is_told_to_stop(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    answer = await engine.order(job_id, "cancel", "wrong file")
    assert (answer.state, answer.job.status) == ("applied", JobStatus.CANCELLED)
    assert await engine.messages(job_id) == []
    assert (await worker.claim(message))[0].outcome == "cancelled"
    assert await events(engine, job_id, "job_cancelled") == [{"actor": "op", "reason": "wrong file"}]
    assert [job.job_id for job in engine.ended] == [job_id]
    with pytest.raises(Conflict) as caught:
        await engine.order(job_id, "cancel")
    assert (caught.value.detail.code, caught.value.detail.value) == ("JOB_FINAL", "CANCELLED")


async def test_a_paused_job_parks_what_is_claimed_and_a_resume_sends_it_again(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    assert (await engine.order(job_id, "pause")).job.paused_at is not None
    assert (await worker.claim(message))[0].outcome == "paused"
    await engine.query("DELETE FROM dagqueue.messages")
    await engine.advance(job_id)
    assert (await engine.attempt(message.task_id))["state"] == "parked"
    assert (await engine.order(job_id, "resume")).job.paused_at is None
    again = await engine.message(job_id)
    assert (again.task_id, again.dispatch_no) == (message.task_id, 2)
    await worker.run(again)
    assert (await engine.job(job_id)).status is JobStatus.COMPLETED


async def test_a_new_priority_reaches_the_message_that_waits(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    assert (await engine.order(job_id, "priority", priority=9)).job.priority == 9
    (message,) = await engine.messages(job_id)
    assert (message.priority, message.dispatch_no) == (9, 2)
    assert (await engine.attempt(message.task_id))["priority"] == 9
    await worker.run(message)


async def test_a_retried_job_belongs_to_nobody_until_somebody_takes_it_and_runs_to_its_end(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await failed(engine, worker)
    engine.ended.clear()
    job = (await engine.order(job_id, "retry")).job
    assert (job.status, job.run_no, job.owner_id, job.error) == (JobStatus.RUNNING, 2, None, None)
    stored = await engine.job(job_id)
    assert (stored.owner_id, stored.owner_epoch) == (None, job.owner_epoch)
    await worker.run(await engine.message(job_id))
    assert (await engine.job(job_id)).status is JobStatus.COMPLETED
    assert len(engine.ended) == 1
    assert (await events(engine, job_id, "job_retried"))[0]["actor"] == "op"


async def test_what_a_node_left_behind_is_gone_when_it_starts_anew(engine: Engine, worker: HandWorker) -> None:
    job_id = await failed(engine, worker)
    await engine.query(
        "INSERT INTO dagapp.dag_checkpoints (job_id, node_id, params_digest, phase, state, saved_by)"
        " VALUES (%s, 'echo_handler', 'x', 'half', '{}', 'x')",
        job_id,
    )
    await engine.query(
        "INSERT INTO dagapp.dag_fan_outs (job_id, node_id, state, item_count, child_count, batch_size,"
        " max_concurrency, tolerated, created_at)"
        " VALUES (%s, 'echo_handler', 'running', 1, 1, 1, 1, 0, dagapp.clock())",
        job_id,
    )
    await engine.query(
        "INSERT INTO dagapp.dag_fan_out_items (job_id, node_id, chunk_no, items) VALUES (%s, 'echo_handler', 0, '[1]')",
        job_id,
    )
    await engine.query(
        "INSERT INTO dagapp.dag_node_states (job_id, node_id, parent_node_id, fan_out_index, status, attempt)"
        " VALUES (%s, 'echo_handler__0', 'echo_handler', 0, 'RUNNING', 6)",
        job_id,
    )
    await engine.query(
        "INSERT INTO dagapp.dag_attempts (task_id, job_id, node_id, attempt, state, queue, handler, params_digest,"
        " token_hash, timeout_seconds, queued_at, child) VALUES (%s, %s, 'echo_handler__0', 5, 'queued', 'q', 'echo',"
        " 'x', 'x', 60, dagapp.clock(), true)",
        f"{job_id}_echo_handler__0_5",
        job_id,
    )
    await engine.order(job_id, "retry")
    for table in ("dag_checkpoints", "dag_fan_outs", "dag_fan_out_items"):
        assert await engine.query(f"SELECT node_id FROM dagapp.{table}") == []
    assert "echo_handler__0" not in await engine.statuses(job_id)
    assert (await engine.attempt(f"{job_id}_echo_handler__0_5"))["state"] == "revoked"
    assert (await engine.message(job_id)).attempt == 6


async def test_a_rerun_of_the_last_node_ends_the_job_in_the_same_transaction(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    await worker.run(await engine.message(job_id))
    engine.ended.clear()
    job = (await engine.order(job_id, "rerun", node_id="end")).job
    assert (job.status, job.run_no, len(engine.ended)) == (JobStatus.COMPLETED, 2, 1)


@pytest.mark.parametrize("again", ["retry", "rerun"])
async def test_a_cancel_that_is_taken_back_in_the_same_evaluation_ends_nothing(
    engine: Engine, worker: HandWorker, again: str
) -> None:
    job_id = await engine.create("echo_test")
    owner = (await engine.job(job_id)).owner_id
    assert owner is not None
    for kind in ("cancel", again):
        await engine.query("INSERT INTO dagapp.dag_commands (job_id, kind, actor) VALUES (%s, %s, 'op')", job_id, kind)
    await engine.advance(job_id)
    job = await engine.job(job_id)
    assert (job.status, job.run_no, job.owner_id, engine.ended) == (JobStatus.RUNNING, 2, owner, [])
    await worker.run(await engine.message(job_id))
    assert [one.status for one in engine.ended] == [JobStatus.COMPLETED]


async def test_a_rerun_takes_edited_params(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test", {"message": "hi"})
    await worker.run(await engine.message(job_id))
    await engine.order(job_id, "rerun", node_id="echo_handler", params={"message": "other"})
    assert (await engine.message(job_id)).params == {"message": "other"}


async def test_a_skipped_node_lets_the_job_go_on(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    with pytest.raises(NotFound):
        await engine.order(job_id, "skip", node_id="nope")
    await engine.order(job_id, "skip", node_id="echo_handler")
    assert await engine.messages(job_id) == []
    assert (await engine.statuses(job_id))["echo_handler"] == "SKIPPED"


GATED = """
workflow_id: gated
version: 1
nodes:
  start: {type: start, next: gate}
  gate: {type: gate, next: a}
  a: {handler: echo, params: {message: "{{ nodes.gate.output.data.word }}"}, next: end}
  end: {type: end}
"""


async def test_of_two_decisions_about_a_gate_the_first_wins_and_the_second_is_told(engine: Engine) -> None:
    engine = Engine(engine.pool, workflows_of(GATED))
    job_id = await engine.create("gated")
    orders = [
        engine.commands.order(job_id, Order("gate", actor, None, {"node_id": "gate", "decision": "approved", **data}))
        for actor, data in (("ann", {"data": {"word": "ann"}}), ("bob", {"data": {"word": "bob"}}))
    ]
    answers = await asyncio.gather(*orders, return_exceptions=True)
    (loser,) = [answer for answer in answers if isinstance(answer, Conflict)]
    word = (await engine.message(job_id)).params["message"]
    assert (loser.detail.code, loser.detail.value["output"]["actor"]) == ("GATE_DECIDED", word)


async def test_of_many_decisions_all_but_one_are_told_which_won_also_after_the_end_of_the_job(engine: Engine) -> None:
    engine = Engine(engine.pool, workflows_of(GATED))
    job_id = await engine.create("gated")
    orders = [
        engine.commands.order(job_id, Order("gate", f"op{n}", "no", {"node_id": "gate", "decision": "rejected"}))
        for n in range(12)
    ]
    answers = await asyncio.gather(*orders, return_exceptions=True)
    losers = [answer for answer in answers if isinstance(answer, Conflict)]
    (row,) = await engine.query("SELECT output FROM dagapp.dag_node_states WHERE node_id = 'gate'")
    assert [loser.detail.code for loser in losers] == ["GATE_DECIDED"] * 11
    assert all(loser.detail.value["output"] == row["output"] for loser in losers)


async def test_a_decision_that_lost_in_the_inbox_is_told_which_won_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.05)
    engine = Engine(engine.pool, workflows_of(GATED))
    job_id = await engine.create("gated")
    await engine.order(job_id, "gate", node_id="gate", decision="rejected")
    stored, leave = asyncio.Event(), commands._leave

    async def leaving(*args: Any) -> int:
        number = await leave(*args)
        stored.set()
        return number

    monkeypatch.setattr(commands, "_leave", leaving)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (job_id,))
        order = asyncio.ensure_future(engine.order(job_id, "gate", node_id="gate", decision="approved"))
        await stored.wait()
        await holder.rollback()
    with pytest.raises(Conflict) as caught:
        await order
    assert (caught.value.detail.code, caught.value.detail.value["output"]["decision"]) == ("GATE_DECIDED", "rejected")


async def test_an_order_for_a_job_that_does_not_exist_is_refused(engine: Engine) -> None:
    with pytest.raises(NotFound):
        await engine.order("nope", "cancel")


async def test_arguments_that_do_not_fit_are_refused_and_change_nothing(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    with pytest.raises(ParameterInvalid) as caught:
        await engine.order(job_id, "priority", priority=99)
    assert caught.value.detail.field == "priority"
    with pytest.raises(ParameterInvalid):
        await engine.order(job_id, "explode")
    assert (await engine.job(job_id)).priority == 5


async def test_an_order_for_a_job_that_somebody_holds_is_pending_and_obeyed_by_its_next_advance(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(commands, "ANSWER_SECONDS", 0.1)
    job_id = await engine.create("echo_test")
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (job_id,))
        answer = await engine.order(job_id, "cancel")
        assert (answer.state, answer.job.status) == ("pending", JobStatus.RUNNING)
        await holder.rollback()
    await engine.advance(job_id)
    assert (await engine.job(job_id)).status is JobStatus.CANCELLED
    (row,) = await engine.query("SELECT outcome, processed_at, actor FROM dagapp.dag_commands")
    assert (row["outcome"], row["actor"]) == ("applied", "op")
    assert row["processed_at"] is not None


async def test_an_order_that_went_through_the_inbox_answers_with_its_outcome(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.05)
    job_id = await engine.create("echo_test")
    stored = asyncio.Event()
    leave = commands._leave

    async def leaving(*args: Any) -> int:
        number = await leave(*args)
        stored.set()
        return number

    monkeypatch.setattr(commands, "_leave", leaving)
    outcomes = []
    for kind in ("cancel", "pause"):
        stored.clear()
        async with engine.pool.connection() as holder:
            await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (job_id,))
            order = asyncio.ensure_future(engine.order(job_id, kind))
            await stored.wait()
            await holder.rollback()
        outcomes.append((await asyncio.gather(order, return_exceptions=True))[0])
    first, second = outcomes
    assert (first.state, first.job.status) == ("applied", JobStatus.CANCELLED)
    assert isinstance(second, Conflict)
    assert (second.detail.code, second.detail.value) == ("JOB_FINAL", "CANCELLED")


async def test_the_loop_finds_a_job_by_its_command(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await engine.query(
        "INSERT INTO dagapp.dag_commands (job_id, kind, actor) VALUES (%s, 'pause', 'op')",
        job_id,
    )
    async with engine.pool.connection() as conn:
        due = await (await JobRepository(conn).due_results("owner-1", 10)).rows()
    assert [job.job_id for job in due] == [job_id]
    await engine.advance(job_id)
    assert (await engine.job(job_id)).paused_at is not None


async def test_a_job_that_cannot_be_evaluated_does_not_keep_its_commands(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await engine.create("echo_test")
    await engine.query("INSERT INTO dagapp.dag_commands (job_id, kind, actor) VALUES (%s, 'pause', 'op')", job_id)
    monkeypatch.setattr("services.evaluation.advance", lambda *_: 1 / 0)
    for _ in range(5):
        await engine.advance(job_id)
    assert (await engine.job(job_id)).status is JobStatus.FAILED
    (row,) = await engine.query("SELECT outcome FROM dagapp.dag_commands")
    assert row["outcome"] == "INTERNAL"
    (told,) = await events(engine, job_id, "command_refused")
    assert (told["kind"], told["code"], told["actor"]) == ("pause", "INTERNAL", "op")


async def test_a_stored_order_that_a_job_refuses_when_it_has_ended_is_an_event(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    for kind in ("cancel", "pause"):
        await engine.query("INSERT INTO dagapp.dag_commands (job_id, kind, actor) VALUES (%s, %s, 'op')", job_id, kind)
    await engine.advance(job_id)
    told = {"kind": "pause", "code": "JOB_FINAL", "message": "the job is CANCELLED already"}
    assert await events(engine, job_id, "command_refused") == [told | {"actor": "op", "reason": ""}]
    with pytest.raises(Conflict):
        await engine.order(job_id, "pause")
    assert len(await events(engine, job_id, "command_refused")) == 1


async def many(engine: Engine, kind: str, *, limit: int = 100, dry_run: bool = False, **wanted: Any) -> Any:
    return await engine.commands.order_many(JobFilter(**wanted), Order(kind, "op"), limit=limit, dry_run=dry_run)


async def test_an_order_by_filter_first_says_and_then_does(engine: Engine, worker: HandWorker) -> None:
    mine = [await engine.create("echo_test") for _ in range(3)]
    other = await engine.create("hello_world")
    broken = await failed(engine, worker)
    seen = await many(engine, "cancel", workflow_id="echo_test", dry_run=True)
    assert [(job.job_id, job.outcome) for job in seen.jobs] == [(job_id, "would_apply") for job_id in mine]
    assert {(await engine.job(job_id)).status for job_id in mine} == {JobStatus.RUNNING}
    part = await many(engine, "cancel", workflow_id="echo_test", limit=2)
    assert ([job.job_id for job in part.jobs], part.more) == (mine[:2], True)
    rest = await many(engine, "cancel", workflow_id="echo_test")
    assert [(job.job_id, job.outcome, job.status) for job in rest.jobs] == [(mine[2], "applied", "CANCELLED")]
    assert (await engine.job(other)).status is JobStatus.RUNNING
    assert (await engine.job(broken)).status is JobStatus.FAILED


async def test_a_rerun_by_filter_leaves_jobs_alone_that_began_another_run_since_it_found_them(
    engine: Engine, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, other = await failed(engine, worker), await failed(engine, worker)
    find = JobRepository.matching

    async def found(*args: Any, **how: Any) -> Any:
        jobs = await find(*args, **how)
        await engine.order(again, "retry")
        message = await engine.message(again)
        await worker.claim(message)
        await worker.report(completed(message))
        return jobs

    monkeypatch.setattr(JobRepository, "matching", found)
    left, done = (await many(engine, "rerun", status=JobStatus.FAILED)).jobs
    assert (left.outcome, left.code, left.status) == ("refused", "JOB_CHANGED", JobStatus.COMPLETED)
    assert (done.job_id, done.outcome, done.status) == (other, "applied", JobStatus.RUNNING)


async def test_a_limit_is_not_used_up_by_jobs_that_an_order_cannot_mean(engine: Engine, worker: HandWorker) -> None:
    for _ in range(3):
        await worker.run(await engine.message(await engine.create("echo_test")))
    child = await failed(engine, worker)
    await engine.query("UPDATE dagapp.dag_jobs SET parent_task_id = 'p_n_0', depth = 1 WHERE job_id = %s", child)
    broken = await failed(engine, worker)
    only = Order("rerun", "op", args={"only_unsuccessful": True})
    meant = JobFilter(workflow_id="echo_test")
    for order in (only, Order("retry", "op")):
        said = await engine.commands.order_many(meant, order, limit=1, dry_run=True)
        assert ([(job.job_id, job.outcome) for job in said.jobs], said.more) == ([(broken, "would_apply")], False)
    cancelled = await engine.commands.order_many(meant, only, limit=1, dry_run=False)
    assert [(job.job_id, job.outcome) for job in cancelled.jobs] == [(broken, "applied")]


async def test_of_two_reruns_by_one_filter_each_job_gets_one(engine: Engine, worker: HandWorker) -> None:
    jobs = [await failed(engine, worker) for _ in range(3)]
    await asyncio.gather(*(many(engine, "rerun", status=JobStatus.FAILED) for _ in range(2)))
    for job_id in jobs:
        await engine.advance(job_id)
        assert (await engine.job(job_id)).run_no == 2


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume", "priority", "retry", "rerun"])
async def test_a_dry_run_says_of_jobs_that_have_ended_what_the_order_itself_says(
    engine: Engine, worker: HandWorker, kind: str
) -> None:
    await failed(engine, worker)
    order = Order(kind, "op", args={"priority": 3} if kind == "priority" else {})
    wanted = JobFilter(status=JobStatus.FAILED)
    (seen,) = (await engine.commands.order_many(wanted, order, limit=9, dry_run=True)).jobs
    (done,) = (await engine.commands.order_many(wanted, order, limit=9, dry_run=False)).jobs
    expected = ("would_apply", None, None) if done.outcome == "applied" else ("refused", done.code, done.message)
    assert (seen.outcome, seen.code, seen.message) == expected


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume", "retry", "rerun"])
@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.COMPLETED])
@pytest.mark.parametrize("child", [False, True])
async def test_a_dry_run_says_of_every_status_what_the_order_itself_says(
    engine: Engine, worker: HandWorker, kind: str, status: JobStatus, child: bool
) -> None:
    job_id = await engine.create("echo_test")
    if status is JobStatus.COMPLETED:
        message = await engine.message(job_id)
        await worker.claim(message)
        await worker.report(completed(message))
    if child:
        await engine.query("UPDATE dagapp.dag_jobs SET parent_task_id = 'p_n_0' WHERE job_id = %s", job_id)
    seen = (await many(engine, kind, status=status, dry_run=True)).jobs
    done = (await many(engine, kind, status=status)).jobs
    assert len(done) == (0 if child and kind in {"retry", "rerun"} else 1)
    assert [(one.outcome, one.code, one.message) for one in seen] == [
        ("would_apply", None, None) if one.outcome == "applied" else ("refused", one.code, one.message) for one in done
    ]


RERUNS: list[dict[str, Any]] = [
    {"node_id": "nope"},
    {"node_id": "end"},
    {"node_id": "echo_handler"},
    {"node_id": "echo_handler", "params": {"message": "ho"}},
    {"node_id": "echo_handler", "params": {"surprise": 1}},
    {"node_id": "echo_handler", "params": {"message": "a\u0000b"}},
    {"node_id": "start", "params": {}},
    {"only_unsuccessful": True},
]


async def in_status(engine: Engine, worker: HandWorker, status: JobStatus) -> str:
    """Return a job of one task that is RUNNING, FAILED or COMPLETED."""
    if status is JobStatus.FAILED:
        return await failed(engine, worker)
    job_id = await engine.create("echo_test")
    if status is JobStatus.COMPLETED:
        await worker.run(await engine.message(job_id))
    return job_id


@pytest.mark.parametrize("args", RERUNS)
@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.FAILED, JobStatus.COMPLETED])
async def test_a_dry_run_of_a_rerun_says_what_the_rerun_itself_says(
    engine: Engine, worker: HandWorker, status: JobStatus, args: dict[str, Any]
) -> None:
    job_id = await in_status(engine, worker, status)
    order, before = Order("rerun", "op", args=args), await engine.events(job_id)
    alone = await outcome_of(engine.commands.order(job_id, order, dry_run=True))
    (seen,) = (await engine.commands.order_many(JobFilter(status=status), order, limit=9, dry_run=True)).jobs
    assert await engine.events(job_id) == before
    (done,) = (await engine.commands.order_many(JobFilter(status=status), order, limit=9, dry_run=False)).jobs
    expected = ("would_apply", None, None) if done.outcome == "applied" else ("refused", done.code, done.message)
    assert (seen.outcome, seen.code, seen.message) == expected
    assert alone == expected


async def outcome_of(order: Any) -> tuple[str, str | None, str | None]:
    """Return what becomes of an order for one job, in the words of those for many."""
    try:
        return (await order).state, None, None
    except CallerError as error:
        return "refused", error.detail.code, error.detail.message


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("cancel", {}),
        ("skip", {"node_id": "start"}),
        ("skip", {"node_id": "echo_handler"}),
        ("skip", {"node_id": "nope"}),
        ("gate", {"node_id": "echo_handler", "decision": "approved"}),
        ("window", {"node_id": "echo_handler", "max_concurrency": 2}),
        ("window", {"node_id": "echo_handler"}),
        ("explode", {}),
    ],
)
async def test_a_dry_run_for_one_job_says_what_the_order_itself_says(
    engine: Engine, kind: str, args: dict[str, Any]
) -> None:
    job_id = await engine.create("echo_test")
    order = Order(kind, "op", args=args)
    seen = await outcome_of(engine.commands.order(job_id, order, dry_run=True))
    assert (await engine.job(job_id)).status is JobStatus.RUNNING
    done = await outcome_of(engine.commands.order(job_id, order))
    assert seen == (done if done[0] == "refused" else ("would_apply", None, None))


async def test_a_dry_run_neither_waits_for_whoever_holds_the_job_nor_keeps_anybody_waiting(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await failed(engine, worker)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (job_id,))
        assert (await engine.commands.order(job_id, Order("retry", "op"), dry_run=True)).state == "would_apply"
        await holder.rollback()
    with pytest.raises(NotFound):
        await engine.commands.order("nope", Order("retry", "op"), dry_run=True)


async def test_a_dry_run_says_that_a_job_without_a_readable_definition_obeys_nothing(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await failed(engine, worker)
    await engine.query("UPDATE dagapp.dag_workflows SET definition = '{}'")
    blind = Engine(engine.pool)
    (seen,) = (await many(blind, "retry", status=JobStatus.FAILED, dry_run=True)).jobs
    (done,) = (await many(blind, "retry", status=JobStatus.FAILED)).jobs
    assert (seen.job_id, seen.outcome, seen.code) == (job_id, "failed", "INTERNAL")
    assert (done.outcome, done.code) == (seen.outcome, seen.code)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("priority", {}),
        ("priority", {"priority": 11}),
        ("cancel", {"node_id": "a"}),
        ("rerun", {"params": []}),
    ],
)
async def test_arguments_that_no_job_could_obey_are_refused_at_once(
    engine: Engine, kind: str, args: dict[str, Any], dry_run: bool
) -> None:
    with pytest.raises(ParameterInvalid):
        await engine.commands.order_many(
            JobFilter(workflow_id="echo_test"), Order(kind, "op", args=args), limit=9, dry_run=dry_run
        )


@pytest.mark.parametrize(
    "wanted",
    [{"error_code": "BROKEN"}, {"status": JobStatus.FAILED}, {"workflow_id": "echo_test"}, {"older_than_seconds": 0}],
)
async def test_failed_jobs_are_found_by_what_a_filter_says_and_retried(
    engine: Engine, worker: HandWorker, wanted: dict[str, Any]
) -> None:
    job_id = await failed(engine, worker)
    (outcome,) = (await many(engine, "retry", **wanted)).jobs
    assert (outcome.job_id, outcome.outcome, outcome.status) == (job_id, "applied", "RUNNING")


@pytest.mark.parametrize("wanted", [{"error_code": "OTHER"}, {"correlation_id": "r"}, {"older_than_seconds": 3600}])
async def test_a_filter_that_fits_nothing_does_nothing(
    engine: Engine, worker: HandWorker, wanted: dict[str, Any]
) -> None:
    await failed(engine, worker)
    assert (await many(engine, "retry", **wanted)).jobs == []


async def test_each_job_of_many_has_its_own_outcome(
    engine: Engine, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await failed(engine, worker) for _ in range(3)]
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (jobs[1],))
        await engine.query("UPDATE dagapp.dag_jobs SET parent_task_id = 'p_n_0' WHERE job_id = %s", jobs[2])
        seen = await many(engine, "retry", status=JobStatus.FAILED)
        await holder.rollback()
    assert [(job.outcome, job.code) for job in seen.jobs] == [("applied", None), ("pending", None)]
    await engine.advance(*jobs)
    assert (await engine.job(jobs[1])).status is JobStatus.RUNNING


@pytest.mark.parametrize("batch", [1, 2, 50])
async def test_of_two_orders_by_filter_at_once_each_says_what_became_of_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(commands, "BATCH", batch)
    jobs = [await engine.create("echo_test") for _ in range(5)]
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs FOR NO KEY UPDATE")
        both = [asyncio.ensure_future(many(engine, "cancel", workflow_id="echo_test")) for _ in range(2)]
        await await_until(lambda: engine.query("SELECT job_id FROM dagapp.dag_commands"), "an order is stored")
        await holder.rollback()
    first, second = await asyncio.gather(*both)
    for one, other in zip(first.jobs, second.jobs, strict=True):
        assert {one.outcome, other.outcome} == {"applied", "refused"}
        assert {one.code, other.code} == {None, "JOB_FINAL"}
        assert (one.status, other.status) == ("CANCELLED", "CANCELLED")
    stored = await engine.query("SELECT job_id FROM dagapp.dag_commands WHERE outcome <> 'applied'")
    told = [len(await events(engine, job_id, "command_refused")) for job_id in jobs]
    assert told == [[row["job_id"] for row in stored].count(job_id) for job_id in jobs]


async def test_what_cannot_be_written_when_a_filter_looks_again_stays_pending(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await engine.create("echo_test") for _ in range(2)]

    async def spoilt(*_: Any, **_how: Any) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(engine.advance_service, "advance", spoilt)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR NO KEY UPDATE", (jobs[0],))
        seen = await many(engine, "cancel", workflow_id="echo_test")
        await holder.rollback()
    assert [(job.outcome, job.code) for job in seen.jobs] == [("pending", None), ("applied", None)]


async def test_one_job_that_spoils_a_batch_spoils_only_itself(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [await engine.create("echo_test") for _ in range(3)]

    async def refuse(_conn: Any, job: Job) -> None:
        if job.job_id == jobs[1]:
            raise ValueError("no end today")

    engine.advance_service.writer._on_job_ended = refuse
    seen = await many(engine, "cancel", workflow_id="echo_test")
    assert [(job.outcome, job.code) for job in seen.jobs] == [
        ("applied", None),
        ("failed", "INTERNAL"),
        ("applied", None),
    ]
    assert (await engine.job(jobs[1])).status is JobStatus.RUNNING


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "always"])
async def test_one_job_that_spoils_the_second_look_spoils_only_itself(engine: Engine, times: int) -> None:
    """What becomes of the others, whose rows were held for a moment as well, is told."""
    jobs = [await engine.create("echo_test") for _ in range(3)]
    refused: list[str] = []

    async def refuse(_conn: Any, job: Job) -> None:
        if job.job_id == jobs[1] and len(refused) < times:
            refused.append(job.job_id)
            raise ValueError("no end today")

    engine.advance_service.writer._on_job_ended = refuse
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs FOR NO KEY UPDATE")
        order = asyncio.ensure_future(many(engine, "cancel", workflow_id="echo_test"))
        await await_until(lambda: engine.query("SELECT job_id FROM dagapp.dag_commands"), "an order is stored")
        await holder.rollback()
    second = "applied" if times == 1 else "pending"
    assert [job.outcome for job in (await order).jobs] == ["applied", second, "applied"]
    assert len(refused) == min(times, 2)  # with the others, then by itself, and not with each look again


async def test_an_empty_filter_and_an_order_for_single_jobs_are_refused(engine: Engine) -> None:
    with pytest.raises(ParameterMissing):
        await many(engine, "cancel")
    with pytest.raises(NotFound):
        await many(engine, "skip", workflow_id="echo_test")


async def test_a_cancel_and_the_last_result_at_the_same_instant_have_one_winner(
    engine: Engine, worker: HandWorker
) -> None:
    """Case D31: both wait at a barrier, the database decides; whatever it is, both answers say the same."""
    won = {JobStatus.CANCELLED: 0, JobStatus.COMPLETED: 0}
    for _ in range(200):
        job_id = await engine.create("echo_test")
        message = await engine.message(job_id)
        await worker.claim(message)
        barrier = asyncio.Barrier(2)

        async def at_once(call: Any, barrier: asyncio.Barrier = barrier) -> Any:
            await barrier.wait()
            return await call

        answers = await asyncio.gather(
            at_once(engine.order(job_id, "cancel")), at_once(worker.report(completed(message))), return_exceptions=True
        )
        await engine.advance(job_id)
        status = (await engine.job(job_id)).status
        cancelled, result = answers
        if isinstance(cancelled, Conflict):
            assert (status, cancelled.detail.value) == (JobStatus.COMPLETED, "COMPLETED")
            assert result[0].disposition == "applied"
        else:
            assert (status, cancelled.job.status) == (JobStatus.CANCELLED, JobStatus.CANCELLED)
        won[status] += 1
        ends = [event for event in await engine.events(job_id) if event in {"job_cancelled", "job_completed"}]
        assert len(ends) == 1
    assert sum(won.values()) == 200
