from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.dag.chores import Unpacking
from core.dag.commands import command
from core.dag.fan_out import MAX_ITEMS
from core.dag.rendering import Rendered
from core.dag.why import told
from core.payloads import LIMIT_BYTES, PayloadRef
from core.statuses import AttemptState, JobStatus, NodeStatus
from tests.unit.core.dag.fan_outs import ITEMS, PERMANENT, TRANSIENT, PartialWorld, fanned, workflow_with
from tests.unit.core.dag.harness import FIXED, World, workflow_of
from tests.unit.core.dag.replay import Replay

KINDS = pytest.mark.parametrize("kind", [World, PartialWorld], ids=["all_loaded", "touched_only"])


def test_the_children_get_one_item_each_with_its_index_and_the_fan_out_runs_until_the_last_has_ended() -> None:
    world = fanned(["a", {"key": 1}])
    assert world.children() == {"many__0": "DISPATCHED", "many__1": "DISPATCHED"}
    assert world.node("many__0").input_params == {"v": "a", "n": 0}
    assert world.node("many__1").input_params == {"v": {"key": 1}, "n": 1}
    assert world.attempt("many__0").task_id == "job1_many__0_0"
    assert world.job.status is JobStatus.RUNNING
    world.complete("many__1")
    assert world.statuses() == {"start": "COMPLETED", "many": "RUNNING", "join": "PENDING", "end": "PENDING"}
    world.complete("many__0")
    assert world.job.status is JobStatus.COMPLETED
    assert world.node("many").output == {
        "fan_out_count": 2,
        "succeeded": 2,
        "failed": 0,
        "skipped": 0,
        "failures": [],
        "child_node_ids": ["many__0", "many__1"],
    }


def test_a_list_without_items_completes_at_once_and_the_join_sees_an_empty_list() -> None:
    world = fanned([])
    assert world.job.status is JobStatus.COMPLETED
    assert world.children() == {}
    assert world.node("many").output["fan_out_count"] == 0
    assert world.node("join").output == {
        "results": [], "count": 0, "succeeded": 0, "failed": 0, "skipped": 0, "failures": []
    }  # fmt: skip


@KINDS
def test_no_more_children_are_out_than_the_window_has_and_they_come_in_order(kind: type[World]) -> None:
    world = fanned(range(5), kind, max_concurrency=2)
    assert list(world.children()) == ["many__0", "many__1"]
    world.complete("many__1")
    assert list(world.children()) == ["many__0", "many__1", "many__2"]
    assert world.fan_out("many").active == 2
    for number in (0, 2, 3, 4):
        world.complete(f"many__{number}")
    assert world.job.status is JobStatus.COMPLETED


def test_the_window_can_be_changed_while_it_runs() -> None:
    world = fanned(range(9), max_concurrency=2)
    world.set_fan_out("many", max_concurrency=4)
    world.advance()
    assert len(world.children()) == 4
    world.set_fan_out("many", max_concurrency=1)
    world.complete("many__0", "many__1")
    assert len(world.children()) == 4
    world.complete("many__2", "many__3")
    assert list(world.children())[4:] == ["many__4"]


ODD = {"odd": {"type": ["string", "integer", "object", "boolean", "null"]}}


@pytest.mark.parametrize(
    ("value", "kind"),
    [("text", "a text"), (5, "a number"), ({"a": 1}, "a mapping"), (None, "null"), (True, "a boolean")],
)
def test_a_source_that_is_no_list_fails_the_node_naming_the_expression(value: Any, kind: str) -> None:
    world = World(workflow_with({"source": "{{ inputs.odd }}"}, inputs=ODD), {"odd": value})
    assert world.node("many").status is NodeStatus.FAILED
    assert world.node("many").error["code"] == "FAN_OUT_SOURCE"
    assert world.node("many").error["message"] == f"source {{{{ inputs.odd }}}} is {kind}, not a list"


def test_a_source_without_value_fails_the_node_naming_the_expression() -> None:
    world = World(workflow_with({"source": "{{ nodes.start.output.nothing }}"}))
    assert world.job.error["code"] == "TEMPLATE_ERROR"
    assert "nodes.start.output.nothing" in world.job.error["message"]


