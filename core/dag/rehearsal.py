"""Runs a workflow through the real evaluator in supposed time, with supposed tasks. Pure: the same in, the same out.

Nothing is left to chance: workers take tasks by priority and age, and everything due at one moment happens in the
order in which it was caused.
"""

import heapq
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from core.dag.aggregate import aggregated
from core.dag.apply import apply
from core.dag.child_jobs import CHILD_QUEUE
from core.dag.chores import Chore, Gathering
from core.dag.commands import direct_command
from core.dag.definition import Workflow
from core.dag.evaluator import advance, initial_nodes
from core.dag.inputs import resolve_inputs, resolve_priority
from core.dag.rendering import Rendered, Rendering, perform
from core.dag.scenario import GatePlay, Order, Scenario
from core.dag.scenario_checks import check_scenario
from core.dag.scenario_hints import check_items, unsupposed
from core.dag.state import Dispatch, Event, JobState
from core.dag.supposing import Performance, suppose
from core.dag.tallies import items_of, outputs_of
from core.dag.why import Reason, Surroundings, waiting_for
from core.errors import WorkflowError
from core.handlers_catalog import CATALOG, HandlerSpec
from core.ids import task_id
from core.models.engine import Attempt, Job, NodeState
from core.payloads import PayloadRef, ref_to, value_prefix
from core.statuses import ATTEMPT_FINAL, JOB_FINAL, AttemptState, JobStatus, NodeStatus

