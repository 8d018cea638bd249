"""Reads what an evaluation may need of fan-outs: few rows, whatever their size, in one more round trip."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.dag.fan_out import MAX_NEW_CHILDREN
from core.dag.run import IN_FLIGHT
from core.dag.tallies import parent_of
from core.ids import split_task_id
from core.models.engine import Attempt, Job, NodeState, Slot
from core.models.fan_out import FanOut
from core.statuses import JOB_FINAL, NODE_FINAL
from repositories.documents import Pending
from repositories.fan_outs import FanOutRepository, Items, Stored, Timer
from services.work import Connection, read_meanwhile

MAX_ITEMS = 2000
"""Items that one evaluation makes children of, unless one batch alone has more."""
SMALL_CHILDREN = 500
SMALL_BYTES = 64 * 1024
"""A fan-out whose children put out so little is aggregated by the evaluation that ends it."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FanOuts:
    """What was read of the fan-outs of one job."""

    rows: Mapping[str, FanOut] = field(default_factory=dict)
    children: Mapping[str, NodeState] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    """The last ones of children that wait."""
    next_items: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    timers: Mapping[str, datetime] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)


NO_FAN_OUTS = FanOuts()


@dataclass(frozen=True, slots=True)
class Scope:
    """How much to read of children."""

    whole: Collection[str] = ()
    """Jobs of which every live child is wanted."""
    look: bool = True
    """Whether to look for children of which something is due; else only when a timer of theirs has come."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """Children that reports name."""

    keys: Set[Key] = frozenset()
    rows: Pending[NodeState] | None = None


NOBODY = AskedFor()


async def ask_for_children(conn: Connection, task_ids: Iterable[str]) -> AskedFor:
    """Ask for the children that task ids name; what was asked for before is read while the server looks for them."""
    parts = (split_task_id(task_id) for task_id in task_ids)
    keys = {(job_id, node_id) for job_id, node_id, _ in filter(None, parts) if parent_of(node_id)}
    if not keys:
        return NOBODY
    read_meanwhile(conn)
    return AskedFor(keys, await FanOutRepository(conn).children(keys))


async def load_fan_outs(
    conn: Connection,
    jobs: Mapping[str, Job],
    rows: Iterable[FanOut],
    attempts: Iterable[Attempt],
    slots: Iterable[Slot],
    now: datetime,
    scope: Scope,
    reported: AskedFor = NOBODY,
) -> Mapping[str, FanOuts]:
    """Return by job what an evaluation may need.

    Args:
        conn: The transaction that holds the jobs.
        jobs: Those that it holds.
        rows: Of their fan-outs.
        attempts: All that were locked with the jobs.
        slots: Grants that nobody acted on yet, among others.
        now: The moment of the evaluation.
        scope: How much of children is wanted.
        reported: Children that were asked for already; who has no attempt among those that were locked is left out.
    """
    mine, locked = [row for row in rows if row.job_id in jobs], list(attempts)
    touched = {(one.job_id, one.node_id) for one in locked if one.child and one.job_id in jobs}
    touched |= {(one.job_id, one.node_id) for one in slots if one.node_id and parent_of(one.node_id)}
    if not mine:
        return {}
    read = {one.task_id for one in locked}
    asked = await _Request.send(conn, jobs, mine, touched, reported, read, now, scope)
    known = [] if reported.rows is None else await reported.rows.rows()
    children = [child for child in known if (child.job_id, child.node_id) in touched]
    return await asked.answer(conn, mine, children, read, scope.whole)


@dataclass(slots=True)
class _Request:
    """Statements that were sent together."""

    children: list[Pending[NodeState]] = field(default_factory=list)
    attempts: list[Pending[Attempt]] = field(default_factory=list)
    items: Pending[Items] | None = None
    timers: Pending[Timer] | None = None
    stored: Pending[Stored] | None = None

    @classmethod
    async def send(
        cls,
        conn: Connection,
        jobs: Mapping[str, Job],
        rows: Sequence[FanOut],
        touched: Set[Key],
        reported: AskedFor,
        read: Collection[str],
        now: datetime,
        scope: Scope,
    ) -> "_Request":
        """Ask for what is needed and for nothing else, all of it as of `now`: what one statement leaves out because its
        time has not come, another has to find.
        """
        repository, asked = FanOutRepository(conn), cls()
        open_rows = [row for row in rows if row.state in {"running", "stopping"}]
        due = [row for row in open_rows if row.wake_at is not None and row.wake_at <= now]
        if others := touched - reported.keys:
            asked.children.append(await repository.children(others))
        whole = {row.job_id for row in open_rows if row.job_id in scope.whole}
        if whole:
            asked.children.append(await repository.waiting(whole, None))
            asked.attempts.append(await repository.last_attempts(whole, None))
            asked.children.append(await repository.lined_up(whole))
        waiting = {row.job_id for row in (open_rows if scope.look else due)} - whole
        if waiting:
            asked.children.append(await repository.waiting(waiting, now))
            asked.attempts.append(await repository.last_attempts(waiting, now))
        if due:
            asked.timers = await repository.next_timers([(row.job_id, row.node_id) for row in due], now, read)
        count = _touched_of(touched)
        if wanted := [_items_of(row, count) for row in open_rows if _has_room(row, count, jobs[row.job_id])]:
            asked.items = await repository.items(wanted)
        for row in open_rows:
            if row.next_child == row.child_count <= SMALL_CHILDREN and row.active <= count[row.job_id, row.node_id]:
                asked.children.append(await repository.finished(row.job_id, row.node_id, SMALL_BYTES))
        if expanding := [(row.job_id, row.node_id) for row in rows if row.state == "expanding"]:
            asked.stored = await repository.stored(expanding)
        return asked

    async def answer(
        self,
        conn: Connection,
        rows: Sequence[FanOut],
        reported: Iterable[NodeState],
        locked: Collection[str],
        whole: Collection[str],
    ) -> Mapping[str, FanOuts]:
        """Wait for everything and sort it by job, with the children that were read before.

        A late result of an earlier attempt touches its child, whose attempt of now nobody asked for: such a child is
        left out, or it would be taken for one that lost its attempt. Of `whole` jobs everything was asked for; a child
        in flight that this did not bring has lost its attempt, and is the one thing that would keep a job for ever.
        """
        children = list(reported)
        for pending in self.children:
            children += await pending.rows()
        if lost := _with_children_missing(rows, children, whole):
            children += await (await FanOutRepository(conn).in_flight(lost)).rows()
        attempts = [attempt for pending in self.attempts for attempt in await pending.rows()]
        known = {*locked, *(attempt.task_id for attempt in attempts)}
        children = [
            one for one in children if one.status not in IN_FLIGHT or one.task_id in known or one.job_id in whole
        ]
        items = [] if self.items is None else await self.items.rows()
        timers = [] if self.timers is None else await self.timers.rows()
        stored = [] if self.stored is None else await self.stored.rows()
        next_items: defaultdict[Key, list[Any]] = defaultdict(list)
        for part in items:
            next_items[part.job_id, part.node_id] += part.items
        return {
            job_id: FanOuts(
                rows={row.node_id: row for row in rows if row.job_id == job_id},
                children={child.node_id: child for child in children if child.job_id == job_id},
                attempts=[attempt for attempt in attempts if attempt.job_id == job_id],
                next_items={node: found for (job, node), found in next_items.items() if job == job_id},
                timers={one.node_id: one.at for one in timers if one.job_id == job_id and one.at is not None},
                stored={one.node_id: one.items for one in stored if one.job_id == job_id},
            )
            for job_id in {row.job_id for row in rows}
        }


def _with_children_missing(
    rows: Iterable[FanOut], children: Iterable[NodeState], whole: Collection[str]
) -> Collection[str]:
    """Return those of the `whole` jobs that have more live children than were found."""
    live = {(one.job_id, one.node_id) for one in children if one.status not in NODE_FINAL} if whole else set()
    count = _touched_of(live)
    return {row.job_id for row in rows if row.job_id in whole and count.get((row.job_id, row.node_id), 0) < row.active}


def _touched_of(touched: Iterable[Key]) -> Mapping[Key, int]:
    """Return how many children something happens to, by job and fan-out."""
    count: defaultdict[Key, int] = defaultdict(int)
    for job_id, node_id in touched:
        count[job_id, node_id.rpartition("__")[0]] += 1
    return count


def _room(row: FanOut, touched: Mapping[Key, int]) -> int:
    """Return how many children may be made, when all that something happens to end."""
    room = row.max_concurrency - row.active + touched[row.job_id, row.node_id]
    return min(room, row.child_count - row.next_child, MAX_NEW_CHILDREN)


def _has_room(row: FanOut, touched: Mapping[Key, int], job: Job) -> bool:
    goes_on = row.state == "running" and job.paused_at is None and job.status not in JOB_FINAL
    return goes_on and _room(row, touched) > 0


def _items_of(row: FanOut, touched: Mapping[Key, int]) -> tuple[str, str, int, int]:
    count = max(min(_room(row, touched) * row.batch_size, MAX_ITEMS), row.batch_size)
    return row.job_id, row.node_id, row.next_child * row.batch_size, count