def test_items_are_data_and_never_rendered() -> None:
    world = fanned(["{{ inputs.items }}", "{% raw %}"])
    assert world.node("many__0").input_params == {"v": "{{ inputs.items }}", "n": 0}
    world.complete("many__0", "many__1")
    assert world.job.status is JobStatus.COMPLETED


def test_what_is_wrong_with_one_item_is_the_failure_of_that_item_and_of_no_other() -> None:
    world = fanned([{"k": 1}, {}, {"k": 3}], task={"params": {"v": "{{ item.k }}"}}, tolerate={"count": 1})
    assert world.children() == {"many__0": "DISPATCHED", "many__1": "FAILED", "many__2": "DISPATCHED"}
    assert world.node("many__1").error["code"] == "TEMPLATE_ERROR"
    assert "item.k" in world.node("many__1").error["message"]
    world.complete("many__0", "many__2")
    assert world.job.status is JobStatus.COMPLETED
    assert world.fan_out("many").failures[0]["index"] == 1


def test_params_that_do_not_fit_the_handler_are_the_failure_of_their_item() -> None:
    task = {"handler": "hello_world", "params": {"name": "{{ item }}"}}
    world = fanned(["a", 5], task=task, tolerate={"count": 1})
    assert world.children() == {"many__0": "DISPATCHED", "many__1": "FAILED"}
    assert world.node("many__1").error["code"] == "PARAMETER_INVALID"


def test_when_every_item_is_wrong_the_fan_out_fails_without_a_task() -> None:
    world = fanned([{}] * 4, task={"params": {"v": "{{ item.k }}"}}, tolerate={"count": 3})
    assert world.job.status is JobStatus.FAILED
    assert world.job.error["code"] == "FAN_OUT_FAILED"
    assert world.fan_out("many").failed == 4
    assert not world.state.attempts


@KINDS
def test_a_child_is_tried_again_after_its_own_backoff_within_its_own_budget(kind: type[World]) -> None:
    world = fanned(range(2), kind)
    world.fail("many__0", "transient")
    assert world.node("many__0").status is NodeStatus.WAITING
    assert world.node("many__1").status is NodeStatus.DISPATCHED
    assert world.fan_out("many").active == 2
    world.tick(10)
    assert world.node("many__0").task_id == "job1_many__0_1"
    assert world.attempt("many__0").state is AttemptState.QUEUED
    world.fail("many__0", "transient")
    assert world.node("many__0").status is NodeStatus.FAILED
    assert [one["code"] for one in world.node("many__0").error["attempts"]] == ["BROKEN", "BROKEN"]


@KINDS
def test_a_result_of_an_older_attempt_of_a_child_is_superseded(kind: type[World]) -> None:
    world = fanned(range(2), kind)
    world.fail("many__0", "transient")
    world.tick(10)
    world.put(world.rows["job1_many__0_0"].model_copy(update={"status": "completed", "output": {}}))
    (disposition,) = world.advance().dispositions
    assert disposition.disposition == "superseded"
    assert world.node("many__0").status is NodeStatus.DISPATCHED


def test_a_result_of_a_child_that_is_not_there_is_superseded() -> None:
    world = fanned([1])
    world.claim("many__0")
    world.report("many__0", advance=False)
    row = world.state.results[0].model_copy(update={"node_id": "many__7", "task_id": "job1_many__7_0"})
    world.put(row)
    assert {one.disposition for one in world.advance().dispositions} == {"applied", "superseded"}


@KINDS
def test_a_silent_worker_costs_a_child_a_loss_and_a_release_costs_nothing(kind: type[World]) -> None:
    world = fanned(range(1), kind)
    world.claim("many__0")
    world.tick(20)
    assert (world.node("many__0").losses_used, world.node("many__0").retries_used) == (1, 0)
    world.wake()
    world.claim("many__0")
    world.report("many__0", "released")
    assert (world.node("many__0").losses_used, world.node("many__0").retries_used) == (1, 0)
    world.complete("many__0")
    assert world.job.status is JobStatus.COMPLETED


