"""Submits that come through the queue `orchestrator-jobs`: the same use case as over HTTP, with the caller's token.

The body is that of POST /api/v1/submit; the application properties stand for the headers: `Authorization` or
`X-API-Key`, and `Idempotency-Key`, whose default is the message id. All instances compete. A submit is stored, then its
message completed: one that comes again finds the first answer under its key. What can never be accepted is set aside
with its code as the reason and nothing written. What only waits, for its platform's turn or for something that is away,
is kept in hand and tried again, its lock renewed: the broker counts what is given back, and buries what came too often.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from core.b2b import parse_body
from core.errors import GeodagError, ParameterInvalid, ParameterMissing, Throttled, TransientError
from core.identity import Caller, Role
from edge.identity import Identity
from messaging.servicebus import QueueReader, QueueUnavailable, Received
from messaging.tireless import for_ever
from orchestrator.auth import Authenticator
from services.submit import SubmitService

log = logging.getLogger(__name__)

TOGETHER: Final = 8
IN_HAND: Final = 64
"""Those that wait included."""
HOLD_SECONDS: Final = 300.0
"""In hand at most, then others have their turn."""
FAILURES: Final = 10
"""Deliveries after which one that fails for no known reason is set aside."""
RECEIVE_SECONDS: Final = 20.0
AGAIN_SECONDS: Final = 1.0
"""Before a submit is tried again that met something that was away."""
MAX_AGAIN_SECONDS: Final = 20.0
HEADERS: Final = frozenset({"authorization", "x-api-key"})
KEY: Final = "idempotency-key"


class Submissions:
    """One of the competing consumers."""

    def __init__(
        self, reader: QueueReader, identity: Identity, submits: SubmitService, *, hold_seconds: float = HOLD_SECONDS
    ) -> None:
        self._reader = reader
        self._identity = identity
        self._auth = Authenticator(identity)
        self._submits = submits
        self._hold_seconds = hold_seconds
        self._working = asyncio.Semaphore(TOGETHER)
        self._in_hand: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take submits until cancelled; never ends because of an error."""
        await for_ever(self._turn, "submits not taken", {})

    async def close(self) -> None:
        """Give back what was not dealt with."""
        for task in self._in_hand:
            task.cancel()
        await asyncio.gather(*self._in_hand, return_exceptions=True)
        await self._reader.close()

    async def _turn(self) -> None:
        if (room := IN_HAND - len(self._in_hand)) <= 0:
            await asyncio.wait(self._in_hand, return_when=asyncio.FIRST_COMPLETED)
            return
        for received in await self._reader.receive(min(room, TOGETHER), RECEIVE_SECONDS):
            task = asyncio.create_task(self._deal_with(received), name="submit")
            self._in_hand.add(task)
            task.add_done_callback(self._in_hand.discard)

    async def _deal_with(self, received: Received) -> None:
        about, clock = {"message_id": received.message_id}, asyncio.get_running_loop().time
        until = clock() + self._hold_seconds
        try:
            while (pause := await self._tried(received, about)) is not None:
                if clock() + pause > until:
                    await self._reader.abandon(received, pause)
                    return
                await self._keep(received, pause)
                if not self._reader.holds(received):
                    return  # it comes again by itself
        except QueueUnavailable as error:
            log.warning("submit not settled", extra={**about, "reason": str(error)})

    async def _keep(self, received: Received, seconds: float) -> None:
        """Wait, and renew the lock as often as it needs that."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            with contextlib.suppress(QueueUnavailable):
                await self._reader.renew([received])
            await asyncio.sleep(min(left, received.lock_seconds() / 3))

    async def _tried(self, received: Received, about: Mapping[str, Any]) -> float | None:
        """Try once and settle the message; return after how many seconds to try again when it only waits."""
        try:
            async with self._working:
                request_id = await self._submit(received)
        except TransientError as error:
            log.warning("submit put off", extra={**about, "code": error.detail.code})
            return _pause(error)
        except GeodagError as error:
            log.warning("submit set aside", extra={**about, "code": error.detail.code})
            await self._reader.dead_letter(received, error.detail.code, _description(error))
        except Exception:
            log.exception("submit failed", extra=about)
            if received.deliveries < FAILURES:
                await self._reader.abandon(received, MAX_AGAIN_SECONDS)
            else:
                await self._reader.dead_letter(received, GeodagError.code, "an error of ours")
        else:
            log.info("submit taken", extra={**about, "request_id": request_id})
            await self._reader.complete([received])
        return None

    async def _submit(self, received: Received) -> str:
        """Store one submit and return its request; raises what a submit over HTTP raises."""
        properties = _properties(received)
        caller = await self._caller(properties)
        body = parse_body(_body(received))
        if body.get("dry_run") is True:
            raise ParameterInvalid("nobody reads the report of a dry run in a queue", field="dry_run", value=True)
        key = properties.get(KEY)
        if key is None and body.get("idempotency_key") is None:
            key = received.message_id
            if not key:
                raise ParameterMissing("a message id or an idempotency key is required", field="idempotency_key")
        return (await self._submits.submit(caller, body, key)).request_id

    async def _caller(self, properties: Mapping[str, str]) -> Caller:
        headers = {name: value for name, value in properties.items() if name in HEADERS}
        await self._identity.prepare(headers)
        return self._auth.caller(headers, Role.SUBMITTER)


def _body(received: Received) -> bytes:
    try:
        return received.body()
    except ValueError as error:
        raise ParameterInvalid(str(error), field="body") from error


def _properties(received: Received) -> dict[str, str]:
    """Return the application properties as headers, names in lower case; what is no text is left out."""
    found = {_text(name): _text(value) for name, value in (received.raw.application_properties or {}).items()}
    return {name.lower(): value for name, value in found.items() if name is not None and value is not None}


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _pause(error: TransientError) -> float:
    if isinstance(error, Throttled) and error.detail.retry_after_seconds is not None:
        return min(float(error.detail.retry_after_seconds), MAX_AGAIN_SECONDS)
    return AGAIN_SECONDS


def _description(error: GeodagError) -> str:
    """Return what the sender may know, which is what HTTP would have answered."""
    detail = error.detail
    return detail.message if detail.field is None else f"{detail.field}: {detail.message}"
