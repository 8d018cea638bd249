from datetime import timedelta

from core.statuses import AttemptState, JobStatus, NodeStatus
from tests.unit.core.dag.harness import FIXED, START, World, chain, one_task, task, workflow_of


def test_an_unclaimed_attempt_is_sent_again_and_keeps_its_number() -> None:
    world = one_task()
    assert world.job.wake_at == START + timedelta(seconds=300)
    assert not world.tick(299).redispatches
    assert world.tick(1).redispatches == ("job1_a_0",)
    assert (world.attempt("a").dispatch_no, world.node("a").attempt) == (2, 1)
    assert world.job.wake_at == START + timedelta(seconds=900)
    assert world.wake().redispatches == ("job1_a_0",)


def test_a_task_that_no_worker_takes_in_time_uses_its_retries() -> None:
    world = one_task(queue_timeout_seconds=400, retry={**FIXED, "max_retries": 1})
    world.wake()
    decision = world.wake()
    assert world.now == START + timedelta(seconds=400)
    assert [(end.state, end.reason) for end in decision.attempts_ended] == [(AttemptState.EXPIRED, "queue_timeout")]
    world.tick(10)
    assert world.node("a").status is NodeStatus.DISPATCHED
    world.tick(300)
    world.tick(100)
    assert world.job.error is not None
    assert world.job.error["code"] == "QUEUE_TIMEOUT"


def test_the_queue_timeout_may_come_from_the_defaults() -> None:
    world = World(workflow_of(chain("a", retry={"max_retries": 0}), defaults={"queue_timeout_seconds": 60}))
    assert world.job.wake_at == START + timedelta(seconds=60)
    world.wake()
    assert world.job.status is JobStatus.FAILED


def test_a_paused_job_records_results_and_dispatches_nothing_until_it_is_resumed() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    world.set_job(paused_at=world.now)
    world.report("a")
    assert world.statuses() == {"start": "COMPLETED", "a": "COMPLETED", "b": "READY", "end": "PENDING"}
    assert world.node("b").waiting_for == {"kind": "paused", "detail": "job"}
    assert not world.tick(10_000).dispatches
    world.set_job(paused_at=None)
    assert world.tick(0).dispatches[0].node_id == "b"
    assert world.node("b").waiting_for is None


def test_a_job_may_be_submitted_paused() -> None:
    world = World(workflow_of(chain("a")), paused_at=START)
    assert (world.job.status, world.job.wake_at) == (JobStatus.PENDING, None)
    world.set_job(paused_at=None)
    world.tick(60)
    assert world.job.status is JobStatus.RUNNING
    assert world.job.started_at == START + timedelta(seconds=60)


def test_a_parked_attempt_is_sent_again_when_the_job_goes_on() -> None:
    world = one_task()
    world.set_job(paused_at=world.now)
    world.set_attempt("a", state=AttemptState.PARKED)
    assert not world.tick(1000).redispatches
    world.set_job(paused_at=None)
    assert world.tick(0).redispatches == ("job1_a_0",)
    assert world.attempt("a").state is AttemptState.QUEUED
    assert world.job.wake_at == world.attempt("a").redispatch_at


def test_a_job_whose_attempt_was_parked_by_a_switch_looks_again() -> None:
    """A switch leaves no mark on the job: unless a timer brings it back, it would hang for ever."""
    world = one_task()
    for _ in range(3):
        world.set_attempt("a", state=AttemptState.PARKED, redispatch_at=None)
        assert world.tick(4000).redispatches == ("job1_a_0",)
        assert world.job.wake_at == world.attempt("a").redispatch_at


def test_a_paused_job_does_not_give_up_or_repeat_queued_attempts() -> None:
    world = one_task(queue_timeout_seconds=60)
    world.set_job(paused_at=world.now)
    decision = world.tick(10_000)
    assert (decision.redispatches, decision.attempts_ended) == ((), ())


def test_a_job_past_its_deadline_fails_and_takes_its_work_back() -> None:
    nodes = {"start": {"type": "start", "next": ["a", "b"]}, "a": task(), "b": task(), "end": {"type": "end"}}
    nodes["end"] = {"type": "end", "depends_on": {"all_of": ["a", "b"]}}
    world = World(workflow_of(nodes), deadline_at=START + timedelta(seconds=100))
    assert world.job.wake_at == START + timedelta(seconds=100)
    world.complete("a")
    world.claim("b")
    for _ in range(9):
        world.tick(10)
        world.beat("b")
    decision = world.tick(10)
    assert [(end.task_id, end.state) for end in decision.attempts_ended] == [("job1_b_0", AttemptState.REVOKED)]
    assert world.statuses() == {"start": "COMPLETED", "a": "COMPLETED", "b": "CANCELLED", "end": "CANCELLED"}
    assert world.job.error is not None
    assert world.job.error["code"] == "JOB_DEADLINE"


CLEANED = {**chain("a"), "clean": task("a", join="all_done", next=["after"]), "after": task()}


def test_a_deadline_cancels_all_done_joins_and_what_follows_them_too() -> None:
    for is_at_work in (False, True):
        world = World(workflow_of(CLEANED), deadline_at=START + timedelta(seconds=10))
        world.claim("a")
        if is_at_work:
            world.fail("a")
            world.claim("clean")
        world.tick(10)
        assert world.job.error is not None
        assert (world.job.status, world.job.error["code"]) == (JobStatus.FAILED, "JOB_DEADLINE")
        assert {world.node(key).status for key in ("clean", "after")} == {NodeStatus.CANCELLED}


def test_an_operators_cancel_cancels_all_done_joins_too() -> None:
    world = World(workflow_of(CLEANED))
    world.cancel()
    assert world.job.status is JobStatus.CANCELLED
    assert {world.node(key).status for key in ("a", "clean", "after")} == {NodeStatus.CANCELLED}


def test_a_result_that_ends_the_job_counts_even_at_the_deadline() -> None:
    world = World(workflow_of(chain("a")), deadline_at=START + timedelta(seconds=10))
    world.claim("a")
    world.now += timedelta(seconds=10)
    world.report("a")
    assert world.job.status is JobStatus.COMPLETED
