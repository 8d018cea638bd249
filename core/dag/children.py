"""Makes the children of fan-outs and sends them: params are rendered and checked per item, data is never rendered.

What is wrong with one item is that item's final failure and nobody else's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from core.dag import slots
from core.dag.nodes import MOST_SECONDS, Work
from core.dag.rendering import params_problem
from core.dag.run import Run
from core.dag.scope import scope_of
from core.dag.state import Dispatch
from core.dag.tallies import FAILED, child_id, items_of, pending_items
from core.dag.templates import Constant, TemplateFailed, render
from core.dag.values import Ask, asked, exceeds, large_reads, without
from core.errors import ErrorDetail
from core.handlers_catalog import HandlerSpec
from core.ids import canonical_json, digest, task_id
from core.models.engine import NodeState
from core.models.fan_out import FanOut
from core.payloads import PayloadRef
from core.statuses import NodeStatus

Json = dict[str, Any]


class _Input(NamedTuple):
    """What a child is sent: params, or where large ones lie."""

    params: Json
    ref: PayloadRef | None = None
    digest: str | None = None
    text: str | None = None
    """The canonical JSON of small params, when it was made."""

    @property
    def params_digest(self) -> str:
        """The digest of the params, wherever they are."""
        return self.digest or digest(self.params, self.text)


class Nursery:
    """Makes children of one fan-out in one evaluation."""

    def __init__(self, run: Run, node_id: str, work: Work, spec: HandlerSpec) -> None:
        self._run = run
        self._node_id = node_id
        self._work = work
        self._spec = spec
        self._override = run.nodes[node_id].params_override or {}
        self._template, self._program = without(work.params, run.workflow.params_programs[node_id], self._override)
        self._scope = scope_of(run)
        self._large = tuple(large_reads(run, self._program))
        self._sent = NodeState.of_row(
            {
                "job_id": run.job.job_id,
                "node_id": node_id,
                "status": NodeStatus.DISPATCHED,
                "parent_node_id": node_id,
                "first_dispatched_at": run.now,
                "dispatched_at": run.now,
            }
        )
        """What is alike of all children that are sent."""

    def make(self, fan_out: FanOut, number: int, items: Sequence[Any]) -> NodeState:
        """Make one child and send it, or note that all its items failed before they began.

        Raises:
            Needed: a large value has to be read or stored first; nothing was made.
        """
        indexes = items_of(fan_out, number)
        try:
            key = self._slot_key(fan_out, items[0], indexes[0])
        except TemplateFailed as error:
            outcomes = [_failed(index, error.detail) for index in indexes] if fan_out.batch_size > 1 else None
            return self._add_failed(number, error.detail, outcomes)
        if fan_out.batch_size > 1:
            return self._make_batch(fan_out, number, indexes, items, key)
        try:
            made = self._input(items[0], indexes[0])
        except TemplateFailed as error:
            return self._add_failed(number, error.detail)
        return self._add(fan_out, number, made, key)

    def _slot_key(self, fan_out: FanOut, item: Any, index: int) -> str | None:
        """Return the key under which the child asks for slots; a batch has no single item to take it from."""
        if self._work.concurrency is None:
            return None
        extra = {"item": item, "index": index} if fan_out.batch_size == 1 else {}
        return slots.key_of(self._run, self._work.concurrency, f"nodes.{self._node_id}.task.concurrency", extra)

    def _make_batch(
        self, fan_out: FanOut, number: int, indexes: range, items: Sequence[Any], key: str | None
    ) -> NodeState:
        good: list[Json] = []
        outcomes: list[Json] = []
        for index, item in zip(indexes, items, strict=True):
            try:
                good.append({"index": index, "params": self._checked(item, index)})
            except TemplateFailed as error:
                outcomes.append(_failed(index, error.detail))
        if not good:
            return self._add_failed(number, ErrorDetail.model_validate(outcomes[0]["error"]), outcomes)
        params = {"items": good}
        made = _Input(params)
        if exceeds(canonical_json(params)):
            answer = asked(self._run, Ask(self._path(indexes[0]), {}, Constant({}), override=params))
            made = _Input({}, answer.ref, answer.digest)
        return self._add(fan_out, number, made, key, outcomes)

    def _input(self, item: Any, index: int) -> _Input:
        if not self._large:
            value, text = self._rendered(item, index)
            if not exceeds(text):
                self._check(text)
                return _Input(value, text=text)
        answer = asked(self._run, self._ask(item, index), self._large)
        if answer.ref is None:
            return _Input(answer.value)
        return _Input({}, answer.ref, answer.digest)

    def _checked(self, item: Any, index: int) -> Json:
        """Return the params of one item of a batch."""
        if self._large:
            answer = asked(self._run, self._ask(item, index), self._large)
            if answer.ref is not None:
                message = f"{self._path(index)} is too large for an item of a batch; use batch_size: 1"
                raise TemplateFailed(message, code="VALUE_TOO_LARGE", field=self._path(index))
            params: Json = answer.value
            return params
        value, text = self._rendered(item, index)
        self._check(text)
        return value

    def _rendered(self, item: Any, index: int) -> tuple[Json, str]:
        value = render(self._program, {**self._scope, "item": item, "index": index}, self._path(index))
        if self._override:
            value = {**value, **self._override}
        return value, canonical_json(value)

    def _check(self, text: str) -> None:
        if problem := params_problem(self._spec, text.encode()):
            raise TemplateFailed.of(problem)

    def _ask(self, item: Any, index: int) -> Ask:
        return Ask(
            path=self._path(index),
            template=self._template,
            program=self._program,
            extra={"item": item, "index": index},
            override=self._override,
            handler=self._spec.name,
        )

    def _path(self, index: int) -> str:
        return f"nodes.{self._node_id}.task.params of item {index}"

    def _add(
        self, fan_out: FanOut, number: int, made: _Input, key: str | None, outcomes: list[Json] | None = None
    ) -> NodeState:
        """Send a new child, or let it wait for its slot."""
        run, node_id, attempt = self._run, child_id(self._node_id, number), fan_out.first_attempt
        fields: Json = {"node_id": node_id, "fan_out_index": number}
        if made.ref is None:
            fields["input_params"] = made.params
        else:
            fields["input_ref"] = made.ref.model_dump()
        if key is None:
            fields |= {"task_id": task_id(run.job.job_id, node_id, attempt), "attempt": attempt + 1}
        else:
            waiting = {"status": NodeStatus.WAITING, "first_dispatched_at": None, "dispatched_at": None}
            reason = {"slot_key": key, "waiting_for": slots.waiting(key, made.digest)}
            fields |= {"attempt": attempt, **waiting, **reason}
        if fan_out.batch_size > 1:
            fields["outcomes"] = outcomes or []
        child = self._sent.model_copy(update=fields)
        run.family.put(child)
        if key is None:
            run.log.add_child("children_dispatched", child.status.value, self._node_id, number)
            _dispatch(run, child, attempt, made)
        else:
            run.log.add_child("children_waiting", child.status.value, self._node_id, number)
            slots.request(run, child, key)
        return child

    def _add_failed(self, number: int, error: ErrorDetail, outcomes: list[Json] | None = None) -> NodeState:
        run, node_id = self._run, child_id(self._node_id, number)
        child = NodeState(
            job_id=run.job.job_id,
            node_id=node_id,
            status=NodeStatus.READY,
            parent_node_id=self._node_id,
            fan_out_index=number,
            outcomes=outcomes,
        )
        run.family.put(child)
        run.fail_node(node_id, error.model_copy(update={"node_id": node_id}))
        return run.children[node_id]


def _failed(index: int, error: ErrorDetail) -> Json:
    return {"index": index, "status": FAILED, "error": error.model_dump(mode="json", exclude_none=True)}


def wake(run: Run, node_id: str) -> None:
    """Let a WAITING child go on, when what it waits for is there: its time, or its slot."""
    child = run.children[node_id]
    if child.not_before is not None and child.not_before > run.now:
        return
    last = run.attempt_of(node_id)
    params_digest = slots.kept_digest(child) if last is None else last.params_digest
    if child.slot_key is None or slots.has_slot(run, child):
        _send_again(run, child, params_digest)
    elif problem := slots.in_vain(run, child):
        run.fail_node(node_id, problem)
    elif not slots.waits_for_slot(child):
        slots.line_up(run, node_id, child.slot_key, params_digest if child.input_ref else None)


def hold(run: Run, node_id: str, switch: str) -> None:
    """Let a child whose slot comes during a pause give it back; it lines up again afterwards."""
    child = run.children[node_id]
    if slots.waits_for_slot(child) and slots.has_slot(run, child):
        run.wait_for(node_id, "paused", {"switch": switch, "params_digest": slots.kept_digest(child)})


def _send_again(run: Run, child: NodeState, params_digest: str | None) -> None:
    """Dispatch the next attempt of a child that waited, with the input that it has."""
    node_id = child.node_id
    ref = None if child.input_ref is None else PayloadRef.model_validate(child.input_ref)
    made = _Input(child.input_params or {}, ref, params_digest)
    run.move(node_id, NodeStatus.READY, ready_at=run.now, not_before=None)
    attempt = run.children[node_id].attempt
    run.move(
        node_id,
        NodeStatus.DISPATCHED,
        data={"attempt": attempt},
        task_id=task_id(run.job.job_id, node_id, attempt),
        attempt=attempt + 1,
        first_dispatched_at=child.first_dispatched_at or run.now,
        dispatched_at=run.now,
        started_at=None,
    )
    _dispatch(run, run.children[node_id], attempt, made)


def _dispatch(run: Run, child: NodeState, attempt: int, made: _Input) -> None:
    parent = child.parent_node_id or ""
    work, defaults = run.workflow.works[parent], run.workflow.defaults
    spec = run.catalog[work.handler]
    items = None if child.outcomes is None else pending_items(run.fan_outs[parent], child)
    each = work.timeout_seconds or defaults.timeout_seconds or spec.timeout_seconds
    run.dispatches[child.node_id] = Dispatch(
        node_id=child.node_id,
        attempt=attempt,
        queue=work.queue or spec.queue,
        handler=spec.name,
        params=made.params,
        params_ref=made.ref,
        params_digest=made.params_digest,
        timeout_seconds=each if items is None else min(each * len(items), MOST_SECONDS),
        priority=run.job.priority,
        heartbeat_timeout_seconds=work.heartbeat_timeout_seconds or defaults.heartbeat_timeout_seconds,
        queue_timeout_seconds=work.queue_timeout_seconds or defaults.queue_timeout_seconds,
        child=True,
        items=items,
    )
