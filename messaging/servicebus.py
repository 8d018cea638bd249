"""Azure Service Bus: one client a process, senders that stay open, and readers of its queues.

A reader is one link that is iterated with no prefetch and comes back by itself. What it may read is what somebody
asked for: the first message is handed over at once, and while it is dealt with the others of the same asking arrive.
The link belongs to one task, because the SDK reads a connection by whoever waits on it, and two who wait hold each
other up for its socket timeout of 200 ms. So nobody waits for the broker's word on a settlement either: one that is
lost is a message that comes again, which the claim in PostgreSQL refuses (architecture §3.1).
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypedDict, TypeVar

from azure.core.exceptions import AzureError
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
    TransportType,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
)

from core.errors import PayloadTooLarge, TransientError
from messaging.settings import QueueSettings
from messaging.tireless import pause_seconds
from repositories.credentials import IdentityCredential

Result = TypeVar("Result")
log = logging.getLogger(__name__)

BROKER_ERRORS: Final = (AzureError, OSError, TimeoutError, asyncio.IncompleteReadError)
LOST: Final = (MessageLockLostError, MessageNotFoundError, ValueError)
"""The message is no longer in this receiver's hands; a ValueError says that its link is down or it was settled."""
TRY_SECONDS: Final = 10.0
UNASKED_SECONDS: Final = 4.0
"""A message that nobody fetches for so long goes back; below any lock that Service Bus grants (5 s to 5 min)."""
MAX_REASON: Final = 1024


class _Patience(TypedDict):
    retry_total: int
    try_timeout: float


_PATIENCE: Final = _Patience(retry_total=0, try_timeout=TRY_SECONDS)
"""Whoever uses a link tries again himself: the SDK would do it on another link, without a word."""


class QueueUnavailable(TransientError):
    """The broker does not answer, or not to us."""

    code = "QUEUE_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send."""

    message_id: str
    body: bytes = field(repr=False)


class ServiceBus:
    """The namespace, for one process."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._senders: dict[str, ServiceBusSender] = {}
        self._readers: list[QueueReader] = []

    @classmethod
    def of(cls, settings: QueueSettings) -> "ServiceBus":
        """Return the namespace that settings name; with SERVICE_BUS_FQDN the process's identity enters it."""
        verify = None if settings.service_bus_ca_file is None else str(settings.service_bus_ca_file)
        if settings.service_bus_connection_string is not None:
            text = settings.service_bus_connection_string.get_secret_value()
            return cls(ServiceBusClient.from_connection_string(text, connection_verify=verify, **_PATIENCE))
        if settings.service_bus_fqdn is None or settings.identity is None:
            raise ValueError("SERVICE_BUS_FQDN and a managed identity are required")
        return cls(
            ServiceBusClient(
                settings.service_bus_fqdn,
                IdentityCredential(settings.identity),
                transport_type=TransportType.Amqp,  # without it a custom endpoint silently means websockets
                custom_endpoint_address=settings.service_bus_custom_endpoint,
                connection_verify=verify,
                **_PATIENCE,
            )
        )

    async def send(self, queue: str, messages: Sequence[Outgoing]) -> int:
        """Send as many of the first messages as fit into one batch, and return how many.

        Raises:
            PayloadTooLarge: Not even the first one does.
            QueueUnavailable: It is not known whether they arrived.
        """
        if queue not in self._senders:
            self._senders[queue] = self._client.get_queue_sender(queue)
        try:
            return await _to_its_end(_send(self._senders[queue], messages))
        except BROKER_ERRORS as error:
            await self._drop(queue)
            raise QueueUnavailable(f"queue {queue} takes nothing: {type(error).__name__}") from error

    async def _drop(self, queue: str) -> None:
        """Close a sender; the next one connects anew."""
        if (sender := self._senders.pop(queue, None)) is not None:
            with contextlib.suppress(*BROKER_ERRORS):
                await sender.close()

    def reader(self, queue: str, *, dead_letters: bool = False) -> "QueueReader":
        """Return a new reader of a queue, or of what it has set aside."""
        reader = QueueReader(self._client, queue, dead_letters=dead_letters)
        self._readers.append(reader)
        return reader

    async def close(self) -> None:
        """Give back what readers hold and close all connections."""
        await asyncio.gather(*(reader.close() for reader in self._readers))
        for queue in list(self._senders):
            await self._drop(queue)
        with contextlib.suppress(*BROKER_ERRORS):
            await self._client.close()


