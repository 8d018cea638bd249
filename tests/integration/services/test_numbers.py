"""Numbers of which the database makes others: every run of a job sees the same."""

from typing import Any

import pytest

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
