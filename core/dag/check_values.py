"""Checks of templates and conditions: they can be read, and what they look up exists and is upstream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.dag.condition_syntax import ConditionFailed
from core.dag.definition import Workflow
from core.dag.graph import Graph
from core.dag.output_names import Tests, never_there, output_names, tested, tested_by_choices
from core.dag.places import Place, places
from core.dag.problems import Report
from core.dag.templates import Lookup, TemplateFailed
from core.handlers_catalog import HandlerSpec
from core.wording import did_you_mean, offered

JOB_FIELDS = frozenset(
    {"job_id", "workflow_id", "workflow_version", "run_no", "priority", "correlation_id", "created_at"}
)
_RESULT_FIELDS = frozenset({"output", "status"})


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known where a text stands."""

    workflow: Workflow
    catalog: Mapping[str, HandlerSpec]
    visible: frozenset[str]
    """Nodes that are upstream."""
    tests: Tests


def check_values(workflow: Workflow, graph: Graph | None, catalog: Mapping[str, HandlerSpec], report: Report) -> None:
    """Note every problem; without a sound graph it is not known what is upstream, so every node counts as such."""
    choices = tested_by_choices(workflow)
    for place in places(workflow):
        for key in _template_keys(place.value):
            report.add(place.path, f"{key} is a name, and names are never rendered")
        visible = graph.ancestors[place.node_id] if graph and place.node_id else frozenset(workflow.nodes)
        try:
            for source, lookups in place.texts():
                known = _Known(workflow, catalog, visible, choices | tested(lookups))
                for lookup in lookups:
                    for problem in _problems(lookup, place, known):
                        report.add(place.path, f"{source}: {problem}")
        except (TemplateFailed, ConditionFailed) as error:
            report.add(place.path, error.detail.message)


def _template_keys(value: Any) -> Iterator[str]:
    """Yield the keys of mappings at any depth that look like templates."""
    match value:
        case dict():
            yield from (key for key in value if "{{" in key)
            for item in value.values():
                yield from _template_keys(item)
        case list() | tuple():
            for item in value:
                yield from _template_keys(item)


def _problems(lookup: Lookup, place: Place, here: _Known) -> Iterator[str]:
    root, *keys = lookup.chain
    if root not in place.roots:
        known = f"{', '.join(sorted(place.roots))}{_hint(root, place)}"
        yield f"{root!r} is not known here; what is known are {known}"
        return
    match root:
        case "inputs":
            if keys and keys[0] not in here.workflow.inputs:
                known = offered(keys[0], here.workflow.inputs)
                yield f"{lookup} names no input; known are {known}"
        case "job":
            if not keys or keys[0] not in JOB_FIELDS:
                known = f"{', '.join(sorted(JOB_FIELDS))}{did_you_mean(keys[0], JOB_FIELDS) if keys else ''}"
                yield f"{lookup} is not known; job has {known}"
        case "nodes":
            yield from _node_problems(lookup, keys, here)


def _hint(root: str | int, place: Place) -> str:
    if root == "null":
        return "; write none instead of null"
    if root in {"item", "index"} and place.path[-3:] == ("task", "concurrency", "key"):
        return f"; a batch has several items and one key: with batch_size: 1 each {root} can have its own"
    return did_you_mean(root, place.roots)


def _node_problems(lookup: Lookup, keys: list[str | int], known: _Known) -> Iterator[str]:
    if len(keys) < 2 or keys[1] not in _RESULT_FIELDS:
        guess = did_you_mean(keys[1], _RESULT_FIELDS) if len(keys) > 1 else ""
        yield f"{lookup} must say nodes.<id>.output or nodes.<id>.status{guess}"
    elif (node := known.workflow.nodes.get(str(keys[0]))) is None:
        yield f"{keys[0]!r} is not a node{did_you_mean(keys[0], known.workflow.nodes)}"
    elif keys[0] not in known.visible:
        yield f"node {keys[0]} is not upstream, so its output cannot be known here"
    elif (problem := never_there(lookup, output_names(node, known.catalog), known.tests)) is not None:
        yield problem
