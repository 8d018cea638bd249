"""What operators order, on one job in memory; the laws of reopening and of what holds work back."""

from dataclasses import replace
from typing import Any

import pytest

from core.dag.commands import command, direct_command
from core.dag.orders import check_order, obey
from core.dag.pinning import pin
from core.dag.run import Run
from core.dag.state import ChildOrder, Decision
from core.dag.tallies import MAX_MESSAGE
from core.errors import CallerError, Conflict, ErrorDetail, NotFound, ParameterInvalid
from core.handlers_catalog import CATALOG
from core.models.engine import Attempt, Command, NodeState
from core.models.fan_out import FanOut
from core.statuses import AttemptState, JobStatus, NodeStatus, SkipReason
from tests.unit.core.dag.fan_outs import workflow_with
from tests.unit.core.dag.harness import START, World, chain, task, workflow_of


def order(world: World, kind: str, reason: str = "because", **args: Any) -> Decision:
    """Obey a command and write what follows."""
    return world.write(command(world.workflow, world.state, world.now, kind, args, actor="op", reason=reason))


def refusal(world: World, kind: str, **args: Any) -> ErrorDetail:
    """Return why a command is refused; it changed nothing."""
    before = world.state
    with pytest.raises(CallerError) as caught:
        order(world, kind, **args)
    assert world.state == before
    return caught.value.detail


def ended(status: str = "COMPLETED") -> World:
    """Return a job a -> b that ended."""
    world = World(workflow_of(chain("a", "b")))
    world.complete("a")
    world.complete("b") if status == "COMPLETED" else world.fail("b")
    assert world.job.status == status
    return world


def test_cancelling_ends_everything_at_once_and_later_results_are_superseded() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    decision = order(world, "cancel", "wrong file")
    assert world.statuses() == {"start": "COMPLETED", "a": "CANCELLED", "b": "CANCELLED", "end": "CANCELLED"}
    assert (world.job.status, world.job.wake_at) == (JobStatus.CANCELLED, None)
    assert [(end.task_id, end.state) for end in decision.attempts_ended] == [("job1_a_0", AttemptState.REVOKED)]
    assert decision.events[-1].event_type == "job_cancelled"
    assert decision.events[-1].data == {"actor": "op", "reason": "wrong file"}
    late = world.report("a")
    assert late is not None
    assert late.dispositions[0].disposition == "superseded"
    assert late.nodes == ()


def test_a_node_that_a_cancel_kept_from_starting_is_not_run_again_alone() -> None:
    """What it waits for was cancelled with it: it would be skipped, and the job be over with nothing done."""
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    order(world, "cancel")
    detail = refusal(world, "rerun", node_id="b")
    assert (detail.code, detail.value) == ("NODE_NOT_STARTED", "CANCELLED")
    assert "Retry the job" in (detail.remediation or "")
    order(world, "retry")
    world.complete("a")
    world.complete("b")
    assert world.job.status == "COMPLETED"


def test_a_job_of_which_something_stays_cancelled_is_cancelled_again() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(next=["end"]), "b": task(next=["end"])}
    world = World(workflow_of({**nodes, "end": {"type": "end"}}))
    world.complete("b")
    order(world, "cancel")
    order(world, "rerun", node_id="b")
    world.complete("b")
    assert world.statuses()["a"] == "CANCELLED"
    assert (world.job.status, world.job.outputs) == (JobStatus.CANCELLED, None)
    order(world, "retry")
    world.complete("a")
    assert world.job.status == "COMPLETED"


def test_what_was_cancelled_is_not_done_although_its_failure_would_not_count() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(best_effort=True), "b": task()}
    world = World(workflow_of({**nodes, "join": task("a", "b", join="all_done"), "end": {"type": "end"}}))
    order(world, "cancel")
    order(world, "rerun", node_id="b")
    world.complete("b")
    world.complete("join")
    assert (world.statuses()["a"], world.job.status) == ("CANCELLED", JobStatus.CANCELLED)


def test_a_node_that_was_skipped_for_a_failure_before_it_is_not_run_again_alone() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.fail("a")
    assert world.node("b").skip_reason is SkipReason.UPSTREAM_FAILED
    for args in ({}, {"params": {"x": 1}}):
        detail = refusal(world, "rerun", node_id="b", **args)
        assert (detail.code, detail.value) == ("NODE_NOT_STARTED", "SKIPPED")
        assert "Retry the job" in (detail.remediation or "")


