from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.dag.child_jobs import new_job
from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.pinning import pin
from core.dag.state import Decision
from core.statuses import JOB_FINAL, JobStatus, NodeStatus
from tests.unit.core.dag.harness import FIXED, START, World, chain, task, workflow_of
from tests.unit.core.dag.test_large_values import BIG, BlobWorld

NODE = {"key": "{{ inputs.c }}", "limit": 2}
INPUTS = {"c": {"type": "string", "default": "roads"}, "n": {"type": "integer"}, "s": {"type": "string"}}


def noded(key: Any = NODE, inputs: dict[str, Any] | None = None, **fields: Any) -> World:
    """Return a world of one task `a` whose attempts hold a slot."""
    return World(workflow_of(chain("a", concurrency=key, **fields), inputs=INPUTS), inputs)


def jobbed(nodes: dict[str, Any] | None = None, **fields: Any) -> World:
    """Return a world of a job that holds a slot."""
    workflow = workflow_of(nodes or chain("a", "b"), inputs=INPUTS, concurrency=NODE)
    return World(workflow, **fields)


def waiting_for(world: World, node_id: str = "a") -> Any:
    return world.node(node_id).waiting_for


# Slots of attempts


def test_an_attempt_waits_for_its_slot_before_it_is_sent() -> None:
    world = noded()
    (request,) = world.decisions[0].slots.requests
    assert (request.key, request.limit, request.holder, request.node_id) == ("w:roads", 2, "job1_a_0", "a")
    assert (world.node("a").status, world.job.status) == (NodeStatus.WAITING, JobStatus.PENDING)
    assert waiting_for(world) == {"kind": "slot", "detail": {"key": "w:roads", "holder": "attempt"}}
    assert world.decisions[0].dispatches == ()
    later = world.tick(10**6)
    assert (later.slots.requests, later.dispatches) == ((), ())


@pytest.mark.parametrize("made", [noded, jobbed], ids=["of an attempt", "of a job"])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_job_that_ends_before_its_first_slot_never_started(made: Callable[[], World], how: str) -> None:
    world = made()
    if how == "cancel":
        world.cancel()
    else:
        world.set_job(deadline_at=world.now)
        world.advance()
    assert (world.job.status in JOB_FINAL, world.job.completed_at, world.job.started_at) == (True, world.now, None)


def test_a_grant_sends_it_and_is_noticed_once() -> None:
    world = noded()
    decision = world.grant("job1_a_0")
    assert [one.node_id for one in decision.dispatches] == ["a"]
    assert decision.slots.noticed == ("job1_a_0",)
    assert waiting_for(world) is None
    assert world.advance().slots.noticed == ()


@pytest.mark.parametrize("how", ["completed", "failed", "released", "transient"])
def test_a_slot_is_free_when_its_attempt_has_reported(how: str) -> None:
    world = noded(retry={**FIXED, "max_retries": 1})
    world.grant("job1_a_0")
    world.claim("a")
    error = {"code": "E", "message": "m", "classification": "transient" if how == "transient" else "permanent"}
    decision = world.report("a", "failed" if how == "transient" else how, error=error)
    assert decision is not None
    assert "job1_a_0" in decision.slots.freed


def test_the_next_attempt_asks_for_a_slot_of_its_own() -> None:
    world = noded(retry={**FIXED, "max_retries": 1})
    world.grant("job1_a_0")
    world.fail("a", "transient")
    decision = world.wake()
    assert [one.holder for one in decision.slots.requests] == ["job1_a_1"]
    assert (decision.dispatches, world.node("a").status) == ((), NodeStatus.WAITING)


def test_a_lost_worker_frees_its_slot_with_its_lease() -> None:
    world = noded()
    world.grant("job1_a_0")
    world.claim("a")
    assert world.tick(20).slots.freed == ("job1_a_0",)


