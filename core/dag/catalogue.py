"""All workflows of a folder: the good ones by id and version, the broken ones with their error."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.errors import NotFound, WorkflowError
from core.handlers_catalog import CATALOG, KNOWN_QUEUES, HandlerSpec


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """A file that gave no workflow, and why."""

    file: str
    error: str


@dataclass(frozen=True, slots=True)
class WorkflowCatalogue:
    """What an orchestrator can run."""

    workflows: Mapping[tuple[str, int], Workflow]
    broken: tuple[BrokenFile, ...] = ()

    def get(self, workflow_id: str, version: int | None = None) -> Workflow:
        """Return one version, by default the one marked `current`, else the highest. Raises `NotFound`."""
        versions = self.versions(workflow_id)
        if not versions:
            raise NotFound(f"there is no workflow {workflow_id!r}", field="workflow_id", value=workflow_id)
        if version is None:
            return next((workflow for workflow in versions if workflow.current), versions[-1])
        for workflow in versions:
            if workflow.version == version:
                return workflow
        raise NotFound(f"workflow {workflow_id} has no version {version}", field="version", value=version)

    def versions(self, workflow_id: str) -> tuple[Workflow, ...]:
        """Return all versions of one workflow, lowest first."""
        found = [workflow for (key, _), workflow in self.workflows.items() if key == workflow_id]
        return tuple(sorted(found, key=lambda workflow: workflow.version))

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all workflows, sorted."""
        return tuple(sorted({workflow_id for workflow_id, _ in self.workflows}))


def load_folder(
    files: Mapping[str, str],
    *,
    catalog: Mapping[str, HandlerSpec] = CATALOG,
    queues: frozenset[str] = KNOWN_QUEUES,
) -> WorkflowCatalogue:
    """Load every file (name to text); one bad file is listed as broken and the others work.

    Files are taken in name order: of two with the same id and version but other content, the later one is broken.
    """
    workflows: dict[tuple[str, int], Workflow] = {}
    origin: dict[tuple[str, int], str] = {}
    broken: list[BrokenFile] = []
    for file in sorted(files):
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
    return WorkflowCatalogue(*_drop_dangling(workflows, origin, broken))


def _clash(
    workflow: Workflow, others: Mapping[tuple[str, int], Workflow], origin: Mapping[tuple[str, int], str]
) -> str | None:
    key = (workflow.workflow_id, workflow.version)
    same = others.get(key)
    if same is not None and same.definition_hash != workflow.definition_hash:
        return f"{workflow.workflow_id} version {workflow.version} has other content in {origin[key]}"
    if workflow.current:
        for other_key, other in others.items():
            if other.workflow_id == workflow.workflow_id and other.current and other_key != key:
                return f"{workflow.workflow_id} has two versions marked current, the other in {origin[other_key]}"
    return None


def _drop_dangling(
    workflows: dict[tuple[str, int], Workflow], origin: Mapping[tuple[str, int], str], broken: list[BrokenFile]
) -> tuple[dict[tuple[str, int], Workflow], tuple[BrokenFile, ...]]:
    """A workflow whose `reversed_by` names nothing is broken: its ingest could not be undone."""
    ids = {workflow_id for workflow_id, _ in workflows}
    dangling = {key: item for key, item in workflows.items() if item.reversed_by and item.reversed_by not in ids}
    for key, workflow in dangling.items():
        problem = f"{origin[key]}: reversed_by names {workflow.reversed_by!r}, which is not a workflow"
        broken.append(BrokenFile(origin[key], problem))
    good = {key: item for key, item in workflows.items() if key not in dangling}
    return good, tuple(broken)
