"""Laws of slots over random workflows: nothing runs without its slot, and nothing is held that nobody needs."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from core.dag.definition import Workflow
from core.dag.gates import only_gates_wait
from core.dag.run import Run
from core.dag.state import Decision
from core.ids import task_id
from core.statuses import JOB_FINAL, AttemptState, NodeStatus
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.worlds import IN_FLIGHT, LawfulWorld, play, workflows

SLOT = {"key": "k", "limit": 1}
OVER = frozenset({AttemptState.REVOKED, AttemptState.EXPIRED})


@st.composite
def slotted(draw: st.DrawFn) -> Workflow:
    """Draw a workflow whose job and some of whose tasks hold slots."""
    definition = draw(workflows()).to_json()
    for node in definition["nodes"].values():
        if node["type"] == "task" and draw(st.booleans()):
            node["concurrency"] = SLOT
    if draw(st.booleans()):
        definition["concurrency"] = SLOT
    return Workflow.from_json(definition)


class SlotWorld(LawfulWorld):
    """Grants now and then, and checks what is held after every evaluation."""

    def __init__(self, workflow: Workflow, chance: Random) -> None:
        self.chance = chance
        super().__init__(workflow)

    def write(self, decision: Decision) -> Decision:
        super().write(decision)
        self._what_is_held_is_needed()
        return decision

    def _what_is_held_is_needed(self) -> None:
        needed = {"job1"} if self.workflow.concurrency is not None and self.job.status not in JOB_FINAL else set()
        for node_id in self.workflow.slotted:
            node = self.node(node_id)
            if node.status in IN_FLIGHT and node.task_id is not None:
                needed.add(node.task_id)
            elif node.status is NodeStatus.WAITING and (node.waiting_for or {}).get("kind") == "slot":
                needed.add(task_id("job1", node_id, node.attempt))
        lingering = {attempt.task_id for attempt in self.state.attempts.values() if attempt.state in OVER}
        assert self.state.slots.keys() <= needed | lingering
        assert needed - {"job1"} <= self.state.slots.keys()
        slot = self.state.slots.get("job1")
        if slot is not None and slot.noticed:
            assert not only_gates_wait(Run(self.workflow, self.state, self.now, {}))

    def in_flight(self) -> list[str]:
        """Grant to somebody who waits, when nothing else can happen and sometimes else."""
        while (waiting := self.wanted_slots()) and (not super().in_flight() or self.chance.random() < 0.3):
            if self.job.paused_at is not None:
                break
            self.grant(self.chance.choice(waiting))
        return super().in_flight()


@LAWS
@given(slotted(), st.integers(0, 2**32))
def test_jobs_with_slots_end_and_hold_only_what_they_need(workflow: Workflow, seed: int) -> None:
    chance = Random(seed)
    world = SlotWorld(workflow, chance)
    play(world, chance)
    assert world.ended
    assert not world.wanted_slots()
