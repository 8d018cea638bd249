"""Brings every spelling of the workflow language into the one canonical form, before it is validated."""

import re
from collections.abc import Mapping
from typing import Any

from core.dag import aliases
from core.dag.definition import PRIORITY_NAMES
from core.dag.nodes import NODE_TYPES
from core.dag.problems import Report
from core.dag.yaml_source import Path
from core.wording import offered


def canonical(raw: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Return the canonical mapping; what cannot be brought into shape is left for validation or reported."""
    result = dict(raw)
    result = _replace(result, "version", _version)
    result = _replace(result, "priority", _priority)
    result = _replace(result, "inputs", lambda inputs: _each(inputs, _input_spec))
    result = _replace(result, "defaults", lambda defaults: _defaults(defaults, report))
    return _replace(result, "nodes", lambda nodes: _nodes(nodes, report))


def _replace(mapping: dict[str, Any], key: str, change: Any) -> dict[str, Any]:
    return {**mapping, key: change(mapping[key])} if key in mapping else mapping


def _each(value: Any, change: Any) -> Any:
    return {key: change(item) for key, item in value.items()} if isinstance(value, dict) else value


def _version(value: Any) -> Any:
    """The specification also writes "1.0"."""
    return int(value.split(".")[0]) if isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.0+)?", value) else value


def _priority(value: Any) -> Any:
    return PRIORITY_NAMES.get(value, value) if isinstance(value, str) else value


def _input_spec(value: Any) -> Any:
    """JSON Schema writes `maxLength`, the canonical form `max_length`; names of properties stay as they are."""
    if not isinstance(value, dict):
        return value
    spec = {re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", key): item for key, item in value.items()}
    spec = _replace(spec, "items", _input_spec)
    return _replace(spec, "properties", lambda properties: _each(properties, _input_spec))


def _defaults(value: Any, report: Report) -> Any:
    return _replace(value, "retry", lambda retry: _retry(retry, ("defaults",), report)) if _is_map(value) else value


def _retry(value: Any, path: Path, report: Report) -> Any:
    """`max_attempts` of the specification is the same number as `max_retries`."""
    if not isinstance(value, dict) or "max_attempts" not in value:
        return value
    if "max_retries" in value:
        report.add((*path, "retry", "max_attempts"), "max_attempts and max_retries are the same; give one")
    return {"max_retries" if key == "max_attempts" else key: item for key, item in value.items()}


def _nodes(value: Any, report: Report) -> Any:
    if not isinstance(value, dict):
        return value
    nodes = {key: _node(item, ("nodes", key), report) for key, item in value.items()}
    return {key: node for key, node in nodes.items() if node is not None}


def _node(value: Any, path: Path, report: Report) -> Any:
    """Return the canonical node, or None when its type is reported here."""
    if value is None:
        report.add(path, "has neither a type nor a handler")
    if not isinstance(value, dict):
        return value
    node = dict(value)
    if "type" not in node and "handler" in node:
        node["type"] = "task"
    if not _known_type(node.get("type"), path, report):
        return None
    if "definition_hash" in node:
        report.add((*path, "definition_hash"), "definition_hash is not a word of the language")
        del node["definition_hash"]
    for word in ("next", "on_true", "on_false"):
        node = _replace(node, word, _listed)
    node = _replace(node, "branches", _branches)
    node = _replace(node, "depends_on", _join)
    node = _replace(node, "task", lambda work: _work(work, (*path, "task"), report))
    return _work(node, path, report)


def _work(value: Any, path: Path, report: Report) -> Any:
    """Bring what a worker is asked to do into shape: a task, or the task of a fan-out."""
    if not isinstance(value, dict):
        return value
    work = dict(value)
    work = _replace(work, "handler", lambda name: _named(name, aliases.HANDLERS))
    work = _replace(work, "queue", lambda name: _named(name, aliases.QUEUES))
    return _replace(work, "retry", lambda retry: _retry(retry, path, report))


def _named(value: Any, names: Mapping[str, str]) -> Any:
    return names.get(value, value) if isinstance(value, str) else value


def _known_type(node_type: Any, path: Path, report: Report) -> bool:
    if isinstance(node_type, str) and node_type in NODE_TYPES:
        return True
    where = (*path, "type")
    if node_type is None:
        report.add(path, "has neither a type nor a handler")
    else:
        known = offered(node_type, sorted(NODE_TYPES))
        report.add(where, f"{node_type!r} is not a node type; known are {known}")
    return False


def _branches(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [_replace(branch, "next", _listed) if isinstance(branch, dict) else branch for branch in value]


def _join(value: Any) -> Any:
    if isinstance(value, str | list):
        return {"all_of": _listed(value)}
    return _each(value, _listed)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)
