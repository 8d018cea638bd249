"""What callers meet: jobs of every kind, some of whose tasks are leased, some queued, with timers near or due."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.errors import Classification, ErrorDetail
from core.ids import message_id
from core.payloads import CONTAINER, LIMIT_BYTES
from core.ports import BlobRef
from core.wire import ClaimOutcome, ItemOutcome, ResultAnswer, ResultDisposition, TaskMessage, TaskResult, TaskStatus
from services.work import pipelined
from tests.support.engine import Engine, HandWorker
from tests.support.gaps.desk import HandDesk

CLOCK: Final = """
CREATE TABLE public.ahead (seconds float8 NOT NULL);
INSERT INTO public.ahead VALUES (0);
GRANT SELECT ON public.ahead TO PUBLIC;
CREATE OR REPLACE FUNCTION dagapp.clock() RETURNS timestamptz LANGUAGE plpgsql STABLE AS
$$ BEGIN RETURN clock_timestamp() + (SELECT seconds FROM public.ahead) * interval '1 second'; END $$;
"""
"""The clock goes on by itself, and is put forward in jumps."""
RETRY: Final = "retry: {max_retries: 3, max_losses: 3, backoff: fixed, initial_delay_seconds: 60, jitter: 0}"
FAN: Final = """
workflow_id: {name}
version: 1
inputs: {{items: {{type: array, default: [1, 2, 3, 4, 5]}}}}
outputs: {{n: "{{{{ nodes.join.output.{counted} }}}}"}}
nodes:
  start: {{type: start, next: many}}
  many:
    type: fan_out
    source: "{{{{ inputs.items }}}}"
    {words}
    task: {{handler: echo, params: {{v: "{{{{ {item} }}}}"}}, {retry}{slot}}}
    next: join
  join: {{type: fan_in, aggregation: {aggregation}, next: end}}
  end: {{type: end}}
"""


def _fan(name: str, words: str, slot: str = "") -> str:
    how = {"item": "item", "aggregation": "count", "counted": "count"}
    return FAN.format(name=name, words=words, slot=slot, retry=RETRY, **how)


def _large(name: str) -> str:
    how = {"item": "item.n", "aggregation": "collect", "counted": "results | length"}
    return FAN.format(name=name, words="max_concurrency: 2", slot="", retry=RETRY, **how)


LARGE: Final = [{"n": number, "pad": "x" * (LIMIT_BYTES // 4)} for number in range(5)]
"""Items that travel by reference."""


SOURCES: Final = (
    f"""
workflow_id: task
version: 1
nodes:
  start: {{type: start, next: [one, two]}}
  one: {{handler: echo, {RETRY}, next: last}}
  two: {{handler: echo, {RETRY}, next: last}}
  last: {{handler: echo, {RETRY}, next: end}}
  end: {{type: end}}
""",
    f"""
workflow_id: slot
version: 1
concurrency: {{key: "global:gate", limit: 1}}
nodes:
  start: {{type: start, next: [one, two]}}
  one: {{handler: echo, {RETRY}, concurrency: {{key: "global:desk", limit: 1}}, next: end}}
  two: {{handler: echo, {RETRY}, concurrency: {{key: "global:desk", limit: 1}}, next: end}}
  end: {{type: end}}
""",
    f"""
workflow_id: sub
version: 1
nodes:
  start: {{type: start, next: [call, two]}}
  call: {{type: workflow, workflow_id: leaf, next: end}}
  two: {{handler: echo, {RETRY}, next: end}}
  end: {{type: end}}
""",
    f"""
workflow_id: leaf
version: 1
nodes:
  start: {{type: start, next: say}}
  say: {{handler: echo, {RETRY}, next: end}}
  end: {{type: end}}
