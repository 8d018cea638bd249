import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.dag.child_jobs import CHILD_QUEUE, child_job_id, new_job, result_of
from core.dag.definition import Workflow
from core.dag.evaluator import advance, initial_nodes
from core.dag.pinning import MAX_DEPTH, pin
from core.dag.state import Decision, StartJob
from core.errors import WorkflowError
from core.models.engine import Job
from core.statuses import AttemptState, JobStatus, NodeStatus
from tests.unit.core.dag.harness import FIXED, START, World, chain, task, workflow_of
from tests.unit.core.dag.test_large_values import BlobWorld

CHILD = workflow_of(
    chain("work"),
    workflow_id="child",
    version=3,
    inputs={"path": {"type": "string"}, "n": {"type": "integer", "default": 7}},
    outputs={"answer": "{{ inputs.n }}"},
    deadline_seconds=60,
)


def pinned(parent: Workflow, child: Workflow = CHILD) -> tuple[Workflow, dict[str, Workflow]]:
    done, troubles = pin({("w", 1): parent, (child.workflow_id, child.version): child})
    assert not troubles
    return done["w", 1], {child.definition_hash: child}


def parent_of(child: Workflow = CHILD, nodes: dict[str, Any] | None = None, **fields: Any) -> tuple[Any, ...]:
    call = {"type": "workflow", "workflow_id": child.workflow_id, "next": ["end"], **fields}
    return pinned(workflow_of({**chain("call"), "call": call, **(nodes or {})}), child)


def world_of(child: Workflow = CHILD, inputs: dict[str, Any] | None = None, **fields: Any) -> World:
    job_fields = {name: fields.pop(name) for name in ("depth", "priority", "deadline_at") if name in fields}
    parent, workflows = parent_of(child, inputs=inputs or {"path": "x"}, **fields)
    return World(parent, workflows=workflows, **job_fields)


def start_of(world: World, number: int = -1) -> StartJob:
    starts = [start for decision in world.decisions for start in decision.child_jobs]
    return starts[number]


def child_of(world: World, status: JobStatus, **fields: Any) -> Job:
    """Return the child job of the newest attempt after it ended."""
    job = new_job(world.job, start_of(world), CHILD, world.now)
    return job.model_copy(update={"status": status, **fields})


def end(world: World, status: JobStatus, **fields: Any) -> Decision:
    """Let the newest child job end."""
    row = result_of(child_of(world, status, **fields), world.now)
    assert row is not None
    world.put(row)
    return world.advance()


def error_of(world: World, node_id: str = "call") -> dict[str, Any]:
    error = world.node(node_id).error
    assert error is not None
    return error


def test_a_node_starts_one_child_job_and_waits_for_it() -> None:
    world = world_of()
    start, node, attempt = start_of(world), world.node("call"), world.attempt("call")
    assert (start.task_id, start.workflow_id, start.definition_hash) == ("job1_call_0", "child", CHILD.definition_hash)
    assert start.inputs == {"path": "x", "n": 7}
    assert (node.status, node.task_id, node.attempt) == (NodeStatus.WAITING, "job1_call_0", 1)
    assert node.waiting_for == {
        "kind": "child",
        "detail": {"job_id": child_job_id("job1_call_0"), "workflow_id": "child", "version": 3},
    }
    assert (attempt.state, attempt.queue) == (AttemptState.LEASED, CHILD_QUEUE)
    assert (attempt.lease_expires_at, attempt.worker_id) == (None, None)
    assert (world.job.status, world.job.wake_at) == (JobStatus.RUNNING, None)
    assert "child_job_started" in world.event_types()
    assert world.tick(10**6).child_jobs == ()


