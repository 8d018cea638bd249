"""Checks of the edges of a workflow: names resolve, there is one way in, no cycle, nothing lost."""

from collections.abc import Iterator, Mapping

from core.dag.definition import Workflow
from core.dag.graph import Graph, cycles_of, edges_of
from core.dag.nodes import ConditionalNode, EndNode, FanInNode, FanOutNode, Node, StartNode, WorkflowNode
from core.dag.problems import Report
from core.dag.yaml_source import Path
from core.wording import did_you_mean


def check_shape(workflow: Workflow, report: Report) -> Graph | None:
    """Note every problem and return the graph, None when its edges are not sound."""
    sound = _check_references(workflow, report)
    for cycle in cycles_of(workflow.nodes):
        report.add(("nodes", cycle.ring[0]), cycle.detail.message)
        sound = False
    incoming = edges_of(workflow.nodes)
    _check_ends(workflow, incoming, report)
    _check_fan_ins(workflow, incoming, report)
    _check_children(workflow, report)
    start = _check_start(workflow, incoming, report)
    if not sound:
        return None
    if start is not None:
        for node_id in workflow.nodes.keys() - workflow.graph.descendants([start]) - {start}:
            report.add(("nodes", node_id), f"cannot be reached from {start}")
    return workflow.graph


def _check_references(workflow: Workflow, report: Report) -> bool:
    """Note edges to nodes that do not exist and return whether there were none."""
    found = True
    for node_id, node in workflow.nodes.items():
        for path, other in _named(node):
            if other not in workflow.nodes:
                report.add(("nodes", node_id, *path), _not_a_node(path, other, workflow))
                found = False
        if isinstance(node, ConditionalNode):
            for both in sorted(set(node.next) & set(node.choices())):
                report.add(("nodes", node_id, "next"), f"next names {both!r}, which is among the choices already")
    return found


def _not_a_node(path: Path, other: str, workflow: Workflow) -> str:
    return f"{path[0]} names {other!r}, which is not a node{did_you_mean(other, workflow.nodes)}"


def _named(node: Node) -> Iterator[tuple[Path, str]]:
    """Yield every node that a node names, and where."""
    yield from ((("next",), target) for target in node.next)
    if isinstance(node, ConditionalNode):
        yield from ((("on_true",), target) for target in node.on_true)
        yield from ((("on_false",), target) for target in node.on_false)
        for number, branch in enumerate(node.branches):
            yield from ((("branches", number, "next"), target) for target in branch.next)
    if node.depends_on is not None:
        yield from ((("depends_on",), source) for source in node.depends_on.sources)


def _check_start(workflow: Workflow, incoming: Mapping[str, tuple[str, ...]], report: Report) -> str | None:
    starts = [key for key, node in workflow.nodes.items() if isinstance(node, StartNode)]
    if len(starts) != 1:
        report.add(("nodes",), f"there must be exactly one start node, found {len(starts)}")
        return None
    if incoming[starts[0]]:
        report.add(("nodes", starts[0]), f"a start node cannot follow {', '.join(incoming[starts[0]])}")
    return starts[0]


def _check_ends(workflow: Workflow, incoming: Mapping[str, tuple[str, ...]], report: Report) -> None:
    if not any(isinstance(node, EndNode) for node in workflow.nodes.values()):
        report.add(("nodes",), "there must be at least one end node")
    for node_id, node in workflow.nodes.items():
        for source in incoming[node_id]:
            if isinstance(workflow.nodes[source], EndNode):
                report.add(("nodes", node_id), f"cannot follow the end node {source}")
        if isinstance(node, EndNode) and node.next:
            report.add(("nodes", node_id, "next"), "an end node points at nothing")


def _check_fan_ins(workflow: Workflow, incoming: Mapping[str, tuple[str, ...]], report: Report) -> None:
    for node_id, node in workflow.nodes.items():
        if isinstance(node, FanInNode):
            fan_outs = [source for source in incoming[node_id] if isinstance(workflow.nodes[source], FanOutNode)]
            if len(fan_outs) != 1:
                found = ", ".join(fan_outs) or "none"
                report.add(
                    ("nodes", node_id), f"a fan_in needs exactly one fan_out among its direct sources, has {found}"
                )


def _check_children(workflow: Workflow, report: Report) -> None:
    """Note nodes that run the very workflow; longer rings are seen only beside the other files."""
    for node_id, node in workflow.nodes.items():
        if isinstance(node, WorkflowNode) and (node.workflow_id, node.version) == (
            workflow.workflow_id,
            workflow.version,
        ):
            message = f"workflow {workflow.workflow_id} cannot contain itself; name another one, or another version"
            report.add(("nodes", node_id, "workflow_id"), message)
