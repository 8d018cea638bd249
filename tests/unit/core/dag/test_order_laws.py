"""Whatever is ordered of a job, and whenever, no law of `worlds` and `order_histories` is broken.

Histories of a seed are long; those whose chance is Hypothesis' own are shorter, and shrink when a law is broken.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.dag.harness import task, workflow_of
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.order_bugs import BUGS
from tests.unit.core.dag.order_histories import OrderedWorld, finish, play

MANY = settings(LAWS, max_examples=LAWS.max_examples * 5 // 2)
MOST_SEEDS = 100
FOUND_BY = {"who_asked_asks_on": 580}
"""Seeds that have found a rare bug; others are tried when histories take other steps than they did."""
ANYTIME = ("rerun", "retry")
MEANWHILE = ("skip", "pause", "resume", "window", "priority", "cancel", "gate")


@MANY
@given(st.integers(0, 2**32))
def test_no_order_breaks_a_law_in_a_long_history(seed: int) -> None:
    assert play(Random(seed)).ended


@LAWS
@given(st.randoms(use_true_random=False))
def test_no_order_breaks_a_law_in_a_history_that_shrinks(chance: Random) -> None:
    assert play(chance).ended


@pytest.mark.parametrize("seed", [11, 23, 103, 205, 229, 247, 580, 826])
def test_a_seed_that_found_a_fault_finds_none_any_more(seed: int) -> None:
    """The last two: a job at a gate stood in the line for a slot. The others: a failure that came again did not count.

    After a retry or rerun a node failed again at once, and under `on_failure: cancel` the others went on.
    """
    assert play(Random(seed)).ended


def test_every_order_is_obeyed_in_these_histories_and_those_that_start_anew_while_work_is_out_too() -> None:
    wanted = {*((kind, False) for kind in (*ANYTIME, *MEANWHILE)), *((kind, True) for kind in ANYTIME)}
    assert wanted == set().union(*(play(Random(seed)).obeyed for seed in range(60)))


def beside(failing: dict[str, Any], **fields: Any) -> OrderedWorld:
    """Return a world, under `on_failure: cancel`, of a task, what fails beside it, and a gate that is spared."""
    start = {"depends_on": {"all_of": ["start"]}}
    nodes = {
        "start": {"type": "start"},
        "good": task("start"),
        "failing": {**failing, **start},
        "spared": {"type": "gate", "depends_on": {"all_done": ["start"]}},
        "end": {"type": "end", "depends_on": {"all_done": ["good", "failing", "spared"]}},
    }
    inputs = {"o": {"type": "object", "default": {}}}
    return OrderedWorld(workflow_of(nodes, on_failure="cancel", inputs=inputs, **fields), [])


@pytest.mark.parametrize("order", ["retry", "rerun"])
def test_a_failure_that_comes_again_at_once_cancels_the_rest_again(order: str) -> None:
    world = beside(task(params={"v": "{{ inputs.o.gone }}"}))
    assert world.order(order)
    ends = {"start": "COMPLETED", "good": "CANCELLED", "failing": "FAILED", "spared": "WAITING", "end": "PENDING"}
    assert world.statuses() == ends
    finish(world)


def test_a_job_at_a_gate_does_not_stand_in_line_for_what_was_cancelled_in_the_same_step() -> None:
    world = beside({"type": "gate"}, concurrency={"key": "j", "limit": 1})
    assert world.wanted_slots() == ["job1"]
    assert world.order("gate", node_id="failing", decision="rejected")
    assert not world.wanted_slots()
    finish(world)


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_the_laws_find_a_planted_bug(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    BUGS[bug](monkeypatch)
    for seed in (FOUND_BY.get(bug, 0), *range(MOST_SEEDS)):
        try:
            play(Random(seed))
        except AssertionError:
            return
    pytest.fail(f"{bug} was not found in {MOST_SEEDS} seeds")
