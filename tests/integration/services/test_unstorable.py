"""Values that no row can hold, wherever they come from: their node or item fails, and every job ends."""

from typing import Any

import pytest

from core.payloads import ref_to, task_prefix
from core.ports import BlobRepository
from core.wire import Beat, Release, TaskResult, TaskStatus
from repositories.database import AsyncPool
from tests.integration.services.fans import Fans, good, of_items
from tests.support.engine import Engine, HandWorker, completed, workflows_of

LOOKED_UP = """
workflow_id: w
version: 1
deadline_seconds: 60
inputs: {{o: {{type: object, default: {{a: 1}}}}}}
nodes:
  start: {{type: start, next: a}}
  a: {{handler: echo, params: {{}}, next: t}}
  t: {{handler: echo, {more}, next: end}}
  end: {{type: end}}
"""
GATHERED = """
workflow_id: w
version: 1
inputs: {items: {type: array, default: [1, 2]}}
outputs: {r: "{{ nodes.join.output }}"}
nodes:
  start: {type: start, next: many}
  many: {type: fan_out, source: "{{ inputs.items }}", task: {handler: echo, params: {v: "{{ item }}"}}, next: join}
  join: {type: fan_in, aggregation: KIND, next: end}
  end: {type: end}
"""


@pytest.mark.parametrize("key", [r"\0", r"\ud800"])
@pytest.mark.parametrize("more", ["params: {{v: '{look}'}}", "params: {{}}, when: '{look} == 1'"])
async def test_an_error_that_repeats_such_a_key_is_stored_all_the_same(
    pool: AsyncPool, blobs: BlobRepository, key: str, more: str
) -> None:
    look = f'{{{{ inputs.o["{key}"] }}}}'
    engine = Engine(pool, workflows_of(LOOKED_UP.format(more=more.format(look=look))), blobs=blobs)
    job_id = await engine.create("w")
    await HandWorker(engine).run(await engine.message(job_id))
    job = await engine.job(job_id)
    assert (job.status, (job.error or {})["node_id"], job.evaluation_failures) == ("FAILED", "t", 0)


@pytest.mark.parametrize("data", [b"[1,2]", b'{"a":["\\ud800"]}', b"nonsense", b'{"a":[NaN]}', b'{"a":[1e999]}'])
@pytest.mark.parametrize("kind", ["sum", "concat", "collect", "first"])
async def test_an_aggregate_of_stored_outputs_that_are_none_ends(
    pool: AsyncPool, blobs: BlobRepository, kind: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.chores.PAUSES", (0.0, 0.01))
    engine = Engine(pool, workflows_of(GATHERED.replace("KIND", kind)), blobs=blobs)
    worker, job_id = HandWorker(engine), await engine.create("w")
    messages = await engine.messages(job_id)
    await worker.claim(*messages)
    for message in messages:
        prefix = task_prefix(message.job_id, message.task_id)
        ref = await engine.store.put(prefix, data)
        assert ref == ref_to(prefix, data)
        result = TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.COMPLETED, output_ref=ref)
        await worker.report(result)
    for _ in range(5):
        await engine.desk.settled()
        await engine.query("UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock() WHERE wake_at IS NOT NULL")
        await engine.advance(job_id)
    await engine.desk.close()
    assert (await engine.job(job_id)).status in {"COMPLETED", "FAILED"}


async def test_an_output_as_deep_as_may_be_fails_no_other_item_of_its_batch(
    pool: AsyncPool, blobs: BlobRepository
) -> None:
    value: dict[str, Any] = {}
    for _ in range(99):
        value = {"a": value}
    fans = await Fans.start(pool, blobs, [1, 2], "batch_size: 2\n    tolerate: {count: 2}")
    (message,) = await fans.fresh()
    await fans.worker.claim(message)
    await fans.worker.report(of_items(message, good(0).model_copy(update={"output": value}), good(1)))
    row = await fans.row()
    assert (row["succeeded"], row["failed"]) == (2, 0)


@pytest.mark.parametrize("state", [[1], "x", 1])
async def test_a_checkpoint_that_is_none_costs_no_lease_and_no_report(
    engine: Engine, worker: HandWorker, state: Any
) -> None:
    bad, good_one, done = [await engine.message(await engine.create("echo_test")) for _ in range(3)]
    await worker.claim(bad, good_one, done)
    before = (await engine.attempt(good_one.task_id))["lease_expires_at"]
    checkpoint = {"phase": "a", "state": state}
    answer = await worker.beat(
        Beat(task_id=bad.task_id, token=bad.token, checkpoint=checkpoint),
        Beat(task_id=good_one.task_id, token=good_one.token),
    )
    assert not answer.revoked
    assert (await engine.attempt(good_one.task_id))["lease_expires_at"] > before
    answers = await worker.report(Release(task_id=bad.task_id, token=bad.token, checkpoint=checkpoint), completed(done))
    assert [one.disposition.value for one in answers] == ["applied", "applied"]
    assert await engine.query("SELECT FROM dagapp.dag_checkpoints") == []


@pytest.mark.parametrize("calls", [1, 6])
async def test_outputs_as_deep_as_may_be_are_gathered_in_however_many_calls_they_come(
    pool: AsyncPool, blobs: BlobRepository, calls: int
) -> None:
    engine = Engine(pool, workflows_of(GATHERED.replace("KIND", "collect")), blobs=blobs)
    job_id = await engine.create("w", {"items": list(range(60))})
    deepest: dict[str, Any] = {}
    for _ in range(99):
        deepest = {"a": deepest}
    worker, messages = HandWorker(engine), await engine.messages(job_id)
    await worker.claim(*messages)
    size = len(messages) // calls
    for first in range(0, len(messages), size):
        await worker.complete(*messages[first : first + size], output=deepest)
    await engine.desk.settled()
    await engine.advance(job_id)
    await engine.desk.close()
    (join,) = await engine.query("SELECT status FROM dagapp.dag_node_states WHERE node_id = 'join'")
    assert join["status"] == "COMPLETED"
