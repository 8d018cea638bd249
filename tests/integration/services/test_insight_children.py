"""What the children of fan-outs wait for, on real PostgreSQL."""

import pytest

from core.errors import NotFound, ParameterInvalid
from core.ports import BlobRepository
from core.statuses import NodeStatus
from repositories.database import AsyncPool
from services import insight
from services.commands import Order
from services.insight import NodeInsight
from tests.integration.services.fans import Fans, failed
from tests.integration.services.test_dead_letters import bury
from tests.support.engine import Engine, workflows_of

SLOTTED = """
workflow_id: slotted
version: 1
nodes:
  start: {type: start, next: each}
  each:
    type: fan_out
    source: "{{ [1, 2, 3] }}"
    task: {handler: echo, params: {v: "{{ item }}"}, concurrency: {key: "global:nd", limit: 1}}
    next: end
  end: {type: end}
"""


@pytest.fixture
def engine(pool: AsyncPool, blobs: BlobRepository) -> Engine:
    return Engine(pool, workflows_of(SLOTTED), blobs=blobs)


async def many(fans: Fans) -> NodeInsight:
    return await fans.engine.insight.node(fans.job_id, "many")


def live(found: NodeInsight) -> tuple[int, dict[str, int]]:
    """Return how many children run, and how many wait by kind."""
    assert found.children is not None
    return found.children.running, dict(found.children.waiting)


def waits(found: NodeInsight) -> dict[str, int] | None:
    """Return what a fan-out waits for."""
    if found.waiting_for is None:
        return None
    assert found.waiting_for["kind"] == "children"
    return dict(found.waiting_for["detail"]["waiting"])


