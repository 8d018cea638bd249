from typing import Any

import pytest

from core.dag.why import told
from core.statuses import JobStatus, NodeStatus
from tests.unit.core.dag.fan_outs import PERMANENT, TRANSIENT, PartialWorld, fanned, outcome
from tests.unit.core.dag.harness import FIXED, World


def batch(count: int = 3, size: int = 3, **fields: Any) -> World:
    """Return a world with batches whose items get 50 seconds each and one retry."""
    task = {"timeout_seconds": 50, "retry": {**FIXED, "max_retries": 1, "max_losses": 1}, **fields.pop("task", {})}
    return fanned(range(count), PartialWorld, batch_size=size, task=task, **fields)


def report(world: World, node_id: str, *outcomes: dict[str, Any], status: str = "completed", **fields: Any) -> None:
    """Claim a batch and report what became of its items."""
    world.claim(node_id)
    world.report(node_id, status, outcomes=list(outcomes), **fields)


def test_a_child_is_a_batch_of_items_with_global_indexes_and_the_time_of_all_of_them() -> None:
    world = batch(5, 2)
    assert list(world.children()) == ["many__0", "many__1", "many__2"]
    assert world.node("many__1").input_params == {
        "items": [{"index": 2, "params": {"v": 2, "n": 2}}, {"index": 3, "params": {"v": 3, "n": 3}}]
    }
    dispatches = world.decisions[0].dispatches
    assert [dispatch.items for dispatch in dispatches] == [(0, 1), (2, 3), (4,)]
    assert [dispatch.timeout_seconds for dispatch in dispatches] == [100, 100, 50]


def test_a_batch_of_one_is_still_a_batch() -> None:
    world = batch(1, 3)
    report(world, "many__0", outcome(0))
    assert world.job.status is JobStatus.COMPLETED


def test_the_items_of_a_batch_succeed_together() -> None:
    world = batch()
    report(world, "many__0", outcome(2), outcome(0), outcome(1))
    assert world.node("many__0").status is NodeStatus.COMPLETED
    assert [one["index"] for one in world.node("many__0").outcomes] == [0, 1, 2]
    assert world.node("many").output["succeeded"] == 3
    assert world.node("join").output["results"] == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_the_next_attempt_carries_only_items_that_may_still_succeed() -> None:
    world = batch(tolerate={"count": 1})
    report(world, "many__0", outcome(0), outcome(1, PERMANENT), outcome(2, TRANSIENT))
    assert world.node("many__0").status is NodeStatus.WAITING
    assert (world.fan_out("many").succeeded, world.fan_out("many").failed) == (1, 1)
    assert world.fan_out("many").failures[0]["index"] == 1
    world.tick(10)
    (dispatch,) = world.decisions[-1].dispatches
    assert (dispatch.items, dispatch.timeout_seconds, dispatch.attempt) == ((2,), 50, 1)
    report(world, "many__0", outcome(2), outcome(0, PERMANENT))
    assert world.node("many__0").status is NodeStatus.FAILED
    assert (world.fan_out("many").succeeded, world.fan_out("many").failed) == (2, 1)
    assert world.job.status is JobStatus.COMPLETED
    assert world.node("join").output["results"] == [{"i": 0}, {"i": 2}]


def test_items_that_fail_for_now_fail_for_good_when_the_budget_of_the_batch_is_used() -> None:
    world = batch()
    report(world, "many__0", outcome(0), outcome(1, TRANSIENT), outcome(2, TRANSIENT))
    world.tick(10)
    report(world, "many__0", outcome(1), outcome(2, TRANSIENT))
    assert world.node("many__0").status is NodeStatus.FAILED
    assert world.node("many").status is NodeStatus.FAILED
    assert (world.fan_out("many").succeeded, world.fan_out("many").failed) == (2, 1)


def test_what_a_lost_worker_said_in_heartbeats_counts_and_the_rest_is_tried_again() -> None:
    world = batch()
    world.claim("many__0")
    world.set_attempt("many__0", outcomes=[outcome(0), outcome(0), {"odd": 1}, outcome(1, TRANSIENT)])
    world.tick(20)
    child = world.node("many__0")
    assert (child.status, child.losses_used, child.retries_used) == (NodeStatus.WAITING, 1, 1)
    world.tick(10)
    assert world.decisions[-1].dispatches[0].items == (1, 2)
    world.claim("many__0")
    world.tick(20)
    assert world.node("many__0").status is NodeStatus.FAILED
    assert (world.fan_out("many").succeeded, world.fan_out("many").failed) == (1, 2)


def test_a_release_takes_along_what_is_done_and_costs_nothing() -> None:
    world = batch()
    report(world, "many__0", outcome(0), status="released")
    child = world.node("many__0")
    assert (child.losses_used, child.retries_used, child.status) == (0, 0, NodeStatus.DISPATCHED)
    assert "node_released" in world.event_types()
    assert world.decisions[-1].dispatches[0].items == (1, 2)


