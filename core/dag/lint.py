"""Advice on workflows that load: what would fail, or surprise, in some of their runs only."""

from collections.abc import Iterator

from core.dag.certainty import certain_at, certain_at_end
from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.nodes import ConditionalNode
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
        for node_id in _unsure_reads(place):
            if node_id not in known:
                report.add(place.path, _advice(node_id))
    for node_id, node in workflow.nodes.items():
        if isinstance(node, ConditionalNode) and (node.when is not None or node.best_effort):
            word = "when" if node.when is not None else "best_effort"
            report.add(("nodes", node_id, word), f"a conditional with {word} may choose nothing; then all its ways run")


def _unsure_reads(place: Place) -> Iterator[str]:
    """Yield each node whose output is read without default(…), is defined, or a look at its status beside it."""
    lookups = [lookup for lookup, _ in place.lookups() if lookup.chain[0] == "nodes"]
    handled = {lookup.chain[1] for lookup in lookups if lookup.guarded or lookup.chain[2] == "status"}
    yield from sorted({str(lookup.chain[1]) for lookup in lookups} - {str(node_id) for node_id in handled})


def _advice(node_id: str) -> str:
    return (
        f"node {node_id} may have no output here, since it can be skipped or fail: "
        f"read it through default(…), `is defined` or nodes.{node_id}.status"
    )
