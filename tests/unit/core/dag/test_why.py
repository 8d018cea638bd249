"""Each node says what it waits for, by what is known now and not when it was evaluated last."""

from pathlib import Path
from typing import Any

import pytest

from core.dag.why import KINDS, Alike, Children, Surroundings, children_of, told, waiting_for
from core.statuses import AttemptState, NodeStatus
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
    assert why(world, switch)["a"] == ("paused", {"switches": [switch]})


def test_a_paused_job_holds_its_own_tasks() -> None:
    world = World(workflow_of(chain("a")))
    world.set_job(paused_at=world.now)
    assert why(world)["a"] == ("paused", {"switches": ["job"]})


def test_a_running_task_and_nodes_that_ended_wait_for_nothing() -> None:
    world = World(workflow_of(chain("a")))
    world.claim("a")
    assert set(why(world, "all")) == {"end"}


GROUPS = (
    Alike("each", "leased", QUEUE, no_fit=False, lost=False, count=2),
    Alike("each", "queued", QUEUE, no_fit=False, lost=False, count=3),
    Alike("each", "queued", QUEUE, no_fit=True, lost=False, count=4),
    Alike("each", "slot", None, no_fit=False, lost=False, count=5),
    Alike("each", "backoff", None, no_fit=False, lost=False, count=6),
    Alike("each", "queued", QUEUE, no_fit=True, lost=True, count=8),
    Alike("other", "parked", QUEUE, no_fit=False, lost=False, count=7),
)


@pytest.mark.parametrize(
    ("pauses", "workers", "each", "other"),
    [
        ((), 1, {"backoff": 6, "dead_letter": 8, "no_fit": 4, "queue": 3, "slot": 5}, {"queue": 7}),
        ((), 0, {"backoff": 6, "dead_letter": 8, "slot": 5, "worker": 7}, {"worker": 7}),
        (("all",), 1, {"backoff": 6, "paused": 15, "slot": 5}, {"paused": 7}),
    ],
)
def test_children_are_counted_by_what_they_wait_for(
    pauses: tuple[str, ...], workers: int, each: dict[str, int], other: dict[str, int]
) -> None:
    job = World(workflow_of(chain("a"))).job
    around = Surroundings(frozenset(pauses), {QUEUE: workers})
    assert children_of(job, GROUPS, around) == {"each": Children(2, each), "other": Children(0, other)}


@pytest.mark.parametrize(("running", "told_as"), [(0, {"waiting": {"slot": 3}}), (1, None)])
def test_a_fan_out_waits_for_its_children_when_none_runs(running: int, told_as: Any) -> None:
    each = {"type": "fan_out", "source": "{{ [1] }}", "task": {"handler": "echo", "params": {}}}
    world = World(workflow_of({"start": {"type": "start", "next": ["each"]}, "each": each}))
    assert world.node("each").status is NodeStatus.RUNNING
    crowd = {"each": Children(running, {"slot": 3}), "gone": Children(0, {"slot": 3})}
    state, around = world.state, Surroundings(frozenset(), {})
    found = waiting_for(world.workflow, state.job, state.nodes, {}, around, crowd)["each"]
    assert found == (told_as and {"kind": "children", "detail": told_as})
    world.set_node("each", waiting_for={"kind": "paused", "detail": "all"})
    found = waiting_for(world.workflow, state.job, world.state.nodes, {}, around, crowd)["each"]
    assert found == {"kind": "paused", "detail": {"switches": ["all"]}}


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


@pytest.mark.parametrize(
    ("stored", "detail"),
    [
        ({"kind": "paused", "detail": "job"}, {"switches": ["job"]}),
        ({"kind": "paused", "detail": ["all", "workflow:w"]}, {"switches": ["all", "workflow:w"]}),
        ({"kind": "paused", "detail": {"switch": "all", "params_digest": "x"}}, {"switches": ["all"]}),
        ({"kind": "slot", "detail": {"key": "w:roads"}}, {"key": "w:roads", "holder": "job"}),
        (
            {"kind": "slot", "detail": {"key": "w:b", "holder": "attempt", "params_digest": "x"}},
            {"key": "w:b", "holder": "attempt"},
        ),
        ({"kind": "backoff", "detail": {"until": "t"}}, {"until": "t", "code": None}),
        ({"kind": "released", "detail": "SIGTERM"}, {"reason": "SIGTERM"}),
        ({"kind": "released", "detail": {"until": "t"}}, {"reason": None}),
        ({"kind": "payload", "detail": {"value": "v", "reads": ["b"], "slot": "held"}}, {"value": "v", "reads": ["b"]}),
        ({"kind": "gate"}, {"expires_at": None}),
        ({"kind": "later", "detail": {"a": 1}}, {"a": 1}),
        ({"kind": "later", "detail": None}, {}),
    ],
)
def test_whatever_a_row_says_is_told_in_one_shape(stored: dict[str, Any], detail: dict[str, Any]) -> None:
    assert told(stored) == {"kind": stored["kind"], "detail": detail}
    assert told(told(stored)) == told(stored)


def test_the_page_has_every_kind_with_all_that_its_detail_has() -> None:
    page = (Path(__file__).parents[4] / "docs/workflow-language.md").read_text()
    for kind, names in KINDS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` | `{{")]
        assert row.startswith(f"| `{kind}` | `{{{', '.join(names)}}}` |")


def test_what_several_pauses_hold_names_them_all() -> None:
    world = World(workflow_of(chain("a")))
    world.set_job(paused_at=world.now)
    assert why(world, "all", f"queue:{QUEUE}")["a"] == ("paused", {"switches": ["job", "all", f"queue:{QUEUE}"]})
    world.set_node("a", status=NodeStatus.READY, waiting_for={"kind": "paused", "detail": f"queue:{QUEUE}"})
    assert why(world, "all")["a"] == ("paused", {"switches": ["job", "all", f"queue:{QUEUE}"]})


def test_a_node_that_would_start_and_its_job_name_all_that_holds_them() -> None:
    pauses = ("all", "workflow:w", f"queue:{QUEUE}")
    world = World(workflow_of(chain("a")), pauses=pauses, paused_at=START)
    every = {"kind": "paused", "detail": {"switches": ["job", *pauses]}}
    assert world.node("a").status is NodeStatus.READY
    assert why(world, *pauses)["a"] == ("paused", every["detail"])
    assert told(world.job.waiting_for) == every
    world.set_job(paused_at=None)
    world.pauses(f"queue:{QUEUE}", "queue:container-tasks")
    world.advance()
    assert told(world.job.waiting_for) == {"kind": "paused", "detail": {"switches": [f"queue:{QUEUE}"]}}
