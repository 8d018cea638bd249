"""Submits that come through the queue `orchestrator-jobs`: the same use case as over HTTP, with the caller's token.

The body is that of POST /api/v1/submit; the application properties stand for the headers: `Authorization` or
`X-API-Key`, and `Idempotency-Key`, whose default is the message id. All instances compete. A submit is stored, then its
message completed: one that comes again finds the first answer under its key. What can never be accepted is set aside
with its code as the reason and nothing written; what only waits for something comes again.
"""

import asyncio
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
RECEIVE_SECONDS: Final = 20.0
AGAIN_SECONDS: Final = 1.0
"""Before a submit comes again that met something that was away."""
MAX_AGAIN_SECONDS: Final = 20.0
HEADERS: Final = frozenset({"authorization", "x-api-key"})
KEY: Final = "idempotency-key"


class Submissions:
    """One of the competing consumers."""

    def __init__(self, reader: QueueReader, identity: Identity, submits: SubmitService) -> None:
        self._reader = reader
        self._identity = identity
        self._auth = Authenticator(identity)
        self._submits = submits

    async def run(self) -> None:
        """Take submits until cancelled; never ends because of an error."""
        await for_ever(self._turn, "submits not taken", {})

    async def close(self) -> None:
        """Give back what was not dealt with."""
        await self._reader.close()

    async def _turn(self) -> None:
        received = await self._reader.receive(TOGETHER, RECEIVE_SECONDS)
        await asyncio.gather(*(self._deal_with(one) for one in received))

    async def _deal_with(self, received: Received) -> None:
        about = {"message_id": received.message_id}
        try:
            await self._settle(received, about)
        except QueueUnavailable as error:
            log.warning("submit not settled", extra={**about, "reason": str(error)})

    async def _settle(self, received: Received, about: Mapping[str, Any]) -> None:
        try:
            request_id = await self._submit(received)
        except TransientError as error:
            log.warning("submit put off", extra={**about, "code": error.detail.code})
            await self._reader.abandon(received, _pause(error))
        except GeodagError as error:
            log.warning("submit set aside", extra={**about, "code": error.detail.code})
            await self._reader.dead_letter(received, error.detail.code, _description(error))
        except Exception:
            log.exception("submit failed", extra=about)
            await self._reader.abandon(received, MAX_AGAIN_SECONDS)
        else:
            log.info("submit taken", extra={**about, "request_id": request_id})
            await self._reader.complete([received])

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
