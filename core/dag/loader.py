"""From YAML text to a `Workflow`, or to an error that names file, line and node."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.dag.canonical import canonical
from core.dag.checks import check
from core.dag.complaints import first_causes, full_complaint
from core.dag.conditions import shown
from core.dag.definition import PRIORITY_NAMES, Workflow
from core.dag.input_spec import AUTHORED
from core.dag.json_values import NotJson, as_stored
from core.dag.nodes import NODE_TYPES
from core.dag.problems import DefinitionError, Problem, Report
from core.dag.words import words_at, words_of
from core.dag.yaml_source import Path, YamlProblem, read_yaml
from core.handlers_catalog import CATALOG, KNOWN_QUEUES, HandlerSpec
from core.wording import did_you_mean

_BESIDE = frozenset(
    {
        *("version", "name", "description", "current", "priority", "deadline_seconds", "on_failure", "deduplicate"),
        *("timeout_seconds", "queue_timeout_seconds", "heartbeat_timeout_seconds", "retry", "defaults", "best_effort"),
        *("max_concurrency", "batch_size", "tolerate", "aggregation", "expires_after_seconds"),
    }
)
"""Words that no check of names, edges, templates and handlers looks at."""
_MEMBERS: Final = frozenset({("type", "str"), ("required", "bool")})
_NAMED_PRIORITIES: Final = ", ".join(f"{name} ({number})" for name, number in PRIORITY_NAMES.items())
_PRIORITY: Final = f"expected 0 to 10 or one of {_NAMED_PRIORITIES}"


def load_workflow(
    text: str,
    filename: str,
    *,
    catalog: Mapping[str, HandlerSpec] = CATALOG,
    queues: frozenset[str] = KNOWN_QUEUES,
) -> Workflow:
    """Read one workflow; raises `DefinitionError` (a `WorkflowError`) with every problem found at that stage."""
    if catalog is CATALOG and queues is KNOWN_QUEUES:
        return _load_known(text, filename)
    return _load(text, filename, catalog, queues)


@lru_cache(maxsize=256)
def _load_known(text: str, filename: str) -> Workflow:
    """Load against geodag's own handlers; a folder that is read again costs only what changed in it."""
    return _load(text, filename, CATALOG, KNOWN_QUEUES)


def _load(text: str, filename: str, catalog: Mapping[str, HandlerSpec], queues: frozenset[str]) -> Workflow:
    try:
        source = read_yaml(text)
    except YamlProblem as error:
        raise DefinitionError([Problem(filename, error.line, None, error.message)]) from error
    report = Report(filename, source)
    if not isinstance(source.value, dict):
        report.add((), "a workflow file is a mapping")
        report.raise_any()
    workflow = _validate(canonical(source.value, report), report)
    if workflow.nodes.keys() != source.value["nodes"].keys():
        report.raise_any()  # what names a node that was left out is not wrong itself
    check(workflow, catalog, queues, report)
    report.raise_any()
    return workflow


def _validate(value: dict[str, Any], report: Report) -> Workflow:
    """Return the model; words that do not exist and values that nothing else hangs on are noted and left out.

    So the checks find the rest as well.
    """
    try:
        return _model(json.loads(json.dumps(as_stored(value, "workflow"))), report)
    except NotJson as error:
        report.add(_place(error.detail.field or ""), error.detail.message)
    report.raise_any()
    raise AssertionError("a refused definition has problems")


def _place(field: str) -> Path:
    """Return the path of something that `as_stored` names, such as `workflow.nodes.a.params.x[0]`."""
    _, *steps = re.findall(r"[^.\[\]]+", field) or [""]
    return tuple(int(step) if step.isdecimal() else step for step in steps)


def _model(value: dict[str, Any], report: Report) -> Workflow:
    text = json.dumps(value)
    try:
        return Workflow.model_validate_json(text, context=AUTHORED)
    except ValidationError as error:
        problems = first_causes(error.errors(include_url=False))
    for item in problems:
        path = _source_path(item["loc"])
        report.add(path, _message(path, item))
    aside = [one for item in problems if (one := _aside(item)) is not None]
    for one in aside:
        _remove(value, one)
    if len(aside) < len(problems) or json.dumps(value) == text:
        report.raise_any()
    return _model(value, report)


def _aside(item: ErrorDetails) -> Path | None:
    """Return what can be left out for the sake of a problem without changing what the checks find; None if nothing."""
    path = _source_path(item["loc"])
    if item["type"] == "extra_forbidden":
        return path
    if item["type"] == "missing":
        return None
    if path[:1] == ("inputs",):
        return path[:3] if len(path) > 2 else None
    start = 2 if path[:1] == ("nodes",) else 0
    word = next((number for number in range(start, len(path)) if path[number] in _BESIDE), None)
    return None if word is None else path[: word + 1]


def _remove(value: Any, path: Path) -> None:
    """Take something out, unless it went with something around it."""
    for key in path[:-1]:
        if key not in value and not isinstance(value, list):
            return
        value = value[key]
    if path == ("version",):
        value["version"] = 1
    else:
        value.pop(path[-1], None)


def _source_path(location: tuple[int | str, ...]) -> Path:
    """Drop what Pydantic adds for the member of a union."""
    if len(location) > 2 and location[0] == "nodes" and location[2] in NODE_TYPES:
        location = (*location[:2], *location[3:])
    if len(location) > 3 and location[0] == "inputs" and location[-2:] in _MEMBERS:
        location = location[:-1]
    return tuple(part for part in location if not (isinstance(part, str) and part.startswith(("tuple[", "function-"))))


def _message(path: Path, item: ErrorDetails) -> str:
    where = ".".join(map(str, path[2:] if path[:1] == ("nodes",) and len(path) > 1 else path))
    match item["type"]:
        case "extra_forbidden":
            return f"{where} is not a word of the language{did_you_mean(path[-1], words_at(item['loc']))}"
        case "missing":
            return f"{where} is missing"
        case "model_type" if where:
            return f"{where}: {full_complaint(item)}; its words are {', '.join(words_of(item['loc']))}"
        case _:
            wrong = f"{_PRIORITY}, got {shown(item['input'])}" if path == ("priority",) else full_complaint(item)
            return f"{where}: {wrong}" if where else wrong
