"""Advice on workflows that load: what would fail, or surprise, in some of their runs only."""

from core.dag.certainty import certain_at, certain_at_end, may_lack_output
from core.dag.definition import Workflow
from core.dag.graph import rule_of
from core.dag.loader import load_workflow
from core.dag.nodes import ConditionalNode, JoinRule
from core.dag.places import Place, places
from core.dag.problems import DefinitionError, Problem, Report
from core.dag.yaml_source import read_yaml


def examine(text: str, filename: str) -> tuple[Workflow | None, tuple[Problem, ...]]:
    """Return the workflow of a file, None when it does not load, and everything that its author should look at."""
    try:
        workflow = load_workflow(text, filename)
    except DefinitionError as error:
        return None, error.problems
    report = Report(filename, read_yaml(text))
    lint(workflow, report)
    return workflow, tuple(report.problems)


def lint(workflow: Workflow, report: Report) -> None:
    """Note everything that its author should look at."""
    certain, at_end = certain_at(workflow), certain_at_end(workflow)
    for place in places(workflow):
        known = at_end if place.node_id is None else certain[place.node_id]
        plain, handled = _reads(place)
        for node_id in sorted(plain - handled - known):
            if not _is_last_resort(workflow, place, node_id, handled, known):
                report.add(place.path, _advice(node_id))
    for node_id, node in workflow.nodes.items():
        if isinstance(node, ConditionalNode) and (node.when is not None or node.best_effort):
            word = "when" if node.when is not None else "best_effort"
            report.add(("nodes", node_id, word), f"a conditional with {word} may choose nothing; then all its ways run")


def _reads(place: Place) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes that are read, and those with care: default(…), `is defined`, or a look at the status beside."""
    lookups = [lookup for lookup, _ in place.lookups() if lookup.chain[0] == "nodes"]
    careful = [lookup for lookup in lookups if lookup.guarded or lookup.chain[2] == "status"]
    return frozenset(str(one.chain[1]) for one in lookups), frozenset(str(one.chain[1]) for one in careful)


def _is_last_resort(
    workflow: Workflow, place: Place, node_id: str, handled: frozenset[str], known: frozenset[str]
) -> bool:
    """Return whether a node is read only when no other way led on, as in `a | default(b)` behind any_of of both."""
    joins = known if place.node_id is None else known | {place.node_id}
    return any(_leads_here(workflow, join, node_id, handled) for join in joins)


def _leads_here(workflow: Workflow, join: str, node_id: str, handled: frozenset[str]) -> bool:
    """Return whether a node has completed when a join runs for which none of some others have."""
    if rule_of(workflow.nodes[join]) is JoinRule.ALL_DONE:
        return False
    ways = frozenset(workflow.graph.incoming[join])
    return node_id in ways <= handled | {node_id} and not any(may_lack_output(workflow.nodes[way]) for way in ways)


def _advice(node_id: str) -> str:
    return (
        f"node {node_id} may have no output here, since it can be skipped or fail: "
        f"read it through default(…), `is defined` or nodes.{node_id}.status"
    )
