"""Writes the decisions of many jobs, one statement per table, in the transaction that holds their locks."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from core.dag import child_jobs
from core.dag.apply import new_attempt
from core.dag.orders import DIRECT
from core.dag.retry import redispatch_after_seconds
from core.dag.state import AttemptEnd, ChildOrder, Dispatch, Event
from core.dag.tallies import pending_items
from core.ids import token_hash
from core.models.engine import Attempt, Job, NodeState, TaskResultRow
from core.payloads import PayloadRef
from core.ports import TaskQueue
from core.statuses import AttemptState, NodeStatus
from core.wire import TaskMessage
from repositories.commands import CommandRepository
from repositories.decisions import DecisionRepository
from repositories.events import NewEvent
from repositories.jobs import JobRepository
from repositories.notifications import ENDED_CHANNEL, UNOWNED_CHANNEL, notify, owner_channels
from repositories.resets import ResetRepository
from services.claims import started
from services.evaluation import Step
from services.reopening import NOBODYS, Reopening
from services.rooms import Placed, Room, Task, place
from services.slots import move_slots
from services.starting import all_born
from services.work import Connection, begin_meanwhile
from services.writing_fan_outs import concern_fan_outs, write_fan_outs

_TOKEN_BYTES = 16
STORED_TOGETHER = 32
"""New jobs that one statement stores: the server is busy with these while the next are evaluated."""
OnJobEnded = Callable[[Connection, Job], Awaitable[None]]
"""Runs in the transaction that ends a job, after the engine's own writes."""


def new_token() -> str:
    """Return the hex text of a random 128-bit token."""
    return secrets.token_hex(_TOKEN_BYTES)


def _new_tokens(count: int) -> Iterator[str]:
    """Yield as many tokens, of one reading of the system's randomness: it costs as much as one of 16 bytes."""
    text, size = secrets.token_hex(_TOKEN_BYTES * count), 2 * _TOKEN_BYTES
    return (text[start : start + size] for start in range(0, len(text), size))


@dataclass(frozen=True, slots=True)
class Reported:
    """What a callback adds to the decisions that follow from it."""

    results: Sequence[TaskResultRow] = ()
    """Inbox rows to insert, with their disposition when they were evaluated."""
    written: Collection[str] = ()
    """Tasks whose inbox rows were inserted before the evaluation, as if it had applied them."""
    corrected: Sequence[TaskResultRow] = ()
    """Those of them that it did not apply, as they are."""
    attempts: Sequence[Mapping[str, Any]] = ()
    """Leased attempts that end: {task_id, state, ended_at, peak_rss_bytes}."""
    events: Sequence[NewEvent] = ()
    channels: Sequence[str] = ()
    """Whom to wake about rows that nobody evaluated."""
    slots_left: Sequence[str] = ()
    """Tasks whose workers have stopped that were told to, or too late: nothing of them holds a slot any more."""


NOTHING_REPORTED = Reported()