def test_a_node_that_was_not_taken_is_not_run_again_alone_but_its_conditional_is() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(next=["route"]),
        "route": {"type": "conditional", "condition": "{{ nodes.a.output.n }} > 1", "on_true": ["big"],
                  "on_false": ["end"]},
        "big": task(next=["after"]),
        "after": task(next=["end"]),
        "end": {"type": "end", "depends_on": {"any_of": ["after"]}},
    }  # fmt: skip
    world = World(workflow_of(nodes))
    world.complete("a", output={"n": 1})
    for node_id, args in (("big", {}), ("after", {}), ("big", {"params": {"x": 1}})):
        detail = refusal(world, "rerun", node_id=node_id, **args)
        assert (detail.code, detail.value) == ("NODE_NOT_STARTED", "SKIPPED")
        assert "route took another way" in detail.message
        assert "Rerun route" in (detail.remediation or "")
    order(world, "rerun", node_id="a")
    world.complete("a", output={"n": 2})
    assert world.statuses()["big"] == "DISPATCHED"


def test_a_node_whose_own_condition_did_not_hold_may_be_run_again() -> None:
    world = World(workflow_of(chain("a", "b", when="{{ job.run_no }} > 1")))
    assert world.job.status is JobStatus.COMPLETED
    assert [one.node_id for one in order(world, "rerun", node_id="a").dispatches] == ["a"]


def test_a_rerun_beside_an_old_failure_runs_although_the_workflow_cancels_after_one() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(next=["c"]), "b": task(), "c": task("a")}
    world = World(workflow_of({**nodes, "end": {"type": "end"}}, on_failure="cancel"))
    world.complete("a")
    world.complete("c")
    world.fail("b")
    order(world, "rerun", node_id="a")
    assert world.statuses()["a"] == "DISPATCHED"
    world.complete("a")
    world.fail("c")
    assert (world.job.status, (world.job.error or {})["node_id"]) == (JobStatus.FAILED, "b")


@pytest.mark.parametrize(("kind", "args"), [("retry", {}), ("rerun", {"node_id": "start"})])
@pytest.mark.parametrize(
    "bad",
    [
        task(params={"v": "{{ inputs.o.missing }}"}),
        task(when="{{ inputs.o.missing }} > 1"),
        task(handler="unknown"),
        task(concurrency={"key": "{{ inputs.o }}", "limit": 1}),
    ],
)
def test_a_failure_that_comes_again_at_once_takes_the_other_branches_back_again(
    bad: dict[str, Any], kind: str, args: dict[str, Any]
) -> None:
    nodes = {"start": {"type": "start", "next": ["bad", "good"]}, "bad": bad, "good": task(), "end": {"type": "end"}}
    inputs = {"o": {"type": "object", "default": {}}}
    world = World(workflow_of(nodes, inputs=inputs, on_failure="cancel"))
    assert (world.job.status, world.statuses()["good"]) == (JobStatus.FAILED, "CANCELLED")
    assert order(world, kind, **args).dispatches == ()
    assert (world.job.status, world.statuses()["good"]) == (JobStatus.FAILED, "CANCELLED")


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume", "priority", "skip", "window"])
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_only_retry_and_rerun_touch_a_job_that_has_ended(kind: str, status: str) -> None:
    args = {"priority": {"priority": 8}, "skip": {"node_id": "a"}, "window": {"node_id": "a", "max_concurrency": 1}}
    world = ended(status)
    if kind == "window":
        nodes = {"start": {"type": "start"}, "a": {"type": "fan_out", "source": "x", "task": {"handler": "echo"}}}
        world.workflow = workflow_of({**nodes, "b": task(), "end": {"type": "end"}})
    detail = refusal(world, kind, **args.get(kind, {}))
    assert (detail.code, detail.value) == ("JOB_FINAL", status)


def test_a_result_that_was_there_before_a_command_counts() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    world.report("a", advance=False)
    order(world, "cancel")
    assert world.statuses()["a"] == "COMPLETED"
    assert world.job.status is JobStatus.CANCELLED