def test_a_task_that_ran_too_long_keeps_its_slot_until_its_lease_would_be_over() -> None:
    world = noded(timeout_seconds=30, retry={"max_retries": 0})
    world.grant("job1_a_0")
    world.claim("a")
    for _ in range(3):
        world.tick(9.9)
        world.beat("a")
    decision = world.tick(1)
    assert world.node("a").status is NodeStatus.FAILED
    assert decision.slots.freed == ()


@pytest.mark.parametrize(("leased", "freed"), [(True, ()), (False, ("job1_a_0",))])
def test_a_cancel_frees_at_once_what_no_worker_has(leased: bool, freed: tuple[str, ...]) -> None:
    world = noded()
    world.grant("job1_a_0")
    if leased:
        world.claim("a")
    decision = world.cancel()
    assert decision.slots.freed == freed
    assert decision.slots.dropped


def test_a_node_that_is_cancelled_in_the_line_leaves_it() -> None:
    nodes = {**chain("a", concurrency=NODE), "bad": task("start", retry={"max_retries": 0})}
    world = World(workflow_of(nodes, inputs=INPUTS, on_failure="cancel"))
    world.claim("bad")
    decision = world.report("bad", "failed", error={"code": "E", "message": "m"})
    assert decision is not None
    assert world.node("a").status is NodeStatus.CANCELLED
    assert decision.slots.freed == ("job1_a_0",)


def test_what_is_asked_for_and_cancelled_in_one_evaluation_is_not_asked_for() -> None:
    nodes = chain("a", concurrency=NODE)
    nodes["bad"] = task("start", params={"x": "{{ inputs.c | int }}"})
    world = World(workflow_of(nodes, inputs=INPUTS, on_failure="cancel"))
    assert world.node("a").status is NodeStatus.CANCELLED
    assert world.decisions[0].slots.requests == ()


def test_a_pause_takes_a_node_out_of_the_line_and_a_resume_puts_it_back() -> None:
    world = noded()
    world.set_job(paused_at=START)
    assert world.advance().slots.freed == ("job1_a_0",)
    assert waiting_for(world)["kind"] == "paused"
    world.set_job(paused_at=None)
    assert [one.holder for one in world.advance().slots.requests] == ["job1_a_0"]


def test_a_grant_that_comes_during_a_pause_is_given_back() -> None:
    world = noded()
    world.set_job(paused_at=START)
    decision = world.grant("job1_a_0")
    assert (decision.slots.freed, decision.dispatches) == (("job1_a_0",), ())


def test_a_grant_that_nobody_wants_any_more_is_given_back() -> None:
    world = noded()
    slot = world.state.slots["job1_a_0"].model_copy(update={"granted_at": START, "holder": "job1_a_7"})
    world.state = replace(world.state, slots={"job1_a_7": slot})
    assert world.advance().slots.freed == ("job1_a_7",)


def test_a_node_that_fails_before_it_is_sent_gives_its_slot_back() -> None:
    world = noded(params={"x": "{{ inputs.c | int }}"})
    decision = world.grant("job1_a_0")
    assert world.node("a").status is NodeStatus.FAILED
    assert decision.slots.freed == ("job1_a_0",)


@pytest.mark.parametrize(
    ("key", "inputs", "expected"),
    [
        ("plain", {}, "w:plain"),
        ("{{ inputs.c }}", {"c": "global:x"}, "w:global:x"),
        ("global:{{ inputs.c }}", {}, "global:roads"),
        ("c-{{ inputs.n }}", {"n": 7}, "w:c-7"),
        ("{{ inputs.n }}", {"n": 7}, "w:7"),
        ("{{ job.workflow_id }}/{{ inputs.c }}", {}, "w:w/roads"),
    ],
)
def test_keys_are_texts_of_their_workflow_unless_their_author_wrote_global(
    key: str, inputs: dict[str, Any], expected: str
) -> None:
    (request,) = noded({"key": key, "limit": 1}, inputs).decisions[0].slots.requests
    assert request.key == expected