""",
    _fan("fan", "max_concurrency: 5"),
    _fan("window", "max_concurrency: 2"),
    _fan("batch", "max_concurrency: 2\n    batch_size: 2"),
    _fan("fanslot", "max_concurrency: 4", ', concurrency: {key: "global:desk", limit: 2}'),
    _large("large"),
)
KINDS: Final = ("task", "fan", "window", "batch", "slot", "fanslot", "sub", "large")
FIRST_NODES: Final = {"task": "one", "slot": "one", "sub": "call"}
"""The first node that does something; of the other kinds it is the fan-out."""
TIMES: Final = ("fresh", "due", "backoff", "paused", "failed", "asked", "gather")
"""Nothing is due; leases and unclaimed messages are; the next attempt of a failed task is; the job is paused; a task
failed for good; nobody made yet what the job asked for to begin, to end."""
OF_LARGE: Final = frozenset({"asked", "gather"})
OLD_SECONDS: Final = 10 * 86400.0
GRANTS: Final = 3
"""After which nobody acts on any more: of the job's slot, of its tasks' slots."""
FAMILY: Final = """
WITH RECURSIVE family AS (
    SELECT job_id FROM dagapp.dag_jobs WHERE job_id = ANY(%s)
    UNION SELECT j.job_id FROM dagapp.dag_jobs AS j JOIN dagapp.dag_attempts AS a ON a.task_id = j.parent_task_id
    JOIN family AS f ON f.job_id = a.job_id)
SELECT job_id FROM family ORDER BY job_id
"""

RECEIVED: Final = """
WITH found AS MATERIALIZED (
    SELECT message_id, count(*) OVER () AS n, row_number() OVER (ORDER BY enqueued_at, message_id) AS number
    FROM dagqueue.messages AS m
    WHERE EXISTS (SELECT FROM dagapp.dag_attempts AS a WHERE a.task_id = m.task_id AND a.job_id = ANY(%s)))
UPDATE dagqueue.messages SET locked_until = dagapp.clock() + interval '1 minute', lock_token = 'held'
WHERE message_id = ANY(ARRAY(
    SELECT message_id FROM dagqueue.messages
    WHERE message_id = ANY(ARRAY(SELECT message_id FROM found WHERE number <= greatest(1, n - %s)))
        AND (locked_until IS NULL OR locked_until <= dagapp.clock())
    FOR UPDATE SKIP LOCKED))
