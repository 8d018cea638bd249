"""Each node says what it waits for, by what is known now and not when it was evaluated last."""

from typing import Any

import pytest

from core.dag.why import Surroundings, waiting_for
from core.statuses import AttemptState
from tests.unit.core.dag.harness import START, World, chain, retrying, task, workflow_of
from tests.unit.core.dag.test_large_values import BIG, BlobWorld

QUEUE = "functionapp-tasks"


def why(world: World, *pauses: str, workers: int = 1) -> dict[str, Any]:
    """Return {node: (kind, detail)} of what waits."""
    around = Surroundings(frozenset(pauses), {QUEUE: workers} if workers else {})
    state = world.state
    found = waiting_for(world.workflow, state.job, state.nodes, state.attempts, around)
    return {key: (reason["kind"], reason["detail"]) for key, reason in found.items() if reason is not None}


def test_a_node_waits_for_those_of_its_sources_that_are_open() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(), "b": task(), "c": task("a", "b")}
    world = World(workflow_of(nodes))
    assert why(world)["c"] == ("dependency", {"open": ["a", "b"]})
    world.complete("a")
    assert why(world)["c"] == ("dependency", {"open": ["b"]})


def test_a_task_in_a_queue_waits_for_one_of_its_workers() -> None:
    world = World(workflow_of(chain("a")))
    assert why(world, workers=3)["a"] == ("queue", {"queue": QUEUE, "workers": 3, "since": START.isoformat()})


def test_without_a_worker_it_waits_for_one() -> None:
    assert why(World(workflow_of(chain("a"))), workers=0)["a"] == ("worker", {"queue": QUEUE})


def test_what_does_not_fit_says_what_was_lacking() -> None:
    world = World(workflow_of(chain("a")))
    world.set_attempt("a", no_fit="needs 9 bytes of memory, 1 are free")
    assert why(world)["a"][0] == "no_fit"
    assert why(world)["a"][1]["reason"] == "needs 9 bytes of memory, 1 are free"
    assert why(world, workers=0)["a"][0] == "worker"


@pytest.mark.parametrize("state", [AttemptState.QUEUED, AttemptState.PARKED])
@pytest.mark.parametrize("switch", ["all", "workflow:w", f"queue:{QUEUE}"])
def test_what_a_switch_holds_names_it_at_once(switch: str, state: AttemptState) -> None:
    world = World(workflow_of(chain("a")))
    world.set_attempt("a", state=state)
    assert why(world, switch)["a"] == ("paused", switch)


def test_a_paused_job_holds_its_own_tasks() -> None:
    world = World(workflow_of(chain("a")))
    world.set_job(paused_at=world.now)
    assert why(world)["a"] == ("paused", "job")


def test_a_running_task_and_nodes_that_ended_wait_for_nothing() -> None:
    world = World(workflow_of(chain("a")))
    world.claim("a")
    assert set(why(world, "all")) == {"end"}


def test_a_backoff_is_told_as_it_was_noted() -> None:
    world = retrying()
    world.fail("a", "transient")
    assert why(world)["a"][0] == "backoff"


def test_a_node_whose_when_reads_a_large_value_waits_for_that_and_not_for_its_sources() -> None:
    nodes = chain("a", "b")
    nodes["b"]["when"] = "{{ nodes.a.output.count }} > 0"
    world = BlobWorld(workflow_of(nodes))
    world.complete_large("a", BIG)
    assert (why(world)["b"][0], why(world)["end"][0]) == ("payload", "dependency")
    world.answer()
    assert why(world)["b"][0] == "queue"


def test_a_gate_is_told_as_it_was_noted() -> None:
    world = World(workflow_of({"start": {"type": "start", "next": ["g"]}, "g": {"type": "gate"}}))
    assert why(world)["g"] == ("gate", {"expires_at": None})


def test_in_a_job_that_ended_nothing_waits() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.fail("a")
    assert why(world) == {}
