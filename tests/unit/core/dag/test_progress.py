"""How far a job is, and when it may be done."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.dag.progress import Facts, Progress, progress_of
from core.models.fan_out import FanOut
from core.statuses import NodeStatus
from tests.unit.core.dag.harness import START, World, chain, task, workflow_of


def progress(world: World, medians: dict[str, float] | None = None, **more: Any) -> Progress:
    state = world.state
    facts = Facts(
        state.nodes, state.attempts, state.fan_outs, medians or {}, paused=False, paused_queues=(), now=world.now
    )
    return progress_of(world.workflow, replace(facts, **more))


def test_every_node_that_ended_counts_the_same() -> None:
    world = World(workflow_of(chain("a", "b")))
    seen = progress(world)
    assert (seen.fraction, seen.nodes_done, seen.nodes_total) == (0.25, 1, 4)
    world.complete("a")
    assert progress(world).fraction == 0.5


def test_a_running_task_counts_as_far_as_it_says() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    said = ({"current": 1, "total": 2}, {"current": 9, "total": 2}, {"current": "x"})
    for words, share in zip(said, (0.375, 0.5, 0.25), strict=True):
        world.set_attempt("a", progress=words)
        assert progress(world).fraction == share


def test_a_fan_out_counts_as_far_as_its_items_are() -> None:
    world = World(workflow_of(chain("a")))
    world.workflow = workflow_of(
        {
            "start": {"type": "start", "next": ["a"]},
            "a": {"type": "fan_out", "source": "x", "task": {"handler": "echo"}},
        }
    )
    world.set_node("a", status=NodeStatus.RUNNING, started_at=START)
    row = FanOut(
        job_id="job1", node_id="a", state="running", item_count=8, child_count=8, batch_size=1, max_concurrency=2,
        tolerated=0, succeeded=1, failed=1, created_at=START,
    )  # fmt: skip
    world.now = START + timedelta(seconds=10)
    seen = progress(world, fan_outs={"a": row})
    assert (seen.fraction, seen.items_done, seen.items_total, seen.eta_seconds) == (0.625, 2, 8, 30.0)


def test_the_longest_way_that_is_left_says_when_it_may_be_done() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a", "b"]}, "a": task(), "b": task(), "c": task("a", "b"),
        "end": {"type": "end", "depends_on": {"all_of": ["c"]}},
    }  # fmt: skip
    world = World(workflow_of(nodes))
    medians = {"a": 10.0, "b": 60.0, "c": 5.0}
    assert progress(world, medians).eta_seconds == 65.0
    world.complete("a")
    world.claim("b")
    world.now += timedelta(seconds=20)
    assert progress(world, medians).eta_seconds == 45.0


def test_nobody_can_tell_when_something_ends_that_should_have_ended_already() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    world.now += timedelta(seconds=9)
    assert progress(world, {"a": 10.0, "b": 5.0}).eta_seconds == 6.0
    world.now += timedelta(seconds=1)
    assert progress(world, {"a": 10.0, "b": 5.0}).eta_seconds is None
    world.set_attempt("a", progress={"current": 1, "total": 2})
    assert progress(world, {"a": 10.0, "b": 5.0}).eta_seconds == 15.0
    world.set_attempt("a", progress={"current": 2, "total": 2})
    assert progress(world, {"a": 10.0, "b": 5.0}).eta_seconds is None


def test_the_time_in_a_queue_counts_as_it_does_in_earlier_jobs() -> None:
    world = World(workflow_of(chain("a")))
    world.now += timedelta(seconds=4)
    assert progress(world, {"a": 10.0}).eta_seconds == 6.0
    world.now += timedelta(seconds=6)
    assert progress(world, {"a": 10.0}).eta_seconds is None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("queue", True), ("backoff", True), ("released", True), ("child", True), ("payload", True),
        ("worker", False), ("no_fit", False), ("dead_letter", False), ("paused", False), ("slot", False),
    ],
)  # fmt: skip
def test_what_waits_for_something_that_may_never_come_has_no_time(kind: str, told: bool) -> None:
    world = World(workflow_of(chain("a", "b")))
    reasons = {"a": {"kind": kind, "detail": {}}, "b": {"kind": "dependency", "detail": {"open": ["a"]}}}
    seen = progress(world, {"a": 10.0, "b": 5.0}, reasons=reasons).eta_seconds
    assert seen == (15.0 if told else None)


@pytest.mark.parametrize(("waiting", "told"), [({"worker": 3}, False), ({"slot": 1, "queue": 1}, True)])
def test_a_fan_out_has_no_time_when_all_its_children_wait_for_what_may_never_come(
    waiting: dict[str, int], told: bool
) -> None:
    each = {"type": "fan_out", "source": "{{ [1] }}", "task": {"handler": "echo", "params": {}}}
    world = World(workflow_of({"start": {"type": "start", "next": ["each"]}, "each": each}))
    reasons = {"each": {"kind": "children", "detail": {"waiting": waiting}}}
    assert (progress(world, {"each": 10.0}, reasons=reasons).eta_seconds is not None) == told


def test_a_fan_out_behind_a_busy_worker_has_no_time_once_it_is_late() -> None:
    each = {"type": "fan_out", "source": "{{ [1] }}", "task": {"handler": "echo", "params": {}}}
    world = World(workflow_of({"start": {"type": "start", "next": ["each"]}, "each": each}))
    assert progress(world, {"each": 10.0}).eta_seconds == 10.0
    world.now += timedelta(seconds=60)
    assert progress(world, {"each": 10.0}).eta_seconds is None


def test_what_was_never_done_before_or_is_held_has_no_time() -> None:
    world = World(workflow_of(chain("a", "b")))
    assert progress(world, {"a": 1.0}).eta_seconds is None
    assert progress(world, {"a": 1.0, "b": 1.0}, paused=True).eta_seconds is None


def test_a_running_task_is_judged_by_its_own_speed() -> None:
    world = World(workflow_of(chain("a")))
    world.claim("a")
    world.now += timedelta(seconds=10)
    world.set_attempt("a", progress={"current": 1, "total": 4})
    assert progress(world, {"a": 1000.0}).eta_seconds == 30.0


def test_nobody_can_tell_when_a_gate_will_be_decided_whatever_earlier_ones_took() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a"]}, "a": task(next=["gate"]),
        "gate": {"type": "gate", "next": ["end"]}, "end": {"type": "end"},
    }  # fmt: skip
    world = World(workflow_of(nodes))
    medians = {"a": 1.0, "gate": 40.0}
    assert progress(world, medians).eta_seconds is None
    world.complete("a")
    assert progress(world, medians).eta_seconds is None


def test_a_paused_queue_holds_what_is_not_at_work_yet() -> None:
    world = World(workflow_of(chain("a", "b")))
    medians, queue = {"a": 10.0, "b": 5.0}, frozenset({"functionapp-tasks"})
    assert progress(world, medians, paused_queues=frozenset({"container-tasks"})).eta_seconds == 15.0
    assert progress(world, medians, paused_queues=queue).eta_seconds is None
    world.complete("a")
    world.claim("b")
    assert progress(world, medians, paused_queues=queue).eta_seconds == 5.0


def test_no_number_that_a_handler_reports_is_too_large() -> None:
    world = World(workflow_of(chain("a")))
    world.claim("a")
    for current, total, share in ((10**400, 1, 2 / 3), (-(10**400), 1, 1 / 3), (1, 10**400, 1 / 3), (1, 0, 1 / 3)):
        world.set_attempt("a", progress={"current": current, "total": total})
        assert progress(world).fraction == round(share, 4)
