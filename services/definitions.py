"""Workflow definitions by content hash, read once per process: a hash never gets another content."""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.dag.catalogue import BrokenFile, WorkflowCatalogue
from core.dag.definition import Workflow
from core.dag.pinning import same_but_for_pins
from repositories.workflows import WorkflowRepository
from services.work import Connection

log = logging.getLogger(__name__)

CAPACITY = 512


class Definitions:
    """A bounded memory of compiled workflows."""

    def __init__(self, known: Iterable[Workflow] = ()) -> None:
        self._by_hash: OrderedDict[str, Workflow] = OrderedDict()
        self.known: Mapping[str, Workflow] = MappingProxyType(self._by_hash)
        """What is remembered now, by hash."""
        for workflow in known:
            self.add(workflow)

    def add(self, workflow: Workflow) -> None:
        """Remember one."""
        self._by_hash[workflow.definition_hash] = workflow
        if len(self._by_hash) > CAPACITY:
            self._by_hash.popitem(last=False)

    def get(self, definition_hash: str) -> Workflow | None:
        """Return a remembered workflow."""
        return self._by_hash.get(definition_hash)

    async def fetch(self, conn: Connection, definition_hashes: Iterable[str]) -> None:
        """Remember the definitions of these hashes and of all child workflows in them.

        One that cannot be read stays unknown; what was asked for last is forgotten last.
        """
        wanted, seen = set(definition_hashes), set[str]()
        while wanted:
            await self._read(conn, wanted - self._by_hash.keys())
            found = wanted & self._by_hash.keys()
            for definition_hash in found:
                self._by_hash.move_to_end(definition_hash)
            seen |= wanted
            wanted = set[str]().union(*(self._by_hash[one].pins for one in found)) - seen

    async def _read(self, conn: Connection, missing: Collection[str]) -> None:
        if not missing:
            return
        for row in await WorkflowRepository(conn).get_many(missing):
            try:
                self.add(Workflow.from_json(row.definition))
            except ValueError as error:
                log.error("stored definition unreadable", extra={"hash": row.definition_hash, "error": str(error)})


@dataclass(slots=True)
class Shelf:
    """What can be started now; `register` takes off what contradicts the database."""

    catalogue: WorkflowCatalogue

    async def register(self, conn: Connection, *, may_redefine: bool) -> None:
        """Store every definition; one whose id and version stand for other content already is broken.

        Args:
            conn: An open transaction.
            may_redefine: In development a version may get other content.
        """
        repository = WorkflowRepository(conn)
        for key, workflow in sorted(self.catalogue.workflows.items()):
            if key not in self.catalogue.workflows:
                continue
            other = None if may_redefine else await _contradiction(repository, workflow)
            if other is not None:
                self._take_off(workflow, other)
                continue
            await repository.insert(workflow.definition_hash, *key, workflow.text)

    def _take_off(self, workflow: Workflow, stored_hash: str) -> None:
        key = (workflow.workflow_id, workflow.version)
        name = f"{workflow.workflow_id} version {workflow.version}"
        log.error("workflow version has other content in the database", extra={"workflow": name})
        reason = f"{name} is stored with other content ({stored_hash[:12]}); give the change a new version"
        self.catalogue = self.catalogue.without(key, BrokenFile(name, reason))


async def _contradiction(repository: WorkflowRepository, workflow: Workflow) -> str | None:
    """Return the hash of a stored definition that says something else under the same id and version.

    Another child that was pinned for a node without a version is no other content: its author wrote the same.
    """
    others = await repository.other_hashes(workflow.workflow_id, workflow.version, workflow.definition_hash)
    if others and not workflow.pins:
        return others[0]
    for row in await repository.get_many(others) if others else ():
        if not same_but_for_pins(Workflow.from_json(row.definition), workflow):
            return row.definition_hash
    return None
