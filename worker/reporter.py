"""Sends results until they are answered; each lies on disk from before its first sending until its answer."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from core.wire import Beat, ExchangeRequest, ExchangeResponse, ResultAnswer, ResultRequest, TaskResult, WorkerIdentity
from worker.backoff import Backoff
from worker.client import CallbackClient, NoAnswer, Refused
from worker.intake import Intake
from worker.result_log import Entry, ResultLog

MAX_BATCH = 256
WORTH_A_CALL = 64
"""So many results do not wait until the call under way is answered; fewer go together with the next."""
WORTH_A_TURN = 128
"""So many of the same job are worth a call that waits for its turn; until that comes there are more."""
_NO_SUCH_ROUTE = frozenset({404, 405})
_OLDER_SECONDS = 60.0
"""How long an orchestrator of the build before is not asked again for what it does not know."""
_POISON_STATUSES = frozenset({400, 413, 422})


class Reporter:
    """Reports finished tasks in batches: whatever ended while a call was under way goes out with the next.

    Many results go out beside it: of other jobs anywhere, of the same ones to the same instance, where calls about a
    job follow each other. Elsewhere the job's lock would let only one of them through.
    """

    def __init__(
        self, store: ResultLog, client: CallbackClient, worker: WorkerIdentity, logger: logging.Logger
    ) -> None:
        self._store = store
        self._client = client
        self._worker = worker
        self._logger = logger
        self.intake: Intake | None = None
        """Of a worker that takes tasks with answers."""
        self._follows: CallbackClient | None = None
        self._exchange_after = 0.0
        self._pending: dict[str, TaskResult] = {}
        self._unsent: dict[str, TaskResult] = {}
        """Those of them that no call under way tells of."""
        self._ended: list[Entry] = []
        """Those that ended in this iteration of the loop."""
        self._told: Counter[str] = Counter()
        """How many calls under way tell of a job."""
        self._asked: Counter[CallbackClient | None] = Counter()
        """Where they go; None: to any instance."""
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        for result in store.unanswered():
            self._enqueue(result)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, result: TaskResult) -> None:
        """Store a result and send it soon.

        It is stored with all that end in the same iteration of the loop, and before it is sent: a write for each would
        cost as much as a small task. One that no JSON can be made of raises here, where its own task hears of it.
        """
        entry = Entry.of(result)
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._store_ended)
        self._ended.append(entry)
        self._enqueue(result)

    def _store_ended(self) -> None:
        """Store what has ended; what finds no room on the disk is only in memory, which is still better than lost."""
        ended, self._ended = self._ended, []
        if ended:
            self._store_each(ended)

    def _store_each(self, entries: Sequence[Entry]) -> None:
        """Store entries together; of those that do not fit together, each that fits alone."""
        try:
            self._store.write(entries)
        except OSError:
            if len(entries) > 1:
                for entry in entries:
                    self._store_each([entry])
            else:
                self._logger.exception("result not stored", extra={"task_id": entries[0].result.task_id})

    def follow(self, client: CallbackClient | None) -> None:
        """Report to the instance that made the last tasks, as long as it answers.

        Any other would do. But there is what it needs at hand, and whoever waits for the end of a job that it made.
        """
        self._follows = client

    def beats(self) -> tuple[Beat, ...]:
        """Return signs of life for unanswered results: their leases must last until they are answered."""
        return tuple(Beat(task_id=result.task_id, token=result.token) for result in self._pending.values())

    async def drained(self) -> None:
        """Wait until every result is answered."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send for ever."""
        async with asyncio.TaskGroup() as calls:
            calls.create_task(self._report(1))
            calls.create_task(self._report(WORTH_A_CALL))

    async def _report(self, at_least: int) -> None:
        """Send one batch after the other, each of so many results or more."""
        backoff = Backoff()
        while True:
            batch = await self._next(at_least)
            self._store_ended()
            jobs, asked = {_job_of(task_id) for task_id in batch}, self._destination()
            self._told.update(jobs)
            self._asked[asked] += 1
            for task_id in batch:
                del self._unsent[task_id]
            try:
                await self._send(tuple(batch.values()))
                backoff.reset()
            except (NoAnswer, Refused) as exc:
                delay = backoff.next_seconds()
                self._logger.warning(
                    "results not answered", extra={"reason": str(exc), "retry_seconds": delay, "count": len(self)}
                )
                await asyncio.sleep(delay)
            finally:
                self._told -= Counter(jobs)
                self._asked -= Counter((asked,))
                self._unsent.update((one, told) for one, told in batch.items() if self._pending.get(one) is told)
                self._wake.set()

    async def _next(self, at_least: int) -> Mapping[str, TaskResult]:
        """Wait for so many results of jobs of which no call under way tells, or for many that may go beside one."""
        while True:
            if len(self._unsent) >= at_least:
                others = (one for one in self._unsent.items() if _job_of(one[0]) not in self._told)
                if len(batch := dict(islice(others, MAX_BATCH))) >= at_least:
                    return batch
                if len(self._unsent) >= WORTH_A_TURN and self._takes_turns():
                    return dict(islice(self._unsent.items(), MAX_BATCH))
            self._wake.clear()
            await self._wake.wait()

    def _destination(self) -> CallbackClient | None:
        """Return the instance to which results go for tasks, None when they go to any, or for nothing."""
        return self._follows if self._exchanges() else None

    def _exchanges(self) -> bool:
        return self.intake is not None and asyncio.get_running_loop().time() >= self._exchange_after

    def _takes_turns(self) -> bool:
        """Return whether a call would go where all calls under way have gone."""
        destination = self._destination()
        return destination is not None and self._asked.keys() <= {destination}

    async def _send(self, batch: tuple[TaskResult, ...]) -> None:
        """Send a batch; one that is refused for its content is halved until the culprit stands alone."""
        try:
            answers = await self._call(batch)
        except Refused as exc:
            if exc.status not in _POISON_STATUSES:
                raise
            await self._send_halves(batch, exc)
            return
        self._settle({one.task_id: one for one in answers if one.task_id in self._pending})

    async def _call(self, batch: tuple[TaskResult, ...]) -> Sequence[ResultAnswer]:
        """Send results where the answer brings the next tasks; to an older orchestrator, where it does not."""
        if self.intake is not None and self._exchanges():
            try:
                return await self._exchange(self.intake, batch)
            except Refused as exc:
                if exc.status not in _NO_SUCH_ROUTE:
                    raise
                self._exchange_after = asyncio.get_running_loop().time() + _OLDER_SECONDS
        return (await self._client.results(ResultRequest(worker=self._worker, results=batch))).answers

    async def _exchange(self, intake: Intake, batch: tuple[TaskResult, ...]) -> Sequence[ResultAnswer]:
        with intake.reserved(len(batch)) as room:
            request = ExchangeRequest(worker=self._worker, results=batch, free=room.capacity, claim_id=room.claim_id)
            answer = await self._exchanged(request)
            await room.start(answer.grants)
        return answer.answers

    async def _exchanged(self, request: ExchangeRequest) -> ExchangeResponse:
        if (client := self._follows) is not None:
            try:
                return await client.exchange(request, once=True)
            except NoAnswer as exc:
                if self._follows is client:
                    self._follows = None
                self._logger.info("results go to another orchestrator", extra={"reason": str(exc)})
        return await self._client.exchange(request)

    async def _send_halves(self, batch: tuple[TaskResult, ...], refusal: Refused) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
            return
        self._logger.error("result refused", extra={"task_id": batch[0].task_id, "reason": str(refusal)})
        self._store.set_aside(batch[0])
        self._remove(batch[0].task_id)

    def _settle(self, answers: Mapping[str, ResultAnswer]) -> None:
        if answers:
            self._store.forget(*answers)
        for one in answers.values():
            self._logger.debug("result answered", extra={"task_id": one.task_id, "disposition": str(one.disposition)})
            self._remove(one.task_id)

    def _enqueue(self, result: TaskResult) -> None:
        self._pending[result.task_id] = self._unsent[result.task_id] = result
        self._wake.set()
        self._empty.clear()

    def _remove(self, task_id: str) -> None:
        self._pending.pop(task_id, None)
        if not self._pending:
            self._empty.set()


def _job_of(task_id: str) -> str:
    return task_id.partition("_")[0]
