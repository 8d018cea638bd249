"""Answers who did what, when, why, from what to what."""

from core import paging
from core.models.business import AuditEntry
from core.paging import Page
from repositories.audit import AuditFilter, AuditRepository
from repositories.database import AsyncPool, transaction


class AuditService:
    """Reads the audit; it is written where things happen."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    async def find(self, wanted: AuditFilter, *, after: str | None, limit: int) -> Page[AuditEntry]:
        """Return a page of rows, the newest first.

        Raises:
            ParameterInvalid: `after` is no cursor of this list.
        """
        key = paging.read_cursor("audit", after, int)
        async with transaction(self._pool) as conn:
            found = AuditRepository(conn)
            rows = await found.find(wanted, before_id=None if key is None else key[0], limit=limit + 1)
        return paging.page("audit", rows, limit, lambda row: (row.audit_id,))
