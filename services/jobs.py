"""Creates jobs. Creating evaluates at once, so the first task leaves in the creating transaction."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.dag.definition import Workflow
from core.dag.inputs import resolve_inputs, resolve_priority
from core.errors import ParameterInvalid, WorkflowError
from core.ids import JobId, job_id_of_inputs
from core.models.engine import Job
from core.payloads import PayloadRef, split, value_prefix
from core.statuses import JobStatus
from repositories.commands import CommandRepository
from repositories.jobs import JobRepository
from repositories.notifications import UNOWNED_CHANNEL, notify, owner_channel
from repositories.workflows import WorkflowRepository
from services.definitions import Definitions
from services.job_keys import JobKey, jobs_of_keys
from services.payload_desk import PayloadDesk
from services.rooms import NOBODY_WAITS, Lent
from services.shelf import Shelf
from services.starting import all_born, first_step
from services.work import Connection
from services.writing import DecisionWriter

CurrentOwner = Callable[[], str | None]
"""Returns the owner id of this instance, None while it is not registered or drains."""


@dataclass(frozen=True, slots=True)
class StoredInputs:
    """Inputs that were checked and of which the large ones are stored, for a job that is not created yet."""

    job_id: str
    inputs: Mapping[str, Any]
    """What stays in the row, resolved."""
    refs: Mapping[str, PayloadRef] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """A job to create, found valid."""

    workflow: Workflow
    stored: StoredInputs
    priority: int
    correlation_id: str | None = None
    submitted_by: str | None = None
    key: JobKey | None = None

    @property
    def may_be_there(self) -> bool:
        """Whether the id of the job says what was wished, so that another call may have created it."""
        return self.key is not None or self.workflow.deduplicate is not None


@dataclass(frozen=True, slots=True)
class Created:
    """A job that was created now, or the one that was there for the same inputs or under the same key."""

    job: Job
    existing: bool = False


class JobService:
    """Starts runs of workflows in the caller's transaction."""

    def __init__(
        self,
        writer: DecisionWriter,
        shelf: Shelf,
        definitions: Definitions,
        desk: PayloadDesk,
        current_owner: CurrentOwner,
    ) -> None:
        self._writer = writer
        self._shelf = shelf
        self._definitions = definitions
        self._desk = desk
        self._current_owner = current_owner

    async def order(
        self,
        *,
        workflow_id: str,
        inputs: Mapping[str, Any],
        priority: int | str | None = None,
        version: int | None = None,
        submitted_by: str | None = None,
        key: JobKey | None = None,
    ) -> Order:
        """Check what a job is wished to be and store its large inputs, before any transaction; needs no database.

        Raises:
            NotFound: No such workflow or version.
            ParameterMissing, ParameterInvalid: The inputs, the priority or a key at all do not fit.
            StorageUnavailable: Try again.
        """
        workflow = self._shelf.get(workflow_id, version)
        resolved, level = resolve_inputs(workflow, inputs), resolve_priority(priority, workflow.priority)
        job_id, (rest, large) = _job_id(workflow, resolved, key), split(resolved)
        prefix = value_prefix(job_id)
        refs = {name: await self._desk.store.put(prefix, large[name]) for name in large}
        return Order(workflow, StoredInputs(job_id, rest, refs), level, submitted_by=submitted_by, key=key)

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
        """Store a job with its nodes and first tasks and return it; all inputs go into the row, so they must be small.

        Raises:
            NotFound: No such workflow or version.
            ParameterMissing, ParameterInvalid: The inputs or the priority do not fit.
            WorkflowError: The workflow deduplicates, and the job would work for a request.
        """
        workflow = self._shelf.get(workflow_id, version)
        if correlation_id is not None and workflow.deduplicate is not None:
            raise WorkflowError(f"{workflow_id} deduplicates, so the submit of a platform cannot start it")
        resolved = resolve_inputs(workflow, inputs)
        stored = StoredInputs(_job_id(workflow, resolved), resolved)
        level = resolve_priority(priority, workflow.priority)
        (job,) = await self.create_many(conn, [Order(workflow, stored, level, correlation_id, submitted_by)])
        return job

    async def create_many(self, conn: Connection, orders: Sequence[Order], lent: Lent = NOBODY_WAITS) -> list[Job]:
        """Create jobs as `create_or_find` does and return them in order."""
        return [created.job for created in await self.create_or_find(conn, orders, lent)]

    async def create_or_find(
        self, conn: Connection, orders: Sequence[Order], lent: Lent = NOBODY_WAITS
    ) -> list[Created]:
        """Store jobs, in order; of a workflow that deduplicates, return the one that has the same inputs.

        So is one that is there under the same key. First tasks go to workers that wait, as far as there are any.

        Raises:
            Conflict: IDEMPOTENCY_CONFLICT, a key was used for another body.
        """
        unique = {order.stored.job_id: order for order in orders}
        named = [order for order in unique.values() if order.may_be_there]
        known = await _known(conn, named) if named else {}
        new = [order for job_id, order in unique.items() if job_id not in known]
        made = {job.job_id: job for job in (await self._create(conn, new, lent) if new else ())}
        answers = []
        for order in orders:
            job_id = order.stored.job_id
            answers.append(Created(made[job_id]) if job_id in made else Created(known[job_id], existing=True))
            known |= {job_id: made.pop(job_id)} if job_id in made else {}
        return answers

    async def _create(self, conn: Connection, orders: Sequence[Order], lent: Lent) -> list[Job]:
        """Store jobs with their nodes and first tasks, each with one statement for all, and return them in order."""
        (moment,) = await (await CommandRepository(conn).moment([])).rows()
        owner = self._current_owner()
        await self._store(conn, {order.workflow.definition_hash: order.workflow for order in orders}.values())
        coming = (
            first_step(order.workflow, _new_job(order, owner, moment.now), moment.now, self._definitions, moment.pauses)
            for order in orders
        )
        steps = await self._writer.create(conn, coming, moment.now, await lent.usable())
        for one in (*steps, *all_born(steps)):
            self._desk.want(one.state.job.job_id, one.decision.needs)
        if owner is None:
            await notify(conn, [UNOWNED_CHANNEL])
        elif any(step.state.job.wake_at == moment.now for step in steps):
            await notify(conn, [owner_channel(owner)])
        return [step.job or step.state.job for step in steps]

    async def _store(self, conn: Connection, workflows: Iterable[Workflow]) -> None:
        """Store definitions and those of their child workflows, which other instances may not have."""
        for workflow in workflows:
            for one in self._shelf.catalogue.with_children(workflow):
                await WorkflowRepository(conn).insert(one.definition_hash, one.workflow_id, one.version, one.text)
                self._definitions.add(one)