def test_a_paused_job_finishes_what_runs_and_starts_nothing_until_it_is_resumed() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    order(world, "pause")
    assert (world.job.paused_at, world.events[-1].event_type) == (world.now, "job_paused")
    assert world.events[-1].data == {"actor": "op", "reason": "because"}
    world.report("a")
    assert (world.statuses()["b"], world.job.wake_at) == ("READY", None)
    assert world.node("b").waiting_for == {"kind": "paused", "detail": "job"}
    assert world.job.waiting_for == {"kind": "paused", "detail": ["job"]}
    order(world, "resume")
    assert world.statuses()["b"] == "DISPATCHED"
    assert (world.node("b").waiting_for, world.job.waiting_for, world.job.paused_at) == (None, None, None)


@pytest.mark.parametrize("kind", ["pause", "resume"])
def test_to_pause_or_resume_twice_is_the_same_as_once(kind: str) -> None:
    world = World(workflow_of(chain("a")))
    order(world, kind)
    assert [event for event in order(world, kind).events if event.node_id is None] == []


def test_a_parked_attempt_is_sent_again_by_a_resume_and_its_time_in_the_queue_begins_anew() -> None:
    world = World(workflow_of(chain("a", queue_timeout_seconds=60)))
    order(world, "pause")
    world.set_attempt("a", state=AttemptState.PARKED, redispatch_at=None)
    world.tick(1000)
    assert world.decisions[-1].redispatches == ()
    assert order(world, "resume").redispatches == ("job1_a_0",)
    assert world.node("a").dispatched_at == world.now
    world.tick(59)
    assert world.statuses()["a"] == "DISPATCHED"
    world.tick(2)
    assert world.node("a").error is not None
    assert world.node("a").error["code"] == "QUEUE_TIMEOUT"


