"""What a rehearsal that went wrong says of its scenario: outputs that nobody supposed, items that were never there."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from core.dag.definition import Workflow
from core.dag.nodes import TaskNode, WorkflowNode
from core.dag.scenario import Scenario
from core.errors import WorkflowError
from core.models.engine import Job, NodeState
from core.statuses import NodeStatus

_MISSING: Final = re.compile(r"\bnodes\.(?P<node>\w+)\.output\.(?P<key>\w+)\S* is not there")


def unsupposed(workflow: Workflow, scenario: Scenario, job: Job, nodes: Mapping[str, NodeState]) -> tuple[str, ...]:
    """Return a hint for each node whose output was looked into, and of which the scenario says none."""
    found: dict[str, str] = {}
    for message in _messages(job, nodes):
        for missing in _MISSING.finditer(message):
            node_id = missing["node"]
            if _has_no_output(workflow, scenario, nodes, node_id):
                found.setdefault(node_id, missing["key"])
    return tuple(
        f"{node_id} has an empty output, since no scenario gives it one; "
        f"say in the file of --scenario: tasks: {{{node_id}: {{output: {{{key}: …}}}}}}"
        for node_id, key in found.items()
    )


def _messages(job: Job, nodes: Mapping[str, NodeState]) -> Iterator[str]:
    errors = [job.error, *(node.error for node in nodes.values())]
    yield from (str(error["message"]) for error in errors if error)


def _has_no_output(workflow: Workflow, scenario: Scenario, nodes: Mapping[str, NodeState], node_id: str) -> bool:
    """Return whether a node completed with the output of a scenario that says nothing of it."""
    match workflow.nodes.get(node_id):
        case TaskNode(handler=name) | WorkflowNode(workflow_id=name):
            plays = scenario.plays(node_id, name)
            completed = nodes[node_id].status is NodeStatus.COMPLETED
            return completed and not any("output" in play.model_fields_set for play in plays)
        case _:
            return False


def check_items(scenario: Scenario, counts: Mapping[str, int]) -> None:
    """Raise `WorkflowError` for items that a fan-out never had; `counts` are the most it had, by node."""
    problems = [
        f"scenario: items.{node_id} has {index!r}, but {node_id} {_items(counts[node_id])}"
        for node_id, plays in scenario.items.items()
        for index in plays
        if node_id in counts and int(index) >= counts[node_id]
    ]
    if problems:
        raise WorkflowError("\n".join(problems))


def _items(count: int) -> str:
    match count:
        case 0:
            return "has no items"
        case 1:
            return "has one item: 0"
        case _:
            return f"has {count} items: 0 to {count - 1}"