@pytest.mark.parametrize(
    ("key", "inputs", "code"),
    [
        ("{{ inputs.s }}", {}, "SLOT_KEY_INVALID"),
        ("{{ inputs.s }}", {"s": ""}, "SLOT_KEY_INVALID"),
        ("{{ inputs.s }}", {"s": "x" * 257}, "SLOT_KEY_INVALID"),
        ("{{ inputs.n == 1 }}", {"n": 1}, "SLOT_KEY_INVALID"),
        ("{{ inputs.nope }}", {}, "TEMPLATE_ERROR"),
    ],
)
def test_a_key_without_a_text_fails_the_node_or_the_job_at_once(key: str, inputs: dict[str, Any], code: str) -> None:
    concurrency = {"key": key, "limit": 1}
    world = noded(concurrency, inputs)
    job = World(workflow_of(chain("a"), inputs=INPUTS, concurrency=concurrency), inputs)
    assert world.node("a").error is not None
    assert world.node("a").error["code"] == code
    assert job.job.error is not None
    assert (job.job.status, job.job.error["code"]) == (JobStatus.FAILED, code)
    assert job.node("a").status is NodeStatus.CANCELLED
    assert (world.decisions[0].slots.requests, job.decisions[0].slots.requests) == ((), ())


# Slots of jobs


def test_a_task_whose_key_turns_out_to_be_that_of_its_job_fails_instead_of_waiting_for_itself() -> None:
    nodes = chain("a", concurrency={"key": "{{ inputs.s }}", "limit": 3})
    world = World(workflow_of(nodes, inputs=INPUTS, concurrency={"key": "k", "limit": 3}), {"s": "k"})
    world.grant("job1")
    assert (world.job.status, (world.job.error or {})["code"]) == (JobStatus.FAILED, "SLOT_KEY_INVALID")
    other = World(workflow_of(nodes, inputs=INPUTS, concurrency={"key": "k", "limit": 3}), {"s": "j"})
    assert [one.key for one in other.grant("job1").slots.requests] == ["w:j"]


def test_a_job_stays_pending_until_it_has_its_slot() -> None:
    world = jobbed()
    (request,) = world.decisions[0].slots.requests
    assert (request.key, request.limit, request.holder, request.node_id) == ("w:roads", 2, "job1", None)
    assert request.priority == 5
    assert world.job.status is JobStatus.PENDING
    assert world.job.waiting_for == {"kind": "slot", "detail": {"key": "w:roads"}}
    assert (world.node("start").status, world.node("a").status) == (NodeStatus.COMPLETED, NodeStatus.READY)
    assert waiting_for(world) == {"kind": "slot", "detail": {"key": "w:roads", "holder": "job"}}
    assert world.tick(10**6).slots.requests == ()
    decision = world.grant("job1")
    assert [one.node_id for one in decision.dispatches] == ["a"]
    assert (decision.slots.noticed, world.job.waiting_for) == (("job1",), None)
    assert world.job.status is JobStatus.RUNNING


@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "deadline"])
def test_a_jobs_slot_is_free_when_the_job_has_ended(how: str) -> None:
    world = jobbed(chain("a"), deadline_at=START.replace(year=2027))
    world.grant("job1")
    match how:
        case "complete":
            world.complete("a")
        case "fail":
            world.fail("a")
        case "cancel":
            world.cancel()
        case _:
            world.tick(400 * 86400)
    assert "job1" in world.decisions[-1].slots.freed
    assert world.decisions[-1].slots.dropped
    assert world.job.completed_at is not None


def test_a_job_that_waits_for_its_slot_can_be_cancelled_and_leaves_the_line() -> None:
    world = jobbed()
    assert world.cancel().slots.freed == ("job1",)
    assert world.job.waiting_for is None


def test_a_paused_job_leaves_the_line_but_keeps_a_slot_that_it_works_with() -> None:
    waits, works = jobbed(), jobbed()
    works.grant("job1")
    for world in (waits, works):
        world.set_job(paused_at=START)
        world.advance()
    assert waits.decisions[-1].slots.freed == ("job1",)
    assert waits.job.waiting_for == {"kind": "paused", "detail": ["job"]}
    assert works.decisions[-1].slots.freed == ()
    waits.set_job(paused_at=None)
    assert [one.holder for one in waits.advance().slots.requests] == ["job1"]


