"""Random histories of one job under orders: every kind of work, what becomes of it, and what operators do meanwhile.

All chance comes from one `Random`, so that a seed is a history; Hypothesis gives one whose numbers it can shrink.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from core.dag.commands import direct_command
from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.graph import Verdict, edge, rule_of, verdict
from core.dag.state import Decision
from core.dag.tallies import items_of
from core.models.engine import NodeState
from core.statuses import ATTEMPT_FINAL, NODE_FINAL, AttemptState, JobStatus, NodeStatus, SkipReason
from tests.unit.core.dag.fan_outs import PERMANENT, TRANSIENT, outcome
from tests.unit.core.dag.harness import FIXED, workflow_of
from tests.unit.core.dag.worlds import IN_FLIGHT, LawfulWorld, late_result

MOST_STEPS = 400
"""Of a job to which only good happens, until its end."""
KID = workflow_of({"start": {"type": "start", "next": ["end"]}, "end": {"type": "end"}}, workflow_id="kid")
RETRY = {**FIXED, "max_retries": 1, "max_losses": 1}
SLOT = {"key": "k", "limit": 1}


def rarely(chance: Random, times: int) -> bool:
    """Return True once in so many times."""
    return chance.randrange(times) == times - 1


def workflow_drawn(chance: Random) -> Workflow:
    """Draw a workflow of up to seven nodes of every kind, with any edges and joins."""
    ids = [f"n{number}" for number in range(chance.randint(1, 7))]
    nodes: dict[str, Any] = {"start": {"type": "start"}}
    for number, node_id in enumerate(ids):
        node = chance.choice(KINDS)(chance, [*ids[number + 1 :], "end"])
        rule = chance.choice(["all_of", "all_of", "any_of", "all_done"])
        sources = chance.sample(list(nodes), min(len(nodes), chance.randint(1, 2)))
        nodes[node_id] = {**node, "best_effort": rarely(chance, 4), "depends_on": {rule: sources}}
    leaves = chance.sample(list(nodes), min(len(nodes), 3))
    nodes["end"] = {"type": "end", "depends_on": {chance.choice(["all_of", "all_done"]): leaves}}
    items = list(range(chance.randint(0, 5)))
    return workflow_of(
        nodes,
        on_failure=chance.choice(["drain", "cancel"]),
        inputs={"items": {"type": "array", "default": items}, "o": {"type": "object", "default": {}}},
        concurrency={"key": "j", "limit": 1} if rarely(chance, 3) else None,
        deadline_seconds=300 if rarely(chance, 5) else None,
    )


def _task(chance: Random, _later: list[str]) -> dict[str, Any]:
    return {"type": "task", **_work(chance)}


def _work(chance: Random) -> dict[str, Any]:
    return {"handler": "echo", "retry": RETRY, "concurrency": SLOT if rarely(chance, 5) else None}


def _bad_task(chance: Random, _later: list[str]) -> dict[str, Any]:
    """Draw a task that mostly fails before it is sent: its params have no value."""
    value = chance.choice(["{{ inputs.o.gone }}", "here"])
    return {"type": "task", "handler": "echo", "params": {"v": value}}


def _conditional(chance: Random, later: list[str]) -> dict[str, Any]:
    targets = {"on_true": [chance.choice(later)], "on_false": [chance.choice(later)]}
    return {"type": "conditional", "condition": chance.choice(["true", "false"]), **targets}


def _gate(chance: Random, _later: list[str]) -> dict[str, Any]:
    return {"type": "gate", "expires_after_seconds": chance.choice([None, 100])}


def _fan_out(chance: Random, _later: list[str]) -> dict[str, Any]:
    return {
        "type": "fan_out",
        "source": "{{ inputs.items }}",
        "max_concurrency": chance.choice([256, 1, 2]),
        "batch_size": chance.choice([1, 2]),
        "tolerate": {"count": chance.choice([0, 1])},
        "task": {**_work(chance), "params": {"v": "{{ item }}"}},
    }


def _child_job(_chance: Random, _later: list[str]) -> dict[str, Any]:
    return {"type": "workflow", "workflow_id": "kid", "definition_hash": KID.definition_hash, "retry": RETRY}


KINDS: tuple[Callable[[Random, list[str]], dict[str, Any]], ...] = (
    *(_task, _task, _bad_task, _conditional, _gate),
    *(_fan_out, _fan_out, _child_job),
)


class OrderedWorld(LawfulWorld):
    """Takes orders, tells what happened, and checks also the laws of what an order can do."""

    def __init__(self, workflow: Workflow, story: list[str]) -> None:
        self.story = story
        self.obeyed: set[tuple[str, bool]] = set()
        """Kinds of orders, and whether the job was over when they were given."""
        super().__init__(workflow, workflows={KID.definition_hash: KID})

    def order(self, kind: str, **args: Any) -> bool:
        """Give an order; return whether it was obeyed."""
        was_over = self.ended
        order = direct_command(self.job.job_id, self.now, kind, args, actor="ann", reason="because")
        seen = replace(self.state, commands=(order,), child_attempts=self._child_attempts())
        decision = advance(self.workflow, seen, self.now)
        refusal = decision.commands_done[-1].refusal
        self.tell(f"{kind} {args}", refusal.detail.code if refusal else "obeyed")
        if refusal is None:
            self.obeyed.add((kind, was_over))
        else:
            self._nothing_comes_of_it(decision)
        self.write(decision)
        return refusal is None

    def _child_attempts(self) -> dict[str, int]:
        """Return the highest attempt number that any child used, by fan-out, as the service asks for it."""
        numbers: dict[str, int] = {}
        for child in self.state.children.values():
            parent = child.parent_node_id or ""
            numbers[parent] = max(numbers.get(parent, -1), child.attempt - 1)
        return numbers

    def tell(self, *words: Any) -> None:
        """Note what happens now."""
        seconds = (self.now - self.job.created_at).total_seconds()
        self.story.append(" ".join(map(str, (f"{seconds:g} s:", *words))))

    def in_flight(self) -> list[str]:
        """Return the tasks, also of fan-outs, that have an attempt out."""
        rows = {**self.state.nodes, **self.state.children}
        out = {key for key, attempt in self.state.attempts.items() if attempt.state not in ATTEMPT_FINAL}
        return [key for key, row in rows.items() if row.status in IN_FLIGHT and key in out]

    def write(self, decision: Decision) -> Decision:
        assert not decision.needs_children, "every child is loaded"
        super().write(decision)
        self._what_works_is_waited_for()
        self._the_end_is_the_one_of_its_nodes()
        self._statuses_agree_with_the_edges()
        if self.workflow.on_failure == "cancel":
            self._a_failure_cancels_the_rest(decision)
        else:
            self._only_the_end_cancels(decision)
        return decision

    def _nothing_comes_of_it(self, decision: Decision) -> None:
        """An order that is refused changes nothing."""
        changed = (decision.nodes, decision.children, decision.fan_outs, decision.reset, decision.events)
        assert not any(changed), f"the refused order changes {changed}"

    def _what_works_is_waited_for(self) -> None:
        """Whatever attempt is still out is the newest of a node that has not ended."""
        rows = {**self.state.nodes, **self.state.children}
        for key, attempt in self.state.attempts.items():
            if attempt.state not in ATTEMPT_FINAL:
                assert key in rows, f"{attempt.task_id} is still out, and nothing is there that wants it"
                assert rows[key].status not in NODE_FINAL, f"{attempt.task_id} is still out for what has ended"
                assert rows[key].task_id == attempt.task_id, f"{attempt.task_id} is still out, and a newer one"

    def _the_end_is_the_one_of_its_nodes(self) -> None:
        """A job ends as its nodes did or at its deadline, waits for nothing and holds no slots then."""
        if not self.ended:
            return
        assert self.job.waiting_for is None
        assert not self.state.slots
        failed = [key for key in self._with(NodeStatus.FAILED) if not self.workflow.nodes[key].best_effort]
        if self.job.status is JobStatus.COMPLETED:
            assert not failed
            assert not self._with(NodeStatus.CANCELLED)
        if self.job.status is JobStatus.FAILED:
            assert failed or (self.job.error or {})["code"] == "JOB_DEADLINE", self.job.error

    def _with(self, status: NodeStatus) -> list[str]:
        return [key for key, node in self.state.nodes.items() if node.status is status]

    def _statuses_agree_with_the_edges(self) -> None:
        """What has begun or was skipped is so by what its sources are now, whatever was started anew since."""
        for key, node in self.state.nodes.items():
            expected = _verdict_behind(node)
            if expected is not None:
                sources = self.workflow.graph.incoming[key]
                edges = [edge(self.workflow.nodes[source], self.state.nodes[source], key) for source in sources]
                assert all(self.node(source).status in NODE_FINAL for source in sources), f"{key} has begun"
                assert verdict(rule_of(self.workflow.nodes[key]), edges) is expected, f"{key} is {node.status}"

    def _a_failure_cancels_the_rest(self, decision: Decision) -> None:
        """Under `on_failure: cancel` nothing goes on beside a new failure but what is spared."""
        moved = [event.node_id for event in decision.events if event.event_status == "FAILED" and event.node_id]
        failed = [key for key in moved if key in self.workflow.nodes and not self.workflow.nodes[key].best_effort]
        unfinished = {key for key, node in self.state.nodes.items() if node.status not in NODE_FINAL}
        left = unfinished - self.workflow.spared
        assert not (failed and left), f"{failed} failed, {left} go on"

    def _only_the_end_cancels(self, decision: Decision) -> None:
        """Under `on_failure: drain` nodes are cancelled only with their job, by an order or at its deadline."""
        cancelled = [event.node_id for event in decision.events if event.event_type == "node_cancelled"]
        if [key for key in cancelled if key in self.workflow.nodes]:
            code = (self.job.error or {}).get("code")
            assert self.job.status is JobStatus.CANCELLED or code == "JOB_DEADLINE", f"{cancelled} are cancelled"


def _verdict_behind(node: NodeState) -> Verdict | None:
    """Return what the edges said to a node that is as it is; None when they do not tell."""
    match node.status:
        case NodeStatus.PENDING | NodeStatus.CANCELLED:
            return None
        case NodeStatus.SKIPPED:
            skips = {SkipReason.NOT_TAKEN: Verdict.NOT_TAKEN, SkipReason.UPSTREAM_FAILED: Verdict.UPSTREAM_FAILED}
            return skips.get(node.skip_reason) if node.skip_reason else None
        case _:
            return Verdict.READY


HAPPENINGS = (*["task"] * 5, *["slot"] * 2, *["time"] * 2, "gate", "child job", "late")
ORDERS = (*["rerun"] * 4, *["retry"] * 3, "skip", "pause", "resume", "window", "priority", "cancel")


def happen(world: OrderedWorld, chance: Random) -> None:
    """Let one thing happen, or somebody order something; what has ended only an order can start anew."""
    if world.ended or rarely(chance, 6):
        give_order(world, chance, chance.choice(ORDERS))
        return
    possible = {
        "task": world.in_flight(),
        "slot": world.wanted_slots(),
        "gate": world.open_gates(),
        "child job": world.child_jobs(),
        "time": ["passes"],
        "late": list(world.rows),
    }
    kind = chance.choice([one for one in HAPPENINGS if possible[one]])
    whom = chance.choice(possible[kind])
    match kind:
        case "task":
            end_attempt(world, chance, whom)
        case "slot":
            world.tell(whom, "gets its slot")
            world.grant(whom)
        case "gate":
            world.order("gate", node_id=whom, decision=chance.choice(["approved", "approved", "rejected"]))
        case "child job":
            end_child_job(world, whom, chance.choice([None, None, PERMANENT, TRANSIENT]))
        case "late":
            world.tell("a late result")
            late_result(world, chance)
        case _:
            let_time_pass(world, chance)


def give_order(world: OrderedWorld, chance: Random, kind: str) -> None:
    """Order something of any node, or of the job."""
    node_id = chance.choice(list(world.workflow.nodes))
    match kind:
        case "rerun":
            some: tuple[dict[str, Any], ...] = ({}, {"node_id": node_id}, {"node_id": node_id, "params": {"v": 2}})
            world.order("rerun", **chance.choice(some))
        case "skip":
            world.order("skip", node_id=node_id)
        case "window":
            fan_outs = [key for key, node in world.workflow.nodes.items() if node.type == "fan_out"]
            world.order("window", node_id=chance.choice(fan_outs or [node_id]), max_concurrency=chance.choice([1, 5]))
        case "priority":
            world.order("priority", priority=chance.randint(0, 10))
        case _:
            world.order(kind)


def end_attempt(world: OrderedWorld, chance: Random, key: str) -> None:
    """Let a worker take a task and end it, well mostly, or never say a word of it again."""
    end = chance.choice(["completed"] * 5 + ["failed", "transient", "released", "lost"])
    world.tell(key, end)
    _claim(world, key)
    match end:
        case "failed":
            world.report(key, "failed", error=PERMANENT, **_outcomes(world, chance, key))
        case "transient":
            world.report(key, "failed", error=TRANSIENT, **_outcomes(world, chance, key))
        case "released":
            world.report(key, "released", **_outcomes(world, chance, key))
        case "lost":
            world.tick(0)
        case _:
            world.report(key, **_outcomes(world, chance, key))


def _claim(world: OrderedWorld, key: str) -> None:
    if world.attempt(key).state is not AttemptState.LEASED:
        world.claim(key)


def _outcomes(world: OrderedWorld, chance: Random | None, key: str) -> dict[str, Any]:
    """Return what a worker says of the items of a batch: without chance, that all are done."""
    child = world.node(key)
    if child.outcomes is None:
        return {}
    items = items_of(world.fan_out(child.parent_node_id or ""), child.fan_out_index or 0)
    if chance is None:
        return {"outcomes": [outcome(index) for index in items]}
    said = [index for index in items if not rarely(chance, 5)]
    return {"outcomes": [outcome(index, chance.choice([None, None, PERMANENT, TRANSIENT])) for index in said]}


def end_child_job(world: OrderedWorld, key: str, error: dict[str, Any] | None) -> None:
    """Let the child job of a node end."""
    world.tell("child job of", key, "ends", error and error["code"])
    if error is None:
        world.report(key, output={})
    else:
        world.report(key, "failed", error=error)


def let_time_pass(world: OrderedWorld, chance: Random) -> None:
    """Let the next timer come, or only some seconds pass."""
    seconds = chance.choice([None, None, None, 0, 1, 15])
    world.tell("time passes", "" if seconds is None else seconds)
    if seconds is None and world.job.wake_at is not None:
        world.wake()
    else:
        world.tick(seconds or 0)


def finish(world: OrderedWorld) -> None:
    """Let only good happen, and assert that the job ends."""
    for _ in range(MOST_STEPS):
        if world.ended:
            return
        if world.job.paused_at is not None:
            world.order("resume")
        else:
            _go_well(world)
    raise AssertionError(f"the job does not end: {world.statuses()}")


def _go_well(world: OrderedWorld) -> None:
    if wanted := world.wanted_slots():
        world.grant(wanted[0])
    elif started := world.child_jobs():
        end_child_job(world, started[0], None)
    elif gates := world.open_gates():
        world.order("gate", node_id=gates[0], decision="approved")
    elif flying := world.in_flight():
        world.tell(flying[0], "completed")
        _claim(world, flying[0])
        world.report(flying[0], **_outcomes(world, None, flying[0]))
    else:
        world.wake()


def play(chance: Random) -> OrderedWorld:
    """Play a history of a drawn workflow to its end, and start it anew some times; what broke a law is noted."""
    workflow = workflow_drawn(chance)
    story = [json.dumps(workflow.to_json())]
    try:
        world = OrderedWorld(workflow, story)
        for _ in range(chance.randint(5, 60)):
            happen(world, chance)
        finish(world)
        for _ in range(3):
            if world.order(chance.choice(["retry", "rerun"])):
                finish(world)
    except AssertionError as error:
        error.add_note("\n".join(story))
        raise
    return world
