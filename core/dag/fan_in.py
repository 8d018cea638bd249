"""Fan-ins: the outputs of all items of one fan-out become one value, in item order.

What is expected stands in the stored expansion: the fan-out ended only when each of its items had, and the aggregate
counts what it was given against that.
"""

import json
from typing import Any

from core.dag.aggregate import Incomplete, aggregated
from core.dag.chores import Gathering
from core.dag.definition import Workflow
from core.dag.json_values import NotJson
from core.dag.nodes import Aggregation, FanInNode, FanOutNode
from core.dag.run import Run
from core.dag.tallies import outputs_of
from core.models.fan_out import FanOut
from core.payloads import is_large
from core.statuses import NodeStatus


def fan_outs_of(workflow: Workflow, node_id: str) -> list[str]:
    """Return the fan-outs among the direct sources of a node; a fan_in has exactly one."""
    return [key for key in workflow.graph.incoming[node_id] if isinstance(workflow.nodes[key], FanOutNode)]


def go_on(run: Run, node_id: str, node: FanInNode) -> None:
    """Complete a fan_in from what is loaded, or ask for the aggregate and wait for it."""
    fan_out = run.fan_outs.get(fan_outs_of(run.workflow, node_id)[0])
    try:
        value = _small_value(run, node, fan_out)
    except NotJson as error:
        run.fail_node(node_id, error.detail.model_copy(update={"node_id": node_id}))
        return
    if value is not None or fan_out is None:
        run.move(node_id, NodeStatus.COMPLETED, output=value)
        return
    gathering = Gathering(run.job.job_id, node_id, run.job.run_no, node.aggregation, fan_out)
    answer = run.state.rendered.get(gathering.key)
    if answer is None:
        if run.nodes[node_id].status is NodeStatus.READY:
            run.move(node_id, NodeStatus.RUNNING, started_at=run.now)
        run.add_chore(gathering)
    elif answer.error is not None:
        run.fail_node(node_id, answer.error.model_copy(update={"node_id": node_id}))
    elif answer.ref is not None:
        run.move(node_id, NodeStatus.COMPLETED, output_ref=answer.ref.model_dump())
    else:
        run.move(node_id, NodeStatus.COMPLETED, output=answer.value)


def _small_value(run: Run, node: FanInNode, fan_out: FanOut | None) -> dict[str, Any] | None:
    """Return the aggregate when it is small and everything for it is here; raises `NotJson`."""
    outputs: list[dict[str, Any]] | None = []
    if fan_out is not None and fan_out.succeeded:
        counts = node.aggregation is Aggregation.COUNT
        outputs = [{}] * fan_out.succeeded if counts else _loaded_outputs(run, fan_out)
    if outputs is None:
        return None
    try:
        data = aggregated(node.aggregation, fan_out, outputs)
    except Incomplete:
        return None
    value: dict[str, Any] = json.loads(data)
    return None if is_large(data) else value


def _loaded_outputs(run: Run, fan_out: FanOut) -> list[dict[str, Any]] | None:
    """Return the outputs of all items in their order, None when some are not here."""
    children = [child for child in run.children.values() if child.parent_node_id == fan_out.node_id]
    if len(children) < fan_out.next_child:
        return None
    found: list[dict[str, Any]] = []
    for child in sorted(children, key=lambda child: child.fan_out_index or 0):
        for output, _ in outputs_of(child):
            if output is None:
                return None
            found.append(output)
    return found
