import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.dag.commands import command
from core.dag.gates import only_gates_wait
from core.dag.run import Run
from core.errors import Conflict, NotFound, ParameterInvalid, PayloadTooLarge
from core.handlers_catalog import CATALOG
from core.statuses import JobStatus, NodeStatus
from tests.unit.core.dag.harness import START, World, task, workflow_of


def gated(**fields: Any) -> World:
    """Return start -> gate -> b, with `fields` in the gate."""
    nodes = {
        "start": {"type": "start", "next": ["gate"]},
        "gate": {"type": "gate", "next": ["b"], **fields},
        "b": task(params={"got": "{{ nodes.gate.output | default('nothing') }}"}),
    }
    return World(workflow_of(nodes))


def refused(world: World, decision: Any = "approved", node_id: str = "gate", **fields: Any) -> Conflict:
    """Decide and return why not; nothing changes."""
    before = world.state
    with pytest.raises(Conflict) as caught:
        world.decide(node_id, decision, **fields)
    assert world.state == before
    return caught.value


def test_a_gate_waits_for_a_decision_without_a_timer_of_its_own() -> None:
    world = gated()
    assert (world.job.status, world.job.wake_at) == (JobStatus.RUNNING, None)
    assert world.node("gate").status is NodeStatus.WAITING
    assert world.node("gate").waiting_for == {"kind": "gate", "detail": {"expires_at": None}}
    world.tick(10_000_000)
    assert world.node("gate").status is NodeStatus.WAITING
    assert world.event_types() == ["node_ready", "node_completed", "node_ready", "job_started", "gate_opened"]


def test_an_approved_gate_completes_and_the_job_goes_on_at_once() -> None:
    world = gated()
    decision = world.decide("gate", "approved", actor="ann", reason="looks right", data={"scale": 2})
    output = {"decision": "approved", "actor": "ann", "reason": "looks right", "data": {"scale": 2}}
    assert world.node("gate").output == output
    assert [dispatch.params for dispatch in decision.dispatches] == [{"got": output}]
    assert decision.events[0].data == output
    json.dumps(decision.events[0].data)


def test_a_rejected_gate_fails_and_is_not_retried() -> None:
    world = gated()
    world.decide("gate", "rejected", actor="ann", reason="wrong area")
    assert world.statuses() == {"start": "COMPLETED", "gate": "FAILED", "b": "SKIPPED"}
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["node_id"]) == ("GATE_REJECTED", "gate")
    assert world.job.error["message"] == "ann rejected: wrong area"
    assert (world.node("gate").output or {})["decision"] == "rejected"


def test_a_rejected_gate_under_best_effort_is_a_warning() -> None:
    world = gated(best_effort=True)
    world.decide("gate", "rejected")
    assert world.node("b").input_params == {"got": "nothing"}
    world.complete("b")
    assert world.job.status is JobStatus.COMPLETED
    assert [warning["code"] for warning in world.job.warnings] == ["GATE_REJECTED"]


def test_a_gate_expires_at_its_time_and_not_before() -> None:
    world = gated(expires_after_seconds=60)
    assert world.job.wake_at == START + timedelta(seconds=60)
    assert world.node("gate").waiting_for == {"kind": "gate", "detail": {"expires_at": "2026-01-01T00:01:00+00:00"}}
    world.tick(59.999)
    assert world.node("gate").status is NodeStatus.WAITING
    world.wake()
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert world.job.error["code"] == "GATE_EXPIRED"
    assert world.job.error["message"].endswith("by 2026-01-01T00:01:00Z")
    assert world.event_types().count("gate_opened") == 1


def test_a_gate_expires_also_while_the_job_is_paused() -> None:
    world = gated(expires_after_seconds=60)
    world.set_job(paused_at=world.now)
    world.wake()
    assert world.node("gate").status is NodeStatus.FAILED


@pytest.mark.parametrize("first", ["approved", "rejected"])
@pytest.mark.parametrize("status", JobStatus)
def test_the_first_decision_wins_and_the_next_is_told_who_decided_what_and_why(first: Any, status: JobStatus) -> None:
    world = gated()
    world.decide("gate", first, actor="ann", reason="looks so")
    world.set_job(status=status)
    detail = refused(world, "rejected", actor="bob").detail
    assert (detail.code, detail.message) == ("GATE_DECIDED", f"the gate gate was {first} by ann: looks so")
    said = {"decision": first, "actor": "ann", "reason": "looks so", "data": {}}
    ended = {"approved": ("COMPLETED", None), "rejected": ("FAILED", "GATE_REJECTED")}[first]
    assert detail.value == {"node_id": "gate", "status": ended[0], "output": said, "error": ended[1]}


