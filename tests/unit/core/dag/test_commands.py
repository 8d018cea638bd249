import pytest

from core.dag.apply import apply
from core.dag.commands import cancel_job
from core.errors import Conflict
from core.statuses import AttemptState, JobStatus
from tests.unit.core.dag.harness import World, chain, workflow_of


def test_cancelling_ends_everything_at_once_and_later_results_are_superseded() -> None:
    world = World(workflow_of(chain("a", "b")))
    world.claim("a")
    decision = cancel_job(world.workflow, world.state, world.now, actor="op", reason="wrong file")
    world.state = apply(world.state, decision, world.now)
    assert world.statuses() == {"start": "COMPLETED", "a": "CANCELLED", "b": "CANCELLED", "end": "CANCELLED"}
    assert (world.job.status, world.job.wake_at) == (JobStatus.CANCELLED, None)
    assert [(end.task_id, end.state) for end in decision.attempts_ended] == [("job1_a_0", AttemptState.REVOKED)]
    assert decision.events[-1].event_type == "job_cancelled"
    assert decision.events[-1].data == {"actor": "op", "reason": "wrong file"}
    late = world.report("a")
    assert late is not None
    assert late.dispositions[0].disposition == "superseded"
    assert late.nodes == ()


def test_a_finished_job_cannot_be_cancelled() -> None:
    world = World(workflow_of(chain()))
    with pytest.raises(Conflict) as caught:
        cancel_job(world.workflow, world.state, world.now, actor="op")
    assert (caught.value.detail.code, caught.value.detail.value) == ("JOB_FINAL", "COMPLETED")
