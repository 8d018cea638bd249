import itertools
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.dag.apply import apply
from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.nodes import ConditionalNode
from core.dag.state import Decision, JobState
from core.models.engine import Attempt, NodeState, TaskResultRow
from core.statuses import JOB_FINAL, AttemptState, NodeStatus, SkipReason
from tests.unit.core.dag.harness import START, World, job_of
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.worlds import LawfulWorld, play, presets, workflows

SEEDS = st.integers(0, 2**32)


@LAWS
@given(workflows(), SEEDS, st.data())
def test_every_job_ends_whatever_happens_and_no_law_is_broken_on_the_way(
    workflow: Workflow, seed: int, data: st.DataObject
) -> None:
    world = LawfulWorld(workflow, data.draw(presets(workflow)))
    play(world, Random(seed))
    assert world.ended


def reference(workflow: Workflow, good: dict[str, bool], skipped: dict[str, SkipReason]) -> tuple[dict[str, str], str]:
    """Say how every node and the job must end, by the words of the language page and nothing else."""
    ends: dict[str, str] = {}
    sources = sources_by_words(workflow)
    for node_id, node in workflow.nodes.items():
        edges = [edge_by_words(workflow, ends, source, node_id) for source in sources[node_id]]
        rule = node.depends_on.rule.value if node.depends_on else "all_of"
        runs = {"all_of": "failed" not in edges, "any_of": "passed" in edges or not edges, "all_done": True}[rule]
        if node_id in skipped:
            ends[node_id] = f"SKIPPED {skipped[node_id].value}"
        elif edges and set(edges) == {"dead"}:
            ends[node_id] = "SKIPPED not_taken"
        elif not runs:
            ends[node_id] = "SKIPPED upstream_failed"
        elif node.when and not flag(workflow, node.when):
            ends[node_id] = "SKIPPED bypassed"
        else:
            fails = node.type in {"task", "gate"} and not good[node_id]
            ends[node_id] = "FAILED" if fails else "COMPLETED"
    counted = [node_id for node_id, end in ends.items() if end == "FAILED" and not workflow.nodes[node_id].best_effort]
    return ends, "FAILED" if counted else "COMPLETED"


def sources_by_words(workflow: Workflow) -> dict[str, set[str]]:
    """Return the sources of every node."""
    sources: dict[str, set[str]] = {node_id: set() for node_id in workflow.nodes}
    for node_id, node in workflow.nodes.items():
        sources[node_id] |= set(getattr(node.depends_on, "sources", ()))
        for target in (*getattr(node, "on_true", ()), *getattr(node, "on_false", ())):
            sources[target].add(node_id)
    return sources


def edge_by_words(workflow: Workflow, ends: dict[str, str], source: str, target: str) -> str:
    """Say how an edge stands."""
    node, end = workflow.nodes[source], ends[source]
    if end == "COMPLETED" and isinstance(node, ConditionalNode) and target in {*node.on_true, *node.on_false}:
        taken = node.on_true if flag(workflow, node.condition or "") else node.on_false
        return "passed" if target in taken else "dead"
    if end in {"COMPLETED", "SKIPPED bypassed"} or (end == "FAILED" and node.best_effort):
        return "passed"
    return "dead" if end == "SKIPPED not_taken" else "failed"


def flag(workflow: Workflow, condition: str) -> bool:
    """Return the default of the input that a condition is about."""
    default = workflow.inputs[condition.removeprefix("{{ inputs.").removesuffix(" }}")].default
    return default is True


@LAWS
@given(workflows(on_failure=("drain",), gates_expire=False), SEEDS, st.data())
def test_skips_and_failures_spread_as_an_independent_model_says(
    workflow: Workflow, seed: int, data: st.DataObject
) -> None:
    skipped = data.draw(presets(workflow))
    good = {node_id: data.draw(st.booleans()) for node_id in workflow.nodes if node_id.startswith("n")}
    world = LawfulWorld(workflow, skipped)
    play(world, Random(seed), good)
    ends = {
        node_id: " ".join(filter(None, (node.status.value, node.skip_reason and node.skip_reason.value)))
        for node_id, node in world.state.nodes.items()
    }
    expected, job = reference(workflow, good, skipped)
    assert {node_id: ends[node_id] for node_id in expected} == expected
    assert world.job.status.value == job
    warned = {warning["node_id"] for warning in world.job.warnings}
    assert warned == {key for key, end in expected.items() if end == "FAILED" and workflow.nodes[key].best_effort}


