"""Slots of the children of a fan-out: the window lets them line up, the key lets them go."""

from dataclasses import replace
from typing import Any

import pytest

from core.dag.commands import command
from core.dag.slots import waiting
from core.dag.state import Decision
from core.payloads import PayloadRef
from core.statuses import JobStatus, NodeStatus
from tests.unit.core.dag.fan_outs import PERMANENT, TRANSIENT, PartialWorld, fanned, workflow_with
from tests.unit.core.dag.harness import START, World

KINDS = pytest.mark.parametrize("kind", [World, PartialWorld], ids=["all_loaded", "touched_only"])
SLOT = {"key": "{{ item }}", "limit": 2}


def slotted(items: list[Any], kind: type[World] = World, key: str = "{{ item }}", **fan_out: Any) -> World:
    return fanned(items, kind, task={"concurrency": {"key": key, "limit": 2}}, **fan_out)


def requests(decision: Decision) -> dict[str, str]:
    return {one.holder: one.key for one in decision.slots.requests}


@KINDS
def test_children_line_up_under_the_keys_of_their_items_and_go_when_granted(kind: type[World]) -> None:
    world = slotted(["a", "b", "a"], kind)
    assert requests(world.decisions[0]) == {"job1_many__0_0": "w:a", "job1_many__1_0": "w:b", "job1_many__2_0": "w:a"}
    assert set(world.children().values()) == {"WAITING"}
    assert world.decisions[0].dispatches == ()
    assert world.node("many__1").waiting_for == {"kind": "slot", "detail": {"key": "w:b", "holder": "attempt"}}
    decision = world.grant("job1_many__1_0")
    assert [one.node_id for one in decision.dispatches] == ["many__1"]
    assert decision.slots.noticed == ("job1_many__1_0",)
    assert world.node("many__1").input_params == {"v": "b", "n": 1}
    world.complete("many__1")
    assert world.decisions[-1].slots.freed == ("job1_many__1_0",)
    for number in (0, 2):
        world.grant(f"job1_many__{number}_0")
        world.complete(f"many__{number}")
    assert world.job.status is JobStatus.COMPLETED
    assert world.state.slots == {}


def test_who_waits_for_a_slot_takes_a_place_in_the_window() -> None:
    world = slotted(list("abcd"), max_concurrency=2)
    assert list(world.children()) == ["many__0", "many__1"]
    assert world.fan_out("many").active == 2


@KINDS
def test_the_next_attempt_of_a_child_lines_up_again_under_the_same_key(kind: type[World]) -> None:
    world = slotted(["a"], kind)
    world.grant("job1_many__0_0")
    world.claim("many__0")
    world.report("many__0", "failed", error=TRANSIENT)
    assert world.decisions[-1].slots.freed == ("job1_many__0_0",)
    assert requests(world.wake()) == {"job1_many__0_1": "w:a"}
    assert [one.attempt for one in world.grant("job1_many__0_1").dispatches] == [1]


def test_a_key_without_value_fails_its_item_alone() -> None:
    world = slotted(["a", {"no": "text"}], tolerate={"count": 1})
    assert world.children() == {"many__0": "WAITING", "many__1": "FAILED"}
    assert world.node("many__1").error["code"] == "SLOT_KEY_INVALID"
    assert requests(world.decisions[0]) == {"job1_many__0_0": "w:a"}


def test_a_batch_lines_up_as_one() -> None:
    world = slotted(list("abc"), key="global:{{ job.workflow_id }}", batch_size=2)
    assert requests(world.decisions[0]) == {"job1_many__0_0": "global:w", "job1_many__1_0": "global:w"}


@KINDS
@pytest.mark.parametrize("how", ["cancel", "skip", "too many failures"])
def test_what_ends_the_fan_out_takes_its_children_out_of_the_line(kind: type[World], how: str) -> None:
    world = slotted(["a", "b", "c"], kind)
    if how == "too many failures":
        world.grant("job1_many__0_0")
        world.claim("many__0")
        world.report("many__0", "failed", error=PERMANENT)
        assert world.decisions[-1].slots.freed == ("job1_many__0_0", "job1_many__1_0", "job1_many__2_0")
        return
    args = {"node_id": "many"} if how == "skip" else {}
    decision = command(world.workflow, world.state, world.now, how, args, actor="ann")
    assert decision.slots.freed == ("job1_many__0_0", "job1_many__1_0", "job1_many__2_0")


@KINDS
def test_a_grant_during_a_pause_is_given_back_and_all_line_up_afterwards(kind: type[World]) -> None:
    world = slotted(["a", "b"], kind)
    world.set_job(paused_at=START)
    world.advance()
    decision = world.grant("job1_many__0_0")
    assert (decision.slots.freed, decision.slots.noticed, decision.dispatches) == (("job1_many__0_0",), (), ())
    assert world.advance().slots.freed == ()
    world.set_job(paused_at=None)
    assert requests(world.advance()) == {"job1_many__0_0": "w:a"}
    assert {child.status for child in world.state.children.values()} == {NodeStatus.WAITING}
    assert [one.node_id for one in world.grant("job1_many__1_0").dispatches] == ["many__1"]


def test_a_fan_out_begins_only_when_its_job_has_its_slot() -> None:
    world = World(workflow_with({}, concurrency={"key": "k", "limit": 1}), {"items": [1]})
    assert world.children() == {}
    assert [one.node_id for one in world.grant("job1").dispatches] == ["many__0"]
    world.complete("many__0")
    assert world.decisions[-1].slots.freed == ("job1",)


def test_large_params_that_were_made_before_the_wait_are_sent_with_their_digest() -> None:
    ref = {"blob": "payloads/job1/values/x.json", "size_bytes": 70_000, "sha256": "0" * 64}
    world = slotted(["a"])
    waits = waiting("w:a", "d1")
    child = world.node("many__0").model_copy(update={"input_ref": ref, "input_params": None, "waiting_for": waits})
    world.state = replace(world.state, children={"many__0": child})
    (dispatch,) = world.grant("job1_many__0_0").dispatches
    assert (dispatch.params_digest, dispatch.params_ref, dispatch.params) == ("d1", PayloadRef.model_validate(ref), {})
    world.claim("many__0")
    world.report("many__0", "failed", error=TRANSIENT)
    world.wake()
    assert world.node("many__0").waiting_for == waits