def new_job_id() -> JobId:
    """Return a random job id; it has no underscore."""
    return JobId(uuid.uuid4().hex)


def _job_id(workflow: Workflow, resolved: Mapping[str, Any], key: JobKey | None = None) -> JobId:
    if workflow.deduplicate is None:
        return new_job_id() if key is None else key.job_id
    if key is None:
        return job_id_of_inputs(workflow.workflow_id, resolved)
    raise ParameterInvalid(
        f"{workflow.workflow_id} deduplicates: equal inputs are one job, so a call may be repeated without a key",
        field="idempotency_key",
        value=key.text,
        remediation="Leave Idempotency-Key out.",
    )


async def _known(conn: Connection, orders: Sequence[Order]) -> dict[str, Job]:
    """Return those of the jobs that are there, once nobody else creates one of them; raises as `jobs_of_keys`."""
    jobs, keys = JobRepository(conn), [order.key for order in orders if order.key is not None]
    by_inputs = [order.stored.job_id for order in orders if order.key is None]
    await jobs.lock_names([*by_inputs, *(key.half for key in keys)])
    found = list(await (await jobs.get_many(by_inputs)).rows()) if by_inputs else []
    found += await jobs_of_keys(conn, keys) if keys else []
    return {job.job_id: job for job in found}


def _new_job(order: Order, owner_id: str | None, now: datetime) -> Job:
    workflow, stored = order.workflow, order.stored
    return Job.of_row(
        {
            "job_id": stored.job_id,
            "workflow_id": workflow.workflow_id,
            "workflow_version": workflow.version,
            "definition_hash": workflow.definition_hash,
            "status": JobStatus.PENDING,
            "input_params": dict(stored.inputs),
            "input_refs": {name: ref.model_dump() for name, ref in stored.refs.items()} or None,
            "run_no": 1,
            "version": 1,
            "owner_id": owner_id,
            "owner_epoch": 1,
            "priority": order.priority,
            "deadline_at": workflow.deadline_at(now),
            "correlation_id": order.correlation_id,
            "submitted_by": order.submitted_by,
            "warnings": [],
            "created_at": now,
            "updated_at": now,
        }
    )