RESULTS: tuple[dict[str, Any], ...] = (
    {"status": "completed", "output": {}},
    {"status": "failed", "error": {"code": "E", "message": "m"}},
    {"status": "failed", "error": {"code": "E", "message": "m", "classification": "transient"}},
    {"status": "released"},
    {"status": "odd"},
)


@LAWS
@given(workflows(), st.lists(st.sampled_from(RESULTS), min_size=7, max_size=7))
def test_the_order_of_results_makes_no_difference(workflow: Workflow, results: list[dict[str, Any]]) -> None:
    world = World(workflow)
    flying = [node_id for node_id, node in world.state.nodes.items() if node.status is NodeStatus.DISPATCHED][:4]
    for node_id, result in zip(flying, results, strict=False):
        world.claim(node_id)
        world.report(node_id, advance=False, **result)
    outcomes = [
        unordered(advance(workflow, replace(world.state, results=rows), world.now))
        for rows in itertools.permutations(world.state.results)
    ]
    assert all(outcome == outcomes[0] for outcome in outcomes)


def unordered(decision: Decision) -> Any:
    """Return a decision without the order in which it was made."""
    return (
        decision.job,
        {node.node_id: node for node in decision.nodes},
        {dispatch.node_id: dispatch for dispatch in decision.dispatches},
        {item.task_id: item for item in decision.dispositions},
        {end.task_id: end for end in decision.attempts_ended},
        sorted(map(repr, decision.events)),
        decision.wake_at,
    )


TIMES = st.none() | st.integers(-100, 100).map(lambda seconds: START + timedelta(seconds=seconds))


@st.composite
def garbage(draw: st.DrawFn) -> tuple[Workflow, JobState]:
    """Draw a state that no service would ever write, but for this: an attempt's number is below its node's."""
    workflow = draw(workflows())
    nodes, attempts, rows = {}, {}, []
    for node_id in workflow.nodes:
        number = draw(st.integers(0, 3))
        task_id = f"job1_{node_id}_{number}"
        nodes[node_id] = NodeState(
            job_id="job1",
            node_id=node_id,
            status=draw(st.sampled_from(NodeStatus)),
            attempt=number + draw(st.integers(1, 2)),
            task_id=draw(st.sampled_from([None, task_id])),
            not_before=draw(TIMES),
            skip_reason=draw(st.none() | st.sampled_from(SkipReason)),
            first_dispatched_at=draw(TIMES),
        )
        if draw(st.booleans()):
            attempts[node_id] = draw(odd_attempts(node_id, number))
        if draw(st.booleans()):
            status = draw(st.sampled_from(["completed", "failed", "released", "?"]))
            row = {"job_id": "job1", "node_id": node_id, "attempt": number, "status": status, "reported_at": START}
            rows.append(TaskResultRow(task_id=task_id, output=draw(st.none() | st.just({})), **row))
    job = job_of(workflow, deadline_at=draw(TIMES), paused_at=draw(TIMES))
    return workflow, JobState(job, nodes, attempts, rows, may_expire_leases=draw(st.booleans()))


@st.composite
def odd_attempts(draw: st.DrawFn, node_id: str, number: int) -> Attempt:
    """Draw an attempt in any state with any times."""
    return Attempt(
        task_id=f"job1_{node_id}_{number}",
        job_id="job1",
        node_id=node_id,
        attempt=number,
        state=draw(st.sampled_from(AttemptState)),
        queue="functionapp-tasks",
        handler="echo",
        params_digest="",
        token_hash="",
        timeout_seconds=50,
        queued_at=START,
        redispatch_at=draw(TIMES),
        leased_at=draw(TIMES),
        lease_expires_at=draw(TIMES),
    )


@LAWS
@given(garbage())
def test_a_bad_state_is_reported_and_never_raises(case: tuple[Workflow, JobState]) -> None:
    workflow, state = case
    decision = advance(workflow, state, START)
    assert len(decision.dispositions) == len(state.results)
    written = apply(state, decision, START)
    again = advance(workflow, written, START)
    assert replace(again, wake_at=None) == Decision()
    if written.job.status in JOB_FINAL:
        assert decision.ended
