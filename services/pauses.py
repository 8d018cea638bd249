"""Pause switches: of everything, of one workflow, of one queue. Submits are accepted meanwhile and wait."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import NotFound, ParameterInvalid
from core.handlers_catalog import KNOWN_QUEUES
from core.identity import Role
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.pauses import LIFTED, SET, PauseRepository, Switch
from services.known_workflows import is_known, unknown_workflow
from services.shelf import Shelf
from services.work import Connection

log = logging.getLogger(__name__)

CHUNK = 500
HELD_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Turned:
    """What turning a switch did."""

    switch: str
    paused: bool
    changed: bool
    """False: it was like that before."""
    jobs: int
    """That look now what it means to them."""


class PauseService:
    """The use cases of pause switches."""

    def __init__(self, pool: AsyncPool, shelf: Shelf) -> None:
        self._pool = pool
        self._shelf = shelf

    async def all(self) -> Sequence[Switch]:
        """Return every switch that was ever turned."""
        async with transaction(self._pool) as conn:
            return await PauseRepository(conn).all()

    async def turn(self, switch: str, *, paused: bool, actor: str, reason: str | None = None) -> Turned:
        """Turn a switch and let the jobs that it is about look at it; idempotent.

        Raises:
            ParameterInvalid: It is no switch.
            NotFound: There is nothing by that name; what is gone can be lifted if it was ever paused.
        """
        kind, name = parse_switch(switch)
        async with transaction(self._pool) as conn:
            pauses, known = PauseRepository(conn), await self._is_known(conn, kind, name)
            if not known and (paused or not await pauses.was_turned(switch)):
                raise _unknown(self._shelf, kind, name)
            changed = await pauses.turn(switch, paused, actor)
            if changed:
                await AuditRepository(conn).add(_entry(switch, paused, actor, reason))
        if not changed:
            return Turned(switch, paused, changed=False, jobs=0)
        log.info("pause switch turned", extra={"switch": switch, "paused": paused, "actor": actor})
        async with transaction(self._pool) as conn:
            jobs = await PauseRepository(conn).active_jobs(name if kind == "workflow" else None)
        event = "pause_switch_set" if paused else "pause_switch_lifted"
        data = {"switch": switch, "actor": actor, "reason": reason or ""}
        woken = 0
        for start in range(0, len(jobs), CHUNK):
            woken += await self._wake(jobs[start : start + CHUNK], event, data, name if kind == "queue" else None)
        return Turned(switch, paused, changed=True, jobs=woken)

    async def _wake(self, job_ids: Sequence[str], event: str, data: dict[str, str], queue: str | None) -> int:
        """Wake jobs that nobody holds; should another have read the old switch, `release_held` finds it."""
        async with transaction(self._pool) as conn:
            pauses = PauseRepository(conn)
            woken = await pauses.wake(job_ids)
            await pauses.log(woken, event, data, queue)
        return len(woken)

    async def _is_known(self, conn: Connection, kind: str, name: str) -> bool:
        if kind == "workflow":
            return await is_known(conn, self._shelf, name)
        return kind == "all" or name in KNOWN_QUEUES

    async def release_held(self) -> int:
        """Wake jobs that are held by nothing any more and return how many.

        An evaluation that read a switch just before it was lifted, or a claim that parked a task just before a resume,
        leaves a job without a timer; nothing is remembered of it but what this query finds.
        """
        async with transaction(self._pool) as conn:
            pauses = PauseRepository(conn)
            held = await pauses.held_for_nothing(HELD_LIMIT)
            return len(await pauses.wake(held)) if held else 0


def _unknown(shelf: Shelf, kind: str, name: str) -> NotFound:
    if kind == "workflow":
        return unknown_workflow(shelf, name, "switch")
    return NotFound(f"there is no {kind} {name[:64]}", field="switch", value=f"{kind}:{name[:64]}")


def _entry(switch: str, paused: bool, actor: str, reason: str | None) -> NewAuditEntry:
    return NewAuditEntry(
        asset_id=None,
        version_ordinal=None,
        action=SET if paused else LIFTED,
        actor=actor,
        actor_role=Role.OPERATOR,
        reason=reason,
        before={"switch": switch, "paused": not paused},
        after={"switch": switch, "paused": paused},
    )


def parse_switch(switch: str) -> tuple[str, str]:
    """Return kind and name of a switch. Raises `ParameterInvalid`."""
    kind, _, name = switch.partition(":")
    if switch == "all" or (kind in {"workflow", "queue"} and name):
        return kind, name
    raise ParameterInvalid("a switch is all, workflow:<id> or queue:<name>", field="switch", value=switch[:80])
