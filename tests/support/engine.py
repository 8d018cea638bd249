"""The engine's services over a real database, and a worker that tests drive by hand."""

import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from psycopg.rows import dict_row

from core.dag.catalogue import WorkflowCatalogue, load_folder
from core.models.engine import Job
from core.operations import OperationCatalogue, load_operations
from core.ports import BlobRepository
from core.wire import (
    Beat,
    Capacity,
    Claim,
    ClaimAnswer,
    ClaimRequest,
    ExchangeRequest,
    Grant,
    HeartbeatRequest,
    HeartbeatResponse,
    Release,
    ResultAnswer,
    TaskMessage,
    TaskResult,
    TaskStatus,
    WorkerIdentity,
)
from messaging.postgres import PostgresTaskQueue
from repositories.blobs_folder import FolderBlobRepository
from repositories.database import AsyncPool
from repositories.jobs import JobRepository
from repositories.payloads import PayloadStore
from services.advance import AdvanceService, advance_one, with_all_children
from services.chores import ChoreService
from services.claims import ClaimService
from services.commands import Answer, CommandService, Order
from services.dead_letters import DeadLetterService
from services.definitions import Definitions
from services.insight import InsightService
from services.jobs import JobService
from services.loading_fan_outs import Scope
from services.offers import Offers
from services.pauses import PauseService, Turned
from services.payload_desk import PayloadDesk
from services.reopening import OF_VERSIONS
from services.results import ResultService
from services.rooms import RoomService
from services.shelf import Shelf
from services.work import Connection, pipelined

WORKFLOWS = Path(__file__).resolve().parents[2] / "workflows"


def repository_workflows() -> WorkflowCatalogue:
    """Return the workflows that ship with the repository."""
    return load_folder({path.name: path.read_text() for path in sorted(WORKFLOWS.glob("*.yaml"))})


def repository_operations() -> OperationCatalogue:
    """Return the operations that ship with the repository."""
    files = {path.name: path.read_text() for path in sorted((WORKFLOWS / "operations").glob("*.yaml"))}
    return load_operations(files, frozenset(repository_workflows().ids()))


def workflows_of(*texts: str) -> WorkflowCatalogue:
    """Return a catalogue of YAML texts; a broken one fails the test."""
    catalogue = load_folder({f"{number}.yaml": text for number, text in enumerate(texts)})
    assert not catalogue.broken, catalogue.broken
    return catalogue


def _own_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"geodag-test-{uuid.uuid4().hex}"


