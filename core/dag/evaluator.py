"""The evaluator: a pure function from a job's state to what must be written.

    advance(workflow, state, now) -> Decision

It consumes the inbox, obeys commands, watches leases and timeouts, settles the graph to a fixed point, dispatches what
is ready and ends the job when it is over. Advancing the result of its own decision at the same moment changes nothing.
`NodeState.attempt` is the number that the next attempt gets: the first task of a node is `{job_id}_{node_id}_0`.
"""

from collections.abc import Mapping
from datetime import datetime

from core.dag import child_jobs, fan_out, slots
from core.dag.definition import Workflow
from core.dag.orders import consume_commands
from core.dag.outcome import abort, conclude, fail_job
from core.dag.results import consume_results
from core.dag.run import Run
from core.dag.settle import settle
from core.dag.state import Decision, JobState
from core.dag.tasks import dispatch
from core.dag.timers import next_wake, watch_attempts
from core.errors import ErrorDetail
from core.handlers_catalog import CATALOG, HandlerSpec
from core.models.engine import Job, NodeState
from core.statuses import JOB_FINAL, NODE_FINAL, AttemptState


def initial_nodes(workflow: Workflow, job: Job) -> tuple[NodeState, ...]:
    """Return the PENDING rows of a new job, in the order of the graph; `advance` does the rest."""
    return tuple(NodeState.of_row({"job_id": job.job_id, "node_id": node_id}) for node_id in workflow.graph.order)


def advance(
    workflow: Workflow, state: JobState, now: datetime, *, catalog: Mapping[str, HandlerSpec] = CATALOG
) -> Decision:
    """Decide everything that follows from `state` at `now`.

    Every node of the workflow needs its row, and every task in flight and every result its newest attempt: load the
    inbox before the attempts. One that has ended by a report which is not in the inbox yet waits for it.
    """
    return evaluate(Run(workflow, state, now, catalog))


def evaluate(run: Run) -> Decision:
    """Decide as `advance` does."""
    consume_results(run)
    consume_commands(run)
    missing = run.workflow.nodes.keys() - run.nodes.keys()
    if run.job.status in JOB_FINAL:
        pass
    elif missing:
        run.cancel_unfinished("internal")
        message = f"the job has no rows for {', '.join(sorted(missing))}"
        fail_job(run, ErrorDetail(code="INTERNAL", message=message))
    else:
        _evaluate(run)
    _revoke_strays(run)
    fan_out.set_timers(run)
    slots.conclude(run)
    return run.decision(next_wake(run))


def _evaluate(run: Run) -> None:
    if (problem := slots.begin(run)) is not None:
        abort(run, problem)
        return
    fan_out.resume(run)
    watch_attempts(run)
    settle(run)
    dispatch(run)
    child_jobs.start(run)
    conclude(run)


def _revoke_strays(run: Run) -> None:
    """Revoke live attempts that no node waits for: of final nodes, or overtaken by a newer attempt."""
    for attempt in run.state.attempts.values():
        node = run.find(attempt.node_id)
        current = node is not None and node.task_id == attempt.task_id and node.status not in NODE_FINAL
        if not current:
            run.end_attempt(attempt, AttemptState.REVOKED, "nothing waits for it")
