"""docs/workflow-language.md has a row for each word of the workflow language, and each row names its test."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from core.dag import nodes
from core.dag.definition import Workflow
from core.dag.input_spec import InputSpec
from scripts.checks.tree import Finding, SourceFile

PAGE: Final = "docs/workflow-language.md"
GROUPS: Final[Mapping[type[BaseModel], str]] = {
    Workflow: "workflow",
    nodes.Defaults: "defaults",
    InputSpec: "input",
    nodes.Vertex: "node",
    nodes.Join: "depends_on",
    nodes.Work: "task",
    nodes.RetrySpec: "retry",
    nodes.Concurrency: "concurrency",
    nodes.ConditionalNode: "conditional",
    nodes.Branch: "branch",
    nodes.FanOutNode: "fan_out",
    nodes.Tolerate: "tolerate",
    nodes.FanInNode: "fan_in",
    nodes.GateNode: "gate",
    nodes.WorkflowNode: "child",
}
NOT_OF_AUTHORS: Final = frozenset({"child.definition_hash"})
PLANNED: Final = frozenset[str]()
"""Words that the loader does not accept yet: they have no row before it does."""
_ROW: Final = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \|[^|]+\|(.*)\|$")


def words() -> frozenset[str]:
    """Return every word, as `group.word`; a word that a group takes over from another one counts there only."""
    found = {"node.type"}
    for model, group in GROUPS.items():
        inherited = {name for base in model.__mro__[1:] if base in GROUPS for name in base.__annotations__}
        own = model.__annotations__.keys() - inherited - {"type" if issubclass(model, nodes.Vertex) else ""}
        found |= {f"{group}.{name}" for name in own}
    return frozenset(found) - NOT_OF_AUTHORS


def check(files: Iterable[SourceFile]) -> Iterator[Finding]:
    """Yield the words without a row, and the rows that are of no word or name no test."""
    page = next((file for file in files if file.name == PAGE), None)
    if page is None:
        return
    rows: dict[str, int] = {}
    for number, line in page.lines():
        if row := _ROW.match(line):
            rows[row[1]] = number
            if not re.search(r"`tests/[\w/]+\.py::\w+`", row[2]):
                yield Finding(PAGE, number, f"the row of {row[1]} names no test")
    for word in sorted(words() - PLANNED - rows.keys()):
        yield Finding(PAGE, 1, f"{word} has no row")
    for word in sorted(rows.keys() - (words() - PLANNED)):
        yield Finding(PAGE, rows[word], f"{word} is no word of the language, or one that is planned")
