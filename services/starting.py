"""How jobs begin: evaluated before they have rows, with the child jobs that they start at once."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from core.dag import child_jobs
from core.dag.definition import Workflow
from core.dag.evaluator import initial_nodes
from core.dag.state import Decision, JobState
from core.errors import WorkflowError
from core.models.engine import Job
from services.definitions import Definitions
from services.evaluation import Step, evaluate


def first_step(
    workflow: Workflow, job: Job, now: datetime, definitions: Definitions, pauses: frozenset[str] = frozenset()
) -> Step:
    """Evaluate a new job; one that would end at once is stored as it is and ends in the loop's first look.

    Whoever creates a job writes rows that refer to it; the hook of an end has to find them.
    """
    nodes = {node.node_id: node for node in initial_nodes(workflow, job)}
    state = JobState(job, nodes, workflows=definitions.known, pauses=pauses)
    step = evaluate(workflow, state, now)
    if step.ended or step.job is None:
        waiting = replace(state, job=job.model_copy(update={"wake_at": now}))
        return Step(waiting, Decision(), None)
    first = step.job.model_copy(update={"version": job.version})
    return with_children(Step(state, step.decision, first), now, definitions)


def with_children(step: Step, now: datetime, definitions: Definitions) -> Step:
    """Return a step with the first steps of the child jobs that it starts."""
    if not step.decision.child_jobs:
        return step
    parent, born = step.job or step.state.job, []
    for start in step.decision.child_jobs:
        workflow = definitions.get(start.definition_hash)
        if workflow is None:
            raise WorkflowError(f"the definition {start.definition_hash} of {start.workflow_id} cannot be read")
        job = child_jobs.new_job(parent, start, workflow, now)
        born.append(first_step(workflow, job, now, definitions, step.state.pauses))
    return replace(step, born=tuple(born))


def all_born(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the first steps of all new jobs, parents before their children."""
    for step in steps:
        for child in step.born:
            yield child
            yield from all_born([child])
