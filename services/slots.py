"""Writes what evaluations want of slots, and takes slots away from holders that are gone."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.dag.nodes import GLOBAL
from core.dag.slot_wishes import SlotRequest
from core.dag.slots import MAX_KEY as MAX_TEXT
from core.errors import NotFound, ParameterInvalid
from core.identity import Role
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.slots import LimitView, SlotRepository, SlotView
from services.evaluation import Step
from services.known_workflows import is_known
from services.shelf import Shelf
from services.work import Connection, pipelined

SWEEP_BATCH = 500
UNUSED_SECONDS = 3600.0
MAX_LIMIT = 100_000
MAX_KEY = 400
MAX_SHOWN = 100
"""Holders of a key, and as many of its line, that are named; the counts tell of the rest."""
SET, UNSET = "limit_set", "limit_unset"
"""What the audit calls it."""


@dataclass(frozen=True, slots=True)
class KeyView:
    """One key with those who hold it and wait for it."""

    limit: LimitView
    holders: Sequence[SlotView]
    line: Sequence[SlotView]


async def move_slots(conn: Connection, steps: Iterable[Step], left: Collection[str] = ()) -> None:
    """Ask for, free and notice slots; the last thing that a transaction does, and once.

    Args:
        conn: A transaction that wrote everything else.
        steps: Of jobs that were locked or are new.
        left: Holders whose worker said by itself that it is done.
    """
    changes = [(step, step.decision.slots) for step in steps]
    noticed = [holder for _, change in changes for holder in change.noticed]
    requests = [_request(step, one) for step, change in changes for one in change.requests]
    freed = [*left, *(holder for _, change in changes for holder in change.freed)]
    dropped = [step.state.job.job_id for step, change in changes if change.dropped]
    priorities = [
        {"job_id": step.job.job_id, "priority": step.job.priority}
        for step, _ in changes
        if step.job is not None and step.job.priority != step.state.job.priority
    ]
    slots = SlotRepository(conn)
    if noticed:
        await slots.notice(noticed)
    if requests or freed or dropped or priorities:
        await slots.change(requests, freed, dropped=dropped, priorities=priorities)


def _request(step: Step, one: SlotRequest) -> dict[str, Any]:
    return {
        "slot_key": one.key,
        "limit_count": one.limit,
        "holder": one.holder,
        "job_id": step.state.job.job_id,
        "node_id": one.node_id,
        "priority": one.priority,
    }


class SlotService:
    """What is done about slots beside evaluations."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    async def sweep(self) -> int:
        """Free what nobody holds any more and return how many slots that were; looks again under the lock.

        Keys that nobody has used for an hour are forgotten.
        """
        async with pipelined(self._pool) as conn:
            await SlotRepository(conn).forget(UNUSED_SECONDS, SWEEP_BATCH)
        async with pipelined(self._pool) as conn:
            slots = SlotRepository(conn)
            found = await (await slots.stale(SWEEP_BATCH)).rows()
            if not found:
                return 0
            await slots.lock_keys_of(found)
            still = set(await (await slots.stale(SWEEP_BATCH)).rows()).intersection(found)
            await slots.change([], sorted(still))
            return len(still)

    async def limits(self) -> Sequence[LimitView]:
        """Return every key that was ever asked for, with its limit, holders and line."""
        async with transaction(self._pool) as conn:
            return await SlotRepository(conn).limits()

    async def of_key(self, slot_key: str) -> KeyView:
        """Return one key with who holds it, oldest first, and who waits, in the order in which slots are granted.

        Raises:
            ParameterInvalid: The key cannot be.
            NotFound: Nobody has asked for it or set it.
        """
        _check_text(slot_key)
        async with transaction(self._pool) as conn:
            slots = SlotRepository(conn)
            limit = await slots.limit_of(slot_key)
            if limit is None:
                raise _unasked(slot_key)
            return KeyView(limit, await slots.holders(slot_key, MAX_SHOWN), await slots.line(slot_key, MAX_SHOWN))

    async def set_limit(self, slot_key: str, limit: int | None, actor: str, reason: str | None = None) -> LimitView:
        """Set the limit of a key by hand, or with None leave it to the workflows again, and return the key.

        A change is in the audit. A key may be set before anybody asks for a slot of it.

        Raises:
            ParameterInvalid: The key or the number cannot be.
            NotFound: There is no such key to leave to the workflows.
        """
        _check_text(slot_key)
        if limit is not None and not 0 <= limit <= MAX_LIMIT:
            raise ParameterInvalid(f"a limit is 0 to {MAX_LIMIT}", field="limit", value=limit)
        async with transaction(self._pool) as conn:
            slots = SlotRepository(conn)
            before = await slots.lock_limit(slot_key)
            if limit is not None:
                await slots.set_limit(slot_key, limit, actor)
            elif before is not None:
                await slots.unset_limit(slot_key)
            after = await slots.limit_of(slot_key)
            if after is None:
                raise _unasked(slot_key)
            if before != (after.limit, after.set_by):
                await AuditRepository(conn).add(_entry(before, after, actor, reason))
        return after


async def check_key(conn: Connection, shelf: Shelf, slot_key: str) -> None:
    """Refuse a key that no job could ask for, as `core.dag.slots` makes them. Raises `ParameterInvalid`."""
    owner, _, text = slot_key.partition(":")
    everyones = slot_key.startswith(GLOBAL)
    longest = MAX_TEXT - len(GLOBAL) if everyones else MAX_TEXT
    if 0 < len(text) <= longest and (everyones or await is_known(conn, shelf, owner)):
        return
    raise ParameterInvalid(
        f"no job can ask for a slot of {slot_key[:80]!r}: a key is global:TEXT, or WORKFLOW:TEXT with the id of a "
        f"workflow there is, and a TEXT of at most {longest} characters",
        field="key",
        value=slot_key[:80],
        remediation="`geodag limits` lists the keys that were asked for; `concurrency.key` of a workflow makes them.",
    )


def _check_text(slot_key: str) -> None:
    if not 0 < len(slot_key) <= MAX_KEY or "\x00" in slot_key:
        raise ParameterInvalid(f"a key has 1 to {MAX_KEY} characters", field="key", value=slot_key[:80])


def _unasked(slot_key: str) -> NotFound:
    return NotFound(f"nobody has asked for a slot of {slot_key!r} yet", field="key", value=slot_key[:80])


def _entry(before: tuple[int, str | None] | None, after: LimitView, actor: str, reason: str | None) -> NewAuditEntry:
    limit, set_by = before or (None, None)
    return NewAuditEntry(
        asset_id=None,
        version_ordinal=None,
        action=UNSET if after.set_by is None else SET,
        actor=actor,
        actor_role=Role.OPERATOR,
        reason=reason,
        before={"slot_key": after.slot_key, "limit": limit, "set_by": set_by},
        after={"slot_key": after.slot_key, "limit": after.limit, "set_by": after.set_by},
    )
