"""What routes get: the context of their process, the verified caller, the parsed body. In a route:

ctx = context(request)
caller = ctx.auth.mutator(request.headers, Role.SUBMITTER)      # mutations: both credentials
caller = ctx.auth.caller(request.headers, Role.OPERATOR)        # reads
body = await parsed(request, Model)  |  await optional_body(request)
"""

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from core import b2b
from core.dag.definition import Workflow
from core.dag.json_values import MAX_DEPTH, NotJson, check_json
from core.errors import ParameterInvalid, PayloadTooLarge
from core.json_keys import RepeatedKey, check_unique, unique
from core.wording import json_kind
from messaging.listener import Listener
from orchestrator.auth import Authenticator
from orchestrator.business import Business
from orchestrator.errors import parameter_error
from orchestrator.heartbeat import Heartbeat
from orchestrator.loop import Loop
from orchestrator.settings import OrchestratorSettings
from orchestrator.waiters import JobWaiters
from orchestrator.webhooks import WebhookLoop
from repositories.database import AsyncPool
from services.claims import ClaimService
from services.commands import CommandService
from services.dead_letters import DeadLetterService
from services.insight import InsightService
from services.jobs import JobService
from services.offers import Offers
from services.pauses import PauseService
from services.payload_desk import PayloadDesk
from services.recover import OutageGuard, RecoverService
from services.results import ResultService
from services.shelf import Shelf
from services.slots import SlotService
from services.stalls import StallService
from services.submits import Submits

if TYPE_CHECKING:
    from orchestrator.bus import Bus

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_DIGITS = 4000
MAX_CALLBACK_BYTES = 64 * 1024 * 1024
Model = TypeVar("Model", bound=BaseModel)


@dataclass(slots=True)
class Life:
    """Where the process stands: what readiness tells and whether it takes new jobs into its own hands."""

    draining: bool = False
    registered_definitions: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """One orchestrator process."""

    settings: OrchestratorSettings
    owner_id: str
    pool: AsyncPool
    auth: Authenticator
    shelf: Shelf
    jobs: JobService
    submits: Submits
    results: ResultService
    offers: Offers
    claims: ClaimService
    commands: CommandService
    pauses: PauseService
    dead_letters: DeadLetterService
    insight: InsightService
    slots: SlotService
    stalls: StallService
    recover: RecoverService
    guard: OutageGuard
    waiters: JobWaiters
    loop: Loop
    listener: Listener
    heartbeat: Heartbeat
    business: Business
    life: Life
    webhook_loop: WebhookLoop
    desk: PayloadDesk
    bus: "Bus | None"
    """What goes through Service Bus; None where the queue is the database's own."""


def context(request: Request) -> Context:
    """Return the context of the process that serves a request."""
    ctx: Context = request.app.state.context
    return ctx


async def read_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the body.

    Raises:
        PayloadTooLarge: It is longer than the limit; nothing beyond it is read.
    """
    length = 0
    chunks = []
    async for chunk in request.stream():
        length += len(chunk)
        if length > limit_bytes:
            raise PayloadTooLarge(f"the body has more than {limit_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def optional_body(request: Request) -> dict[str, Any]:
    """Return the body as a JSON object, an empty one where there is none.

    Raises:
        ParameterInvalid: It is something else, has what JSON storage refuses, or an object in it has a key twice.
    """
    raw = await read_body(request)
    return _json_object(raw) if raw else {}


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw, parse_int=_whole, parse_constant=float, object_pairs_hook=unique)
    except RepeatedKey as error:
        raise _repeated(error) from error
    except (ValueError, RecursionError) as error:
        raise ParameterInvalid(_unreadable(error)) from error
    if not isinstance(body, dict):
        raise ParameterInvalid(f"the body is a JSON {json_kind(body)}; expected an object")
    _check_storable(body)
    return body


def _whole(text: str) -> int:
    """Return a whole number; one with more digits than Python reads as another of about as many bits."""
    return int(text) if len(text) <= MAX_DIGITS else 1 << int(len(text) * math.log2(10))


def _unreadable(error: ValueError | RecursionError) -> str:
    match error:
        case RecursionError():
            return f"the body is nested deeper than {MAX_DEPTH} levels"
        case json.JSONDecodeError():
            return f"the body is not JSON: it breaks off at line {error.lineno}, column {error.colno}"
        case _:
            return "the body is not text in UTF-8"


def _check_storable(body: dict[str, Any]) -> None:
    """Refuse what neither the database nor an answer that repeats it can hold, such as half of a surrogate pair."""
    try:
        check_json(dict.fromkeys(body), "the body")
        for name, value in body.items():
            check_json(value, name)
    except NotJson as error:
        raise ParameterInvalid(error.detail.message, field=error.detail.field) from error


def _repeated(error: RepeatedKey) -> ParameterInvalid:
    return ParameterInvalid(str(error), field=error.key)


async def parsed(request: Request, model: type[Model], limit_bytes: int = MAX_BODY_BYTES) -> Model:
    """Return the body as a model.

    Raises:
        ParameterMissing, ParameterInvalid: It does not fit, or an object in it has a key twice.
    """
    return _fit(model, await read_body(request, limit_bytes))


async def optional(request: Request, model: type[Model]) -> Model:
    """Return the body as `parsed` does; no body at all is an empty object."""
    return _fit(model, await read_body(request) or b"{}")


def _fit(model: type[Model], raw: bytes) -> Model:
    try:
        wanted = model.model_validate_json(raw)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            _json_object(raw)  # raises, and knows the place
        raise parameter_error(error) from error
    try:
        check_unique(raw)
    except RepeatedKey as error:
        raise _repeated(error) from error
    return wanted


async def received(request: Request, model: type[Model]) -> Model:
    """Return what a worker sends, which may be large: read once, without a look at repeated keys.

    Raises:
        ParameterMissing, ParameterInvalid: It does not fit.
    """
    raw = await read_body(request, MAX_CALLBACK_BYTES)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise parameter_error(error) from error


async def contract_body(request: Request, model: type[b2b.M]) -> b2b.M:
    """Return the body as a model of the contract; none at all counts as an empty object.

    Raises:
        CallerError: as `core.b2b.parse_body` and `core.b2b.parse` say.
    """
    return b2b.parse(model, b2b.parse_body(await read_body(request, b2b.MAX_BODY_BYTES) or b"{}"))


def json_response(model: BaseModel, status_code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a model as JSON without a second look at it."""
    return Response(model.model_dump_json(), status_code, headers, "application/json")


def workflow_view(workflow: Workflow) -> dict[str, Any]:
    """Return what is told of a workflow in lists."""
    return {
        "workflow_id": workflow.workflow_id,
        "version": workflow.version,
        "name": workflow.name,
        "description": workflow.description,
        "definition_hash": workflow.definition_hash,
        "reversed_by": workflow.reversed_by,
    }