@KINDS
def test_a_child_that_runs_too_long_is_timed_out_and_one_that_nobody_takes_is_sent_again(kind: type[World]) -> None:
    world = fanned(
        range(2), kind, task={"timeout_seconds": 50, "retry": {**FIXED, "max_retries": 0}}, tolerate={"count": 1}
    )
    world.claim("many__0")
    for _ in range(4):
        world.tick(14)
        world.beat("many__0")
    assert world.node("many__0").error["code"] == "TASK_TIMEOUT"
    world.tick(300)
    assert world.attempt("many__1").dispatch_no == 2


@KINDS
def test_a_child_that_nobody_takes_is_given_up_after_its_queue_timeout(kind: type[World]) -> None:
    world = fanned(range(1), kind, task={"queue_timeout_seconds": 400, "retry": {**FIXED, "max_retries": 0}})
    world.tick(300)
    assert world.attempt("many__0").dispatch_no == 2
    world.tick(100)
    assert world.node("many__0").error["code"] == "QUEUE_TIMEOUT"


@KINDS
def test_nothing_starts_any_more_beyond_what_is_tolerated_and_what_runs_may_end(kind: type[World]) -> None:
    world = fanned(range(9), kind, max_concurrency=4, tolerate={"count": 1}, task={"retry": {"max_retries": 3}})
    world.claim("many__0")
    world.fail("many__1")
    assert len(world.children()) == 5
    world.fail("many__2", "transient")
    world.fail("many__3")
    assert world.fan_out("many").state == "stopping"
    assert world.children() == {
        "many__0": "DISPATCHED",
        "many__1": "FAILED",
        "many__2": "CANCELLED",
        "many__3": "FAILED",
        "many__4": "CANCELLED",
    }
    assert world.attempt("many__4").state is AttemptState.REVOKED
    assert world.node("many").status is NodeStatus.RUNNING
    world.report("many__0")
    assert world.node("many").status is NodeStatus.FAILED
    assert world.job.error["code"] == "FAN_OUT_FAILED"
    assert world.job.error["value"]["index"] == 1
    fan_out = world.fan_out("many")
    assert (fan_out.succeeded, fan_out.failed, fan_out.skipped) == (1, 2, 6)
    assert [failure["index"] for failure in world.node("many").output["failures"]] == [1, 3]


@KINDS
def test_what_runs_and_fails_for_now_is_not_tried_again_beyond_what_is_tolerated(kind: type[World]) -> None:
    world = fanned(range(2), kind)
    world.claim("many__1")
    world.fail("many__0")
    error = {"code": "T", "message": "m", "classification": "transient"}
    world.report("many__1", "failed", error=error)
    assert world.children() == {"many__0": "FAILED", "many__1": "CANCELLED"}
    assert world.job.status is JobStatus.FAILED


@pytest.mark.parametrize(
    ("tolerate", "count", "tolerated"),
    [({"percent": 1}, 50, 0), ({"percent": 1}, 250, 2), ({"percent": 0.1}, 1000, 1), ({"percent": 100}, 3, 3),
     ({"percent": 29}, 100, 29), ({"count": 3}, 2, 2), ({"count": 0}, 5, 0)],
)  # fmt: skip
def test_a_percentage_of_items_that_may_fail_is_rounded_down(tolerate: Any, count: int, tolerated: int) -> None:
    assert fanned(range(count), max_concurrency=1, tolerate=tolerate).fan_out("many").tolerated == tolerated


def test_only_the_first_hundred_failures_are_kept_and_all_are_counted() -> None:
    world = fanned([{}] * 150, task={"params": {"v": "{{ item.k }}"}}, tolerate={"percent": 100})
    assert world.job.status is JobStatus.COMPLETED
    assert world.fan_out("many").failed == 150
    assert [one["index"] for one in world.fan_out("many").failures] == list(range(100))