async def test_a_fan_out_says_what_its_children_wait_for_from_the_queue_to_the_backoff(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans = await Fans.start(pool, blobs, range(5), "max_concurrency: 4")
    assert waits(await many(fans)) == {"worker": 4}
    await fans.worker.beat()
    assert waits(await many(fans)) == {"queue": 4}
    first, *others = await fans.fresh()
    await fans.worker.claim(first, *others)
    child = await fans.engine.insight.node(fans.job_id, "many__3")
    assert (child.node.status, child.waiting_for) == (NodeStatus.RUNNING, None)
    assert (live(await many(fans)), waits(await many(fans))) == ((4, {}), None)
    await fans.worker.report(*(failed(one, transient=True) for one in others))
    assert (live(await many(fans)), waits(await many(fans))) == ((1, {"backoff": 3}), None)
    await fans.worker.report(failed(first, transient=True))
    found = await many(fans)
    assert waits(found) == {"backoff": 4}
    assert found.fan_out is not None
    assert (found.fan_out.child_count, found.fan_out.next_child) == (5, 4)
    await fans.engine.order(fans.job_id, "cancel")
    assert ((await many(fans)).waiting_for, (await many(fans)).children) == (None, None)


async def test_a_pause_of_their_queue_is_told_before_any_evaluation(pool: AsyncPool, blobs: BlobRepository) -> None:
    fans = await Fans.start(pool, blobs, range(3))
    await fans.engine.query(
        "INSERT INTO dagapp.dag_settings (key, value, updated_by)"
        " VALUES ('pause:queue:functionapp-tasks', 'true', 'op')"
    )
    assert waits(await many(fans)) == {"paused": 3}


async def test_children_of_a_dead_worker_are_sent_again_and_wait_for_another_one(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans = await Fans.start(pool, blobs, range(2))
    messages = await fans.fresh()
    await fans.worker.claim(*messages)
    for message in messages:
        await fans.engine.lapse(message.task_id)
    await fans.engine.query("UPDATE dagapp.dag_fan_outs SET wake_at = dagapp.clock()")
    await fans.engine.query("UPDATE dagapp.dag_workers SET heartbeat_at = dagapp.clock() - interval '1 minute'")
    await fans.advance()
    await fans.let_time_pass()
    await fans.advance()
    assert waits(await many(fans)) == {"worker": 2}


async def test_children_whose_messages_nobody_could_use_are_counted_as_such(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans = await Fans.start(pool, blobs, range(3))
    await fans.worker.beat()
    first, *_ = await fans.fresh()
    await bury(fans.engine, first, first.model_copy(update={"token": "f" * 32}).model_dump(mode="json"))
    await fans.engine.dead_letters.take_over()
    assert waits(await many(fans)) == {"dead_letter": 1, "queue": 2}
    child = await fans.engine.insight.node(fans.job_id, first.node_id)
    assert child.waiting_for is not None
    assert child.waiting_for["kind"] == "dead_letter"


async def test_two_jobs_that_share_a_slot_say_who_waits_for_it(engine: Engine) -> None:
    jobs = [await engine.create("slotted") for _ in range(2)]
    holder, other = [await engine.insight.node(job_id, "each") for job_id in jobs]
    assert waits(other) == {"slot": 3}
    assert waits(holder) in ({"slot": 2, "worker": 1}, {"slot": 2})
    await engine.advance(jobs[0])
    assert waits(await engine.insight.node(jobs[0], "each")) == {"slot": 2, "worker": 1}
    child = await engine.insight.node(jobs[1], "each__0")
    assert child.waiting_for == {"kind": "slot", "detail": {"key": "global:nd", "holder": "attempt"}}


async def test_children_are_looked_at_page_by_page_in_their_order(
    pool: AsyncPool, blobs: BlobRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insight, "LOOKED_AT", 4)
    fans = await Fans.start(pool, blobs, range(10))
    messages = await fans.fresh()
    await fans.worker.claim(*messages)
    await fans.worker.complete(*messages[:5], messages[8])

    async def pages(status: NodeStatus | None, limit: int) -> list[list[str]]:
        found, after = [], -1
        while True:
            page = await fans.engine.insight.children(fans.job_id, "many", status=status, after=after, limit=limit)
            found.append([one.node.node_id.removeprefix("many__") for one in page.children])
            if page.next_after is None:
                return found
            after = page.next_after

    assert await pages(None, 4) == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9"]]
    assert await pages(NodeStatus.RUNNING, 2) == [[], ["5", "6"], ["7", "9"]]
    assert await pages(NodeStatus.COMPLETED, 3) == [["0", "1", "2"], ["3", "4"], ["8"]]
    assert await pages(NodeStatus.DISPATCHED, 3) == [[], [], []]
    assert await pages(NodeStatus.FAILED, 3) == [[], [], []]


async def test_what_is_not_there_is_not_found_and_other_nodes_are_told_to_be_no_fan_outs(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans = await Fans.start(pool, blobs, range(2))
    look = fans.engine.insight
    with pytest.raises(ParameterInvalid, match="start is not a fan_out"):
        await look.children(fans.job_id, "start", status=None, after=-1, limit=1)
    for job_id, node_id in (("nope", "many"), (fans.job_id, "nope"), (fans.job_id, "many__2")):
        with pytest.raises(NotFound):
            await look.node(job_id, node_id)
        with pytest.raises(NotFound):
            await look.children(job_id, node_id, status=None, after=-1, limit=1)


async def test_a_child_that_is_not_made_yet_is_told_from_one_that_never_will_be(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    fans = await Fans.start(pool, blobs, range(5), "max_concurrency: 2")

    async def told(node_id: str) -> str:
        with pytest.raises(NotFound) as caught:
            await fans.engine.insight.node(fans.job_id, node_id)
        return str(caught.value).removeprefix(f"there is no node {node_id} in job {fans.job_id}")

    assert await told("many__3") == "; it is not made yet: many has made 2 of its 5 tasks"
    for never in ("many__5", "many__03", f"many__{'9' * 5000}"):
        assert await told(never) == "; many has 5 tasks, counted from many__0"
    assert await told("start__0") == ""
    await fans.engine.commands.order(fans.job_id, Order("cancel", "ann"))
    assert await told("many__3") == "; many ended after it had made 2 of its 5 tasks"