SWITCHES = ["all", "workflow:w", "queue:functionapp-tasks"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_pause_switch_holds_new_tasks_and_says_which_it_is(switch: str) -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    world.pauses(switch)
    world.report("a")
    assert world.node("b").waiting_for == {"kind": "paused", "detail": switch}
    assert (world.job.waiting_for, world.job.wake_at) == ({"kind": "paused", "detail": [switch]}, None)
    world.pauses()
    world.advance()
    assert world.statuses()["b"] == "DISPATCHED"
    assert world.job.waiting_for is None


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_parked_attempt_is_not_sent_again_while_a_switch_holds_it(switch: str) -> None:
    world = World(workflow_of(chain("a")))
    world.pauses(switch)
    world.set_attempt("a", state=AttemptState.PARKED, redispatch_at=None)
    assert world.advance().redispatches == ()
    world.tick(4000)
    assert (world.decisions[-1].redispatches, world.job.wake_at) == ((), None)
    world.pauses()
    assert world.advance().redispatches == ("job1_a_0",)


@pytest.mark.parametrize("switch", ["workflow:other", "queue:container-tasks"])
def test_a_switch_of_something_else_holds_nothing(switch: str) -> None:
    world = World(workflow_of(chain("a", "b")))
    world.pauses(switch)
    world.complete("a")
    assert world.statuses()["b"] == "DISPATCHED"


def test_a_switch_of_a_queue_holds_what_its_workflow_sends_there() -> None:
    world = World(workflow_of(chain("a", queue="container-tasks")), pauses=["queue:container-tasks"])
    assert world.decisions[0].dispatches == ()
    assert world.node("a").waiting_for == {"kind": "paused", "detail": "queue:container-tasks"}
    other = World(workflow_of(chain("a", queue="container-tasks")), pauses=["queue:functionapp-tasks"])
    assert [one.node_id for one in other.decisions[0].dispatches] == ["a"]


def test_a_new_job_waits_for_the_switch_and_is_not_stalled() -> None:
    world = World(workflow_of(chain("a")), pauses=("all",))
    assert (world.job.status, world.statuses()["a"]) == (JobStatus.PENDING, "READY")
    world.pauses()
    world.advance()
    assert (world.job.status, world.statuses()["a"]) == (JobStatus.RUNNING, "DISPATCHED")


def test_a_new_priority_counts_for_what_waits_in_a_queue_and_for_what_comes() -> None:
    world = World(workflow_of(chain("a", "b")))
    assert order(world, "priority", priority="interactive").redispatches == ("job1_a_0",)
    assert world.events[-1].data == {"actor": "op", "reason": "because", "before": 5, "after": 8}
    assert order(world, "priority", priority=8).redispatches == ()
    world.complete("a")
    assert world.decisions[-1].dispatches[0].priority == 8
    for bad in (11, True, 1.0, "urgent"):
        refused = refusal(world, "priority", priority=bad)
        assert (refused.field, refused.value) == ("priority", bad)


@pytest.mark.parametrize("switch", [None, "all", "workflow:w", "queue:functionapp-tasks"])
def test_a_new_priority_that_came_during_a_pause_counts_for_what_waits_when_the_pause_ends(switch: str | None) -> None:
    world = World(workflow_of(chain("a")))
    world.pauses(*([switch] if switch else []))
    if switch is None:
        order(world, "pause")
    assert order(world, "priority", priority=8).redispatches == ()
    world.pauses()
    resumed = order(world, "resume") if switch is None else world.tick(1)
    assert (resumed.redispatches, world.attempt("a").priority) == (("job1_a_0",), 8)
    assert world.tick(1).redispatches == ()


@pytest.mark.parametrize(("kind", "args"), [("cancel", {}), ("skip", {"node_id": "a"}), ("rerun", {})])
def test_what_an_evaluation_takes_back_it_does_not_send_again(kind: str, args: dict[str, Any]) -> None:
    world = World(workflow_of(chain("a")))
    orders = [command_row(world, 1, "priority", priority=8), command_row(world, 2, kind, **args)]
    world.state = replace(world.state, commands=tuple(orders))
    decision = world.advance()
    assert [done.outcome for done in decision.commands_done] == ["applied", "applied"]
    assert ([end.task_id for end in decision.attempts_ended], decision.redispatches) == (["job1_a_0"], ())


def test_retrying_starts_failed_nodes_and_all_that_follows_anew() -> None:
    world = ended("FAILED")
    world.tick(10)
    decision = order(world, "retry")
    assert world.statuses() == {"start": "COMPLETED", "a": "COMPLETED", "b": "DISPATCHED", "end": "PENDING"}
    job = world.job
    assert (job.status, job.run_no, job.error, job.completed_at, job.warnings) == (JobStatus.RUNNING, 2, None, None, [])
    assert (job.owner_id, job.owner_epoch) == (None, 1)
    assert set(decision.reset) == {"b", "end"}
    assert [one.attempt for one in decision.dispatches] == [1]
    node = world.node("b")
    assert (node.retries_used, node.error, node.task_id) == (0, None, "job1_b_1")
    (reopened,) = [event for event in decision.events if event.event_type == "job_retried"]
    assert reopened.data == {"actor": "op", "reason": "because", "run_no": 2, "nodes": ["b", "end"]}
    world.complete("b")
    assert world.job.status is JobStatus.COMPLETED


def test_a_cancelled_job_is_retried_where_it_was_cancelled_also_when_it_was_paused() -> None:
    world = World(workflow_of(chain("a", "b")))
    order(world, "pause")
    order(world, "cancel")
    order(world, "retry")
    assert world.statuses() == {"start": "COMPLETED", "a": "DISPATCHED", "b": "PENDING", "end": "PENDING"}
    assert world.attempt("a").attempt == 1


def test_a_retried_job_has_its_whole_deadline_again() -> None:
    world = World(workflow_of(chain("a"), deadline_seconds=100), deadline_at=None)
    world.set_job(deadline_at=world.now)
    world.advance()
    assert world.job.status is JobStatus.FAILED
    order(world, "retry")
    assert (world.job.deadline_at, world.job.status) == (world.now.replace(minute=1, second=40), JobStatus.RUNNING)


def test_what_still_runs_goes_on_while_a_failed_branch_is_retried() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(), "b": task(), "end": {"type": "end"}}
    world = World(workflow_of({**nodes, "c": task("a", "b")}))
    world.claim("a")
    world.fail("b")
    order(world, "retry")
    assert world.statuses()["a"] == "RUNNING"
    assert (world.statuses()["b"], world.job.run_no) == ("DISPATCHED", 2)
    assert world.attempt("a").state is AttemptState.LEASED


def test_a_job_without_failures_has_nothing_to_retry() -> None:
    detail = refusal(ended(), "retry")
    assert (detail.code, detail.value) == ("NOTHING_FAILED", "COMPLETED")


def test_a_failure_that_only_warned_can_be_retried_too() -> None:
    world = World(workflow_of(chain("a", best_effort=True)))
    world.fail("a")
    assert world.job.status is JobStatus.COMPLETED
    order(world, "retry")
    assert (world.statuses()["a"], world.job.warnings, world.job.outputs) == ("DISPATCHED", [], None)


