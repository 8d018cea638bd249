"""Whatever happens to the children of a fan-out, and in whatever order, the laws of `worlds` and these hold."""

import itertools
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.event_log import ranges
from core.dag.nodes import Tolerate
from core.dag.state import Decision
from core.dag.tallies import child_id, items_of, parent_of, tally_of, tolerated_items
from core.statuses import ATTEMPT_FINAL, JOB_FINAL, NODE_FINAL, AttemptState, NodeStatus
from tests.unit.core.dag.fan_outs import PERMANENT, TRANSIENT, PartialWorld, outcome, workflow_with
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.replay import Replay

IN_FLIGHT = frozenset({NodeStatus.DISPATCHED, NodeStatus.RUNNING})


class CountingWorld(PartialWorld):
    """Counts everything anew after every evaluation."""

    def __init__(self, workflow: Workflow, inputs: dict[str, Any]) -> None:
        self.replay = Replay()
        super().__init__(workflow, inputs)

    def advance(self) -> Decision:
        before = dict(self.state.children)
        decision = super().advance()
        self.replay.assert_leads_to(self.state, self.events)
        for key, child in before.items():
            if child.status in NODE_FINAL:
                assert self.state.children[key] == child
        if fan_out := self.state.fan_outs.get("many"):
            children = list(self.state.children.values())
            live = [child for child in children if child.status not in NODE_FINAL]
            assert fan_out.active == len(live) <= max(fan_out.max_concurrency, 0)
            assert fan_out.next_child == len(children)
            tallies = [tally_of(fan_out, child) for child in children]
            assert fan_out.succeeded == sum(one.succeeded for one in tallies)
            assert fan_out.failed == sum(one.failed for one in tallies)
            if fan_out.state == "done":
                assert fan_out.succeeded + fan_out.failed + fan_out.skipped == fan_out.item_count
                assert not live
            assert (fan_out.state == "done") == (self.node("many").status in NODE_FINAL)
        self._nothing_more_to_do()
        return decision

    def _nothing_more_to_do(self) -> None:
        again = advance(self.workflow, self._seen(), self.now)
        assert replace(again, wake_at=None, chores=()) == Decision()
        if self.job.status in JOB_FINAL:
            assert all(child.status in NODE_FINAL for child in self.state.children.values())
            assert all(attempt.state in ATTEMPT_FINAL for attempt in self.state.attempts.values())
        elif self.job.paused_at is None:
            assert self.job.wake_at is not None
            assert self.job.wake_at > self.now


@st.composite
def worlds(draw: st.DrawFn) -> CountingWorld:
    """Draw a fan-out of any shape."""
    retry = {"max_retries": draw(st.integers(0, 2)), "max_losses": draw(st.integers(0, 2))}
    fan_out = {
        "max_concurrency": draw(st.integers(1, 4)),
        "batch_size": draw(st.integers(1, 3)),
        "tolerate": draw(st.sampled_from([{"count": 0}, {"count": 2}, {"percent": 50}, {"percent": 100}])),
        "best_effort": draw(st.booleans()),
        "task": {"retry": retry, "timeout_seconds": 50, "params": {"v": "{{ item.v }}"}},
    }
    items = draw(st.lists(st.sampled_from([{"v": 1}, {"v": 1}, {"v": 1}, {}]), max_size=12))
    join = {"aggregation": draw(st.sampled_from(["collect", "count"])), "depends_on": {"all_done": ["many"]}}
    workflow = workflow_with(fan_out, join, on_failure=draw(st.sampled_from(["drain", "cancel"])))
    return CountingWorld(workflow, {"items": items})


@LAWS
@given(worlds(), st.integers(0, 2**32))
def test_every_fan_out_ends_whatever_happens_and_what_is_not_loaded_makes_no_difference(
    world: CountingWorld, seed: int
) -> None:
    chance = Random(seed)
    for _ in range(400):
        if world.job.status in JOB_FINAL:
            break
        happen(world, chance)
    assert world.job.status in JOB_FINAL
    fan_out = world.fan_out("many")
    if world.node("join").status is NodeStatus.COMPLETED and fan_out.state == "done":
        assert world.node("join").output["count"] == fan_out.succeeded
    expected = NodeStatus.FAILED if fan_out.failed > fan_out.tolerated else NodeStatus.COMPLETED
    assert world.node("many").status in {expected, NodeStatus.CANCELLED}


def happen(world: CountingWorld, chance: Random) -> None:
    """Let something happen to a child, or time pass."""
    flying = [key for key, child in world.state.children.items() if child.status in IN_FLIGHT]
    action = chance.choice(["end", "end", "end", "fail", "pass", "lose", "release", "pause", "late", "window"])
    if not flying or action in {"pause", "window"}:
        world.set_job(paused_at=None if world.job.paused_at or not flying else world.now)
        if "many" in world.state.fan_outs and action == "window":
            bound = max(world.fan_out("many").active, chance.randint(1, 4))
            world.set_fan_out("many", max_concurrency=bound)
        world.wake() if world.job.wake_at and not flying else world.tick(0)
        return
    key = chance.choice(flying)
    if action == "late" and world.rows:
        world.put(chance.choice(list(world.rows.values())).model_copy(update={"status": "failed", "error": PERMANENT}))
        world.advance()
        return
    if world.attempt(key).state is AttemptState.QUEUED:
        world.claim(key)
    if action == "lose":
        world.tick(20)
    else:
        report(world, chance, key, action)


def report(world: CountingWorld, chance: Random, key: str, action: str) -> None:
    """Report what became of a child, of each item of a batch by itself."""
    child = world.node(key)
    errors = {"end": (None, None), "fail": (PERMANENT, None), "pass": (TRANSIENT, None)}.get(action, (None, None))
    fields: dict[str, Any] = {}
    if child.outcomes is not None:
        items = items_of(world.fan_out("many"), child.fan_out_index or 0)
        fields["outcomes"] = [outcome(index, chance.choice(errors)) for index in items if chance.random() < 0.9]
    if action == "release":
        world.report(key, "released", **fields)
    elif errors[0] is not None and child.outcomes is None:
        world.report(key, "failed", error=errors[0])
    else:
        world.report(key, **fields)


@LAWS
@given(st.sets(st.integers(0, 60)))
def test_ranges_say_the_same_as_the_numbers(numbers: set[int]) -> None:
    found = ranges(numbers)
    assert {number for first, last in found for number in range(first, last + 1)} == numbers
    assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(found))


@LAWS
@given(st.from_regex(r"\A[A-Za-z][A-Za-z0-9]{0,5}(_[A-Za-z0-9]{1,5}){0,2}\Z"), st.integers(0, 10**6))
def test_the_id_of_a_child_names_its_fan_out_and_no_other_id_does(node_id: str, number: int) -> None:
    assert parent_of(child_id(node_id, number)) == node_id
    assert parent_of(node_id) is None


@LAWS
@given(st.floats(0, 100), st.integers(0, 10_000))
def test_never_more_items_are_tolerated_than_there_are(percent: float, count: int) -> None:
    assert 0 <= tolerated_items(Tolerate(percent=percent), count) <= count
