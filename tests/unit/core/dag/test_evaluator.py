from dataclasses import replace
from typing import Any

import pytest

from core.dag.evaluator import advance, initial_nodes
from core.dag.state import JobState
from core.errors import ErrorDetail
from core.statuses import AttemptState, JobStatus, NodeStatus
from tests.unit.core.dag.harness import START, World, chain, job_of, one_task, retrying, task, workflow_of


def test_a_new_job_is_dispatched_by_its_first_evaluation() -> None:
    workflow = workflow_of(chain("a", params={"m": "{{ inputs.x }}"}), inputs={"x": {"default": "hi"}})
    world = World(workflow, priority=8)
    assert world.statuses() == {"start": "COMPLETED", "a": "DISPATCHED", "end": "PENDING"}
    assert world.job.status is JobStatus.RUNNING
    assert world.job.started_at == START
    (dispatch,) = world.decisions[0].dispatches
    assert (dispatch.node_id, dispatch.attempt, dispatch.handler) == ("a", 0, "echo")
    assert (dispatch.queue, dispatch.timeout_seconds, dispatch.priority) == ("functionapp-tasks", 300, 8)
    assert dispatch.params == {"m": "hi"}
    node = world.node("a")
    assert (node.task_id, node.attempt, node.input_params) == ("job1_a_0", 1, {"m": "hi"})
    assert node.first_dispatched_at == node.dispatched_at == START


def test_the_echo_job_of_the_specification_makes_its_events_in_order() -> None:
    world = one_task()
    world.complete("a")
    assert world.job.status is JobStatus.COMPLETED
    assert [(event.event_type, event.node_id) for event in world.events] == [
        ("node_ready", "start"),
        ("node_completed", "start"),
        ("node_ready", "a"),
        ("node_dispatched", "a"),
        ("job_started", None),
        ("node_completed", "a"),
        ("node_ready", "end"),
        ("node_completed", "end"),
        ("job_completed", None),
    ]
    assert world.events[3].task_id == world.events[5].task_id == "job1_a_0"
    assert world.decisions[-1].ended
    assert world.job.wake_at is None


def test_a_job_without_tasks_completes_at_once() -> None:
    world = World(workflow_of(chain()))
    assert world.job.status is JobStatus.COMPLETED
    assert world.job.completed_at == START


def test_outputs_travel_to_later_params_and_to_the_job() -> None:
    nodes = chain("a", "b")
    nodes["b"]["params"] = {"got": "{{ nodes.a.output.n }}", "job": "{{ job.job_id }}", "s": "{{ nodes.a.status }}"}
    world = World(workflow_of(nodes, outputs={"n": "{{ nodes.a.output.n + 1 }}", "text": "n={{ nodes.a.output.n }}"}))
    world.complete("a", output={"n": 41})
    assert world.node("b").input_params == {"got": 41, "job": "job1", "s": "COMPLETED"}
    world.complete("b")
    assert world.job.outputs == {"n": 42, "text": "n=41"}


@pytest.mark.parametrize(
    ("node", "defaults", "expected"),
    [
        ({"timeout_seconds": 5, "queue": "container-tasks"}, {"timeout_seconds": 7}, (5, "container-tasks")),
        ({}, {"timeout_seconds": 7}, (7, "functionapp-tasks")),
        ({}, {}, (300, "functionapp-tasks")),
    ],
)
def test_timeout_and_queue_come_from_node_then_defaults_then_handler(
    node: dict[str, Any], defaults: dict[str, Any], expected: tuple[float, str]
) -> None:
    world = World(workflow_of(chain("a", **node), defaults=defaults))
    (dispatch,) = world.decisions[0].dispatches
    assert (dispatch.timeout_seconds, dispatch.queue) == expected


@pytest.mark.parametrize(
    ("node", "defaults", "expected"),
    [
        ({"heartbeat_timeout_seconds": 5}, {"heartbeat_timeout_seconds": 7}, 5),
        ({}, {"heartbeat_timeout_seconds": 7}, 7),
        ({}, {}, None),
    ],
)
def test_the_length_of_leases_comes_from_node_then_defaults(
    node: dict[str, Any], defaults: dict[str, Any], expected: float | None
) -> None:
    world = World(workflow_of(chain("a", **node), defaults=defaults))
    assert world.decisions[0].dispatches[0].heartbeat_timeout_seconds == expected
    assert world.attempt("a").heartbeat_timeout_seconds == expected


