"""Why nodes wait and how far jobs are, on real PostgreSQL."""

import pytest

from core.wire import Capacity, Claim, ClaimRequest
from repositories.history import HistoryRepository
from tests.support.engine import Engine, HandWorker, beats_of, workflows_of


async def reasons(engine: Engine, job_id: str) -> dict[str, str]:
    found = await engine.insight.nodes(job_id)
    return {one.node.node_id: one.waiting_for["kind"] for one in found if one.waiting_for}


async def test_a_task_waits_for_a_worker_until_one_is_heard_of(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    assert await reasons(engine, job_id) == {"echo_handler": "worker", "end": "dependency"}
    await worker.beat()
    assert (await reasons(engine, job_id))["echo_handler"] == "queue"
    await engine.query("UPDATE dagapp.dag_workers SET heartbeat_at = dagapp.clock() - interval '1 minute'")
    assert (await reasons(engine, job_id))["echo_handler"] == "worker"


async def test_a_claim_that_found_no_room_is_noted_once_and_told(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.beat()
    full = HandWorker(engine, slots=0)
    for _ in range(2):
        assert (await full.claim(message))[0].outcome == "no_fit"
    (waiting,) = [one for one in await engine.insight.nodes(job_id) if one.node.node_id == "echo_handler"]
    assert waiting.waiting_for == {
        "kind": "no_fit", "detail": {"queue": "functionapp-tasks", "reason": "no free slot"},
    }  # fmt: skip
    assert (await worker.claim(message))[0].outcome == "granted"
    assert await reasons(engine, job_id) == {"end": "dependency"}


async def test_an_unknown_task_among_the_claims_is_no_reason_to_note_anything(engine: Engine) -> None:
    worker = HandWorker(engine, slots=0)
    claim = Claim(task_id="nope_a_0", dispatch_no=1, token="00" * 16, claim_id="c")
    request = ClaimRequest(worker=worker.identity, free=Capacity(slots=0), claims=(claim,))
    assert (await engine.claims.claim(request))[0].outcome == "unknown"


JUMBLED = """
workflow_id: jumbled
version: 1
nodes:
  end: {type: end, depends_on: [z, a]}
  a: {handler: echo, params: {}, depends_on: [m]}
  start: {type: start, next: [z, m]}
  z: {handler: echo, params: {}}
  m: {handler: echo, params: {}}
"""


async def test_nodes_come_in_the_order_of_the_graph_and_unknown_ones_behind(engine: Engine) -> None:
    engine = Engine(engine.pool, workflows_of(JUMBLED))
    job_id = await engine.create("jumbled")
    await engine.query("INSERT INTO dagapp.dag_node_states (job_id, node_id) VALUES (%s, 'a_extra')", job_id)
    for node_id in ("start", "m"):
        await engine.query("UPDATE dagapp.dag_node_states SET not_before = dagapp.clock() WHERE node_id = %s", node_id)
    names = [one.node.node_id for one in await engine.insight.nodes(job_id)]
    order = engine.catalogue.get("jumbled").graph.order
    assert names == [*order, "a_extra"]
    assert names.index("m") < names.index("a") < names.index("end")


async def test_a_pause_is_told_before_any_evaluation(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await engine.pause("workflow:echo_test")
    assert (await reasons(engine, job_id))["echo_handler"] == "paused"


async def test_progress_follows_the_nodes_and_the_time_left_comes_from_earlier_jobs(
    engine: Engine, worker: HandWorker
) -> None:
    first = await engine.create("echo_test")
    before = await engine.insight.progress(await engine.job(first))
    assert before is not None
    assert (before.nodes_done, before.nodes_total, before.eta_seconds) == (1, 3, None)
    message = await engine.message(first)
    await worker.claim(message)
    beat = beats_of([message])[0].model_copy(update={"progress": {"current": 1, "total": 2, "message": "half"}})
    await worker.beat(beat)
    halfway = await engine.insight.progress(await engine.job(first))
    assert halfway is not None
    assert halfway.fraction == 0.5
    await worker.complete(message)
    assert await engine.insight.progress(await engine.job(first)) is None
    await engine.query(
        "UPDATE dagapp.dag_node_states SET completed_at = first_dispatched_at + interval '40 seconds'"
        " WHERE node_id = 'echo_handler'"
    )
    second = await engine.create("echo_test")
    after = await engine.insight.progress(await engine.job(second))
    assert after is not None
    assert after.eta_seconds == 40.0


@pytest.mark.parametrize("held", ["all", "workflow:echo_test", "queue:functionapp-tasks", "job"])
@pytest.mark.parametrize("claimed", [False, True])
async def test_nobody_can_tell_when_a_job_will_be_done_that_a_pause_holds_and_tasks_at_work_go_on(
    engine: Engine, worker: HandWorker, held: str, claimed: bool
) -> None:
    first = await engine.create("echo_test")
    await worker.run(await engine.message(first))
    await engine.query("UPDATE dagapp.dag_node_states SET completed_at = first_dispatched_at + interval '40 seconds'")
    job_id = await engine.create("echo_test")
    await worker.beat()
    if claimed:
        await worker.claim(await engine.message(job_id))
    before = await engine.insight.progress(await engine.job(job_id))
    assert before is not None
    assert before.eta_seconds is not None
    if held == "job":
        await engine.order(job_id, "pause")
    else:
        await engine.pause(held)
    during = await engine.insight.progress(await engine.job(job_id))
    assert during is not None
    assert (during.eta_seconds is not None) == claimed


async def test_nobody_can_tell_when_a_job_will_be_done_of_whose_queue_no_worker_is_alive(
    engine: Engine, worker: HandWorker
) -> None:
    await worker.run(await engine.message(await engine.create("echo_test")))
    await engine.query("UPDATE dagapp.dag_node_states SET completed_at = first_dispatched_at + interval '40 seconds'")
    job_id = await engine.create("echo_test")
    for alive in (True, False):
        await worker.beat()
        if not alive:
            await engine.query("UPDATE dagapp.dag_workers SET heartbeat_at = dagapp.clock() - interval '1 minute'")
        seen = await engine.insight.progress(await engine.job(job_id))
        assert seen is not None
        assert (seen.eta_seconds is not None) == alive


async def test_history_is_the_middle_of_the_newest_jobs_of_the_same_workflow(engine: Engine) -> None:
    for seconds in (10, 20, 90):
        job_id = await engine.create("echo_test")
        await engine.query("UPDATE dagapp.dag_jobs SET status = 'COMPLETED', completed_at = dagapp.clock()")
        await engine.query(
            "UPDATE dagapp.dag_node_states SET status = 'COMPLETED',"
            " completed_at = first_dispatched_at + make_interval(secs => %s)"
            " WHERE job_id = %s AND node_id = 'echo_handler'",
            seconds,
            job_id,
        )
    async with engine.pool.connection() as conn:
        history = HistoryRepository(conn)
        assert (await history.median_seconds("echo_test", ["echo_handler"]))["echo_handler"] == 20.0
        assert await history.median_seconds("hello_world", ["echo_handler"]) == {}
