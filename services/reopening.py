"""Starting a job anew that has ended: what the business has against it, and what it notes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from core.errors import ErrorDetail
from core.models.engine import Job
from services.work import Connection


@dataclass(frozen=True, slots=True)
class Reopening:
    """The two questions of the engine to the business; both are asked with the job's row locked."""

    refusal: Callable[[Connection, Job], Awaitable[ErrorDetail | None]]
    """Returns why a job may not be started anew."""
    reopened: Callable[[Connection, Job], Awaitable[None]]
    """Runs in the transaction that starts it, after the engine's own writes."""


async def _nothing_against(conn: Connection, job: Job) -> None:
    return None


NOBODYS = Reopening(_nothing_against, _nothing_against)
"""Of jobs that work for nobody."""