def test_rerunning_a_node_runs_it_and_all_that_follows_with_edited_params() -> None:
    world = ended()
    decision = order(world, "rerun", node_id="b", params={"x": 1})
    assert [(one.node_id, one.params) for one in decision.dispatches] == [("b", {"x": 1})]
    world.complete("b")
    assert world.job.status is JobStatus.COMPLETED
    assert order(world, "rerun", node_id="b").dispatches[0].params == {"x": 1}
    assert order(world, "rerun", node_id="b", params={}).dispatches[0].params == {}


def test_a_param_whose_template_fails_can_be_edited_and_the_others_are_made_as_before() -> None:
    nodes = chain("a", params={"bad": "{{ inputs.none.deep }}", "good": "{{ job.run_no }}"})
    world = World(workflow_of(nodes, inputs={"none": {}}))
    assert world.job.error is not None
    assert world.job.error["code"] == "TEMPLATE_ERROR"
    decision = order(world, "rerun", node_id="a", params={"bad": 5})
    assert [(one.node_id, one.params) for one in decision.dispatches] == [("a", {"bad": 5, "good": 2})]
    world.complete("a")
    assert world.job.status is JobStatus.COMPLETED


@pytest.mark.parametrize("batch_size", [1, 2])
def test_edited_params_of_a_fan_out_reach_every_item(batch_size: int) -> None:
    params = {"v": "{{ item.nope }}", "n": "{{ index }}"}
    many = {"batch_size": batch_size, "task": {"params": params}, "tolerate": {"percent": 100}}
    world = World(workflow_with(many), {"items": ["x", "y"]})
    assert (world.job.status, world.decisions[-1].dispatches) == (JobStatus.COMPLETED, ())
    sent = [one.params for one in order(world, "rerun", node_id="many", params={"v": 5}).dispatches]
    items = [item["params"] for one in sent for item in one["items"]] if batch_size > 1 else sent
    assert items == [{"v": 5, "n": 0}, {"v": 5, "n": 1}]


def test_rerunning_from_the_start_is_the_default() -> None:
    world = ended()
    order(world, "rerun")
    assert world.statuses() == {"start": "COMPLETED", "a": "DISPATCHED", "b": "PENDING", "end": "PENDING"}


def test_rerunning_the_last_node_ends_the_job_in_the_same_evaluation() -> None:
    world = ended()
    decision = order(world, "rerun", node_id="end")
    assert (world.job.status, world.job.run_no) == (JobStatus.COMPLETED, 2)
    assert decision.reset == ("end",)


def test_rerunning_what_runs_revokes_its_attempt_and_later_results_of_it_are_superseded() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    old = world.attempt("a")
    decision = order(world, "rerun", node_id="a")
    assert [(end.task_id, end.state) for end in decision.attempts_ended] == [("job1_a_0", AttemptState.REVOKED)]
    assert world.attempt("a").task_id == "job1_a_1"
    world.claim("a")
    world.report("a")
    late = world.rows["job1_a_1"].model_copy(update={"task_id": old.task_id, "attempt": 0})
    world.put(late)
    assert [one.disposition for one in world.advance().dispositions] == ["superseded"]


