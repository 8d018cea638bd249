"""Whether a scenario is about the workflow that it is rehearsed with: what it names must be there."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from core.dag.definition import Workflow
from core.dag.nodes import FanOutNode, GateNode, WorkflowNode
from core.dag.orders import check_order
from core.dag.scenario import Scenario
from core.errors import CallerError, WorkflowError
from core.handlers_catalog import KNOWN_QUEUES
from core.wording import offered


def check_scenario(scenario: Scenario, workflow: Workflow) -> None:
    """Raise `WorkflowError` that tells everything which would be ignored without a word."""
    if problems := list(_problems(scenario, workflow)):
        raise WorkflowError("\n".join(f"scenario: {one}" for one in problems))


def _problems(scenario: Scenario, workflow: Workflow) -> Iterator[str]:
    nodes = workflow.nodes
    children = {key: node.workflow_id for key, node in nodes.items() if isinstance(node, WorkflowNode)}
    handlers = {*(work.handler for work in workflow.works.values()), *children.values()}
    fan_outs = [key for key, node in nodes.items() if isinstance(node, FanOutNode)]
    gates = [key for key, node in nodes.items() if isinstance(node, GateNode)]
    queues = KNOWN_QUEUES | {work.queue for work in workflow.works.values() if work.queue}
    tasks = [*workflow.works, *children, *sorted(handlers)]
    yield from _unknown("tasks", scenario.tasks, tasks, "a node with a task, nor a handler of one")
    yield from _unknown("items", scenario.items, fan_outs, "a fan_out")
    yield from _unknown("gates", scenario.gates, gates, "a gate")
    yield from _unknown("workers", scenario.workers, sorted(queues), "a queue")
    for node_id, plays in scenario.items.items():
        for index in plays:
            if not index.isdecimal() or str(int(index)) != index:
                yield f"items.{node_id} has {index!r}, which is not an index: a whole number from 0"
    for number, order in enumerate(scenario.commands):
        yield from _order_problems(f"commands.{number}", order.kind, order.args, nodes)


def _unknown(place: str, named: Collection[str], known: Collection[str], kind: str) -> Iterator[str]:
    for name in named:
        if name not in known:
            names = offered(name, known)
            yield f"{place} names {name!r}, which is not {kind}; known are {names}"


def _order_problems(place: str, kind: str, args: Mapping[str, Any], nodes: Collection[str]) -> Iterator[str]:
    try:
        check_order(kind, args)
    except CallerError as error:
        yield f"{place}: {error.detail.message}"
    else:
        if "node_id" in args:
            yield from _unknown(place, [args["node_id"]], nodes, "a node")
