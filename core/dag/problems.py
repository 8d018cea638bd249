"""What is wrong with a workflow file, with file, line and node."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.dag.yaml_source import Path, Source
from core.errors import WorkflowError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in one file."""

    file: str
    line: int
    node: str | None
    message: str

    def __str__(self) -> str:
        node = f"node {self.node}: " if self.node else ""
        return f"{self.file}:{self.line}: {node}{self.message}"


class DefinitionError(WorkflowError):
    """A workflow file cannot be used; `problems` lists every mistake that was found, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__("\n".join(map(str, problems)), field=first.node, remediation="Mend the workflow file.")
        self.problems = tuple(problems)
        self.file = first.file
        self.line = first.line
        self.node = first.node


@dataclass(slots=True)
class Report:
    """Collects the problems of one file."""

    file: str
    source: Source
    problems: list[Problem] = field(default_factory=list)
    _noted: set[Problem] = field(default_factory=set)

    def add(self, path: Path, message: str) -> None:
        """Note a problem at a path of the source; what is said of a line already is not said again."""
        node = str(path[1]) if len(path) > 1 and path[0] == "nodes" else None
        problem = Problem(self.file, self.source.line(path), node, message)
        if problem not in self._noted:
            self._noted.add(problem)
            self.problems.append(problem)

    def raise_any(self) -> None:
        """Raise `DefinitionError` when something was noted."""
        if self.problems:
            raise DefinitionError(sorted(self.problems, key=lambda problem: problem.line))