def test_the_child_is_as_urgent_as_its_parent_one_deeper_and_has_its_own_deadline() -> None:
    world = world_of(priority=8, depth=2)
    job = new_job(world.job.model_copy(update={"owner_id": "o", "correlation_id": "c"}), start_of(world), CHILD, START)
    assert (job.priority, job.depth, job.owner_id, job.correlation_id) == (8, 3, "o", "c")
    assert (job.job_id, job.parent_task_id) == (child_job_id("job1_call_0"), "job1_call_0")
    assert job.deadline_at is not None
    assert (job.deadline_at - START).total_seconds() == 60
    assert (job.workflow_id, job.workflow_version) == ("child", 3)


def test_the_declared_outputs_of_the_child_are_the_output_of_the_node() -> None:
    parent, workflows = parent_of(
        inputs={"path": "x"}, next=["after"], nodes={"after": task(params={"got": "{{ nodes.call.output.answer }}"})}
    )
    world = World(parent, workflows=workflows)
    decision = end(world, JobStatus.COMPLETED, outputs={"answer": 42})
    assert world.node("call").output == {"answer": 42}
    assert world.attempt("call").state is AttemptState.REPORTED
    assert [one.disposition for one in decision.dispositions] == ["applied"]
    assert world.node("after").input_params == {"got": 42}


def test_a_child_without_outputs_gives_an_empty_output() -> None:
    world = world_of()
    end(world, JobStatus.COMPLETED, outputs=None)
    assert world.node("call").output == {}
    assert world.job.status is JobStatus.COMPLETED


def test_a_large_output_of_the_child_is_passed_on_as_the_reference_that_it_is() -> None:
    ref = {"blob": "payloads/c/values/x.json", "size_bytes": 70_000, "sha256": "0" * 64}
    world = world_of()
    end(world, JobStatus.COMPLETED, outputs=None, outputs_ref=ref)
    assert (world.node("call").output, world.node("call").output_ref) == (None, ref)


def test_a_failed_child_fails_the_node_and_the_job_with_its_root_cause() -> None:
    world = world_of()
    cause = {"code": "CRS_MISSING", "message": "no CRS", "node_id": "work", "remediation": "add one", "user_fixable": 1}
    end(world, JobStatus.FAILED, error=cause)
    error = error_of(world)
    assert (error["code"], error["message"], error["node_id"]) == ("CRS_MISSING", "child.work: no CRS", "call")
    assert error["remediation"] == "add one"
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert world.job.error["code"] == "CRS_MISSING"


def test_a_cancelled_child_fails_the_node_and_is_not_started_again() -> None:
    world = world_of(retry={**FIXED, "max_retries": 5})
    end(world, JobStatus.CANCELLED)
    error = error_of(world)
    assert error["code"] == "CHILD_CANCELLED"
    assert re.search(r"its child job [0-9a-f]{32} of workflow", error["message"])
    assert world.job.status is JobStatus.FAILED


TRANSIENT = {"code": "T", "message": "later", "classification": "transient"}
LOST = {"code": "WORKER_LOST", "message": "gone", "classification": "transient"}


@pytest.mark.parametrize("error", [TRANSIENT, LOST])
def test_without_a_word_about_retries_a_child_is_started_once(error: dict[str, Any]) -> None:
    world = world_of()
    end(world, JobStatus.FAILED, error=error)
    assert world.node("call").status is NodeStatus.FAILED


def test_a_child_that_ran_out_of_workers_is_started_again_at_once() -> None:
    world = world_of(retry={**FIXED, "max_retries": 1})
    assert len(end(world, JobStatus.FAILED, error=LOST).child_jobs) == 1
    assert start_of(world).task_id == "job1_call_1"


