"""Which nodes have certainly completed when another one runs: the question behind every output that is looked up.

Operators can skip any node by hand; that is not counted here.
"""

from collections.abc import Mapping
from functools import reduce

from core.dag.definition import Workflow
from core.dag.graph import Graph, rule_of
from core.dag.nodes import ConditionalNode, JoinRule, Node

Certain = Mapping[str, frozenset[str]]


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