GATED = {
    "start": {"type": "start", "next": ["a"]},
    "a": {**task(), "next": ["ask"]},
    "ask": {"type": "gate", "next": ["b"]},
    "b": {**task(), "next": ["end"]},
    "end": {"type": "end"},
}


def test_no_slot_is_held_while_only_a_human_can_go_on() -> None:
    world = jobbed(GATED)
    world.grant("job1")
    world.complete("a")
    assert world.node("ask").status is NodeStatus.WAITING
    assert world.decisions[-1].slots.freed == ("job1",)
    decision = world.decide("ask")
    assert [one.holder for one in decision.slots.requests] == ["job1"]
    assert (decision.dispatches, waiting_for(world, "b")["kind"]) == ((), "slot")
    assert world.job.waiting_for is not None
    assert [one.node_id for one in world.grant("job1").dispatches] == ["b"]


def test_a_gate_opens_without_a_slot() -> None:
    nodes = {**GATED, "start": {"type": "start", "next": ["ask"]}}
    del nodes["a"]
    world = jobbed(nodes)
    assert (world.node("ask").status, world.decisions[0].slots.requests) == (NodeStatus.WAITING, ())


def test_a_slot_is_kept_while_a_retry_waits_for_its_time() -> None:
    world = jobbed(chain("a", retry={**FIXED, "max_retries": 1}))
    world.grant("job1")
    world.fail("a", "transient")
    assert world.decisions[-1].slots.freed == ()
    assert [one.node_id for one in world.wake().dispatches] == ["a"]


def test_a_child_job_is_started_only_when_its_parent_has_its_slot() -> None:
    child = workflow_of(chain("work"), workflow_id="child")
    nodes = {**chain("call"), "call": {"type": "workflow", "workflow_id": "child", "next": ["end"]}}
    parent = workflow_of(nodes, inputs=INPUTS, concurrency=NODE)
    pinned, _ = pin({("w", 1): parent, ("child", 1): child})
    world = World(pinned["w", 1], workflows={child.definition_hash: child})
    assert world.decisions[0].child_jobs == ()
    assert len(world.grant("job1").child_jobs) == 1


ANY = "global:{{ inputs.s }}"


@pytest.mark.parametrize(("above", "below"), [(ANY, ANY), (ANY, "global:a"), ("global:a", ANY)])
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("where", ["job", "task"])
def test_a_child_job_whose_key_turns_out_to_be_held_above_it_fails_instead_of_waiting(
    above: str, below: str, between: bool, where: str
) -> None:
    """The jobs above wait for it: none of them gives its slot back before."""
    slot: dict[str, Any] = {"concurrency": {"key": below, "limit": 3}}
    own, tasks = (slot, {}) if where == "job" else ({}, slot)
    inner = workflow_of(chain("a", **tasks), workflow_id="inner", inputs=INPUTS, **own)
    passed = {"inputs": {"s": "{{ inputs.s }}"}, "next": ["end"]}

    def calling(child: str, workflow_id: str, **fields: Any) -> Workflow:
        call = {"type": "workflow", "workflow_id": child, **passed}
        return workflow_of({**chain("call"), "call": call}, workflow_id=workflow_id, inputs=INPUTS, **fields)

    middle = calling("inner", "middle")
    outer = calling("middle" if between else "inner", "outer", concurrency={"key": above, "limit": 3})
    pinned, troubles = pin({(one.workflow_id, 1): one for one in (outer, middle, inner)})
    assert not troubles
    known = {one.definition_hash: one for one in pinned.values()}
    world = World(pinned["outer", 1], {"s": "a"}, workflows=known)
    (start,) = world.grant("job1").child_jobs
    for _ in range(2 if between else 1):
        workflow = known[start.definition_hash]
        job = new_job(world.job, start, workflow, START)
        world = World(workflow, start.inputs, workflows=known, slots_above=job.slots_above)
        start = next(iter(world.decisions[0].child_jobs), start)
    assert (world.job.status, (world.job.error or {})["code"]) == (JobStatus.FAILED, "SLOT_KEY_INVALID")
    assert world.decisions[0].slots.requests == ()