def test_a_retry_starts_a_new_child_job_and_the_end_of_the_old_one_is_superseded() -> None:
    world = world_of(retry={**FIXED, "max_retries": 1})
    old = child_of(world, JobStatus.COMPLETED, outputs={"late": True})
    assert end(world, JobStatus.FAILED, error=TRANSIENT).child_jobs == ()
    waits = world.node("call").waiting_for
    assert waits is not None
    assert waits["kind"] == "backoff"
    world.wake()
    assert start_of(world).task_id == "job1_call_1"
    late = result_of(old, world.now)
    assert late is not None
    world.put(late)
    assert [one.disposition for one in world.advance().dispositions] == ["superseded"]
    assert world.node("call").status is NodeStatus.WAITING
    end(world, JobStatus.COMPLETED, outputs={"answer": 1})
    assert world.node("call").output == {"answer": 1}


def test_a_permanent_failure_of_the_child_is_final_whatever_the_node_says() -> None:
    world = world_of(retry={**FIXED, "max_retries": 3})
    end(world, JobStatus.FAILED, error={"code": "P", "message": "no"})
    assert world.node("call").status is NodeStatus.FAILED


@pytest.mark.parametrize("how", ["cancel", "deadline", "failure"])
def test_whatever_cancels_the_node_revokes_its_attempt(how: str) -> None:
    nodes = {**chain("call"), "bad": {**task("start"), "retry": {"max_retries": 0}}}
    nodes["call"] = {"type": "workflow", "workflow_id": "child", "inputs": {"path": "x"}, "next": ["end"]}
    parent, workflows = pinned(workflow_of(nodes, on_failure="cancel", deadline_seconds=50))
    world = World(parent, workflows=workflows, deadline_at=parent.deadline_at(START))
    if how == "failure":
        world.fail("bad")
    elif how == "deadline":
        world.tick(60)
    else:
        world.cancel()
    assert world.node("call").status is NodeStatus.CANCELLED
    assert world.attempt("call").state is AttemptState.REVOKED
    assert [one.task_id for one in world.decisions[-1].attempts_ended if "call" in one.task_id] == ["job1_call_0"]


def test_the_late_end_of_a_cancelled_child_changes_nothing() -> None:
    world = world_of()
    world.cancel()
    decision = end(world, JobStatus.CANCELLED)
    assert [one.disposition for one in decision.dispositions] == ["superseded"]
    assert world.job.status is JobStatus.CANCELLED


@pytest.mark.parametrize(
    ("inputs", "code", "field"),
    [
        ({"path": "{{ inputs.nope }}"}, "TEMPLATE_ERROR", "inputs.nope"),
        ({"path": "{{ job.priority }}"}, "PARAMETER_INVALID", "inputs.path"),
        ({"path": "x", "n": "{{ 1.5 }}"}, "PARAMETER_INVALID", "inputs.n"),
    ],
)
def test_inputs_that_do_not_fit_the_child_fail_the_node_at_once(inputs: dict[str, Any], code: str, field: str) -> None:
    world = world_of(inputs=inputs)
    error = error_of(world)
    assert (error["code"], error["field"], error["node_id"]) == (code, field, "call")
    assert world.decisions[0].child_jobs == ()


@pytest.mark.parametrize(("depth", "started"), [(MAX_DEPTH - 1, 1), (MAX_DEPTH, 0)])
def test_child_jobs_lie_at_most_eight_deep(depth: int, started: int) -> None:
    world = world_of(depth=depth)
    assert len(world.decisions[0].child_jobs) == started
    if not started:
        assert error_of(world)["code"] == "WORKFLOW_DEPTH"


def test_a_paused_job_starts_no_child_until_it_is_resumed() -> None:
    parent, workflows = parent_of(inputs={"path": "x"})
    world = World(parent, workflows=workflows, paused_at=START)
    assert world.decisions[0].child_jobs == ()
    assert world.node("call").waiting_for == {"kind": "paused", "detail": "job"}
    world.set_job(paused_at=None)
    assert len(world.advance().child_jobs) == 1


def test_a_pause_lets_the_child_that_runs_end_and_be_recorded() -> None:
    world = world_of()
    world.set_job(paused_at=START)
    end(world, JobStatus.COMPLETED, outputs={"a": 1})
    assert world.node("call").output == {"a": 1}


