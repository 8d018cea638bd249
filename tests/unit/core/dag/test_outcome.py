from datetime import timedelta
from typing import Any

import pytest

from core.statuses import AttemptState, JobStatus
from tests.unit.core.dag.harness import World, task, workflow_of


def diamond(join: str, **end: Any) -> World:
    nodes = {
        "start": {"type": "start", "next": ["a", "b"]},
        "a": task(),
        "b": task(best_effort=end.pop("best_effort", False)),
        "c": task("a", "b", join=join, next=["end"]),
        "end": {"type": "end"},
    }
    return World(workflow_of(nodes, **end))


@pytest.mark.parametrize(
    ("join", "status", "job"),
    [("all_of", "SKIPPED", "FAILED"), ("any_of", "DISPATCHED", "RUNNING"), ("all_done", "DISPATCHED", "RUNNING")],
)
def test_a_join_waits_for_every_edge_and_then_follows_its_rule(join: str, status: str, job: str) -> None:
    world = diamond(join)
    world.complete("a")
    assert world.statuses()["c"] == "PENDING"
    world.fail("b")
    assert (world.statuses()["c"], world.job.status.value) == (status, job)
    if status == "DISPATCHED":
        world.complete("c")
        assert world.job.status is JobStatus.FAILED
        assert world.statuses()["end"] == "COMPLETED"


def test_a_best_effort_failure_becomes_a_warning() -> None:
    world = diamond("all_of", best_effort=True)
    world.fail("b")
    world.complete("a")
    world.complete("c")
    assert world.job.status is JobStatus.COMPLETED
    (warning,) = world.job.warnings
    assert (warning["code"], warning["node_id"]) == ("BROKEN", "b")


def test_draining_lets_other_branches_finish() -> None:
    world = diamond("all_of")
    world.fail("a")
    assert world.job.status is JobStatus.RUNNING
    world.complete("b")
    assert world.statuses() | {"start": ""} == {
        "start": "", "a": "FAILED", "b": "COMPLETED", "c": "SKIPPED", "end": "SKIPPED"
    }  # fmt: skip
    assert world.job.status is JobStatus.FAILED


def test_on_failure_cancel_takes_the_other_branches_back() -> None:
    world = diamond("all_of", on_failure="cancel")
    world.claim("b")
    world.fail("a")
    assert world.statuses()["b"] == "CANCELLED"
    assert world.job.status is JobStatus.FAILED
    ends = world.decisions[-1].attempts_ended
    assert [(end.task_id, end.state) for end in ends] == [("job1_b_0", AttemptState.REVOKED)]


def test_on_failure_cancel_spares_all_done_joins_and_what_follows_them() -> None:
    world = diamond("all_done", on_failure="cancel")
    world.fail("a")
    assert world.statuses() == {
        "start": "COMPLETED", "a": "FAILED", "b": "CANCELLED", "c": "DISPATCHED", "end": "PENDING"
    }  # fmt: skip
    world.complete("c")
    assert world.statuses()["end"] == "COMPLETED"
    assert world.job.status is JobStatus.FAILED


@pytest.mark.parametrize("ends_first", [False, True])
def test_on_failure_cancel_spares_what_follows_an_all_done_join_that_has_ended(ends_first: bool) -> None:
    nodes = {
        "start": {"type": "start", "next": ["a", "other", "early"]},
        "early": task(),
        "a": task(next=["end"]),
        "other": task(next=["end"]),
        "join": task("early", *([] if ends_first else ["a"]), join="all_done"),
        "tidy": task("join"),
        "tell": task("tidy", next=["end"]),
        "end": {"type": "end"},
    }
    world = World(workflow_of(nodes, on_failure="cancel"))
    if ends_first:
        world.complete("early")
        world.complete("join")
    world.fail("a")
    assert world.statuses()["other"] == "CANCELLED"
    if not ends_first:
        assert world.statuses()["early"] == "CANCELLED"
        world.complete("join")
    world.complete("tidy")
    world.complete("tell")
    assert (world.statuses()["end"], world.job.status) == ("SKIPPED", JobStatus.FAILED)


def test_a_node_that_fails_before_its_dispatch_stops_siblings_of_the_same_evaluation() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a", "b"]},
        "a": task(next=["end"]),
        "b": task(params={"x": "{{ inputs.nope }}"}, next=["end"]),
        "end": {"type": "end"},
    }
    world = World(workflow_of(nodes, on_failure="cancel"))
    assert not world.decisions[0].dispatches
    assert world.statuses()["a"] == "CANCELLED"
    assert world.job.status is JobStatus.FAILED


def test_a_task_that_is_due_to_be_sent_again_is_not_when_a_failure_takes_it_back() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(), "b": task(), "end": {"type": "end"}}
    nodes["end"] = {"type": "end", "depends_on": {"all_of": ["a", "b"]}}
    world = World(workflow_of(nodes, on_failure="cancel"))
    world.now += timedelta(hours=1)
    world.fail("b")
    decision = world.decisions[-1]
    assert ([end.task_id for end in decision.attempts_ended], decision.redispatches) == (["job1_a_0"], ())


def test_the_root_cause_is_the_failure_that_came_first() -> None:
    world = diamond("all_of")
    world.fail("b", code="FIRST")
    world.tick(1)
    world.fail("a", code="SECOND")
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["node_id"]) == ("FIRST", "b")