class DecisionWriter:
    """Turns decisions into rows, messages and wake-ups."""

    def __init__(self, queue: TaskQueue, on_job_ended: OnJobEnded, reopening: Reopening = NOBODYS) -> None:
        self._queue = queue
        self._on_job_ended = on_job_ended
        self._reopening = reopening

    async def create(
        self, conn: Connection, steps: Iterable[Step], now: datetime, rooms: Sequence[Room] = ()
    ) -> list[Step]:
        """Store jobs that were evaluated before they had rows, with their child jobs; none has ended yet.

        Steps may be made one by one: the server stores some while the next are evaluated. Returns them as a list.
        """
        begun: list[Step] = []
        queued: list[TaskMessage] = []
        coming = iter(steps)
        while some := list(islice(coming, STORED_TOGETHER)):
            queued += await self._create(conn, [*some, *all_born(some)], now, rooms)
            begun += some
            if len(some) == STORED_TOGETHER:
                begin_meanwhile(conn)
                await asyncio.sleep(0)  # others have their turn
        await self._enqueue(conn, queued)
        await move_slots(conn, [*begun, *all_born(begun)])
        return begun

    async def _create(
        self, conn: Connection, steps: Sequence[Step], now: datetime, rooms: Sequence[Room]
    ) -> Sequence[TaskMessage]:
        """Store jobs; return the messages of their tasks for which there was no room."""
        placed = place(_new_tasks(steps, now, children=False), rooms, now)
        events = [
            _new_event(one.state.job, event, now) for one in steps for event in (_created(one), *one.decision.events)
        ]
        await DecisionRepository(conn).create(
            jobs=[step.job or step.state.job for step in steps],
            nodes=[_begun(node, placed, now) for step in steps for node in _nodes_of(step)],
            attempts=[*placed.attempts, *_parent_attempts(steps, now)],
            events=[*events, *_starts(placed, now)],
        )
        if concern_fan_outs(steps):
            await write_fan_outs(conn, steps)
            tasks = place(_new_tasks(steps, now, children=True), rooms, now)
            await DecisionRepository(conn).update(new_attempts=tasks.attempts, events=_starts(tasks, now))
            placed.queued += tasks.queued
        if owners := {one.state.job.owner_id for one in steps if one.job is None and one.state.job.parent_task_id}:
            await notify(conn, owner_channels(owners))
        return placed.queued

    async def _enqueue(self, conn: Connection, messages: Sequence[TaskMessage]) -> None:
        if messages:
            await self._queue.enqueue(conn, messages)

    async def update(
        self,
        conn: Connection,
        steps: Sequence[Step],
        now: datetime,
        reported: Reported = NOTHING_REPORTED,
        rooms: Sequence[Room] = (),
    ) -> None:
        """Write decisions about locked jobs, and what was reported; run the hooks of jobs that ended or began anew.

        The end of a child job is a result in the inbox of its parent: nothing of the parent is locked.
        New tasks go to rooms as far as there are any, and to the queue.

        When a job, a node or a child of a fan-out was not as it had been read, the transaction fails: `StaleWrite`.
        """
        steps = [step for step in steps if step.job is not None]
        if not steps and reported == NOTHING_REPORTED:
            return
        await self._start_anew(conn, steps)
        ended = _ended_rows(steps, now, reported)
        if concern_fan_outs(steps):
            await DecisionRepository(conn).update(**ended)
            await write_fan_outs(conn, steps)
            ended = {}
        placed = place(_new_tasks(steps, now), rooms, now)
        repeated = [again for step in steps for again in _redispatched(step, now)]
        await self._write(conn, steps, now, placed, repeated, reported, ended)
        await self._answer_commands(conn, steps, now)
        await self._send(conn, steps, placed.queued, repeated)
        if born := list(all_born(steps)):
            await self._enqueue(conn, await self._create(conn, born, now, rooms))
        for step in steps:
            if step.reopened and step.job is not None:
                await self._reopening.reopened(conn, step.job)
            if step.ended and step.job is not None:
                await self._on_job_ended(conn, _with_outputs(step.job, step.decision.outputs))
        await move_slots(conn, [*steps, *born], reported.slots_left)

    async def _start_anew(self, conn: Connection, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.decision.reset:
                revoked = await ResetRepository(conn).start_anew(step.state.job.job_id, step.decision.reset)
                if revoked:
                    await self._queue.discard(conn, revoked)

    async def _answer_commands(self, conn: Connection, steps: Sequence[Step], now: datetime) -> None:
        """Record what became of stored commands, and store those that go down to child jobs."""
        done = [one for step in steps for one in step.decision.commands_done if one.command_id != DIRECT]
        if done:
            outcomes = [{"command_id": one.command_id, "outcome": one.outcome} for one in done]
            await CommandRepository(conn).settle(outcomes, now)
        if orders := [_handed_down(one) for step in steps for one in step.decision.child_orders]:
            await CommandRepository(conn).hand_down(orders)

    async def _write(
        self,
        conn: Connection,
        steps: Sequence[Step],
        now: datetime,
        placed: Placed,
        repeated: Sequence[Task],
        reported: Reported,
        ended: Mapping[str, Sequence[Any]],
    ) -> None:
        children = [row for step in steps if (row := _end_of_child(step, now)) is not None]
        parents = await owner_channels_of(conn, {row.job_id for row in children})
        events = [_new_event(step.state.job, event, now) for step in steps for event in step.decision.events]
        channels = [ENDED_CHANNEL] if any(step.ended for step in steps) else []
        channels += [UNOWNED_CHANNEL] if any(step.reopened for step in steps) else []
        await DecisionRepository(conn).update(
            jobs=[step.job for step in steps if step.job is not None],
            nodes=[_changed(step, _begun(node, placed, now)) for step in steps for node in step.decision.nodes],
            new_attempts=[*placed.attempts, *_parent_attempts(steps, now)],
            attempts=[*ended.get("attempts", ()), *(_sent_again(task.attempt) for task in repeated)],
            new_results=[*ended.get("new_results", ()), *children],
            results=ended.get("results", ()),
            events=[*reported.events, *events, *_starts(placed, now)],
            channels=[*reported.channels, *channels, *parents],
        )

    async def _send(
        self, conn: Connection, steps: Sequence[Step], created: Sequence[TaskMessage], repeated: Sequence[Task]
    ) -> None:
        """Drop messages of what ended or is sent again, and enqueue the new ones."""
        dropped = [end.task_id for step in steps for end in step.decision.attempts_ended]
        dropped += [task.attempt.task_id for task in repeated]
        if dropped:
            await self._queue.discard(conn, dropped)
        await self._enqueue(conn, [*created, *(task.message() for task in repeated)])


def _with_outputs(job: Job, outputs: Mapping[str, Any] | None) -> Job:
    """Return the job that ended with its outputs, also when its row has only a reference to them."""
    return job if job.outputs_ref is None else job.model_copy(update={"outputs": outputs})


def _end_of_child(step: Step, now: datetime) -> TaskResultRow | None:
    return child_jobs.result_of(step.job, now) if step.ended and step.job is not None else None


def _parent_attempts(steps: Iterable[Step], now: datetime) -> list[Attempt]:
    """Return the attempts that child jobs work for, with tokens that nobody knows."""
    return [
        child_jobs.new_attempt(step.job or step.state.job, start, now, token_hash(new_token()))
        for step in steps
        for start in step.decision.child_jobs
    ]


def _created(step: Step) -> Event:
    job = step.state.job
    return Event("job_created", str(job.status), data={"workflow_id": job.workflow_id, "by": job.submitted_by})


def _nodes_of(step: Step) -> list[NodeState]:
    changed = {node.node_id: node for node in step.decision.nodes}
    return [changed.get(key, node) for key, node in step.state.nodes.items()]


async def owner_channels_of(conn: Connection, job_ids: Collection[str]) -> list[str]:
    """Return whom to tell of rows that somebody else has to act on."""
    return owner_channels(await JobRepository(conn).owners(job_ids)) if job_ids else []


def _changed(step: Step, node: NodeState) -> dict[str, Any]:
    values = {name: value for name, value in node.__dict__.items() if value is not None}
    return {**values, "from_status": step.state.nodes[node.node_id].status}


def _ended_rows(steps: Sequence[Step], now: datetime, reported: Reported) -> dict[str, Sequence[Any]]:
    """Return the rows of attempts that end and of their results, by the words of `DecisionRepository.update`."""
    known = {row.task_id for row in reported.results}.union(reported.written)
    settled = [d for step in steps for d in step.decision.dispositions if d.task_id not in known]
    ends = [_ended(end, now) for step in steps for end in step.decision.attempts_ended]
    return {
        "attempts": [*reported.attempts, *ends],
        "new_results": reported.results,
        "results": [
            *({"task_id": one.task_id, "processed": True, "disposition": one.disposition} for one in settled),
            *(row.model_dump(include={"task_id", "processed", "disposition"}) for row in reported.corrected),
        ],
    }


def _ended(end: AttemptEnd, now: datetime) -> dict[str, Any]:
    return {"task_id": end.task_id, "state": end.state, "reason": end.reason, "ended_at": now}


def _handed_down(order: ChildOrder) -> dict[str, Any]:
    return {
        "job_id": child_jobs.child_job_id(order.task_id),
        "kind": order.kind,
        "args": order.args,
        "actor": order.actor,
        "reason": order.reason,
    }


def _sent_again(attempt: Attempt) -> dict[str, Any]:
    return attempt.model_dump(include={"task_id", "state", "dispatch_no", "token_hash", "redispatch_at", "priority"})


def _new_tasks(steps: Iterable[Step], now: datetime, children: bool | None = None) -> list[Task]:
    new = [
        (step.state.job, one)
        for step in steps
        for one in step.decision.dispatches
        if children is None or one.child is children
    ]
    return [_dispatched(job, one, token, now) for (job, one), token in zip(new, _new_tokens(len(new)), strict=True)]


def _begun(node: NodeState, placed: Placed, now: datetime) -> NodeState:
    """Return a node as running when its new task was leased at once; children's rows do not say that they run."""
    if node.task_id not in placed.leased:
        return node
    return node.model_copy(update={"status": NodeStatus.RUNNING, "started_at": now, "waiting_for": None})


def _starts(placed: Placed, now: datetime) -> list[NewEvent]:
    """Return the events that claims would have written, worker by worker."""
    by_worker: dict[str | None, list[Attempt]] = {}
    for attempt in placed.leased.values():
        by_worker.setdefault(attempt.worker_id, []).append(attempt)
    return [event for worker, attempts in by_worker.items() for event in started(attempts, worker, now)]


def _dispatched(job: Job, dispatch: Dispatch, token: str, now: datetime) -> Task:
    attempt = new_attempt(job.job_id, dispatch, now, token_hash(token))
    return Task(attempt, dispatch.params, dispatch.params_ref, token, dispatch.items)


def _redispatched(step: Step, now: datetime) -> list[Task]:
    by_task = {attempt.task_id: attempt for attempt in step.state.attempts.values()}
    nodes: Mapping[str, NodeState] = {**step.state.nodes, **step.state.children}
    priority = (step.job or step.state.job).priority
    return [
        _again(by_task[one], node := nodes[by_task[one].node_id], now, priority, _items_left(step, node))
        for one in step.decision.redispatches
    ]


def _items_left(step: Step, node: NodeState) -> tuple[int, ...] | None:
    """Return which items of a batch are to be run; None for what is no batch."""
    return None if node.outcomes is None else pending_items(step.state.fan_outs[node.parent_node_id or ""], node)


def _again(attempt: Attempt, node: NodeState, now: datetime, priority: int, items: tuple[int, ...] | None) -> Task:
    """Return the next dispatch of the same attempt: the token before it is worth nothing any more."""
    token, number = new_token(), attempt.dispatch_no + 1
    update = {
        "state": AttemptState.QUEUED,
        "dispatch_no": number,
        "token_hash": token_hash(token),
        "redispatch_at": now + timedelta(seconds=redispatch_after_seconds(number)),
        "priority": priority,
    }
    again = attempt.model_copy(update=update)
    ref = None if node.input_ref is None else PayloadRef.model_validate(node.input_ref)
    return Task(again, node.input_params or {}, ref, token, items)


def _new_event(job: Job, event: Event, now: datetime) -> NewEvent:
    return NewEvent(
        job_id=job.job_id,
        node_id=event.node_id,
        task_id=event.task_id,
        event_type=event.event_type,
        event_status=event.event_status,
        event_data=event.data,
        created_at=now,
    )