def test_params_of_a_node_that_has_not_run_can_be_edited() -> None:
    world = World(workflow_of(chain("a", "b")))
    assert refusal(world, "rerun", node_id="b").code == "NODE_NOT_STARTED"
    order(world, "rerun", node_id="b", params={"x": 2})
    world.complete("a")
    assert world.decisions[-1].dispatches[0].params == {"x": 2}


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"node_id": "start", "params": {"x": 1}}, "params"),
        ({"node_id": "a", "params": {"nope": 1}}, "params.nope"),
        ({"node_id": "a", "params": {"seconds": "long"}}, "params.seconds"),
        ({"node_id": "a", "params": {"seconds": "{{ inputs.n }}"}}, "params.seconds"),
        ({"node_id": "a", "params": {"seconds": [{"{{ job.job_id }}": 1}]}}, "params.seconds"),
        ({"node_id": "nope"}, "node_id"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_rerun_of_something_that_does_not_exist_is_refused(args: dict[str, Any], field: str) -> None:
    world = World(workflow_of(chain("a", handler="sleep")))
    assert world.job.status is JobStatus.FAILED
    assert refusal(world, "rerun", **args).field == field


def test_of_params_only_what_a_rerun_says_is_checked_before_it() -> None:
    world = World(workflow_of(chain("a", handler="sleep", params={"seconds": "{{ inputs.none.deep }}"})))
    assert order(world, "rerun", node_id="a", params={}).dispatches == ()
    assert refusal(world, "rerun", node_id="a", params={"seconds": [1]}).field == "params.seconds"
    (sent,) = order(world, "rerun", node_id="a", params={"seconds": 1}).dispatches
    assert sent.params == {"seconds": 1}


def test_a_job_whose_product_was_approved_is_not_started_again() -> None:
    world = ended()
    why = ErrorDetail(code="VERSION_APPROVED", message="version 0 is approved", value="approved")
    world.state = replace(world.state, reopen_refusal=why)
    for kind in ("retry", "rerun"):
        assert refusal(world, kind).code == "VERSION_APPROVED"


def test_a_child_job_is_started_again_through_its_parent() -> None:
    world = World(workflow_of(chain("a")), parent_task_id="other_n_0")
    world.fail("a")
    detail = refusal(world, "retry")
    assert detail.code == "CHILD_JOB"
    assert "node n of job other" in detail.message
    assert "geodag job rerun other n" in (detail.remediation or "")


def test_a_rerun_only_of_what_was_unsuccessful_leaves_others_alone() -> None:
    assert refusal(ended(), "rerun", only_unsuccessful=True).value == "COMPLETED"
    order(ended("FAILED"), "rerun", only_unsuccessful=True)


def test_a_rerun_of_a_run_that_is_over_is_refused_with_the_state_that_won() -> None:
    world = ended("FAILED")
    order(world, "rerun", run_no=1)
    detail = refusal(world, "rerun", run_no=1)
    assert (detail.code, detail.value) == ("JOB_CHANGED", 2)


@pytest.mark.parametrize("claimed", [True, False])
def test_a_skipped_node_is_bypassed_and_what_follows_goes_on(claimed: bool) -> None:
    world = World(workflow_of(chain("a", "b")))
    if claimed:
        world.claim("a")
    order(world, "skip", node_id="a")
    node = world.node("a")
    assert (node.status, node.skip_reason) == (NodeStatus.SKIPPED, SkipReason.BYPASSED)
    assert world.attempt("a").state is AttemptState.REVOKED
    assert world.statuses()["b"] == "DISPATCHED"
    (event,) = [event for event in world.events if event.event_type == "node_skipped"]
    assert event.data == {"actor": "op", "reason": "because", "skip_reason": "bypassed"}
    assert refusal(world, "skip", node_id="a").value == "SKIPPED"


def test_a_node_can_be_skipped_before_its_turn() -> None:
    world = World(workflow_of(chain("a", "b")))
    order(world, "skip", node_id="b")
    world.complete("a")
    assert world.job.status is JobStatus.COMPLETED


def fanned(state: str = "running") -> World:
    """Return a job whose fan-out runs, without its children."""
    nodes = {
        "start": {"type": "start", "next": ["tiles"]},
        "tiles": {"type": "fan_out", "source": "{{ inputs.x }}", "task": {"handler": "echo"}},
        "w": {"type": "workflow", "workflow_id": "v"},
    }
    world = World(workflow_of(chain("a")))
    world.workflow = workflow_of(nodes)
    rows = {key: NodeState(job_id="job1", node_id=key, status=NodeStatus.RUNNING, attempt=4) for key in nodes}
    fan_out = FanOut(
        job_id="job1", node_id="tiles", state=state, item_count=9, child_count=9, batch_size=1, max_concurrency=2,
        tolerated=0, created_at=START,
    )  # fmt: skip
    world.state = replace(world.state, nodes=rows, attempts={}, fan_outs={"tiles": fan_out})
    return world


def decided(world: World, kind: str, **args: Any) -> Decision:
    """Return what a command alone does, without the evaluation that follows."""
    run = Run(world.workflow, world.state, world.now, CATALOG)
    obey(run, direct_command("job1", world.now, kind, args, actor="op"))
    return run.decision(None)


def test_the_window_of_a_fan_out_changes_while_it_runs() -> None:
    world = fanned()
    decision = decided(world, "window", node_id="tiles", max_concurrency=64)
    assert [one.max_concurrency for one in decision.fan_outs] == [64]
    assert decision.events[0].event_type == "window_changed"
    assert (decision.events[0].data["before"], decision.events[0].data["after"]) == (2, 64)
    assert decided(world, "window", node_id="tiles", max_concurrency=2).fan_outs == ()


def test_the_window_of_another_fan_out_stays() -> None:
    world = fanned()
    rows = {**world.state.fan_outs, "other": world.fan_out("tiles").model_copy(update={"node_id": "other"})}
    other = {"type": "fan_out", "source": "{{ inputs.x }}", "task": {"handler": "echo"}}
    world.workflow = workflow_of({**world.workflow.to_json()["nodes"], "other": other})
    nodes = {**world.state.nodes, "other": world.node("tiles").model_copy(update={"node_id": "other"})}
    world.state = replace(world.state, nodes=nodes, fan_outs=rows)
    decision = decided(world, "window", node_id="other", max_concurrency=64)
    assert [(one.node_id, one.max_concurrency) for one in decision.fan_outs] == [("other", 64)]


@pytest.mark.parametrize("kind", ["skip", "rerun", "window"])
def test_an_item_of_a_fan_out_cannot_be_ordered_singly(kind: str) -> None:
    more = {"max_concurrency": 3} if kind == "window" else {}
    detail = refusal(fanned(), kind, node_id="tiles__0", **more)
    assert (detail.code, detail.field) == ("NOT_FOUND", "node_id")
    assert "items cannot be ordered singly" in detail.message
    assert "tiles" in (detail.remediation or "")
    assert "items" not in refusal(fanned(), kind, node_id="w__0", **more).message


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_skip_that_comes_too_late_says_how_the_node_is_passed_over_before_it_runs_again(end: str) -> None:
    world = World(workflow_of(chain("a", "b")))
    world.complete("a")
    world.fail("b") if end == "fail" else order(world, "cancel")
    remediation = refusal(world, "skip", node_id="b").remediation or ""
    assert "geodag job retry job1" in remediation
    assert refusal(world, "skip", node_id="a").remediation is None  # it was done, and is not done again
    pauses = frozenset({f"workflow:{world.workflow.workflow_id}"})
    world.state = replace(world.state, pauses=pauses)
    order(world, "retry")
    order(world, "skip", node_id="b")
    world.state = replace(world.state, pauses=frozenset())
    assert (world.job.status, world.statuses()["b"]) == (JobStatus.COMPLETED, NodeStatus.SKIPPED)


def test_the_window_of_something_else_cannot_be_changed() -> None:
    world = fanned()
    with pytest.raises(ParameterInvalid):
        decided(world, "window", node_id="start", max_concurrency=2)
    with pytest.raises(ParameterInvalid):
        decided(world, "window", node_id="tiles", max_concurrency=0)
    with pytest.raises(NotFound):
        decided(world, "window", node_id="nope", max_concurrency=2)
    world.state = replace(world.state, fan_outs={})
    with pytest.raises(Conflict) as caught:
        decided(world, "window", node_id="tiles", max_concurrency=2)
    assert caught.value.detail.code == "NODE_NOT_STARTED"


def test_a_fan_out_that_starts_anew_numbers_its_children_behind_those_it_had() -> None:
    world = fanned()
    world.state = replace(world.state, child_attempts={"tiles": 6})
    decision = decided(world, "rerun", node_id="tiles")
    (tiles,) = [node for node in decision.nodes if node.node_id == "tiles"]
    assert (tiles.status, tiles.attempt, decision.reset) == (NodeStatus.PENDING, 7, ("tiles",))


@pytest.mark.parametrize(
    ("kind", "args"), [("pause", {}), ("resume", {}), ("priority", {"priority": 1}), ("cancel", {})]
)
def test_what_is_ordered_goes_down_to_child_jobs(kind: str, args: dict[str, Any]) -> None:
    world = fanned()
    node = world.state.nodes["w"].model_copy(update={"task_id": "job1_w_3", "status": NodeStatus.WAITING})
    attempt = Attempt(
        task_id="job1_w_3", job_id="job1", node_id="w", attempt=3, state=AttemptState.LEASED, queue="-", handler="-",
        params_digest="", token_hash="", timeout_seconds=1, queued_at=START,
    )  # fmt: skip
    world.state = replace(world.state, nodes={**world.state.nodes, "w": node}, attempts={"w": attempt})
    (child,) = decided(world, kind, **args).child_orders
    assert (child.task_id, child.kind, child.args, child.actor) == ("job1_w_3", kind, args, "op")
    assert isinstance(child, ChildOrder)


@pytest.mark.parametrize(("kind", "args"), [("cancel", {}), ("skip", {"node_id": "call"})])
@pytest.mark.parametrize("reason", ["wrong file", None])
def test_a_child_job_that_goes_with_an_order_was_cancelled_by_whoever_gave_it(
    kind: str, args: dict[str, Any], reason: str | None
) -> None:
    child = workflow_of(chain("work"), workflow_id="child")
    parent = workflow_of({**chain("call"), "call": {"type": "workflow", "workflow_id": "child", "next": ["end"]}})
    pinned, _ = pin({("w", 1): parent, ("child", 1): child})
    world = World(pinned["w", 1], workflows={child.definition_hash: child})
    (told,) = command(world.workflow, world.state, world.now, kind, args, actor="op", reason=reason).child_orders
    engine_says = "the job was cancelled" if kind == "cancel" else "the node was skipped"
    assert (told.kind, told.actor, told.reason) == ("cancel", "op", reason or engine_says)


def test_an_unknown_command_is_refused_and_said_to_be_so() -> None:
    detail = refusal(World(workflow_of(chain("a"))), "explode")
    assert (detail.code, detail.field) == ("COMMAND_UNKNOWN", "kind")


def test_commands_are_obeyed_in_their_order_and_each_has_its_outcome() -> None:
    world = World(workflow_of(chain("a")))
    stored = [
        command_row(world, number, kind) for number, kind in enumerate(["pause", "cancel", "resume", "retry"], start=1)
    ]
    world.state = replace(world.state, commands=tuple(stored))
    decision = world.advance()
    outcomes = [(done.command_id, done.outcome) for done in decision.commands_done]
    assert outcomes == [(1, "applied"), (2, "applied"), (3, "JOB_FINAL"), (4, "applied")]
    assert (world.state.commands, world.job.status) == ((), JobStatus.RUNNING)
    (told,) = (event for event in decision.events if event.event_type == "command_refused")
    assert (told.data["kind"], told.data["code"], told.data["actor"]) == ("resume", "JOB_FINAL", "op")


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("rerun", {"node_id": "a", "params": {"x" * 500_000: 1}}),
        ("gate", {"node_id": "g" * 500_000, "decision": "approved"}),
        ("skip", {"node_id": "g" * 500_000}),
    ],
)
def test_the_event_of_a_refused_order_does_not_repeat_all_that_the_order_brought(
    kind: str, args: dict[str, Any]
) -> None:
    world = World(workflow_of(chain("a", handler="hello_world")))
    world.complete("a")
    world.state = replace(world.state, commands=(command_row(world, 1, kind, **args),))
    (told,) = (event for event in world.advance().events if event.event_type == "command_refused")
    assert len(told.data["message"]) <= MAX_MESSAGE + 1


