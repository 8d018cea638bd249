"""Creates jobs. Creating evaluates at once, so the first task leaves in the creating transaction."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from core.dag.definition import Workflow
from core.dag.evaluator import initial_nodes
from core.dag.inputs import resolve_inputs, resolve_priority
from core.dag.state import Decision, Event, JobState
from core.ids import JobId
from core.models.engine import Job
from core.statuses import JobStatus
from repositories.notifications import UNOWNED_CHANNEL, clock, notify, owner_channel
from repositories.workflows import WorkflowRepository
from services.definitions import Definitions, Shelf
from services.evaluation import Step, evaluate
from services.work import Connection
from services.writing import DecisionWriter

CurrentOwner = Callable[[], str | None]
"""Returns the owner id of this instance, None while it is not registered or drains."""


class JobService:
    """Starts runs of workflows in the caller's transaction."""

    def __init__(
        self,
        writer: DecisionWriter,
        shelf: Shelf,
        definitions: Definitions,
        current_owner: CurrentOwner,
    ) -> None:
        self._writer = writer
        self._shelf = shelf
        self._definitions = definitions
        self._current_owner = current_owner

    async def create_job(
        self,
        conn: Connection,
        *,
        workflow_id: str,
        inputs: Mapping[str, Any],
        priority: int | str | None = None,
        correlation_id: str | None = None,
        submitted_by: str | None = None,
    ) -> str:
        """Start the default version of a workflow as `create` does and return the job's id."""
        job = await self.create(
            conn,
            workflow_id=workflow_id,
            inputs=inputs,
            priority=priority,
            correlation_id=correlation_id,
            submitted_by=submitted_by,
        )
        return job.job_id

    async def create(
        self,
        conn: Connection,
        *,
        workflow_id: str,
        inputs: Mapping[str, Any],
        priority: int | str | None = None,
        version: int | None = None,
        correlation_id: str | None = None,
        submitted_by: str | None = None,
    ) -> Job:
        """Store a job with its nodes and first tasks and return it.

        Raises:
            NotFound: No such workflow or version.
            ParameterMissing, ParameterInvalid: The inputs or the priority do not fit.
        """
        workflow = self._shelf.catalogue.get(workflow_id, version)
        resolved = resolve_inputs(workflow, inputs)
        level = resolve_priority(priority, workflow.priority)
        now = (await (await clock(conn)).rows())[0]
        owner = self._current_owner()
        job = _new_job(workflow, resolved, level, now).model_copy(
            update={"owner_id": owner, "correlation_id": correlation_id, "submitted_by": submitted_by}
        )
        await WorkflowRepository(conn).insert(
            workflow.definition_hash, workflow.workflow_id, workflow.version, workflow.to_json()
        )
        self._definitions.add(workflow)
        step = _first_step(workflow, job, now)
        await self._writer.create(conn, step, now)
        if owner is None:
            await notify(conn, [UNOWNED_CHANNEL])
        elif step.state.job.wake_at == now:
            await notify(conn, [owner_channel(owner)])
        return step.job or step.state.job


def _new_job(workflow: Workflow, inputs: dict[str, Any], priority: int, now: datetime) -> Job:
    deadline = workflow.deadline_seconds
    return Job(
        job_id=JobId(uuid.uuid4().hex),
        workflow_id=workflow.workflow_id,
        workflow_version=workflow.version,
        definition_hash=workflow.definition_hash,
        status=JobStatus.PENDING,
        input_params=inputs,
        run_no=1,
        version=1,
        owner_epoch=1,
        priority=priority,
        deadline_at=None if deadline is None else now + timedelta(seconds=deadline),
        created_at=now,
        updated_at=now,
    )


def _first_step(workflow: Workflow, job: Job, now: datetime) -> Step:
    """Evaluate a new job; one that would end at once is stored as it is and ends in the loop's first look.

    Whoever creates a job writes rows that refer to it; the hook of an end has to find them.
    """
    created = Event("job_created", str(job.status), data={"workflow_id": job.workflow_id, "by": job.submitted_by})
    state = JobState(job, {node.node_id: node for node in initial_nodes(workflow, job)})
    step = evaluate(workflow, state, now)
    if step.ended or step.job is None:
        waiting = replace(state, job=job.model_copy(update={"wake_at": now}))
        return Step(waiting, Decision(events=(created,)), None)
    first = step.job.model_copy(update={"version": job.version})
    return Step(state, replace(step.decision, events=(created, *step.decision.events)), first)