@KINDS
def test_failures_are_shown_in_item_order_whatever_failed_first(kind: type[World]) -> None:
    world = fanned(range(5), kind, tolerate={"count": 4})
    for index in (3, 0, 4, 1):
        world.fail(f"many__{index}")
    world.complete("many__2", output={})
    for node_id in ("many", "join"):
        assert [failure["index"] for failure in world.node(node_id).output["failures"]] == [0, 1, 3, 4]


def test_a_fan_out_that_fails_names_the_first_item_in_its_order() -> None:
    world = fanned(range(3))
    world.claim("many__1")
    world.fail("many__2")
    world.fail("many__1")
    assert world.job.error["value"]["index"] == 1
    assert "item 1:" in world.job.error["message"]


def test_of_many_failures_the_hundred_that_came_first_are_shown_in_item_order() -> None:
    world = fanned(range(150), tolerate={"percent": 100})
    for index in range(149, -1, -1):
        world.fail(f"many__{index}")
    shown = world.node("join").output["failures"]
    assert [failure["index"] for failure in shown] == list(range(50, 150))


def test_a_best_effort_fan_out_that_fails_lets_the_join_go_on_with_what_succeeded() -> None:
    world = fanned(range(2), best_effort=True)
    world.complete("many__1", output={"v": 1})
    world.fail("many__0")
    assert world.job.status is JobStatus.COMPLETED
    assert world.node("join").output["results"] == [{"v": 1}]
    assert world.node("join").output["failed"] == 1
    assert world.job.warnings[0]["code"] == "FAN_OUT_FAILED"


@KINDS
def test_a_paused_job_makes_and_sends_no_children_and_goes_on_when_it_is_resumed(kind: type[World]) -> None:
    world = fanned(range(4), kind, max_concurrency=2)
    world.fail("many__0", "transient")
    world.set_job(paused_at=world.now)
    world.complete("many__1")
    world.tick(60)
    assert world.children() == {"many__0": "WAITING", "many__1": "COMPLETED"}
    world.set_job(paused_at=None)
    world.advance()
    assert world.children() == {"many__0": "DISPATCHED", "many__1": "COMPLETED", "many__2": "DISPATCHED"}


@KINDS
def test_parked_children_are_sent_again_when_the_job_goes_on(kind: type[World]) -> None:
    world = fanned(range(1), kind)
    world.set_job(paused_at=world.now)
    world.set_attempt("many__0", state=AttemptState.PARKED, redispatch_at=None)
    world.advance()
    world.set_job(paused_at=None)
    world.advance()
    assert world.attempt("many__0").state is AttemptState.QUEUED


@KINDS
def test_a_fan_out_that_stops_during_a_pause_waits_for_what_runs_and_not_for_the_pause(kind: type[World]) -> None:
    world = fanned(range(3), kind, max_concurrency=2)
    world.claim("many__0")
    world.set_job(paused_at=world.now)
    world.advance()
    assert world.node("many").waiting_for == {"kind": "paused", "detail": "job"}
    world.fail("many__1")
    assert (world.fan_out("many").state, world.node("many").waiting_for) == ("stopping", None)
    world.report("many__0")
    assert world.job.status is JobStatus.FAILED


def test_a_paused_job_does_not_expand() -> None:
    workflow = workflow_with({})
    world = World(workflow, {"items": [1]}, paused_at=World(workflow).now)
    assert world.node("many").status is NodeStatus.READY
    assert world.node("many").waiting_for["kind"] == "paused"


@KINDS
def test_the_deadline_of_the_job_reaches_children_that_nothing_happens_to(kind: type[World]) -> None:
    world = fanned(range(6), kind, max_concurrency=3)
    world.claim("many__1")
    world.set_job(deadline_at=world.now)
    world.advance()
    assert world.job.error["code"] == "JOB_DEADLINE"
    assert set(world.children().values()) == {"CANCELLED"}
    assert {world.attempt(key).state for key in world.children()} == {AttemptState.REVOKED}
    fan_out = world.fan_out("many")
    assert (fan_out.state, fan_out.active, fan_out.skipped, fan_out.wake_at) == ("done", 0, 6, None)