def command_row(world: World, number: int, kind: str, **args: Any) -> Command:
    row = direct_command("job1", world.now, kind, args, actor="op")
    return row.model_copy(update={"command_id": number})


@pytest.mark.parametrize(
    ("kind", "args", "message"),
    [
        ("skip", {}, "node_id: is missing"),
        ("skip", {"node": "a"}, "node: unknown field; known are node_id, reason, dry_run"),
        ("skip", {"node_id": "a", "why": 1}, "why: unknown field; known are node_id, reason, dry_run"),
        ("skip", {"node_id": 5}, "node_id: expected a string, got 5"),
        ("window", {"node_id": "a", "max_concurrency": 0}, "max_concurrency: expected at least 1, got 0"),
        ("gate", {"node_id": "a", "decision": "yes"}, "decision: expected 'approved' or 'rejected', got \"yes\""),
        ("cancel", {"reasn": 1}, "reasn: unknown field; known are reason, dry_run; did you mean reason?"),
        ("skipp", {}, "there is no command 'skipp'; known are"),
        ("skipp", {}, "; did you mean skip?"),
    ],
)
def test_an_order_that_cannot_be_read_is_told_with_the_value_and_the_known_words(
    kind: str, args: dict[str, Any], message: str
) -> None:
    with pytest.raises(CallerError) as caught:
        check_order(kind, args)
    assert message in caught.value.detail.message


def test_an_order_with_half_a_character_is_told_in_whole_ones() -> None:
    for args in ({"node_id": ["\ud800"]}, {"node_id": "a", "decision": "\ud800\0"}):
        with pytest.raises(CallerError) as caught:
            check_order("gate", args)
        caught.value.detail.model_dump_json().encode()