START = datetime(2000, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 20.0
MAX_EVALUATIONS = 200_000


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened, so many seconds after the start."""

    seconds: float
    event: str
    node_id: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """How it went."""

    job: Job
    nodes: Mapping[str, NodeState]
    timeline: tuple[Moment, ...]
    seconds: float
    waiting: Mapping[str, Reason | None]
    """What each node waits for, as `core.dag.why` tells it."""
    hints: tuple[str, ...]
    """What the scenario may have left out."""

    @property
    def ended(self) -> bool:
        """False when nothing more would happen, or not in time."""
        return self.job.status in JOB_FINAL


def rehearse(
    workflow: Workflow,
    scenario: Scenario,
    *,
    workflows: Mapping[str, Workflow] | None = None,
    catalog: Mapping[str, HandlerSpec] = CATALOG,
) -> Rehearsed:
    """Run one job; `workflows` are by hash what its nodes of type workflow run, which are supposed like tasks.

    Raises:
        CallerError: the inputs or the priority do not fit.
        WorkflowError: the scenario names what the workflow does not have; the job goes on and on, or needs more than
            a rehearsal can do.
    """
    check_scenario(scenario, workflow)
    return _Rehearsal(workflow, scenario, workflows or {}, catalog).run()


class _Rehearsal:
    """The state of one job, and what is going to happen to it."""

    def __init__(
        self,
        workflow: Workflow,
        scenario: Scenario,
        workflows: Mapping[str, Workflow],
        catalog: Mapping[str, HandlerSpec],
    ) -> None:
        job = _job(workflow, scenario)
        nodes = {node.node_id: node for node in initial_nodes(workflow, job)}
        self.workflow = workflow
        self.scenario = scenario
        self.catalog = catalog
        self.now = START
        self.state = JobState(job=job, nodes=nodes, workflows=workflows)
        self.timeline: list[Moment] = []
        self.due: list[tuple[datetime, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.blobs: dict[str, bytes] = {}
        self.limits: dict[str, int] = {}
        """Of slots, by key."""
        self.counts: dict[str, int] = {}
        """The most items that each fan-out had."""
        self.inputs: dict[str, Mapping[str, Any]] = {}
        """Params by task id, of attempts that no worker has taken."""
        self.orders = len(scenario.commands)
        """Those of the scenario that are still to be given: a job that has ended may be started anew."""
        self.openings: Counter[str] = Counter()
        """How often each gate has started anew."""
        for order in scenario.commands:
            self._later(order.after_seconds, partial(self._obey, order))

    def run(self) -> Rehearsed:
        evaluations = itertools.count()
        while next(evaluations) < MAX_EVALUATIONS:
            self._evaluate()
            moment = self._next()
            over = self.state.job.status in JOB_FINAL and not self.orders
            if over or moment is None or moment > self._limit():
                return self._result()
            self.now = max(self.now, moment)
            while self.due and self.due[0][0] <= self.now:
                heapq.heappop(self.due)[2]()
        raise WorkflowError(f"the rehearsal did not end within {MAX_EVALUATIONS} evaluations")

    def _limit(self) -> datetime:
        return START + timedelta(seconds=self.scenario.give_up_after_seconds)

    def _next(self) -> datetime | None:
        wake_at = self.state.job.wake_at
        return min([*(one[0] for one in self.due[:1]), *([wake_at] if wake_at else [])], default=None)

    def _result(self) -> Rehearsed:
        job = self.state.job
        ended = job.completed_at if job.status in JOB_FINAL else None
        seconds = ((ended or self.now) - START).total_seconds()
        check_items(self.scenario, self.counts)
        hints = unsupposed(self.workflow, self.scenario, job, self.state.nodes)
        return Rehearsed(job, self.state.nodes, tuple(self.timeline), seconds, self._waiting(), hints)

    def _waiting(self) -> Mapping[str, Reason | None]:
        """Return what each node waits for; of workers without a number there is always one."""
        attempts = self.state.attempts
        workers = {one.queue: self.scenario.workers.get(one.queue, 1) for one in attempts.values()}
        around = Surroundings(frozenset(), workers)
        return waiting_for(self.workflow, self.state.job, self.state.nodes, attempts, around)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.due, (self.now + timedelta(seconds=seconds), next(self.order), do))

    def _note(self, event: str, node_id: str | None, data: Mapping[str, Any]) -> None:
        self.timeline.append(Moment((self.now - START).total_seconds(), event, node_id, data))

    def _evaluate(self) -> None:
        """Evaluate, write the decision, and let follow what it causes outside the evaluator."""
        decision = advance(self.workflow, self.state, self.now, catalog=self.catalog)
        before, self.state = self.state, apply(self.state, decision, self.now)
        for event in decision.events:
            self._note(event.event_type, event.node_id, event.data)
            self._follow_gate(event)
        for dispatch in decision.dispatches:
            self.inputs[task_id(before.job.job_id, dispatch.node_id, dispatch.attempt)] = self._params(dispatch)
        if decision.dispatches:
            self._later(self.scenario.queue_seconds, self._claim)
        for start in decision.child_jobs:
            self._perform(self.state.attempts[start.node_id], start.inputs)
        for row in decision.fan_outs:
            self.counts[row.node_id] = max(row.item_count, self.counts.get(row.node_id, 0))
        if decision.attempts_ended:
            self._later(0, self._claim)
        self.limits.update({one.key: one.limit for one in decision.slots.requests})
        self._grant()
        answers = {**{one.key: self._rendered(one) for one in decision.needs}, **dict(map(self._done, decision.chores))}
        if answers:
            self.state = replace(self.state, rendered=answers)
            self._later(0, lambda: None)

    def _grant(self) -> None:
        """Give free slots to who waits for them, the most urgent and then the oldest first; nobody else has any."""
        slots = self.state.slots
        held = Counter(slot.slot_key for slot in slots.values() if slot.granted_at is not None)
        waiting = [slot for slot in slots.values() if slot.granted_at is None]
        for slot in sorted(waiting, key=lambda one: (-one.priority, one.requested_at)):
            if held[slot.slot_key] < self.limits[slot.slot_key]:
                held[slot.slot_key] += 1
                slots = {**slots, slot.holder: slot.model_copy(update={"granted_at": self.now})}
        if slots is not self.state.slots:
            self.state = replace(self.state, slots=slots)
            self._later(0, lambda: None)

    def _params(self, dispatch: Dispatch) -> Mapping[str, Any]:
        ref = dispatch.params_ref
        params: Mapping[str, Any] = dispatch.params if ref is None else json.loads(self.blobs[ref.blob])
        if dispatch.items is None:
            return params
        return {"items": [item for item in params["items"] if item["index"] in dispatch.items]}

    def _rendered(self, wanted: Rendering) -> Rendered:
        def keep(data: bytes) -> PayloadRef:
            ref = ref_to(value_prefix(wanted.job_id), data)
            self.blobs[ref.blob] = data
            return ref

        return perform(wanted, lambda ref: json.loads(self.blobs[ref.blob]), keep, self.catalog)

    def _done(self, chore: Chore) -> tuple[str, Rendered]:
        if not isinstance(chore, Gathering):
            raise WorkflowError(f"the source of {chore.node_id} is larger than a rehearsal takes; suppose fewer items")
        children = [child for child in self.state.children.values() if child.parent_node_id == chore.fan_out.node_id]
        children.sort(key=lambda child: child.fan_out_index or 0)
        outputs = [output or {} for child in children for output, _ in outputs_of(child)]
        return chore.key, Rendered(value=json.loads(aggregated(chore.aggregation, chore.fan_out, outputs)))

    def _claim(self) -> None:
        """Let workers take what waits, the most urgent and then the oldest first."""
        attempts = {attempt.task_id: attempt for attempt in self.state.attempts.values()}
        self.inputs = {
            key: params
            for key, params in self.inputs.items()
            if key in attempts and attempts[key].state is AttemptState.QUEUED
        }
        busy = Counter(one.queue for one in attempts.values() if one.state is AttemptState.LEASED)
        for attempt in sorted((attempts[key] for key in self.inputs), key=lambda one: (-one.priority, one.queued_at)):
            waited = (self.now - attempt.queued_at).total_seconds()
            if waited >= self.scenario.queue_seconds and busy[attempt.queue] < self._workers(attempt.queue):
                busy[attempt.queue] += 1
                self._start(attempt)

    def _workers(self, queue: str) -> float:
        return self.scenario.workers.get(queue, math.inf)

    def _start(self, attempt: Attempt) -> None:
        self._set(attempt, state=AttemptState.LEASED, worker_id="supposed", leased_at=self.now)
        node = self.state.nodes.get(attempt.node_id)
        if node is not None:
            started = node.model_copy(update={"status": NodeStatus.RUNNING, "started_at": self.now})
            self.state = replace(self.state, nodes={**self.state.nodes, node.node_id: started})
        self._note("node_started", attempt.node_id, {"attempt": attempt.attempt})
        self._perform(self.state.attempts[attempt.node_id], self.inputs.pop(attempt.task_id))

    def _perform(self, attempt: Attempt, params: Mapping[str, Any]) -> None:
        performance = suppose(self.scenario, attempt, params, self._index(attempt))
        if performance.report is not None:
            self._later(performance.seconds, lambda: self._report(attempt, performance))
        elif attempt.queue == CHILD_QUEUE:
            raise WorkflowError(f"the child job of {attempt.node_id} cannot be lost; suppose an error")
        else:
            lease = performance.seconds + (attempt.heartbeat_timeout_seconds or LEASE_SECONDS)
            self._set(attempt, lease_expires_at=self.now + timedelta(seconds=lease))

    def _index(self, attempt: Attempt) -> int | None:
        """Return the index of the one item that a child is; None for batches and for what is no child."""
        child = self.state.children.get(attempt.node_id)
        if child is None or child.parent_node_id is None or child.outcomes is not None:
            return None
        return items_of(self.state.fan_outs[child.parent_node_id], child.fan_out_index or 0).start

    def _report(self, attempt: Attempt, performance: Performance) -> None:
        """Put the result into the inbox, unless the attempt was ended meanwhile."""
        current = self.state.attempts.get(attempt.node_id)
        row = performance.row(attempt, self.now)
        if row is None or current is None or current.task_id != attempt.task_id or current.state in ATTEMPT_FINAL:
            return
        self._set(attempt, state=AttemptState.REPORTED, ended_at=self.now)
        self.state = replace(self.state, results=(*self.state.results, row))
        self._later(0, self._claim)

    def _set(self, attempt: Attempt, **fields: Any) -> None:
        changed = self.state.attempts[attempt.node_id].model_copy(update=fields)
        self.state = replace(self.state, attempts={**self.state.attempts, attempt.node_id: changed})

    def _follow_gate(self, event: Event) -> None:
        """Let somebody decide a gate each time it opens; whoever looks at one that starts anew decides the new one."""
        node_id = event.node_id or ""
        if (play := self.scenario.gates.get(node_id)) is None:
            return
        if event.event_type == "node_reset":
            self.openings[node_id] += 1
        elif event.event_type == "gate_opened":
            self._later(play.after_seconds, partial(self._decide, node_id, play, self.openings[node_id]))

    def _decide(self, node_id: str, play: GatePlay, opening: int) -> None:
        if self.openings[node_id] == opening:
            args = {"node_id": node_id, "decision": play.decision, "data": play.data}
            self._give(Order(kind="gate", args=args, actor=play.actor, reason=play.reason))

    def _obey(self, order: Order) -> None:
        self.orders -= 1
        self._give(order)

    def _give(self, order: Order) -> None:
        command = direct_command(
            self.state.job.job_id, self.now, order.kind, order.args, actor=order.actor, reason=order.reason
        ).model_copy(update={"command_id": next(self.order)})
        self.state = replace(self.state, commands=(*self.state.commands, command))


def _job(workflow: Workflow, scenario: Scenario) -> Job:
    return Job(
        job_id="rehearsal",
        workflow_id=workflow.workflow_id,
        workflow_version=workflow.version,
        definition_hash=workflow.definition_hash,
        status=JobStatus.PENDING,
        input_params=resolve_inputs(workflow, scenario.inputs),
        run_no=1,
        version=0,
        priority=resolve_priority(scenario.priority, workflow.priority),
        deadline_at=workflow.deadline_at(START),
        created_at=START,
        updated_at=START,
    )
