"""Locks jobs and reads everything that an evaluation may read, all of it after the lock."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self, TypeVar

from core.dag.definition import Workflow
from core.dag.orders import REOPENING
from core.dag.rendering import Rendered
from core.dag.state import JobState
from core.errors import ErrorDetail
from core.models.engine import Attempt, Command, Job, NodeState, Slot, TaskResultRow
from core.models.fan_out import FanOut
from repositories.attempts import AttemptRepository
from repositories.commands import CommandRepository
from repositories.jobs import JobRepository
from repositories.nodes import NodeRepository
from repositories.results import ResultRepository
from services.loading_fan_outs import NO_FAN_OUTS, FanOuts, Scope, ask_for_children, load_fan_outs
from services.work import Connection

Row = TypeVar("Row", Attempt, Command, FanOut, NodeState, Slot, TaskResultRow)

EVERYTHING_DUE = Scope()
MAX_RESULTS = 1000
"""Inbox rows that one transaction consumes at most."""


@dataclass(frozen=True, slots=True)
class Past:
    """What only an order to start a job anew has to know."""

    refusal: ErrorDetail | None
    child_attempts: Mapping[str, int]


NO_PAST = Past(None, {})


@dataclass(frozen=True, slots=True)
class Locked:
    """Jobs that this transaction holds, with what belongs to them; attempts are locked too."""

    now: datetime
    jobs: Mapping[str, Job]
    attempts: Mapping[str, Sequence[Attempt]]
    """By job; also of jobs that somebody else holds."""
    nodes: Mapping[str, Sequence[NodeState]]
    inbox: Mapping[str, Sequence[TaskResultRow]]
    commands: Mapping[str, Sequence[Command]] = field(default_factory=dict)
    pauses: frozenset[str] = frozenset()
    fan_outs: Mapping[str, FanOuts] = field(default_factory=dict)
    slots: Mapping[str, Sequence[Slot]] = field(default_factory=dict)
    pasts: Mapping[str, Past] = field(default_factory=dict)
    """Of jobs that a command may start anew."""

    def ordered(self, command: Command) -> Self:
        """Return the same with one more command to a job, behind those that wait."""
        commands = {**self.commands, command.job_id: [*self.commands.get(command.job_id, ()), command]}
        return replace(self, commands=commands)

    def may_reopen(self, job_id: str) -> bool:
        """Return whether a command may start a job anew."""
        return any(command.kind in REOPENING for command in self.commands.get(job_id, ()))

    def state(
        self, job_id: str, may_expire_leases: bool, rendered: Mapping[str, Rendered], workflows: Mapping[str, Workflow]
    ) -> JobState:
        """Return the evaluator's view of one locked job, with the values and the definitions that are at hand."""
        results = self.inbox.get(job_id, ())
        reported = {result.task_id for result in results}
        nodes = {node.node_id: node for node in self.nodes[job_id]}
        past, fan_outs = self.pasts.get(job_id, NO_PAST), self.fan_outs.get(job_id, NO_FAN_OUTS)
        known = (*self.attempts.get(job_id, ()), *fan_outs.attempts)
        return JobState(
            job=self.jobs[job_id],
            nodes=nodes,
            attempts=_newest(known, {**nodes, **fan_outs.children}, reported),
            results=results,
            may_expire_leases=may_expire_leases,
            pauses=self.pauses,
            commands=self.commands.get(job_id, ()),
            reopen_refusal=past.refusal,
            child_attempts=past.child_attempts,
            children=fan_outs.children,
            fan_outs=fan_outs.rows,
            next_items=fan_outs.next_items,
            child_timers=fan_outs.timers,
            stored_items=fan_outs.stored,
            slots={slot.holder: slot for slot in self.slots.get(job_id, ())},
            rendered=rendered,
            workflows=workflows,
        )


def _newest(attempts: Iterable[Attempt], nodes: Mapping[str, NodeState], reported: set[str]) -> Mapping[str, Attempt]:
    found: dict[str, Attempt] = {}
    for attempt in attempts:
        node = nodes.get(attempt.node_id)
        if node is None:
            continue
        if attempt.task_id == node.task_id or (attempt.task_id in reported and attempt.node_id not in found):
            found[attempt.node_id] = attempt
    return found


async def lock_jobs(
    conn: Connection, job_ids: Iterable[str], task_ids: Iterable[str] = (), scope: Scope = EVERYTHING_DUE
) -> Locked:
    """Lock jobs (never waiting), then read what belongs to them; in pipeline mode one round trip.

    Children that have reported are read meanwhile, before it is known that they are some.

    Others fill the inbox meanwhile. It is read before the attempts, so that each of its results finds its own: one
    without would pass for late, and be set aside. The clock is read with the last statement, after every lock. Jobs
    with fan-outs cost one round trip more.
    """
    wanted, tasks = list(job_ids), list(task_ids)
    jobs = await JobRepository(conn).lock(wanted)
    inbox = await ResultRepository(conn).inbox(wanted, MAX_RESULTS)
    attempts = await AttemptRepository(conn).lock_of_jobs(wanted, tasks, scope.whole, look=scope.look)
    nodes = await NodeRepository(conn).of_jobs(wanted)
    sent = await CommandRepository(conn).moment(wanted)
    reported = await ask_for_children(conn, tasks)
    held = {job.job_id: job for job in await jobs.rows()}
    known, results = await attempts.rows(), await inbox.rows()
    (moment,) = await sent.rows()
    return Locked(
        now=moment.now,
        jobs=held,
        attempts=by_job(known),
        nodes=by_job(await nodes.rows()),
        inbox=by_job(results),
        slots=by_job(moment.slots),
        commands=by_job(moment.commands),
        pauses=moment.pauses,
        fan_outs=await load_fan_outs(conn, held, moment.fan_outs, known, moment.slots, moment.now, scope, reported),
    )


def by_job(rows: Iterable[Row]) -> Mapping[str, Sequence[Row]]:
    """Return rows by the job that they belong to."""
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.job_id].append(row)
    return grouped