@dataclass
class Engine:
    """Everything that one orchestrator does in transactions, without its processes."""

    pool: AsyncPool
    catalogue: WorkflowCatalogue = field(default_factory=repository_workflows)
    owner_id: str | None = "owner-1"
    may_expire_leases: bool = True
    lease_seconds: float = 20.0
    ended: list[Job] = field(default_factory=list)
    blobs: BlobRepository = field(default_factory=lambda: FolderBlobRepository(_own_folder()))
    """Where large values go; without any said, to a folder that is made when the first one comes."""
    desk_of: Callable[[PayloadStore], PayloadDesk] = PayloadDesk

    def __post_init__(self) -> None:
        definitions = Definitions()
        self.store = PayloadStore(self.blobs)
        self.desk = self.desk_of(self.store)
        self.advance_service = AdvanceService(
            PostgresTaskQueue(),
            definitions,
            self.desk,
            on_job_ended=self._note_end,
            may_expire_leases=lambda: self.may_expire_leases,
            reopening=OF_VERSIONS,
        )
        self.desk.advance = advance_one(self.pool, self.advance_service, lambda ended: None)
        self.desk.perform = ChoreService(self.pool, self.store).perform
        self.jobs = JobService(
            self.advance_service.writer, Shelf(self.catalogue), definitions, self.desk, lambda: self.owner_id
        )
        self.claims = ClaimService(self.pool, self.lease_seconds)
        self.rooms = RoomService(PostgresTaskQueue(), self.claims)
        self.results = ResultService(self.pool, self.advance_service, self.rooms)
        self.offers = Offers(self.rooms)
        self.commands = CommandService(self.pool, self.advance_service)
        self.pauses = PauseService(self.pool, Shelf(self.catalogue))
        self.dead_letters = DeadLetterService(self.pool)
        self.insight = InsightService(self.pool, definitions)

    async def _note_end(self, conn: Connection, job: Job) -> None:
        self.ended.append(job)

    async def create(self, workflow_id: str, inputs: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Create a job in a transaction of its own."""
        async with pipelined(self.pool) as conn:
            return await self.jobs.create_job(conn, workflow_id=workflow_id, inputs=inputs or {}, **more)

    async def advance(self, *job_ids: str) -> None:
        """Advance jobs in a transaction of their own."""

        async def attempt(scope: Scope) -> None:
            async with pipelined(self.pool) as conn:
                await self.advance_service.advance(conn, job_ids, scope=scope)

        await with_all_children(attempt)

    async def order(self, job_id: str, kind: str, reason: str | None = "because", **args: Any) -> Answer:
        """Order something as an operator."""
        return await self.commands.order(job_id, Order(kind, "op", reason, args))

    async def pause(self, switch: str, on: bool = True) -> Turned:
        """Turn a pause switch as an operator."""
        return await self.pauses.turn(switch, paused=on, actor="op", reason="because")

    async def job(self, job_id: str) -> Job:
        """Return a job as stored."""
        async with self.pool.connection() as conn:
            job = await JobRepository(conn).get(job_id)
        assert job is not None
        return job

    async def query(self, statement: Any, *values: Any) -> list[dict[str, Any]]:
        """Return rows of any statement."""
        async with self.pool.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(statement, values)
            return await cursor.fetchall() if cursor.description else []

    async def statuses(self, job_id: str) -> dict[str, str]:
        """Return the status of every node."""
        rows = await self.query("SELECT node_id, status FROM dagapp.dag_node_states WHERE job_id = %s", job_id)
        return {row["node_id"]: row["status"] for row in rows}

    async def events(self, job_id: str) -> list[str]:
        """Return the event types of a job in order."""
        rows = await self.query(
            "SELECT event_type FROM dagapp.dag_job_events WHERE job_id = %s ORDER BY event_id", job_id
        )
        return [row["event_type"] for row in rows]

    async def messages(self, job_id: str | None = None) -> list[TaskMessage]:
        """Return the messages that wait in the queues, oldest first; they stay there."""
        rows = await self.query("SELECT body FROM dagqueue.messages ORDER BY enqueued_at, message_id")
        found = [TaskMessage.model_validate(row["body"]) for row in rows]
        return [message for message in found if job_id is None or message.job_id == job_id]

    async def message(self, job_id: str) -> TaskMessage:
        """Return the newest message of a job."""
        return (await self.messages(job_id))[-1]

    async def attempt(self, task_id: str) -> dict[str, Any]:
        """Return an attempt's row."""
        (row,) = await self.query("SELECT * FROM dagapp.dag_attempts WHERE task_id = %s", task_id)
        return row

    async def lapse(self, task_id: str) -> None:
        """Let a lease have run out a second ago."""
        await self.query(
            "UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock() - interval '1 second' WHERE task_id = %s",
            task_id,
        )


@dataclass
class HandWorker:
    """A worker that does only what a test tells it."""

    engine: Engine
    worker_id: str = "worker-1"
    queue: str = "functionapp-tasks"
    slots: int = 100

    @property
    def identity(self) -> WorkerIdentity:
        """Return who is calling."""
        return WorkerIdentity(worker_id=self.worker_id, queue=self.queue, host="test", pid=1, build_id="test")

    async def claim(self, *messages: TaskMessage, claim_id: str | None = None) -> list[ClaimAnswer]:
        """Claim tasks."""
        claims = tuple(
            Claim(
                task_id=message.task_id,
                dispatch_no=message.dispatch_no,
                token=message.token,
                claim_id=claim_id or uuid.uuid4().hex,
            )
            for message in messages
        )
        request = ClaimRequest(worker=self.identity, free=Capacity(slots=self.slots), claims=claims)
        return await self.engine.claims.claim(request)

    async def report(self, *results: TaskResult | Release) -> list[ResultAnswer]:
        """Report results or releases."""
        answers, _ = await self.engine.results.report(self.worker_id, results)
        return answers

    async def exchange(
        self, *results: TaskResult, slots: int | None = None, state: Literal["active", "draining"] = "active"
    ) -> tuple[list[ResultAnswer], Sequence[Grant]]:
        """Report results and take what there is room for."""
        request = self.wish(self.slots if slots is None else slots, state)
        answers, _, grants = await self.engine.results.exchange(request.model_copy(update={"results": results}))
        return answers, grants

    def wish(self, slots: int, state: Literal["active", "draining"] = "active") -> ExchangeRequest:
        """Return what asks for tasks."""
        worker = self.identity.model_copy(update={"state": state})
        return ExchangeRequest(worker=worker, free=Capacity(slots=slots), claim_id=uuid.uuid4().hex)

    async def complete(self, *messages: TaskMessage, output: dict[str, Any] | None = None) -> list[ResultAnswer]:
        """Report success, by default with what an echo handler returns."""
        return await self.report(*(completed(message, output) for message in messages))

    async def run(self, message: TaskMessage, output: dict[str, Any] | None = None) -> ResultAnswer:
        """Claim one task and report its success."""
        (claimed,) = await self.claim(message)
        assert claimed.outcome == "granted", claimed
        (answer,) = await self.complete(message, output=output)
        return answer

    async def beat(self, *beats: Beat) -> HeartbeatResponse:
        """Renew leases."""
        request = HeartbeatRequest(worker=self.identity, free=Capacity(slots=self.slots), beats=beats)
        return await self.engine.claims.heartbeat(request)


def completed(message: TaskMessage, output: dict[str, Any] | None = None) -> TaskResult:
    """Return the success of a task."""
    return TaskResult(
        task_id=message.task_id,
        token=message.token,
        status=TaskStatus.COMPLETED,
        output={"echoed_params": message.params} if output is None else output,
    )


def beats_of(messages: Sequence[TaskMessage]) -> tuple[Beat, ...]:
    """Return plain signs of life."""
    return tuple(Beat(task_id=message.task_id, token=message.token) for message in messages)