def test_a_decision_after_a_cancel_is_told_that_the_job_has_ended_and_nobody_decided() -> None:
    world = gated()
    world.cancel()
    detail = refused(world).detail
    assert (detail.code, detail.value) == ("JOB_FINAL", "CANCELLED")
    assert detail.message == "the job is CANCELLED already; nobody decided the gate gate, it is CANCELLED"


@pytest.mark.parametrize(("more", "ended"), [({}, True), ({"best_effort": True}, False)])
def test_a_decision_loses_against_an_expiry_written_or_not(more: dict[str, Any], ended: bool) -> None:
    world = gated(expires_after_seconds=60, **more)
    world.now += timedelta(seconds=60)
    before = refused(world).detail
    world.advance()
    after = refused(world).detail
    assert (world.job.status is JobStatus.FAILED) == ended
    assert before.code == after.code == "GATE_EXPIRED"
    assert before.message == after.message == "the gate gate expired; nobody had decided it"


@pytest.mark.parametrize("by", ["when", "operator"])
def test_a_gate_that_was_passed_over_was_not_decided(by: str) -> None:
    gate = {"type": "gate", "when": "1 > 2"} if by == "when" else {"type": "gate"}
    world = World(workflow_of({"start": {"type": "start", "next": ["gate", "a"]}, "gate": gate, "a": task()}))
    if by == "operator":
        world.write(command(world.workflow, world.state, world.now, "skip", {"node_id": "gate"}, actor="ann"))
    detail = refused(world).detail
    assert (detail.code, detail.message) == ("NODE_FINAL", "the gate gate is SKIPPED already; nobody decided it")
    world.complete("a")
    assert refused(world).detail.code == "JOB_FINAL"


def test_a_gate_that_is_not_reached_cannot_be_decided() -> None:
    nodes = {"start": {"type": "start", "next": ["a"]}, "a": task(next=["gate"]), "gate": {"type": "gate"}}
    world = World(workflow_of(nodes))
    assert refused(world).detail.code == "GATE_NOT_OPEN"


@pytest.mark.parametrize("node_id", ["b", "nope"])
def test_only_gates_are_decided(node_id: str) -> None:
    with pytest.raises(NotFound, match=f"has no gate '{node_id}'"):
        gated().decide(node_id)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"x": float("nan")}, ParameterInvalid),
        ({"x": "\x00"}, ParameterInvalid),
        ({"x": "y" * 70_000}, PayloadTooLarge),
    ],
)
def test_data_that_cannot_be_stored_is_refused(data: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        gated().decide("gate", data=data)


def test_a_decision_in_the_moment_of_a_result_takes_both() -> None:
    nodes = {
        "start": {"type": "start", "next": ["gate", "a"]},
        "gate": {"type": "gate"},
        "a": task(),
        "b": task("gate", "a"),
    }
    world = World(workflow_of(nodes))
    world.claim("a")
    world.report("a", advance=False)
    world.decide("gate")
    assert world.statuses()["b"] == "DISPATCHED"


def gates_only(world: World) -> bool:
    return only_gates_wait(Run(world.workflow, world.state, world.now, CATALOG))


def test_a_job_waits_only_for_gates_when_nothing_else_can_go_on() -> None:
    nodes = {
        "start": {"type": "start", "next": ["gate", "a"]},
        "gate": {"type": "gate", "next": ["b"]},
        "a": task(),
        "b": task(),
        "second": {"type": "gate", "depends_on": {"all_of": ["b"]}},
    }
    world = World(workflow_of(nodes))
    seen = [gates_only(world)]
    world.complete("a")
    seen.append(gates_only(world))
    world.decide("gate")
    seen.append(gates_only(world))
    world.claim("b")
    world.fail("b", "transient")
    seen.append(gates_only(world))
    world.wake()
    world.complete("b")
    seen.append(gates_only(world))
    world.decide("second")
    assert [*seen, gates_only(world)] == [False, True, False, False, True, False]


def test_deciding_is_pure() -> None:
    world = gated()
    before = replace(world.state)
    args = {"node_id": "gate", "decision": "approved"}
    made = [command(world.workflow, world.state, world.now, "gate", args, actor="ann") for _ in range(2)]
    assert made[0] == made[1]
    assert world.state == before