def test_a_release_after_the_last_item_ends_the_batch() -> None:
    world = batch()
    report(world, "many__0", outcome(0), outcome(1), outcome(2), status="released")
    assert world.job.status is JobStatus.COMPLETED


def test_a_failure_of_the_whole_task_is_that_of_the_items_it_says_nothing_about() -> None:
    world = batch(tolerate={"count": 2})
    report(world, "many__0", outcome(0), status="failed", error=PERMANENT)
    assert (world.fan_out("many").succeeded, world.fan_out("many").failed) == (1, 2)
    assert world.job.status is JobStatus.COMPLETED
    world = batch()
    report(world, "many__0", outcome(0), status="failed", error=TRANSIENT)
    world.tick(10)
    assert world.decisions[-1].dispatches[0].items == (1, 2)


def test_items_that_a_result_leaves_out_are_tried_again_as_after_a_loss() -> None:
    world = batch()
    report(world, "many__0", outcome(0))
    assert world.node("many__0").losses_used == 1
    world.wake()
    report(world, "many__0", outcome(1))
    assert world.node("many__0").outcomes[2]["error"]["code"] == "WORKER_LOST"


@pytest.mark.parametrize("output", [None, {"x": "\x00"}])
def test_an_item_whose_output_cannot_be_stored_fails(output: Any) -> None:
    world = batch(tolerate={"count": 1})
    report(world, "many__0", outcome(0), outcome(1), {"index": 2, "status": "completed", "output": output})
    assert world.node("many__0").outcomes[2]["error"]["code"] == "RESULT_INVALID"
    assert world.job.status is JobStatus.COMPLETED


def test_an_item_that_failed_without_an_error_has_one() -> None:
    world = batch()
    report(world, "many__0", outcome(0), outcome(1), {"index": 2, "status": "failed"})
    assert world.node("many__0").outcomes[2]["error"]["code"] == "RESULT_INVALID"


def test_an_item_whose_params_cannot_be_made_fails_alone() -> None:
    task = {"params": {"v": "{{ item.k }}"}}
    world = fanned([{"k": 1}, {}, {}, {}], PartialWorld, batch_size=2, task=task, tolerate={"count": 3})
    assert world.children() == {"many__0": "DISPATCHED", "many__1": "FAILED"}
    assert world.decisions[0].dispatches[0].items == (0,)
    assert world.fan_out("many").failed == 3
    report(world, "many__0", outcome(0))
    assert world.job.status is JobStatus.COMPLETED
    assert world.fan_out("many").succeeded == 1


def test_the_failures_of_single_items_stop_the_fan_out() -> None:
    world = batch(9, 3, max_concurrency=2, tolerate={"count": 1})
    report(world, "many__0", outcome(0), outcome(1, PERMANENT), outcome(2, PERMANENT))
    assert world.children() == {"many__0": "FAILED", "many__1": "CANCELLED"}
    fan_out = world.fan_out("many")
    assert (fan_out.succeeded, fan_out.failed, fan_out.skipped) == (1, 2, 6)


def test_a_large_output_of_an_item_stays_where_it_lies() -> None:
    world = batch()
    ref = {"blob": "payloads/job1/x", "size_bytes": 70_000, "sha256": "0" * 64}
    report(world, "many__0", outcome(0), outcome(1), {"index": 2, "status": "completed", "output_ref": ref})
    assert world.node("many__0").outcomes[2] == {"index": 2, "status": "completed", "output_ref": ref}
    assert world.node("join").status is NodeStatus.COMPLETED


def test_retries_of_a_batch_end_with_the_time_for_them() -> None:
    world = batch(task={"retry": {**FIXED, "max_elapsed_seconds": 5}})
    report(world, "many__0", outcome(0), outcome(1), outcome(2, TRANSIENT))
    assert world.node("many__0").status is NodeStatus.FAILED


def test_the_time_of_a_batch_is_no_longer_than_one_may_be() -> None:
    longest = 10 * 365 * 86400
    (dispatch,) = batch(1000, 1000, task={"timeout_seconds": longest}).decisions[0].dispatches
    assert dispatch.timeout_seconds == longest


def test_a_batch_says_whether_it_waits_for_its_backoff_or_was_given_back() -> None:
    world = batch()
    report(world, "many__0", outcome(0), outcome(1, TRANSIENT))
    until = world.node("many__0").not_before
    assert until is not None
    detail = {"until": until.isoformat(), "code": "T"}
    assert told(world.node("many__0").waiting_for) == {"kind": "backoff", "detail": detail}
    world = batch()
    world.pauses("all")
    report(world, "many__0", outcome(0), status="released")
    assert told(world.node("many__0").waiting_for) == {"kind": "released", "detail": {"reason": None}}
