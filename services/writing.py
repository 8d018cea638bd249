"""Writes the decisions of many jobs, one statement per table, in the transaction that holds their locks."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from core.dag.apply import new_attempt
from core.dag.retry import redispatch_after_seconds
from core.dag.state import Dispatch, Event
from core.errors import GeodagError
from core.models.engine import Attempt, Job, NodeState
from core.ports import TaskQueue
from core.statuses import AttemptState
from core.wire import TaskMessage
from repositories.attempts import AttemptRepository
from repositories.events import EventRepository, NewEvent
from repositories.jobs import JobRepository
from repositories.nodes import NodeRepository
from repositories.notifications import ENDED_CHANNEL, notify
from repositories.results import ResultRepository
from services.evaluation import Step
from services.stored_numbers import as_stored
from services.work import Connection

OnJobEnded = Callable[[Connection, Job], Awaitable[None]]
"""Runs in the transaction that ends a job, after the engine's own writes."""


class StaleWrite(GeodagError):
    """A row was not in the state that the decision had started from; the transaction rolls back."""

    code = "STALE_WRITE"


def new_token() -> str:
    """Return the hex text of a random 128-bit token."""
    return secrets.token_hex(16)


def token_hash(token: str) -> str:
    """Return what is stored of a token; `fence.hold` computes the same in SQL."""
    return sha256(token.encode()).hexdigest()


class DecisionWriter:
    """Turns decisions into rows, messages and wake-ups."""

    def __init__(self, queue: TaskQueue, on_job_ended: OnJobEnded) -> None:
        self._queue = queue
        self._on_job_ended = on_job_ended

    async def create(self, conn: Connection, step: Step, now: datetime) -> None:
        """Store a job that was evaluated before it had rows."""
        job = step.job or step.state.job
        changed = {node.node_id: node for node in step.decision.nodes}
        await JobRepository(conn).insert([job])
        await NodeRepository(conn).insert([changed.get(key, node) for key, node in step.state.nodes.items()])
        await self._write_tasks(conn, [step], now)
        await self._finish(conn, [step], now)

    async def update(
        self, conn: Connection, steps: Sequence[Step], now: datetime, settled: Collection[str] = ()
    ) -> None:
        """Write decisions about locked jobs; the results of the tasks in `settled` carry their disposition already.

        Raises:
            StaleWrite: A job or node was not as it had been read.
        """
        jobs = [step.job for step in steps if step.job is not None]
        if not jobs:
            return
        nodes = [(node, step.state.nodes[node.node_id].status) for step in steps for node in step.decision.nodes]
        open_results = [d for step in steps for d in step.decision.dispositions if d.task_id not in settled]
        await self._write_tasks(conn, steps, now)
        if open_results:
            await ResultRepository(conn).settle(open_results)
        await self._finish(conn, steps, now)
        written_jobs = await JobRepository(conn).update(jobs)
        if nodes:
            written_nodes = await NodeRepository(conn).update([node for node, _ in nodes], [old for _, old in nodes])
            _expect(await written_nodes.rows(), len(nodes), "nodes")
        _expect(await written_jobs.rows(), len(jobs), "jobs")

    async def _write_tasks(self, conn: Connection, steps: Sequence[Step], now: datetime) -> None:
        """End, create and repeat attempts, with their messages."""
        attempts, ends = AttemptRepository(conn), [end for step in steps for end in step.decision.attempts_ended]
        if ends:
            await attempts.end(ends)
        created = [_dispatched(step.state.job, one, now) for step in steps for one in step.decision.dispatches]
        if created:
            await attempts.insert([attempt for attempt, _ in created])
        repeated = [again for step in steps for again in _redispatched(step, now)]
        if repeated:
            await attempts.redispatch([attempt for attempt, _ in repeated])
        dropped = [end.task_id for end in ends] + [attempt.task_id for attempt, _ in repeated]
        if dropped:
            await self._queue.discard(conn, dropped)
        if messages := [message for _, message in (*created, *repeated)]:
            await self._queue.enqueue(conn, messages)

    async def _finish(self, conn: Connection, steps: Sequence[Step], now: datetime) -> None:
        """Write events, run the hook of ended jobs and wake those who wait for an end."""
        if events := [_new_event(step.state.job, event, now) for step in steps for event in step.decision.events]:
            await EventRepository(conn).append(events)
        ended = [step.job for step in steps if step.job is not None and step.ended]
        for job in ended:
            await self._on_job_ended(conn, job)
        if ended:
            await notify(conn, [ENDED_CHANNEL])


def _expect(written: Sequence[str], wanted: int, what: str) -> None:
    if len(written) != wanted:
        raise StaleWrite(f"{len(written)} of {wanted} {what} were still as they had been read")


def _dispatched(job: Job, dispatch: Dispatch, now: datetime) -> tuple[Attempt, TaskMessage]:
    params, token = as_stored(dispatch.params), new_token()
    attempt = new_attempt(job.job_id, replace(dispatch, params=params), now, token_hash(token))
    return attempt, _message(attempt, params, token)


def _redispatched(step: Step, now: datetime) -> list[tuple[Attempt, TaskMessage]]:
    by_task = {attempt.task_id: attempt for attempt in step.state.attempts.values()}
    nodes: Mapping[str, NodeState] = step.state.nodes
    return [_again(by_task[one], nodes[by_task[one].node_id], now) for one in step.decision.redispatches]


def _again(attempt: Attempt, node: NodeState, now: datetime) -> tuple[Attempt, TaskMessage]:
    """Return the next dispatch of the same attempt: the token before it is worth nothing any more."""
    token, number = new_token(), attempt.dispatch_no + 1
    update = {
        "state": AttemptState.QUEUED,
        "dispatch_no": number,
        "token_hash": token_hash(token),
        "redispatch_at": now + timedelta(seconds=redispatch_after_seconds(number)),
    }
    again = attempt.model_copy(update=update)
    return again, _message(again, node.input_params or {}, token)


def _message(attempt: Attempt, params: dict[str, Any], token: str) -> TaskMessage:
    return TaskMessage(
        task_id=attempt.task_id,
        job_id=attempt.job_id,
        node_id=attempt.node_id,
        attempt=attempt.attempt,
        dispatch_no=attempt.dispatch_no,
        handler=attempt.handler,
        queue=attempt.queue,
        priority=attempt.priority,
        params=params,
        timeout_seconds=attempt.timeout_seconds,
        token=token,
    )


def _new_event(job: Job, event: Event, now: datetime) -> NewEvent:
    return NewEvent(
        job_id=job.job_id,
        node_id=event.node_id,
        task_id=event.task_id,
        event_type=event.event_type,
        event_status=event.event_status,
        event_data=dict(event.data),
        created_at=now,
    )
