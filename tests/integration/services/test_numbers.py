"""Numbers of which the database makes others: every run of a job sees the same."""

from typing import Any

import pytest

from core.ids import digest
from core.ports import BlobRepository
from core.wire import TaskMessage
from repositories.database import AsyncPool
from tests.support.engine import Engine, HandWorker, workflows_of

TEXT = """
workflow_id: w
version: 1
inputs: {x: {type: number}, given: {type: array, default: [1e17, -0.0]}}
outputs: {float: "{{ inputs.x is float }}", text: "{{ nodes.a.output.echoed_params }}"}
nodes:
  start: {type: start, next: a}
  a: {handler: echo, params: {v: 1e17, name: "file-{{ inputs.x }}-{{ inputs.given[1] }}.tif"}, next: b}
  b:
    when: "{{ inputs.x is float }} == true"
    handler: echo
    params: {text: "n-{{ nodes.a.output.echoed_params }}", sum: "{{ inputs.x * 10 | float }}"}
    next: c
  c:
    handler: echo
    params: {seen: "{{ nodes.a.output.echoed_params }}", text: "n-{{ nodes.a.output.echoed_params }}"}
    next: many
  many:
    type: fan_out
    source: "{{ [nodes.a.output.echoed_params, inputs.given[0], inputs.x] }}"
    task: {handler: echo, params: {v: "x-{{ item }}"}}
    next: end
  end: {type: end}
"""
GATED = """
workflow_id: gated
version: 1
outputs: {n: "{{ nodes.hold.output.data.n }} {{ nodes.hold.output.data.z }}"}
nodes:
  start: {type: start, next: hold}
  hold: {type: gate, next: end}
  end: {type: end}
"""


async def queued(engine: Engine, job_id: str) -> list[TaskMessage]:
    """Return the messages of tasks that nobody has run."""
    found = await engine.messages(job_id)
    return [one for one in found if (await engine.attempt(one.task_id))["state"] == "queued"]


async def run(engine: Engine, job_id: str) -> dict[str, Any]:
    """Bring a job to its end; return what its tasks were given and what it put out."""
    seen: dict[str, Any] = {}
    worker = HandWorker(engine)
    while messages := await queued(engine, job_id):
        for message in messages:
            seen[message.node_id] = (message.params, (await engine.attempt(message.task_id))["params_digest"])
            await worker.run(message, {"echoed_params": 1e17})
    job = await engine.job(job_id)
    return {**seen, "outputs": job.outputs, "statuses": await engine.statuses(job_id)}


@pytest.mark.parametrize("x", [1e17, 1.2345678901234567e30, -0.0, 1e16, 2.5])
async def test_every_run_of_a_job_sees_the_same_numbers(pool: AsyncPool, blobs: BlobRepository, x: float) -> None:
    engine = Engine(pool, workflows_of(TEXT), blobs=blobs)
    job_id = await engine.create("w", {"x": x})
    first = await run(engine, job_id)
    await engine.order(job_id, "rerun")
    again = await run(engine, job_id)
    assert repr(first) == repr(again)
    assert first["outputs"]["float"] is (first["statuses"]["b"] == "COMPLETED") is (abs(x) < 1e16)


async def test_what_an_order_brings_is_as_it_will_be_read(pool: AsyncPool, blobs: BlobRepository) -> None:
    engine = Engine(pool, workflows_of(TEXT, GATED), blobs=blobs)
    job_id = await engine.create("w", {"x": 1})
    await run(engine, job_id)
    await engine.order(job_id, "rerun", node_id="a", params={"v": 1e18})
    (message,) = await queued(engine, job_id)
    digest_of_first = (await engine.attempt(message.task_id))["params_digest"]
    assert digest_of_first == digest({"v": 10**18, "name": message.params["name"]})
    job_id = await engine.create("gated")
    await engine.order(job_id, "gate", node_id="hold", decision="approved", data={"n": 1e18, "z": -0.0})
    assert repr((await engine.job(job_id)).outputs) == repr({"n": f"{10**18} 0.0"})
