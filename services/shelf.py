"""What can be started now: the workflows of the files, but of a version that is stored with other content, the stored.

So a file that was edited in place breaks nothing that works; it is listed as broken until its change has a new version.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from core.dag.catalogue import BrokenFile, WorkflowCatalogue, broken_file
from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.pinning import Key, pin, same_but_for_pins
from core.errors import NotFound, WorkflowError
from core.models.engine import WorkflowRow
from core.wording import did_you_mean
from repositories.workflows import WorkflowRepository
from services.work import Connection

log = logging.getLogger(__name__)

LISTED: Final = "`geodag workflow list` or GET /api/v1/workflows says which there are."
_LINT: Final = "`geodag workflow lint .` in the folder of the workflows shows every problem."
_NEW_VERSION: Final = (
    "It is about what is stored, which lint does not know: give the file that was changed a new version."
)


@dataclass(slots=True)
class Shelf:
    """The catalogue of this process; `register` sets it right by what the database has stored."""

    catalogue: WorkflowCatalogue
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by file name: which file is about which workflow."""

    def get(self, workflow_id: str, version: int | None = None) -> Workflow:
        """Return one version, by default the default one.

        Raises:
            NotFound: There is none, with where to look; when a broken file is about it, the message says which and
                what is wrong first.
        """
        try:
            return self.catalogue.get(workflow_id, version)
        except NotFound as missing:
            broken = broken_file(workflow_id, version, self.catalogue.broken, self.files)
            if broken is None:
                about_id = missing.detail.field == "workflow_id"
                closest = did_you_mean(workflow_id, self.catalogue.ids()) if about_id else ""
                raise NotFound(
                    f"{missing}{closest}",
                    field=missing.detail.field,
                    value=missing.detail.value,
                    remediation=f"{LISTED} A new file counts once the orchestrators start again.",
                ) from missing
            first, *others = broken.error.splitlines()
            more = f" (and {len(others)} more)" if others else ""
            raise NotFound(
                f"{missing}: its file is broken: {first}{more}",
                field=missing.detail.field,
                value=missing.detail.value,
                remediation=_NEW_VERSION if broken.stored else _LINT,
            ) from missing

    async def register(self, conn: Connection, *, may_redefine: bool) -> None:
        """Store every definition; of a version that is stored with other content the stored one stays in use.

        Args:
            conn: An open transaction.
            may_redefine: In development a version may get other content.
        """
        repository = WorkflowRepository(conn)
        if not may_redefine:
            for key, workflow in sorted(self.catalogue.workflows.items()):
                other = await _contradiction(repository, workflow)
                if other is not None and key in self.catalogue.workflows:
                    self._keep_stored(key, other)
                    self._link()
        for key, workflow in sorted(self.catalogue.workflows.items()):
            await repository.insert(workflow.definition_hash, *key, workflow.text)

    def _keep_stored(self, key: Key, other: WorkflowRow) -> None:
        name, file = f"{key[0]} version {key[1]}", self._file_of(key)
        log.error("workflow version has other content in the database", extra={"workflow": name, "file": file})
        reason = f"{name} is stored with other content ({other.definition_hash[:12]}), which stays in use; "
        broken = BrokenFile(file or name, f"{file or name}: {reason}give the change a new version", stored=True)
        try:
            stored = Workflow.from_json(other.definition)
        except ValueError:
            self.catalogue = self.catalogue.without(key, broken)
            return
        workflows = {**self.catalogue.workflows, key: stored}
        self.catalogue = replace(self.catalogue, workflows=workflows, broken=(*self.catalogue.broken, broken))

    def _file_of(self, key: Key) -> str | None:
        for file, text in sorted(self.files.items()):
            try:
                workflow = load_workflow(text, file)
            except WorkflowError:
                continue
            if (workflow.workflow_id, workflow.version) == key:
                return file
        return None

    def _link(self) -> None:
        """Pin children again, as some are the stored ones now; what does not fit them any more is broken."""
        while True:
            pinned, troubles = pin(self.catalogue.workflows)
            if not troubles:
                self.catalogue = replace(self.catalogue, workflows=pinned)
                return
            for key, found in troubles.items():
                name = self._file_of(key) or f"{key[0]} version {key[1]}"
                problems = "\n".join(f"{name}: {message}" for _, message in found)
                if key in self.catalogue.workflows:
                    self.catalogue = self.catalogue.without(key, BrokenFile(name, problems, stored=True))


async def _contradiction(repository: WorkflowRepository, workflow: Workflow) -> WorkflowRow | None:
    """Return what was stored first under the same id and version, when it says something else.

    Another child that was pinned for a node without a version is no other content: its author wrote the same.
    """
    others = await repository.other_hashes(workflow.workflow_id, workflow.version, workflow.definition_hash)
    if not others:
        return None
    rows = await repository.get_many([workflow.definition_hash, *others])
    first = min(rows, key=lambda row: row.created_at)
    try:
        same = same_but_for_pins(Workflow.from_json(first.definition), workflow)
    except ValueError:
        return first
    return None if same else first