def test_a_definition_that_cannot_be_read_is_the_evaluations_failure_not_the_nodes() -> None:
    world = world_of()
    parent, _ = parent_of(inputs={"path": "x"})
    nodes = {node.node_id: node for node in initial_nodes(parent, world.job)}
    with pytest.raises(WorkflowError, match="cannot be read"):
        advance(parent, replace(world.state, nodes=nodes, workflows={}), START)


def test_an_attempt_that_vanished_fails_the_node() -> None:
    world = world_of()
    world.state = replace(world.state, attempts={})
    world.advance()
    assert error_of(world)["code"] == "CHILD_LOST"


def test_a_job_without_a_parent_reports_to_nobody() -> None:
    assert result_of(world_of().job, START) is None


ROWS = workflow_of(
    chain("work"),
    workflow_id="child",
    inputs={"rows": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer", "default": 7}},
)


@pytest.mark.parametrize(("row", "fits"), [("x" * 1000, True), (["x" * 1000], False)])
def test_large_inputs_go_to_the_child_by_reference_and_are_checked_all_the_same(row: Any, fits: bool) -> None:
    parent, workflows = parent_of(
        ROWS,
        inputs={"rows": "{{ nodes.a.output.rows }}"},
        depends_on={"all_of": ["a"]},
        nodes={"start": {"type": "start", "next": ["a"]}, "a": task()},
    )
    world = BlobWorld(parent, workflows=workflows)
    world.complete_large("a", {"rows": [row] * 100})
    decision = world.answer()
    if not fits:
        assert (error_of(world)["code"], error_of(world)["field"]) == ("PARAMETER_INVALID", "inputs.rows[0]")
        return
    (start,) = decision.child_jobs
    assert (start.inputs, start.input_refs.keys()) == ({"n": 7}, {"rows"})
    assert world.load(start.input_refs["rows"]) == [row] * 100
    job = new_job(world.job, start, ROWS, START)
    assert (job.input_params, job.input_refs) == ({"n": 7}, {"rows": start.input_refs["rows"].model_dump()})


def mixed(on_failure: str, **fields: Any) -> World:
    """Return a world of a child job, a gate and a task side by side, an `all_done` join of them, and what follows."""
    nodes = {
        "start": {"type": "start", "next": ["call", "ask", "bad"]},
        "call": {"type": "workflow", "workflow_id": "child", "inputs": {"path": "x"}},
        "ask": {"type": "gate"},
        "bad": {**task(), "retry": {"max_retries": 0}},
        "tidy": task("call", "ask", "bad", join="all_done"),
        "never": task("call"),
        "end": {"type": "end", "depends_on": {"all_done": ["tidy", "never"]}},
    }
    parent, workflows = pinned(workflow_of(nodes, on_failure=on_failure, **fields))
    return World(parent, workflows=workflows, deadline_at=parent.deadline_at(START))


def test_on_failure_cancel_takes_children_and_gates_back_but_not_an_all_done_join() -> None:
    world = mixed("cancel")
    world.fail("bad")
    assert world.statuses() == {
        "start": "COMPLETED",
        "call": "CANCELLED",
        "ask": "CANCELLED",
        "bad": "FAILED",
        "tidy": "DISPATCHED",
        "never": "CANCELLED",
        "end": "PENDING",
    }
    assert [(order.task_id, order.kind) for order in world.decisions[-1].child_orders] == [("job1_call_0", "cancel")]
    world.complete("tidy")
    assert (world.job.status, world.node("end").status) == (JobStatus.FAILED, NodeStatus.COMPLETED)


@pytest.mark.parametrize(
    "bad",
    [
        task(params={"x": "{{ inputs.nope }}"}, next=["end"]),
        {"type": "conditional", "condition": "1 > 'x'", "on_true": ["end"]},
    ],
)
def test_a_child_whose_node_a_failure_of_the_same_evaluation_takes_back_is_never_started(bad: dict[str, Any]) -> None:
    nodes = {
        "start": {"type": "start", "next": ["call", "bad"]},
        "call": {"type": "workflow", "workflow_id": "child", "inputs": {"path": "x"}, "next": ["end"]},
        "bad": bad,
        "end": {"type": "end"},
    }
    parent, workflows = pinned(workflow_of(nodes, on_failure="cancel"))
    world = World(parent, workflows=workflows)
    assert (world.statuses()["bad"], world.statuses()["call"]) == ("FAILED", "CANCELLED")
    assert [one for decision in world.decisions for one in decision.child_jobs] == []
    assert "child_job_started" not in world.event_types()


def test_a_child_behind_an_all_done_join_still_runs_after_a_failure_under_cancel() -> None:
    nodes = {
        "start": {"type": "start", "next": ["bad"]},
        "bad": {**task(), "retry": {"max_retries": 0}},
        "call": {
            "type": "workflow",
            "workflow_id": "child",
            "inputs": {"path": "x"},
            "depends_on": {"all_done": ["bad"]},
            "next": ["end"],
        },
        "end": {"type": "end"},
    }
    parent, workflows = pinned(workflow_of(nodes, on_failure="cancel"))
    world = World(parent, workflows=workflows)
    world.fail("bad")
    assert world.node("call").status is NodeStatus.WAITING
    end(world, JobStatus.COMPLETED, outputs={})
    assert (world.job.status, world.node("end").status) == (JobStatus.FAILED, NodeStatus.COMPLETED)


def test_draining_lets_children_and_gates_go_on() -> None:
    world = mixed("drain")
    world.fail("bad")
    assert (world.node("call").status, world.node("ask").status) == (NodeStatus.WAITING, NodeStatus.WAITING)
    end(world, JobStatus.COMPLETED, outputs={})
    world.decide("ask")
    world.complete("never", "tidy")
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert world.job.error["node_id"] == "bad"


def test_the_deadline_of_a_job_ends_children_gates_and_what_waits() -> None:
    world = mixed("drain", deadline_seconds=50)
    world.complete("bad")
    assert world.job.wake_at == START + timedelta(seconds=50)
    world.wake()
    assert world.job.error is not None
    assert (world.job.status, world.job.error["code"]) == (JobStatus.FAILED, "JOB_DEADLINE")
    assert world.job.error["message"].startswith("the job was not done within its 50 seconds; open were ")
    assert "ask (WAITING for gate)" in world.job.error["message"]
    assert "call (WAITING for child)" in world.job.error["message"]
    assert world.job.error["node_id"] in {"call", "ask"}
    assert {world.node(key).status for key in ("call", "ask", "tidy", "never", "end")} == {NodeStatus.CANCELLED}
    assert [order.kind for order in world.decisions[-1].child_orders] == ["cancel"]


def test_a_child_that_misses_its_own_deadline_fails_its_node() -> None:
    world = world_of()
    end(world, JobStatus.FAILED, error={"code": "JOB_DEADLINE", "message": "late"})
    assert error_of(world)["code"] == "JOB_DEADLINE"


@pytest.mark.parametrize(
    ("status", "error"),
    [(JobStatus.FAILED, {"code": "JOB_DEADLINE", "message": "late"}), (JobStatus.CANCELLED, None)],
)
def test_a_clean_up_around_a_child_job_runs_whatever_became_of_the_child(
    status: JobStatus, error: dict[str, Any] | None
) -> None:
    world = world_of(nodes={"clean": task("call", join="all_done")})
    end(world, status, error=error)
    assert (world.node("call").status, world.node("clean").status) == (NodeStatus.FAILED, NodeStatus.DISPATCHED)
    world.complete("clean")
    assert (world.job.status, world.node("clean").status) == (JobStatus.FAILED, NodeStatus.COMPLETED)