def test_a_job_whose_other_nodes_are_cancelled_in_the_same_step_asks_for_no_slot() -> None:
    nodes = {
        "start": {"type": "start"},
        "g": {"type": "gate", "depends_on": {"all_of": ["start"]}},
        "t": task("start", "g", join="any_of"),
        "h": {"type": "gate", "depends_on": {"all_done": ["t", "g"]}},
        "end": {"type": "end", "depends_on": {"all_done": ["h"]}},
    }
    world = World(workflow_of(nodes, on_failure="cancel", concurrency=NODE, inputs=INPUTS))
    world.decide("g", "rejected")
    assert (world.node("t").status, world.node("h").status) == ("CANCELLED", "WAITING")
    assert (world.job.waiting_for, world.state.slots) == (None, {})


def test_a_job_and_its_attempts_can_both_need_slots() -> None:
    nodes = chain("a", concurrency={"key": "global:gpu", "limit": 1})
    world = jobbed(nodes)
    assert [one.holder for one in world.decisions[0].slots.requests] == ["job1"]
    assert [one.key for one in world.grant("job1").slots.requests] == ["global:gpu"]
    assert [one.node_id for one in world.grant("job1_a_0").dispatches] == ["a"]
    world.complete("a")
    assert set(world.decisions[-1].slots.freed) == {"job1", "job1_a_0"}


def test_a_second_evaluation_asks_for_and_frees_nothing_more() -> None:
    for world in (noded(), jobbed()):
        again = advance(world.workflow, world.state, world.now)
        assert replace(again, wake_at=None) == Decision()


def test_a_slot_is_kept_while_large_params_are_made_elsewhere() -> None:
    nodes = chain("a", "b")
    nodes["b"] |= {"concurrency": NODE, "params": {"rows": "{{ nodes.a.output.rows }}"}}
    world = BlobWorld(workflow_of(nodes, inputs=INPUTS))
    world.complete_large("a", BIG)
    decision = world.grant("job1_b_0")
    assert (decision.slots.noticed, decision.slots.freed, len(decision.needs)) == (("job1_b_0",), (), 1)
    world.state = replace(world.state, slots={})
    assert (world.advance().slots.freed, len(world.decisions[-1].needs)) == ((), 1)
    assert [one.node_id for one in world.answer().dispatches] == ["b"]
    world.complete("b")
    assert world.decisions[-1].slots.freed == ("job1_b_0",)


def test_a_pause_takes_the_slot_of_a_node_that_waits_for_a_value() -> None:
    nodes = chain("a", "b")
    nodes["b"] |= {"concurrency": NODE, "params": {"rows": "{{ nodes.a.output.rows }}"}}
    world = BlobWorld(workflow_of(nodes, inputs=INPUTS))
    world.complete_large("a", BIG)
    world.grant("job1_b_0")
    world.set_job(paused_at=START)
    assert world.advance().slots.freed == ("job1_b_0",)


@pytest.mark.parametrize(("above", "granted"), [("global:a", False), ("global:a", True), ("global:b", False)])
def test_a_child_job_that_stands_in_the_line_of_a_slot_above_fails(above: str, granted: bool) -> None:
    """A build that did not know what is held above it put it there."""
    world = World(workflow_of(chain("a"), concurrency={"key": "global:a", "limit": 1}))
    if granted:
        world.grant("job1")
    world.set_job(slots_above=[above])
    decision = world.tick(60)
    refused = above == "global:a" and not granted
    assert (world.job.status is JobStatus.FAILED, decision.slots.freed == ("job1",)) == (refused, refused)
