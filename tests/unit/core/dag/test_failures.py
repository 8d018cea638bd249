from dataclasses import replace
from datetime import timedelta

import pytest

from core.errors import ErrorDetail
from core.statuses import AttemptState, JobStatus, NodeStatus, SkipReason
from tests.unit.core.dag.harness import FIXED, START, one_task, retrying


@pytest.mark.parametrize("classification", ["transient", "throttling"])
def test_a_failure_that_may_pass_waits_and_is_tried_again(classification: str) -> None:
    world = retrying(max_retries=2)
    world.fail("a", classification, code="BUSY")
    node = world.node("a")
    assert (node.status, node.retries_used, node.losses_used) == (NodeStatus.WAITING, 1, 0)
    assert node.not_before == START + timedelta(seconds=10)
    assert node.waiting_for == {"kind": "backoff", "detail": {"until": node.not_before.isoformat(), "code": "BUSY"}}
    assert world.job.wake_at == node.not_before
    assert not world.tick(9).dispatches
    (dispatch,) = world.tick(1).dispatches
    assert dispatch.attempt == 1
    node = world.node("a")
    assert (node.task_id, node.attempt, node.not_before, node.waiting_for) == ("job1_a_1", 2, None, None)
    assert world.event_types()[-3:] == ["node_retrying", "node_ready", "node_dispatched"]


def test_five_retries_are_six_attempts_and_the_error_tells_all_of_them() -> None:
    world = retrying(max_retries=5)
    for number in range(6):
        world.fail("a", "transient", code=f"E{number}")
        if number < 5:
            world.tick(10)
    assert world.node("a").attempt == 6
    assert world.job.status is JobStatus.FAILED
    error = ErrorDetail.model_validate(world.job.error)
    assert (error.code, error.node_id) == ("E5", "a")
    assert [(item.attempt, item.code) for item in error.attempts] == [(n, f"E{n}") for n in range(6)]
    assert "job1" not in str(world.job.error)


def test_a_permanent_failure_is_final_at_once() -> None:
    world = retrying(max_retries=5)
    world.fail("a")
    assert world.statuses() == {"start": "COMPLETED", "a": "FAILED", "end": "SKIPPED"}
    assert world.node("end").skip_reason is SkipReason.UPSTREAM_FAILED
    assert world.job.status is JobStatus.FAILED
    assert world.job.outputs is None
    failed = [event for event in world.events if event.event_type == "job_failed"]
    assert failed[0].data == {"code": "BROKEN", "message": "it broke", "node_id": "a"}


def test_success_after_a_retry_leaves_no_error() -> None:
    world = retrying()
    world.fail("a", "transient")
    world.tick(10)
    world.complete("a")
    assert world.node("a").error is None
    assert world.job.error is None


def test_a_lost_worker_has_its_own_budget_and_no_pause() -> None:
    world = retrying(max_retries=0, max_losses=2)
    for losses in (1, 2):
        world.claim("a")
        decision = world.tick(20)
        assert [(end.state, end.reason) for end in decision.attempts_ended] == [(AttemptState.EXPIRED, "worker_lost")]
        assert decision.dispatches[0].attempt == losses
        assert (world.node("a").losses_used, world.node("a").retries_used) == (losses, 0)
    world.claim("a")
    world.tick(20)
    assert world.job.error is not None
    assert world.job.error["code"] == "WORKER_LOST"
    assert "attempt_expired" in world.event_types()


def test_a_worker_that_reports_a_lost_process_is_charged_as_a_loss() -> None:
    world = retrying(max_retries=0, max_losses=1)
    world.fail("a", "permanent", code="WORKER_LOST")
    assert (world.node("a").status, world.node("a").losses_used) == (NodeStatus.DISPATCHED, 1)


def test_a_renewed_lease_does_not_expire() -> None:
    world = one_task()
    world.claim("a")
    world.tick(15)
    world.beat("a")
    assert not world.tick(15).attempts_ended
    assert world.tick(5).attempts_ended


def test_no_lease_and_no_run_time_ends_while_nobody_could_renew() -> None:
    world = one_task(timeout_seconds=30)
    world.claim("a")
    world.outage(on=True)
    assert not world.tick(60).attempts_ended
    assert world.job.wake_at == world.now + timedelta(seconds=5)
    world.beat("a")
    world.outage(on=False)
    assert world.tick(0).attempts_ended[0].reason == "task_timeout"


def test_a_task_that_runs_too_long_is_expired_and_uses_a_retry() -> None:
    world = one_task(timeout_seconds=30, retry=FIXED)
    world.claim("a")
    for _ in range(2):
        world.tick(10)
        world.beat("a")
    assert world.job.wake_at == START + timedelta(seconds=30)
    decision = world.tick(10)
    assert [(end.state, end.reason) for end in decision.attempts_ended] == [(AttemptState.EXPIRED, "task_timeout")]
    node = world.node("a")
    assert (node.status, node.retries_used, node.losses_used) == (NodeStatus.WAITING, 1, 0)
    assert node.error is not None
    assert node.error["code"] == "TASK_TIMEOUT"


def test_a_worker_that_was_silent_before_the_timeout_is_a_loss() -> None:
    world = one_task(timeout_seconds=30, retry=FIXED)
    world.claim("a")
    assert world.tick(100).attempts_ended[0].reason == "worker_lost"


def test_a_release_costs_nothing_and_is_dispatched_at_once() -> None:
    world = retrying(max_retries=0, max_losses=0)
    world.claim("a")
    decision = world.report("a", "released")
    assert decision is not None
    assert decision.dispositions[0].disposition == "applied"
    assert decision.dispatches[0].attempt == 1
    assert (world.node("a").retries_used, world.node("a").losses_used) == (0, 0)


def test_an_attempt_that_was_revoked_is_replaced_at_no_cost() -> None:
    world = retrying(max_retries=0, max_losses=0)
    world.claim("a")
    world.set_attempt("a", state=AttemptState.REVOKED)
    assert world.tick(0).dispatches[0].attempt == 1


@pytest.mark.parametrize("state", [AttemptState.RELEASED, AttemptState.REPORTED])
def test_an_attempt_that_ended_by_a_report_waits_for_its_result(state: AttemptState) -> None:
    """It was read before its result was in the inbox: taken for lost, the result would find another attempt."""
    world = retrying(max_retries=0, max_losses=0)
    world.claim("a")
    world.set_attempt("a", state=state)
    assert world.tick(0).dispatches == ()
    assert world.node("a").status is NodeStatus.RUNNING


def test_an_attempt_that_vanished_is_a_loss() -> None:
    world = retrying(max_losses=1)
    world.state = replace(world.state, attempts={})
    assert world.tick(0).dispatches[0].attempt == 1
    assert world.node("a").losses_used == 1


def test_retries_stop_when_the_elapsed_time_is_used_up() -> None:
    world = retrying(max_retries=99, max_elapsed_seconds=25)
    world.fail("a", "transient")
    world.tick(10)
    world.fail("a", "transient")
    world.tick(10)
    world.fail("a", "transient")
    assert world.job.status is JobStatus.FAILED
    assert world.node("a").attempt == 3
