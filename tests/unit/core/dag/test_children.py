from dataclasses import replace

from core.dag.evaluator import initial_nodes
from core.dag.failures import fail_attempt, release_attempt
from core.dag.run import Run
from core.dag.state import JobState
from core.errors import Classification, ErrorDetail
from core.handlers_catalog import CATALOG
from core.models.engine import NodeState
from core.statuses import NodeStatus
from tests.unit.core.dag.harness import START, job_of, workflow_of

FAN_OUT = workflow_of(
    {
        "start": {"type": "start", "next": ["many"]},
        "many": {
            "type": "fan_out",
            "source": "{{ inputs.items }}",
            "task": {"handler": "echo", "retry": {"max_retries": 1, "backoff": "fixed", "jitter": 0}},
            "next": ["end"],
        },
        "end": {"type": "end"},
    }
)
LOST = ErrorDetail(code="T", message="m", classification=Classification.TRANSIENT)


def run_with_child(**fields: object) -> Run:
    """Return an evaluation that loaded one child."""
    job = job_of(FAN_OUT)
    child = NodeState(
        job_id=job.job_id, node_id="many__7", parent_node_id="many", fan_out_index=7, status=NodeStatus.RUNNING
    ).model_copy(update=fields)
    state = JobState(job=job, nodes={node.node_id: node for node in initial_nodes(FAN_OUT, job)})
    return Run(FAN_OUT, replace(state, children={child.node_id: child}), START, CATALOG)


def test_a_child_fails_by_the_budget_of_its_fan_out() -> None:
    run = run_with_child()
    fail_attempt(run, "many__7", LOST)
    assert run.node("many__7").status is NodeStatus.WAITING
    run = run_with_child(retries_used=1)
    fail_attempt(run, "many__7", LOST)
    assert run.node("many__7").status is NodeStatus.FAILED


def test_changed_children_are_written_apart_from_the_vertices_and_new_ones_apart_from_both() -> None:
    run = run_with_child()
    release_attempt(run, "many__7", "by hand")
    run.children["many__8"] = NodeState(job_id="job1", node_id="many__8", parent_node_id="many", fan_out_index=8)
    decision = run.decision(None)
    assert [child.node_id for child in decision.children] == ["many__7"]
    assert [child.node_id for child in decision.new_children] == ["many__8"]
    assert decision.nodes == ()


def test_children_that_nothing_happened_to_are_not_written() -> None:
    decision = run_with_child().decision(None)
    assert (decision.children, decision.new_children) == ((), ())
