"""A job with a fan-out on a real database, and what tests want to know of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from core.errors import Classification, ErrorDetail
from core.ports import BlobRepository
from core.wire import ItemOutcome, TaskMessage, TaskResult, TaskStatus
from repositories.database import AsyncPool
from services.work import pipelined
from tests.support.engine import Engine, HandWorker, workflows_of

FAN_OUT = """
workflow_id: fans
version: 1
inputs: {{items: {{type: array, default: []}}}}
outputs: {{all: "{{{{ nodes.join.output.results }}}}"}}
nodes:
  start: {{type: start, next: many}}
  many:
    type: fan_out
    source: "{{{{ inputs.items }}}}"
    {fan_out}
    task:
      handler: echo
      params: {{v: "{{{{ item }}}}", n: "{{{{ index }}}}"}}
      retry: {{max_retries: 1, max_losses: 1, backoff: fixed, initial_delay_seconds: 60, jitter: 0}}
    next: join
  join: {{type: fan_in, next: end}}
  end: {{type: end}}
"""
END_BACKOFFS = """
UPDATE dagapp.dag_node_states SET not_before = dagapp.clock()
WHERE job_id = %s AND parent_node_id IS NOT NULL AND not_before IS NOT NULL
"""
ERROR = {"code": "BROKEN", "message": "it broke"}


@dataclass
class Fans:
    """One job with the fan-out `many`, its engine, and a worker driven by hand."""

    engine: Engine
    job_id: str = ""
    seen: set[str] = field(default_factory=set)

    @classmethod
    async def start(
        cls, pool: AsyncPool, blobs: BlobRepository, items: Sequence[Any], fan_out: str = "batch_size: 1"
    ) -> Self:
        """Create the job."""
        fans = cls(Engine(pool, workflows_of(FAN_OUT.format(fan_out=fan_out)), blobs=blobs))
        jobs = fans.engine.jobs
        order = await jobs.order(workflow_id="fans", inputs={"items": list(items)})
        async with pipelined(pool) as conn:
            (job,) = await jobs.create_many(conn, [order])
        fans.job_id = job.job_id
        await fans.engine.desk.settled()
        return fans

    @property
    def worker(self) -> HandWorker:
        """Return the worker."""
        return HandWorker(self.engine, slots=10_000)

    async def advance(self) -> None:
        """Advance the job and wait for what that asks to be done beside it."""
        await self.engine.advance(self.job_id)
        await self.engine.desk.settled()

    async def status(self) -> str:
        """Return the status of the job."""
        return (await self.engine.job(self.job_id)).status.value

    async def row(self) -> dict[str, Any]:
        """Return the row of the fan-out."""
        (found,) = await self.engine.query("SELECT * FROM dagapp.dag_fan_outs WHERE job_id = %s", self.job_id)
        return found

    async def children(self) -> dict[str, str]:
        """Return the status of every child."""
        rows = await self.engine.query(
            "SELECT node_id, status FROM dagapp.dag_node_states WHERE job_id = %s AND parent_node_id = 'many'"
            " ORDER BY fan_out_index",
            self.job_id,
        )
        return {one["node_id"]: one["status"] for one in rows}

    async def attempts(self) -> dict[str, str]:
        """Return the state of every attempt."""
        return {one["task_id"]: one["state"] for one in await self.engine.query("SELECT * FROM dagapp.dag_attempts")}

    async def fresh(self) -> list[TaskMessage]:
        """Return the messages that this did not return before, in the order of their children."""
        found = [
            one
            for one in await self.engine.messages(self.job_id)
            if f"{one.task_id}.{one.dispatch_no}" not in self.seen
        ]
        self.seen.update(f"{one.task_id}.{one.dispatch_no}" for one in found)
        return sorted(found, key=lambda message: int(message.node_id.rpartition("__")[2]))

    async def finish(self) -> None:
        """Run everything that comes until the job has ended."""
        for _ in range(200):
            if await self.status() != "RUNNING":
                return
            if messages := await self.fresh():
                await self.worker.claim(*messages)
                await self.worker.complete(*messages)
                await self.engine.desk.settled()
            else:
                await self.advance()
        raise AssertionError(await self.row())

    async def let_time_pass(self) -> None:
        """Let every timer of a child be due now."""
        await self.engine.query(END_BACKOFFS, self.job_id)
        await self.engine.query(
            "UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock() WHERE redispatch_at IS NOT NULL"
        )
        await self.engine.query("UPDATE dagapp.dag_fan_outs SET wake_at = dagapp.clock()")


def failed(message: TaskMessage, *, transient: bool = False) -> TaskResult:
    """Return the failure of a task."""
    return TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.FAILED, error=error(transient))


def error(transient: bool) -> ErrorDetail:
    """Return an error."""
    kind = Classification.TRANSIENT if transient else Classification.PERMANENT
    return ErrorDetail(code="BROKEN", message="it broke", classification=kind)


def of_items(message: TaskMessage, *outcomes: ItemOutcome) -> TaskResult:
    """Return the end of a batch."""
    return TaskResult(task_id=message.task_id, token=message.token, status=TaskStatus.COMPLETED, outcomes=outcomes)


def good(index: int) -> ItemOutcome:
    """Return the success of an item."""
    return ItemOutcome(index=index, status=TaskStatus.COMPLETED, output={"i": index})


def bad(index: int, *, transient: bool = False) -> ItemOutcome:
    """Return the failure of an item."""
    return ItemOutcome(index=index, status=TaskStatus.FAILED, error=error(transient))