@pytest.mark.parametrize(
    ("handler", "params", "code", "words"),
    [
        ("echo", {"x": "{{ nodes.a.output.nope }}"}, "TEMPLATE_ERROR", "nodes.a.output.nope"),
        ("echo", {"x": "{{ nodes.a.output.n | int }}"}, "TEMPLATE_ERROR", "cannot be made"),
        ("sleep", {"seconds": "{{ nodes.a.output.n }}"}, "PARAMETER_INVALID", "params.seconds"),
        ("sleep", {"seconds": -1}, "PARAMETER_INVALID", "params.seconds"),
        ("sleep", {"seconds": 1, "other": 2}, "PARAMETER_INVALID", "params.other"),
        ("no_such", {}, "HANDLER_UNKNOWN", "no_such"),
    ],
)
def test_bad_params_fail_their_node_at_once(handler: str, params: dict[str, Any], code: str, words: str) -> None:
    nodes = chain("a", "b")
    nodes["b"] |= {"handler": handler, "params": params, "retry": {"max_retries": 9}}
    world = World(workflow_of(nodes))
    world.complete("a", output={"n": "text"})
    assert world.node("b").status is NodeStatus.FAILED
    assert world.node("b").attempt == 0
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["node_id"]) == (code, "b")
    assert words in world.job.error["message"]


def test_params_of_an_operator_replace_those_of_the_workflow() -> None:
    workflow = workflow_of(chain("a", params={"x": 1, "y": 2}))
    job = job_of(workflow)
    nodes = {node.node_id: node for node in initial_nodes(workflow, job)}
    nodes["a"] = nodes["a"].model_copy(update={"params_override": {"y": 3}})
    (dispatch,) = advance(workflow, JobState(job=job, nodes=nodes), START).dispatches
    assert dispatch.params == {"x": 1, "y": 3}


def test_outputs_that_have_no_value_fail_the_job() -> None:
    world = World(workflow_of(chain("a"), outputs={"x": "{{ nodes.a.output.nope }}"}))
    world.complete("a")
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["field"]) == ("TEMPLATE_ERROR", "nodes.a.output.nope")
    assert world.node("a").status is NodeStatus.COMPLETED


def test_a_job_in_which_nothing_can_happen_is_stalled() -> None:
    workflow = workflow_of({"a": task("b"), "b": {"type": "end"}})
    object.__setattr__(workflow, "graph", replace(workflow.graph, incoming={"a": ("a",), "b": ("a",)}))
    job = job_of(workflow)
    nodes = {node.node_id: node for node in initial_nodes(workflow, job)}
    decision = advance(workflow, JobState(job=job, nodes=nodes), START)
    assert decision.job is not None
    assert decision.job.error is not None
    assert decision.job.error["code"] == "STALLED"
    assert {node.status for node in decision.nodes} == {NodeStatus.CANCELLED}


def test_a_job_whose_rows_are_missing_fails_and_says_which() -> None:
    workflow = workflow_of(chain("a"))
    job = job_of(workflow)
    nodes = {node.node_id: node for node in initial_nodes(workflow, job) if node.node_id != "a"}
    decision = advance(workflow, JobState(job=job, nodes=nodes), START)
    assert decision.job is not None
    assert decision.job.error == {
        "code": "INTERNAL", "message": "the job has no rows for a", "user_fixable": False,
        "classification": "permanent", "next_actions": [], "attempts": [],
    }  # fmt: skip


def test_a_live_attempt_that_nothing_waits_for_is_revoked() -> None:
    world = one_task()
    world.complete("a")
    world.set_attempt("a", state=AttemptState.LEASED)
    decision = world.tick(0)
    assert [(end.task_id, end.state) for end in decision.attempts_ended] == [("job1_a_0", AttemptState.REVOKED)]
    assert not world.tick(0).attempts_ended


def test_the_last_twenty_failures_are_kept() -> None:
    world = retrying(max_retries=100)
    for _ in range(30):
        world.fail("a", "transient")
        world.tick(10)
    error = ErrorDetail.model_validate(world.node("a").error)
    assert [item.attempt for item in error.attempts] == list(range(10, 30))
