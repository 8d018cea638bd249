"""Workflow definitions by content hash, read once per process: a hash never gets another content."""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from core.dag.definition import Workflow
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
