"""Which nodes have certainly completed when another one runs: the question behind every output that is looked up.

Operators can skip any node by hand; that is not counted here.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Final

from core.dag.condition_syntax import ConditionFailed
from core.dag.conditions import Condition
from core.dag.definition import Workflow
from core.dag.graph import Graph, rule_of
from core.dag.nodes import ConditionalNode, JoinRule, Node
from core.dag.templates import TemplateFailed
from core.statuses import NodeStatus

Certain = Mapping[str, frozenset[str]]
_NOT_COMPLETED: Final = tuple(status for status in NodeStatus if status is not NodeStatus.COMPLETED)


def certain_at(workflow: Workflow) -> Certain:
    """Return, by node, the nodes that have completed whenever that node runs."""
    graph = workflow.graph
    untaken = untaken_nodes(workflow)
    certain: dict[str, frozenset[str]] = {}
    for node_id in graph.order:
        edges = {source: _behind(workflow, source, certain) for source in graph.incoming[node_id]}
        rule = rule_of(workflow.nodes[node_id])
        alive = [source for source in edges if not _may_be_dead(workflow.nodes, source, node_id, untaken)]
        if rule is JoinRule.ALL_OF and alive:
            certain[node_id] = frozenset[str]().union(*(edges[source] for source in alive))
        elif rule is JoinRule.ALL_DONE or not edges:
            certain[node_id] = frozenset()
        else:
            certain[node_id] = reduce(frozenset.intersection, edges.values())
    return certain


def certain_at_end(workflow: Workflow) -> frozenset[str]:
    """Return the nodes that have completed whenever the job completes."""
    untaken = untaken_nodes(workflow)
    return frozenset(key for key, node in workflow.nodes.items() if key not in untaken and not may_lack_output(node))


def untaken_nodes(workflow: Workflow) -> frozenset[str]:
    """Return the nodes that may end as `not_taken`: all their edges may be dead.

    Not so where every choice of one conditional that runs leads on, as at the join of its ways.
    """
    untaken = _untaken(workflow, {})
    for key, node in workflow.nodes.items():
        if isinstance(node, ConditionalNode) and key not in untaken:
            choices = [branch.next for branch in node.branches] or [node.on_true, node.on_false]
            untaken &= frozenset[str]().union(*(_untaken(workflow, {key: chosen}) for chosen in choices))
    return untaken


def _untaken(workflow: Workflow, chosen: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return the nodes all of whose edges may be dead when some conditionals have chosen these nodes."""
    graph: Graph = workflow.graph
    untaken: set[str] = set()
    for node_id in graph.order:
        sources = graph.incoming[node_id]
        taken = any(node_id in chosen.get(source, ()) for source in sources)
        if sources and not taken and all(_may_be_dead(workflow.nodes, one, node_id, untaken) for one in sources):
            untaken.add(node_id)
    return frozenset(untaken)


def _may_be_dead(nodes: Mapping[str, Node], source: str, target: str, untaken: "frozenset[str] | set[str]") -> bool:
    node = nodes[source]
    return source in untaken or (isinstance(node, ConditionalNode) and target in node.choices())


def _behind(workflow: Workflow, source: str, certain: Certain) -> frozenset[str]:
    """Return what has completed when the edge from a source passes."""
    return certain[source] if may_lack_output(workflow.nodes[source]) else certain[source] | {source}


def may_lack_output(node: Node) -> bool:
    """Return whether edges of a node may pass although it did not complete."""
    return node.best_effort or node.when is not None


def completed_where(condition: Condition) -> str | None:
    """Return the node that has completed wherever a condition holds, when it looks at one node alone and says so."""
    lookups = [lookup.chain for operand in condition.operands for lookup in operand.expression.lookups]
    looked_at = {chain[:2] for chain in lookups}
    if len(looked_at) != 1 or lookups[0][0] != "nodes":
        return None
    node_id = str(lookups[0][1])
    return None if any(_holds_without(condition, node_id, status) for status in _NOT_COMPLETED) else node_id


def _holds_without(condition: Condition, node_id: str, status: NodeStatus) -> bool:
    """Return whether a condition holds while a node has this status and no output."""
    scope = {"nodes": {node_id: {"status": status.value}}}
    try:
        return condition.holds(lambda operand: operand.expression.evaluate(scope))
    except (ConditionFailed, TemplateFailed):
        return False
