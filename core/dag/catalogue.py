"""All workflows of a folder: the good ones by id and version, the broken ones with their error."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final, Self

from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.pinning import BrokenName, Key, Trouble, default_of, pin
from core.dag.problems import Problem, Report
from core.dag.yaml_source import read_yaml
from core.errors import NotFound, WorkflowError
from core.handlers_catalog import CATALOG, KNOWN_QUEUES, HandlerSpec
from core.wording import did_you_mean

_ID: Final = re.compile(r"""^["']?workflow_id["']?\s*:\s*["']?(\w+)""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A file that gave no workflow, and why."""

    file: str
    error: str
    problems: tuple[Problem, ...] = ()
    """The same one by one, where they have lines."""
    stored: bool = False
    """It does not fit what is stored, which no look at the files shows."""


@dataclass(frozen=True, slots=True)
class WorkflowCatalogue:
    """What an orchestrator can run."""

    workflows: Mapping[Key, Workflow]
    broken: tuple[BrokenFile, ...] = ()

    def get(self, workflow_id: str, version: int | None = None) -> Workflow:
        """Return one version, by default the one marked `current`, else the highest. Raises `NotFound`."""
        versions = self.versions(workflow_id)
        default = default_of(versions)
        if default is None:
            raise NotFound(f"there is no workflow {workflow_id!r}", field="workflow_id", value=workflow_id)
        if version is None:
            return default
        for workflow in versions:
            if workflow.version == version:
                return workflow
        raise NotFound(f"workflow {workflow_id} has no version {version}", field="version", value=version)

    def versions(self, workflow_id: str) -> tuple[Workflow, ...]:
        """Return all versions of one workflow, lowest first."""
        found = [workflow for (key, _), workflow in self.workflows.items() if key == workflow_id]
        return tuple(sorted(found, key=lambda workflow: workflow.version))

    def with_children(self, workflow: Workflow) -> tuple[Workflow, ...]:
        """Return a workflow and, after it, everything that its nodes run, down to the last child."""
        by_hash = {one.definition_hash: one for one in self.workflows.values()}
        found = {workflow.definition_hash: workflow}
        stack = [workflow]
        while stack:
            for definition_hash in stack.pop().pins:
                if definition_hash not in found and definition_hash in by_hash:
                    found[definition_hash] = by_hash[definition_hash]
                    stack.append(by_hash[definition_hash])
        return tuple(found.values())

    def without(self, key: Key, reason: BrokenFile) -> Self:
        """Return the catalogue without one workflow, nor those that run it."""
        gone = {key}
        while True:
            lost = {self.workflows[one].definition_hash for one in gone}
            more = {other for other, workflow in self.workflows.items() if not lost.isdisjoint(workflow.pins)} - gone
            if not more:
                break
            gone |= more
        parents = [BrokenFile(f"{name} version {version}", f"runs {reason.file}") for name, version in gone - {key}]
        kept = {other: workflow for other, workflow in self.workflows.items() if other not in gone}
        return replace(self, workflows=kept, broken=(*self.broken, reason, *sorted(parents, key=lambda one: one.file)))

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all workflows, sorted."""
        return tuple(sorted({workflow_id for workflow_id, _ in self.workflows}))


def broken_file(
    workflow_id: str, version: int | None, broken: Iterable[BrokenFile], files: Mapping[str, str]
) -> BrokenFile | None:
    """Return the first broken file that is about a workflow, and about a version of it when one is asked for."""
    about = (one for one in broken if _id_in(one.file, files.get(one.file, "")) == workflow_id)
    if version is None:
        return next(about, None)
    named = re.compile(rf"""^["']?version["']?\s*:\s*["']?{version}\b""", re.MULTILINE)
    return next((one for one in about if named.search(files.get(one.file, ""))), None)


def _id_in(file: str, text: str) -> str:
    """Return which workflow a file is about, loadable or not."""
    found = _ID.search(text)
    return found[1] if found else PurePath(file).stem


def load_folder(
    files: Mapping[str, str],
    *,
    catalog: Mapping[str, HandlerSpec] = CATALOG,
    queues: frozenset[str] = KNOWN_QUEUES,
    last: Collection[str] = (),
) -> WorkflowCatalogue:
    """Load every file (name to text); one bad file is listed as broken and the others work.

    Files are taken in name order, those of `last` after the others: of two with the same id and version but other
    content, the later one is broken.
    """
    workflows: dict[Key, Workflow] = {}
    origin: dict[Key, str] = {}
    broken: list[BrokenFile] = []
    for file in sorted(files, key=lambda file: (file in last, file)):
        try:
            workflow = load_workflow(files[file], file, catalog=catalog, queues=queues)
        except WorkflowError as error:
            broken.append(BrokenFile(file, error.detail.message))
            continue
        key = (workflow.workflow_id, workflow.version)
        problem = _clash(workflow, workflows, origin)
        if problem is None:
            workflows[key], origin[key] = workflow, file
        else:
            broken.append(BrokenFile(file, f"{file}: {problem}"))
    return WorkflowCatalogue(*_linked(workflows, origin, broken, files))


def _clash(workflow: Workflow, others: Mapping[Key, Workflow], origin: Mapping[Key, str]) -> str | None:
    key = (workflow.workflow_id, workflow.version)
    same = others.get(key)
    if same is not None and same.definition_hash != workflow.definition_hash:
        return f"{workflow.workflow_id} version {workflow.version} has other content in {origin[key]}"
    if workflow.current:
        for other_key, other in others.items():
            if other.workflow_id == workflow.workflow_id and other.current and other_key != key:
                return f"{workflow.workflow_id} has two versions marked current, the other in {origin[other_key]}"
    return None


def _linked(
    workflows: Mapping[Key, Workflow], origin: Mapping[Key, str], broken: list[BrokenFile], files: Mapping[str, str]
) -> tuple[Mapping[Key, Workflow], tuple[BrokenFile, ...]]:
    """Return the workflows whose references lead somewhere; one that falls takes those that need it with it."""

    def broken_name(workflow_id: str, version: int | None) -> str | None:
        found = broken_file(workflow_id, version, broken, files)
        return None if found is None else found.file

    while True:
        pinned, troubles = pin(workflows, broken_name)
        for key, trouble in _dangling(workflows, broken_name):
            troubles.setdefault(key, []).append(trouble)
        if not troubles:
            return pinned, tuple(broken)
        for key, found in troubles.items():
            report = Report(origin[key], read_yaml(files[origin[key]]))
            for path, message in found:
                report.add(path, message)
            broken.append(BrokenFile(origin[key], "\n".join(map(str, report.problems)), tuple(report.problems)))
        workflows = {key: workflow for key, workflow in workflows.items() if key not in troubles}


def _dangling(workflows: Mapping[Key, Workflow], broken_name: BrokenName) -> Iterator[tuple[Key, Trouble]]:
    """Yield each workflow whose `reversed_by` names nothing: its ingest could not be undone."""
    ids = {workflow_id for workflow_id, _ in workflows}
    for key, workflow in workflows.items():
        if workflow.reversed_by and workflow.reversed_by not in ids:
            file = broken_name(workflow.reversed_by, None)
            guess = did_you_mean(workflow.reversed_by, ids)
            what = f"which is not a workflow{guess}" if file is None else f"whose file {file} is broken"
            yield key, (("reversed_by",), f"reversed_by names {workflow.reversed_by!r}, {what}")