def test_a_cancel_asks_for_the_children_that_are_not_loaded_and_then_reaches_all() -> None:
    world = fanned(range(3))
    world.complete("many__0")
    partly = world.without_children("many__2")
    assert command(world.workflow, partly, world.now, "cancel", actor="me").needs_children
    decision = command(world.workflow, world.state, world.now, "cancel", actor="me")
    assert [child.status.value for child in decision.children] == ["CANCELLED", "CANCELLED"]
    assert [end.task_id for end in decision.attempts_ended] == ["job1_many__1_0", "job1_many__2_0"]
    (row,) = decision.fan_outs
    assert (row.state, row.succeeded, row.skipped) == ("done", 1, 2)


def test_the_failure_of_another_node_cancels_the_children_under_on_failure_cancel() -> None:
    nodes = workflow_with({}).model_dump(mode="json", exclude_defaults=True)
    nodes["nodes"]["start"]["next"].append("other")
    nodes["nodes"]["other"] = {"type": "task", "handler": "echo", "retry": {"max_retries": 0}, "next": ["end"]}
    workflow = type(workflow_with({})).from_json({**nodes, "on_failure": "cancel"})
    world = PartialWorld(workflow, {"items": [1, 2]})
    world.fail("other")
    assert set(world.children().values()) == {"CANCELLED"}
    assert world.job.error["node_id"] == "other"


def test_a_handler_that_this_build_does_not_have_fails_the_fan_out() -> None:
    world = fanned([1], task={"handler": "nobody"})
    assert world.job.error["code"] == "HANDLER_UNKNOWN"


