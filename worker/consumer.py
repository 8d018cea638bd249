"""Receives tasks while there is room for them, claims them in batches, and settles their messages."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from core.errors import TransientError
from core.handlers_catalog import HandlerSpec, RunMode
from core.ports import Delivery, TaskReceiver
from core.wire import Capacity, Claim, ClaimAnswer, ClaimOutcome, ClaimRequest, TaskMessage, WorkerIdentity
from worker.backoff import Backoff
from worker.client import CallbackClient, NoAnswer, Refused
from worker.intake import Intake
from worker.settler import Settler
from worker.supervisor import Supervisor
from worker.tasks import Slots

RECEIVE_SECONDS = 20.0
RENEW_SECONDS = 15.0
_NO_FIT_SECONDS = 0.3
_MAX_NO_FIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What the consumer takes and how it identifies itself."""

    worker: WorkerIdentity
    catalog: Mapping[str, HandlerSpec]
    paced_by: RunMode
    """The kind of slot that must be free before anything is received: the kind most tasks of the queue need."""
    capacity: Callable[[], Capacity]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A delivered task with its slot taken, waiting for the answer to its claim."""

    delivery: Delivery
    message: TaskMessage
    spec: HandlerSpec
    claim: Claim


class Consumer:
    """One loop: wait for a slot, receive, claim, start."""

    def __init__(
        self,
        settings: ConsumerSettings,
        receiver: TaskReceiver,
        client: CallbackClient,
        supervisor: Supervisor,
        slots: Slots,
        settler: Settler,
        intake: Intake,
        reported: Callable[[], Awaitable[None]],
        logger: logging.Logger,
    ) -> None:
        self._settings = settings
        self._receiver = receiver
        self._client = client
        self._supervisor = supervisor
        self._slots = slots
        self._settler = settler
        self._intake = intake
        self._reported = reported
        self._logger = logger
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Receive nothing any more; a claim under way is still answered."""
        self._stopping.set()

    async def run(self) -> None:
        """Consume until stopped; never ends because of an error."""
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                deliveries = await self._receive()
                await self._handle(deliveries)
                backoff.reset()
            except Exception:
                delay = backoff.next_seconds()
                self._logger.exception("receiving failed", extra={"retry_seconds": delay})
                await asyncio.sleep(delay)

    async def _receive(self) -> Sequence[Delivery]:
        """Wait for a free slot, then for messages; empty as soon as the worker stops."""
        stopping = asyncio.create_task(self._stopping.wait())
        receiving = asyncio.create_task(self._receive_when_free())
        try:
            await asyncio.wait({stopping, receiving}, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else ()
        finally:
            stopping.cancel()
            if not receiving.done():
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)

    async def _receive_when_free(self) -> Sequence[Delivery]:
        free = 0
        while not free:
            await self._slots.wait_free(self._settings.paced_by)
            await self._intake.wait_turn(self._reported)
            free = self._slots.free(self._settings.paced_by)
        return await self._receiver.receive(free, RECEIVE_SECONDS)

    async def _handle(self, deliveries: Sequence[Delivery]) -> None:
        free = self._settings.capacity()
        wanted: list[_Wanted] = []
        try:
            for delivery in deliveries:
                if (want := await self._sort(delivery)) is not None:
                    wanted.append(want)
            answers = list(await self._claim(wanted, free)) if wanted else []
            while wanted:
                await self._act(wanted.pop(0), answers.pop(0) if answers else None)
        finally:
            for want in wanted:
                self._slots.give(want.spec.mode)

    async def _sort(self, delivery: Delivery) -> _Wanted | None:
        """Take a slot for a delivery; what cannot be read is set aside, what does not fit is given back."""
        message = delivery.message
        if message is None:
            await self._settler.dead_letter(delivery, delivery.unreadable or "unreadable")
            return None
        spec = self._settings.catalog.get(message.handler)
        if spec is None:
            self._logger.error("handler unknown to this build", extra=_ids(message))
            await self._give_back(delivery)
            return None
        if not self._slots.take(spec.mode):
            await self._give_back(delivery)
            return None
        claim = Claim(
            task_id=message.task_id, dispatch_no=message.dispatch_no, token=message.token, claim_id=uuid.uuid4().hex
        )
        return _Wanted(delivery, message, spec, claim)

    async def _claim(self, wanted: Sequence[_Wanted], free: Capacity) -> Sequence[ClaimAnswer]:
        """Ask until somebody answers: meanwhile the messages stay locked and nothing more is received.

        `free` is what was free before slots were taken for these claims.
        """
        request = ClaimRequest(worker=self._settings.worker, free=free, claims=tuple(w.claim for w in wanted))
        loop = asyncio.get_running_loop()
        backoff, renewed_at = Backoff(), loop.time()
        while True:
            try:
                return (await self._client.claims(request)).answers
            except (NoAnswer, Refused) as exc:
                delay = backoff.next_seconds()
                self._logger.warning("claims not answered", extra={"reason": str(exc), "retry_seconds": delay})
                await asyncio.sleep(delay)
            if loop.time() - renewed_at >= RENEW_SECONDS:
                renewed_at = loop.time()
                await self._renew([want.delivery for want in wanted])

    async def _renew(self, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._receiver.renew(deliveries)
        except TransientError as exc:
            self._logger.warning("message locks not renewed", extra={"reason": str(exc)})

    async def _act(self, want: _Wanted, answer: ClaimAnswer | None) -> None:
        """Do what the answer to a claim says; from here on the slot is the task's, or given back."""
        if answer is not None and answer.task_id != want.message.task_id:
            answer = None
        outcome = answer.outcome if answer is not None else ClaimOutcome.NO_FIT
        if answer is not None and outcome is ClaimOutcome.GRANTED:
            self._settler.complete(want.delivery)
            self._supervisor.begin(want.message, want.spec, answer, want.spec.mode)
            return
        self._slots.give(want.spec.mode)
        if outcome is ClaimOutcome.UNKNOWN:
            await self._settler.dead_letter(want.delivery, (answer and answer.reason) or "unknown task or bad token")
        elif outcome is ClaimOutcome.NO_FIT:
            await self._give_back(want.delivery)
        else:
            self._logger.info("claim refused", extra={**_ids(want.message), "outcome": str(outcome)})
            self._settler.complete(want.delivery)

    async def _give_back(self, delivery: Delivery) -> None:
        """Make a message visible again, later each time it comes back: another worker may have room for it."""
        delay = min(_NO_FIT_SECONDS * 1.5**delivery.delivery_count, _MAX_NO_FIT_SECONDS)
        await self._settler.abandon(delivery, delay)


def _ids(message: TaskMessage) -> dict[str, str]:
    return {"task_id": message.task_id, "job_id": message.job_id, "handler": message.handler}
