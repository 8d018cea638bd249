"""Random workflows, and a world that checks the laws after every evaluation."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from core.dag.child_jobs import waits_for_child
from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.state import Decision, JobState
from core.ids import task_id
from core.statuses import ATTEMPT_FINAL, JOB_FINAL, NODE_FINAL, AttemptState, NodeStatus, SkipReason
from tests.unit.core.dag.harness import World, workflow_of
from tests.unit.core.dag.replay import Replay

RULES = ("all_of", "any_of", "all_done")
IN_FLIGHT = frozenset({NodeStatus.DISPATCHED, NodeStatus.RUNNING})


FLAGS = {f"f{number}": f"{{{{ inputs.f{number} }}}}" for number in range(3)}
"""Inputs that conditions ask for, and how they do."""


@st.composite
def workflows(
    draw: st.DrawFn, on_failure: tuple[str, ...] = ("drain", "cancel"), gates_expire: bool = True
) -> Workflow:
    """Draw a workflow of up to seven nodes: tasks, conditionals and gates with any edges, joins, budgets and flags."""
    ids = [f"n{number}" for number in range(draw(st.integers(0, 7)))]
    nodes: dict[str, Any] = {"start": {"type": "start"}}
    for number, node_id in enumerate(ids):
        kind = draw(st.sampled_from(["task", "task", "task", "conditional", "gate"]))
        nodes[node_id] = {
            **draw(KINDS[kind](ids[number + 1 :], gates_expire)),
            "best_effort": draw(st.booleans()),
            "when": draw(st.sampled_from([None, None, None, *FLAGS.values()])),
            "depends_on": draw(joins(list(nodes))),
        }
    nodes["end"] = {"type": "end", "depends_on": draw(joins(list(nodes)))}
    inputs = {name: {"type": "boolean", "default": draw(st.booleans())} for name in FLAGS}
    return workflow_of(nodes, on_failure=draw(st.sampled_from(on_failure)), inputs=inputs)


@st.composite
def tasks(draw: st.DrawFn, _later: list[str], _expire: bool) -> dict[str, Any]:
    """Draw a task with its budgets."""
    retry = {"max_retries": draw(st.integers(0, 2)), "max_losses": draw(st.integers(0, 2))}
    return {"type": "task", "handler": "echo", "timeout_seconds": 50, "retry": retry}


@st.composite
def conditionals(draw: st.DrawFn, later: list[str], _expire: bool) -> dict[str, Any]:
    """Draw a conditional that chooses among later nodes."""
    pool = [*later, "end"][:4]
    on_true, on_false = (draw(st.permutations(pool))[: draw(st.integers(least, 2))] for least in (1, 0))
    return {
        "type": "conditional",
        "condition": draw(st.sampled_from(list(FLAGS.values()))),
        "on_true": on_true,
        "on_false": on_false,
    }


@st.composite
def gates(draw: st.DrawFn, _later: list[str], expire: bool) -> dict[str, Any]:
    """Draw a gate."""
    return {"type": "gate", "expires_after_seconds": draw(st.sampled_from([None, 100])) if expire else None}


KINDS = {"task": tasks, "conditional": conditionals, "gate": gates}


@st.composite
def joins(draw: st.DrawFn, earlier: list[str]) -> dict[str, list[str]]:
    """Draw a `depends_on` over some of the earlier nodes."""
    sources = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3, unique=True))
    return {draw(st.sampled_from(RULES)): sources}


@st.composite
def presets(draw: st.DrawFn, workflow: Workflow) -> dict[str, SkipReason]:
    """Draw nodes that were skipped before the job went on, as conditionals and operators skip them."""
    tasks = [node_id for node_id in workflow.nodes if node_id.startswith("n")]
    reasons = st.sampled_from([SkipReason.NOT_TAKEN, SkipReason.BYPASSED])
    return draw(st.dictionaries(st.sampled_from(tasks), reasons, max_size=2)) if tasks else {}


class LawfulWorld(World):
    """Asserts after every evaluation, also one with orders, what must hold after every evaluation."""

    def __init__(self, workflow: Workflow, skipped: dict[str, SkipReason] | None = None, **fields: Any) -> None:
        self.dispatched: set[str] = set()
        self.preset = skipped
        self.replay = Replay(dict.fromkeys(skipped or {}, "SKIPPED"))
        super().__init__(workflow, **fields)

    def advance(self) -> Decision:
        if self.preset:
            for node_id, reason in self.preset.items():
                self.set_node(node_id, status=NodeStatus.SKIPPED, skip_reason=reason)
            self.preset = None
        return super().advance()

    def write(self, decision: Decision) -> Decision:
        before = self.state
        super().write(decision)
        self._nothing_final_changed(before, decision)
        self._dispatches_are_due(before, decision)
        self._second_evaluation_changes_nothing()
        self._ends_are_clean()
        self.replay.assert_leads_to(self.state, self.events)
        return decision

    def _nothing_final_changed(self, before: JobState, decision: Decision) -> None:
        """What has ended stays as it is until an order starts it anew, the job also until then."""
        nodes, children = self.state.nodes, self.state.children
        for key, node in {**before.nodes, **before.children}.items():
            anew = (node.parent_node_id or key) in decision.reset
            if node.status in NODE_FINAL and not anew:
                assert (nodes.get(key) or children[key]) == node
        if before.job.status in JOB_FINAL and self.job.run_no == before.job.run_no:
            written = {"version": 0, "updated_at": None}
            assert self.job.model_copy(update=written) == before.job.model_copy(update=written)

    def _dispatches_are_due(self, before: JobState, decision: Decision) -> None:
        """No attempt is sent twice, none before its sources have ended, without its slots, or while the job pauses."""
        assert not (self.job.paused_at and (decision.dispatches or decision.child_jobs))
        granted = {holder for holder, slot in before.slots.items() if slot.granted_at is not None}
        for key in (one.node_id for one in (*decision.dispatches, *decision.child_jobs)):
            node = self.node(key)
            vertex = node.parent_node_id or key
            assert node.task_id == task_id(self.job.job_id, key, self.attempt(key).attempt)
            assert node.task_id not in self.dispatched, f"{node.task_id} was sent before"
            self.dispatched.add(node.task_id)
            for holder in self._slots_needed(vertex, node.task_id):
                assert holder in granted, f"{node.task_id} goes without the slot of {holder}"
            for source in self.workflow.graph.incoming[vertex]:
                assert self.node(source).status in NODE_FINAL

    def _slots_needed(self, node_id: str, task: str) -> list[str]:
        """Return who has to hold a slot when a task of this node is sent: its attempt, its job."""
        attempt = [task] if node_id in self.workflow.slotted else []
        return attempt if self.workflow.concurrency is None else [*attempt, self.job.job_id]

    def _second_evaluation_changes_nothing(self) -> None:
        again = advance(self.workflow, self.state, self.now)
        assert replace(again, wake_at=None) == Decision(), f"a second evaluation changes {again}"
        assert again.wake_at == self.job.wake_at

    def _ends_are_clean(self) -> None:
        """A job that has ended leaves nothing open; one that has not waits for a time or for somebody."""
        if self.ended:
            assert all(node.status in NODE_FINAL for node in self.state.nodes.values())
            assert all(child.status in NODE_FINAL for child in self.state.children.values())
            assert all(attempt.state in ATTEMPT_FINAL for attempt in self.state.attempts.values())
            assert self.job.wake_at is None
            assert self.job.completed_at is not None
        elif self.job.paused_at is None:
            others = (*self.open_gates(), *self.wanted_slots(), *self.child_jobs())
            assert self.job.wake_at is not None or others, f"nothing will ever happen: {self.statuses()}"
            assert self.job.wake_at is None or self.job.wake_at > self.now

    @property
    def ended(self) -> bool:
        """Return whether the job is over."""
        return self.job.status in JOB_FINAL

    def open_gates(self) -> list[str]:
        """Return the gates that wait for a decision."""
        gates = [node_id for node_id, node in self.workflow.nodes.items() if node.type == "gate"]
        return [node_id for node_id in gates if self.node(node_id).status is NodeStatus.WAITING]

    def wanted_slots(self) -> list[str]:
        """Return who waits for a slot."""
        return [holder for holder, slot in self.state.slots.items() if slot.granted_at is None]

    def child_jobs(self) -> list[str]:
        """Return the nodes that wait for the end of a child job."""
        return [node_id for node_id, node in self.state.nodes.items() if waits_for_child(node)]

    def in_flight(self) -> list[str]:
        """Return the tasks that have an attempt out."""
        return [node_id for node_id, node in self.state.nodes.items() if node.status in IN_FLIGHT]


def play(world: LawfulWorld, chance: Random, good: dict[str, bool] | None = None, steps: int = 400) -> None:
    """Let things happen at random until the job ends; `good` fixes how tasks end for good, noise is then harmless."""
    for _ in range(steps):
        if world.ended:
            return
        flying, gates = world.in_flight(), world.open_gates()
        if gates and (not flying or chance.random() < 0.3):
            _decide(world, chance, chance.choice(gates), good)
            continue
        if not flying:
            world.set_job(paused_at=None)
            world.wake() if world.job.wake_at else world.tick(0)
            continue
        _happen(world, chance, chance.choice(flying), good)
    raise AssertionError(f"the job did not end: {world.statuses()}")


HARMLESS = ("release", "late", "pause", "claim", "outage", "lost message")
HARMFUL = ("lose", "transient", "poison", "slow")
TRANSIENT = {"code": "T", "message": "m", "classification": "transient"}


def _happen(world: LawfulWorld, chance: Random, node_id: str, good: dict[str, bool] | None) -> None:
    action = chance.choice([*HARMLESS, "end", "end", "end", *(() if good else HARMFUL)])
    if world.attempt(node_id).state is AttemptState.QUEUED and action != "lost message":
        world.claim(node_id)
    match action:
        case "end":
            _end(world, node_id, good[node_id] if good else chance.random() < 0.7)
        case "transient":
            world.report(node_id, "failed", error=TRANSIENT)
        case "poison":
            world.report(node_id, "completed", output=None)
        case "release":
            world.report(node_id, "released")
        case "late":
            late_result(world, chance)
        case _:
            _let_time_pass(world, action)


def _decide(world: LawfulWorld, chance: Random, gate: str, good: dict[str, bool] | None) -> None:
    """Decide a gate, or leave it and let time pass when nothing depends on how it ends."""
    if good is None and chance.random() < 0.2:
        world.tick(50)
    elif good[gate] if good else chance.random() < 0.7:
        world.decide(gate)
    else:
        world.decide(gate, "rejected")


def _let_time_pass(world: LawfulWorld, action: str) -> None:
    match action:
        case "lose":
            world.tick(20)
        case "slow":
            world.tick(15)
        case "pause":
            world.set_job(paused_at=None if world.job.paused_at else world.now)
            world.tick(0)
        case "outage":
            _outage(world)
        case _:
            world.tick(0)


def _end(world: LawfulWorld, node_id: str, ok: bool) -> None:
    if ok:
        world.report(node_id)
    else:
        world.report(node_id, "failed", error={"code": "E", "message": "m"})


def _outage(world: LawfulWorld) -> None:
    """Nobody can renew for three leases; afterwards every worker does, before anything else is looked at."""
    world.outage(on=True)
    world.tick(60)
    for node_id in world.in_flight():
        world.set_attempt(node_id, leased_at=world.now)
        world.beat(node_id)
    world.outage(on=False)
    world.tick(0)


def late_result(world: LawfulWorld, chance: Random) -> None:
    """Send an old result again, with another content; nothing may come of it."""
    if world.rows:
        row = chance.choice(list(world.rows.values()))
        world.put(row.model_copy(update={"status": "failed", "error": {"code": "LATE", "message": "m"}}))
        (disposition,) = world.advance().dispositions
        assert disposition.disposition == "superseded"