async def _send(sender: ServiceBusSender, messages: Sequence[Outgoing]) -> int:
    async with asyncio.timeout(2 * TRY_SECONDS):
        batch = await sender.create_message_batch()
        count = sum(1 for _ in itertools.takewhile(partial(_fits, batch), messages))
        if count:
            try:
                await sender.send_messages(batch, timeout=TRY_SECONDS)
            except MessageSizeExceededError:
                if count > 1:
                    return await _send(sender, messages[: count // 2])
            else:
                return count
    size = len(messages[0].body)
    raise PayloadTooLarge(f"the message has {size} bytes, and at most {batch.max_size_in_bytes} are taken", value=size)


async def _to_its_end(step: Coroutine[Any, Any, Result]) -> Result:
    """Take a step of the SDK that is not to be left in the middle: it would leave a connection behind."""
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


def _fits(batch: ServiceBusMessageBatch, message: Outgoing) -> bool:
    """Add a message to a batch, unless that would be more than the broker takes at a time."""
    raw = ServiceBusMessage(message.body, message_id=message.message_id, content_type="application/json")
    try:
        batch.add_message(raw)
    except MessageSizeExceededError:
        return False
    return True


@dataclass(eq=False, slots=True)
class Received:
    """One message with the link that it came on, which is the only one that can settle it."""

    raw: ServiceBusReceivedMessage
    link: ServiceBusReceiver = field(repr=False)

    @property
    def message_id(self) -> str:
        """Return what the sender called it; empty when it did not."""
        return self.raw.message_id or ""

    @property
    def deliveries(self) -> int:
        """Return how often it was delivered, this time included."""
        return (self.raw.delivery_count or 0) + 1

    def lock_seconds(self) -> float:
        """Return how much longer its lock lasts, at least a second."""
        until = self.raw.locked_until_utc
        return 1.0 if until is None else max(1.0, (until - datetime.now(UTC)).total_seconds())

    def body(self) -> bytes:
        """Return the body.

        Raises:
            ValueError: It is not data, as an AMQP value or sequence.
        """
        if self.raw.body_type is not AmqpMessageBodyType.DATA:
            raise ValueError("the body is not data")
        return b"".join(self.raw.body)


class QueueReader:
    """Messages of one queue, on demand."""

    def __init__(self, client: ServiceBusClient, queue: str, *, dead_letters: bool = False) -> None:
        self._client = client
        self._queue = queue
        self._sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead_letters else None
        self._pump: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self._wanted = 0
        """How many more may be read."""
        self._may_read = asyncio.Event()
        self._arrived = asyncio.Event()
        self._ready: list[Received] = []
        self._held: set[Received] = set()
        self._later: set[asyncio.Task[None]] = set()
        self._putting_back: asyncio.TimerHandle | None = None
        self.connected = asyncio.Event()
        """Set while the link stands."""

    async def receive(self, max_messages: int, wait_seconds: float) -> Sequence[Received]:
        """Return what is there, at most so many, waiting for the first; empty on time-out."""
        async with self._asking:
            if self._pump is None:
                self._pump = asyncio.create_task(self._run(), name=f"reader {self._queue}")
            self._keep(None)
            self._want(max_messages - len(self._ready))
            try:
                async with asyncio.timeout(wait_seconds):
                    while not self._ready:
                        self._want(max_messages)
                        self._arrived.clear()
                        await self._arrived.wait()
            except TimeoutError:
                pass
            finally:
                self._keep(UNASKED_SECONDS)
            taken, self._ready = self._ready[:max_messages], self._ready[max_messages:]
            self._held.update(taken)
            return taken

    def holds(self, message: Received) -> bool:
        """Return whether a message is still in our hands, as far as we know."""
        return message in self._held

    async def complete(self, messages: Sequence[Received]) -> None:
        """Remove messages, as far as they are still ours."""
        for one in messages:
            await self._settle(one, partial(one.link.complete_message, one.raw))

    async def abandon(self, message: Received, delay_seconds: float = 0.0) -> None:
        """Give one back, after the delay: the broker has none for that, so it stays in our hands so long."""
        if delay_seconds <= 0:
            await self._settle(message, partial(message.link.abandon_message, message.raw))
            return
        task = asyncio.create_task(self._abandon_later(message, delay_seconds))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def renew(self, messages: Sequence[Received]) -> None:
        """Extend locks; one that is lost stays lost."""
        for one in messages:
            with self._translated(), contextlib.suppress(*LOST):
                if one in self._held:
                    await one.link.renew_message_lock(one.raw, timeout=TRY_SECONDS)

    async def dead_letter(self, message: Received, reason: str, description: str | None = None) -> None:
        """Set one aside."""
        await self._settle(
            message,
            partial(
                message.link.dead_letter_message,
                message.raw,
                reason=reason[:MAX_REASON],
                error_description=(description or reason)[:MAX_REASON],
            ),
        )

    async def close(self) -> None:
        """Give back what was not settled, then disconnect."""
        self._keep(None)
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        for one in [*self._held, *self._ready]:
            with contextlib.suppress(QueueUnavailable):
                await self._settle(one, partial(one.link.abandon_message, one.raw))
        self._ready.clear()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                link = self._client.get_queue_receiver(self._queue, sub_queue=self._sub_queue, prefetch_count=0)
                link._await_settlement_outcome = False  # see above; the SDK has no public word for it
                try:
                    await _to_its_end(link.__aenter__())
                    failures = 0
                    self.connected.set()
                    await self._read(link)
                finally:
                    self.connected.clear()
                    self._held.clear()  # only this link could settle them; the broker delivers them again
                    self._ready.clear()
                    self._arrived.set()
                    with contextlib.suppress(*BROKER_ERRORS):
                        await link.close()
            except Exception as error:
                known = isinstance(error, (*BROKER_ERRORS, StopAsyncIteration, TransientError))
                log.warning(
                    "queue unreachable",
                    extra={"queue": self._queue, "error": type(error).__name__},
                    exc_info=not known,
                )
            await asyncio.sleep(pause_seconds(failures))
            failures += 1

    async def _read(self, link: ServiceBusReceiver) -> None:
        """Read while somebody wants to; always leaves by an exception."""
        while True:
            await self._may_read.wait()
            received = Received(await anext(link), link)
            self._want(self._wanted - 1)
            self._ready.append(received)
            self._arrived.set()
            if self._putting_back is None and not self._asking.locked():
                self._keep(UNASKED_SECONDS)

    def _want(self, count: int) -> None:
        self._wanted = max(0, count)
        if self._wanted:
            self._may_read.set()
        else:
            self._may_read.clear()

    def _keep(self, seconds: float | None) -> None:
        """Keep what nobody asked for so long; None: as long as somebody asks."""
        if self._putting_back is not None:
            self._putting_back.cancel()
            self._putting_back = None
        if seconds is not None:
            self._putting_back = asyncio.get_running_loop().call_later(seconds, self._put_back)

    def _put_back(self) -> None:
        self._putting_back = None
        self._want(0)
        unasked, self._ready = self._ready, []
        for one in unasked:
            self._held.add(one)
            task = asyncio.create_task(self._abandon_later(one, 0))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def _abandon_later(self, message: Received, delay_seconds: float) -> None:
        await asyncio.sleep(delay_seconds)
        try:
            await self.abandon(message)
        except QueueUnavailable as error:
            log.warning("message not given back", extra={"queue": self._queue, "reason": str(error)})

    async def _settle(self, message: Received, act: Callable[[], Awaitable[None]]) -> None:
        if message not in self._held and message not in self._ready:
            return
        self._held.discard(message)
        with self._translated(), contextlib.suppress(*LOST):
            await act()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BROKER_ERRORS as error:
            raise QueueUnavailable(f"queue {self._queue} does not answer: {type(error).__name__}") from error