RETURNING body
"""
"""As a receiver takes messages, but for the last ones."""


@dataclass
class Scene:
    """Some jobs of one kind, and what a worker holds of them."""

    admin: Engine
    """May write whatever it likes, and stops nowhere."""
    kind: str
    jobs: list[str] = field(default_factory=list)
    held: list[TaskMessage] = field(default_factory=list)
    """Leased by the worker, in the order of the claims."""
    granted: list[str] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    """What the worker was told so of."""
    wrong: list[str] = field(default_factory=list)
    acts: frozenset[str] = frozenset()
    """What is played."""

    @property
    def first_node(self) -> str:
        """Return the first node that does something."""
        return FIRST_NODES.get(self.kind, "many")

    def worker(self, engine: Engine) -> HandWorker:
        """Return the worker, calling an engine."""
        return HandWorker(engine)

    async def family(self) -> list[str]:
        """Return all jobs, with those that they started."""
        return [row["job_id"] for row in await self.admin.query(FAMILY, self.jobs)]

    async def create(self, engine: Engine) -> None:
        """Create one more job."""
        inputs = {"items": LARGE} if self.kind == "large" else {}
        order = await engine.jobs.order(workflow_id=self.kind, inputs=inputs)
        async with pipelined(engine.pool) as conn:
            (job,) = await engine.jobs.create_many(conn, [order])
            self.jobs.append(job.job_id)

    async def receive(self, engine: Engine, *, all_but: int = 0) -> int:
        """Receive and claim tasks as a worker does; return how many messages there were that nobody held."""
        rows = await self.admin.query(RECEIVED, await self.family(), all_but)
        messages = [TaskMessage.model_validate(row["body"]) for row in rows]
        answers = await self.worker(engine).claim(*messages) if messages else []
        for answer, message in zip(answers, messages, strict=True):
            if answer.outcome is ClaimOutcome.GRANTED:
                self.take(message)
        await self.admin.query("DELETE FROM dagqueue.messages WHERE message_id = ANY(%s)", list(map(name_of, messages)))
        return len(messages)

    def take(self, message: TaskMessage) -> None:
        """Note that the worker has a lease."""
        self.held.append(message)
        self.granted.append(message.task_id)

    def note(self, answers: Sequence[ResultAnswer]) -> None:
        """Note what the worker was told of its results."""
        self.applied += [one.task_id for one in answers if one.disposition is ResultDisposition.APPLIED]
        self.wrong += [
            f"{one.task_id} was rejected: {one.reason}"
            for one in answers
            if one.disposition is ResultDisposition.REJECTED
        ]

    async def forward(self, seconds: float) -> None:
        """Put the clock forward."""
        await self.admin.query("UPDATE public.ahead SET seconds = seconds + %s", seconds)

    async def renew(self, *messages: TaskMessage) -> None:
        """Let leases run from now on."""
        await self.admin.query(
            "UPDATE dagapp.dag_attempts SET lease_expires_at = dagapp.clock() + interval '20 seconds'"
            " WHERE task_id = ANY(%s) AND state = 'leased'",
            [one.task_id for one in messages],
        )


async def prepare(admin: Engine, kind: str, time: str, go_on: Callable[[], Awaitable[None]]) -> Scene:
    """Bring a scene about; `go_on` lets loops do what is due."""
    scene = Scene(admin, kind)
    for _ in range(2 if kind in {"slot", "fanslot"} else 1):
        await scene.create(admin)
    for _ in range(GRANTS if kind in {"slot", "fanslot"} else 0):
        await go_on()
    if kind == "large" and time != "asked":
        await serve(admin)
        await scene.forward(1)  # its items are read by the next look
        await go_on()
    if time != "asked":
        await scene.receive(admin, all_but=1)
    match time:
        case "due":
            await scene.forward(400)
            await scene.renew(scene.held[0])
        case "backoff":
            await scene.worker(admin).report(failed(scene.held.pop()))
            await scene.forward(61)
            await scene.renew(*scene.held)
        case "paused":
            await admin.order(scene.jobs[0], "pause")
        case "failed":
            await scene.worker(admin).report(failed(scene.held.pop(0), Classification.PERMANENT))
            await go_on()
        case "gather":
            while await scene.receive(admin) or scene.held:
                held, scene.held = scene.held, []
                scene.note(await scene.worker(admin).report(*map(good, held)))
    if kind == "large":
        await _grow_old(admin, scene.jobs[0])
    return scene


async def serve(engine: Engine) -> None:
    """Make what an engine's jobs have asked for."""
    assert isinstance(engine.desk, HandDesk)
    await engine.desk.serve()


async def _grow_old(admin: Engine, job_id: str) -> None:
    """Let the stored values of a job be so old that they went if there were no such job."""
    row = (await admin.job(job_id)).input_refs
    assert row is not None
    value = admin.blobs.local_path(BlobRef(CONTAINER, row["items"]["blob"]))
    assert value is not None
    os.utime(value.parent, (then := value.stat().st_mtime - OLD_SECONDS, then))


def name_of(message: TaskMessage) -> str:
    """Return the id of a message in the queue."""
    return message_id(message.task_id, message.dispatch_no)


def failed(message: TaskMessage, classification: Classification = Classification.TRANSIENT) -> TaskResult:
    """Return a failure, by default one that may pass."""
    error = ErrorDetail(code="BROKEN", message="it broke", classification=classification)
    outcomes = tuple(ItemOutcome(index=index, status=TaskStatus.FAILED, error=error) for index in message.items or ())
    return TaskResult(
        task_id=message.task_id,
        token=message.token,
        status=TaskStatus.FAILED,
        error=error,
        outcomes=outcomes or None,
    )


def good(message: TaskMessage) -> TaskResult:
    """Return a success."""
    items = message.items
    return TaskResult(
        task_id=message.task_id,
        token=message.token,
        status=TaskStatus.COMPLETED,
        output=None if items else {"done": True},
        outcomes=some_of(message, len(items or ())),
    )


def some_of(message: TaskMessage, count: int = 1) -> tuple[ItemOutcome, ...] | None:
    """Return successes of the first items of a batch; None for what is no batch."""
    items = message.items
    if items is None:
        return None
    return tuple(ItemOutcome(index=index, status=TaskStatus.COMPLETED, output={"i": index}) for index in items[:count])