def test_more_items_than_a_fan_out_may_have_fail_it() -> None:
    world = World(workflow_with({"source": "{{ inputs.items }}"}), {"items": [0] * (LIMIT_BYTES // 2)})
    (need,) = world.decisions[-1].needs
    ref = PayloadRef(blob="payloads/job1/x", size_bytes=3_000_000, sha256="0" * 64)
    world.answer(need.key, Rendered(ref=ref, length=MAX_ITEMS + 1))
    assert world.job.error["code"] == "FAN_OUT_TOO_LARGE"


def test_a_large_source_is_stored_before_the_window_opens() -> None:
    world = World(workflow_with({"source": "{{ inputs.items }}", "batch_size": 2}), {"items": [0] * (LIMIT_BYTES // 2)})
    (need,) = world.decisions[-1].needs
    ref = PayloadRef(blob="payloads/job1/x", size_bytes=3_000_000, sha256="0" * 64)
    world.answer(need.key, Rendered(ref=ref, length=5))
    (chore,) = world.decisions[-1].chores
    assert isinstance(chore, Unpacking)
    assert (chore.ref, world.fan_out("many").state) == (ref, "expanding")
    assert world.children() == {}
    world.state = replace(world.state, stored_items={"many": 5}, next_items={"many": [1, 2, 3, 4, 5]})
    world.wake()
    assert world.fan_out("many").state == "running"
    assert len(world.children()) == 3


@pytest.mark.parametrize("kind", ["slot", "payload", "paused"])
def test_what_a_fan_out_waited_for_is_over_when_it_begins(kind: str) -> None:
    slot = {"concurrency": {"key": "k", "limit": 1}} if kind == "slot" else {}
    items = [0] * (LIMIT_BYTES // 2 if kind == "payload" else 2)
    world = World(workflow_with({}, **slot), {"items": items}, pauses=["all"] if kind == "paused" else [])
    assert world.node("many").waiting_for["kind"] == kind
    world.pauses()
    if kind == "payload":
        ref = PayloadRef(blob="payloads/job1/x", size_bytes=3_000_000, sha256="0" * 64)
        world.answer(world.decisions[-1].needs[0].key, Rendered(ref=ref, length=5))
    else:
        world.grant(*world.state.slots)
    assert (world.node("many").status, world.node("many").waiting_for) == (NodeStatus.RUNNING, None)


def test_the_children_of_a_run_after_a_reset_get_numbers_above_those_of_the_run_before() -> None:
    world = fanned(range(2))
    world.fail("many__0", "transient")
    world.tick(10)
    assert world.node("many").attempt == 2
    world.reset("many")
    world.advance()
    assert world.node("many__0").task_id == "job1_many__0_2"
    world.complete("many__0", "many__1")
    assert world.job.status is JobStatus.COMPLETED


def test_what_happens_to_many_children_alike_is_one_event() -> None:
    world = fanned(range(4))
    for key in ("many__0", "many__1", "many__3"):
        world.claim(key)
        world.report(key, advance=False)
    world.advance()
    grouped = [(event.event_type, event.data["children"]) for event in world.events if "children" in event.data]
    assert grouped == [("children_dispatched", [[0, 3]]), ("children_completed", [[0, 1], [3, 3]])]


def test_the_log_says_which_children_of_a_fan_out_that_starts_anew_came_last() -> None:
    """Those of the run before are cancelled, and with a failure of the same evaluation those of this one too."""
    nodes = dict(workflow_with({}).model_dump(mode="json", exclude_defaults=True)["nodes"])
    gate = {"type": "gate", "expires_after_seconds": 60, "next": ["end"]}
    nodes |= {"start": {"type": "start", "next": ["many", "ask"]}, "ask": gate}
    world = World(workflow_of(nodes, inputs=ITEMS, on_failure="cancel"), {"items": [1, 2]})
    world.now += timedelta(seconds=60)
    world.write(command(world.workflow, world.state, world.now, "rerun", {"node_id": "many"}, actor="op"))
    assert (world.job.status, set(world.children().values())) == (JobStatus.FAILED, {"CANCELLED"})
    Replay().assert_leads_to(world.state, world.events)


def test_large_params_of_an_item_are_asked_for_and_the_window_waits_for_them() -> None:
    world = fanned(
        ["x" * (LIMIT_BYTES // 2), "small"], task={"params": {"v": "{{ item }}{{ item }}", "n": "{{ index }}"}}
    )
    (need,) = world.decisions[-1].needs
    assert (need.scope["index"], need.path) == (0, "nodes.many.task.params of item 0")
    assert world.children() == {}
    assert world.node("many").status is NodeStatus.RUNNING
    ref = PayloadRef(blob="payloads/job1/x", size_bytes=70_000, sha256="0" * 64)
    world.answer(need.key, Rendered(ref=ref, digest="d"))
    assert world.node("many__0").input_ref == ref.model_dump()
    assert world.attempt("many__0").params_digest == "d"
    assert list(world.children()) == ["many__0", "many__1"]
    world.fail("many__0", "transient")
    world.tick(10)
    assert world.decisions[-1].dispatches[0].params_ref == ref
    assert world.attempt("many__0").params_digest == "d"


def test_a_transient_error_tells_what_it_waits_for() -> None:
    world = fanned([1])
    world.claim("many__0")
    world.report("many__0", "failed", error=TRANSIENT)
    assert world.node("many__0").waiting_for["kind"] == "backoff"
    world.tick(10)
    world.claim("many__0")
    world.report("many__0", "failed", error=PERMANENT)
    assert world.job.status is JobStatus.FAILED


@KINDS
@pytest.mark.parametrize("switch", ["job", "all"])
def test_a_child_that_was_given_back_during_a_pause_says_so(kind: type[World], switch: str) -> None:
    world = fanned(range(1), kind)
    world.claim("many__0")
    if switch == "job":
        world.set_job(paused_at=world.now)
    else:
        world.pauses(switch)
    world.report("many__0", "released")
    assert world.node("many__0").status is NodeStatus.WAITING
    assert told(world.node("many__0").waiting_for) == {
        "kind": "released",
        "detail": {"reason": "released by its worker"},
    }


def test_tasks_of_a_paused_queue_are_those_of_its_children() -> None:
    world = World(
        workflow_with({"task": {"queue": "container-tasks"}}), {"items": [1]}, pauses=["queue:container-tasks"]
    )
    assert world.children() == {}
    assert world.node("many").waiting_for == {"kind": "paused", "detail": "queue:container-tasks"}
    world.pauses()
    (sent,) = world.tick(0).dispatches
    assert sent.queue == "container-tasks"
