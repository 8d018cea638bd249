"""Schema management of specification §7.3; never reachable through the gateway's routes."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from psycopg import AsyncConnection
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, PlainTextResponse, Response

from core.errors import Forbidden
from core.identity import Role
from orchestrator.deps import Context, context, optional
from orchestrator.strict import StrictRoute
from repositories import migrate
from repositories.database import listen

router = APIRouter(prefix="/api/v1/bootstrap", tags=["bootstrap"], route_class=StrictRoute)


class Nothing(BaseModel):
    """Body of what takes no word: none, or an empty object."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@router.get("/status")
async def status(request: Request) -> Response:
    """Return what is applied, pending and changed."""
    async with await _connect(_reader(request)) as conn:
        state = await migrate.status(conn)
    return JSONResponse(jsonable_encoder({**asdict(state), "ready": state.ready}))


@router.get("/tables")
async def tables(request: Request) -> Response:
    """Return every table with its row count."""
    async with await _connect(_reader(request)) as conn:
        counts = await migrate.tables(conn)
    return JSONResponse({"tables": [asdict(one) for one in counts]})


@router.get("/ddl")
async def ddl(request: Request) -> Response:
    """Return the DDL that the models stand for."""
    _reader(request)
    return PlainTextResponse(migrate.ddl_preview())


@router.post("/deploy")
async def deploy(request: Request) -> Response:
    """Apply what is pending; idempotent. Roles and extensions are the administrator's (`geodag db deploy`)."""
    return await _migrate(request)


@router.post("/migrate")
async def migrate_schema(request: Request) -> Response:
    """Apply what is pending; idempotent."""
    return await _migrate(request)


@router.post("/rebuild")
async def rebuild(request: Request) -> Response:
    """Drop everything and migrate from nothing; only in development with ALLOW_REBUILD in the environment."""
    ctx = await _mutator(request)
    if not (ctx.settings.allow_rebuild and ctx.settings.environment == "development"):
        raise Forbidden("rebuild needs ENVIRONMENT=development and ALLOW_REBUILD=true in the process's environment")
    async with await _connect(ctx) as conn:
        done = await migrate.rebuild(conn)
    return JSONResponse({"applied": done})


async def _migrate(request: Request) -> Response:
    async with await _connect(await _mutator(request)) as conn:
        done = await migrate.migrate(conn)
    return JSONResponse({"applied": done})


def _reader(request: Request) -> Context:
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    return ctx


async def _mutator(request: Request) -> Context:
    ctx = context(request)
    ctx.auth.mutator(request.headers, Role.OPERATOR)
    await optional(request, Nothing)
    return ctx


async def _connect(ctx: Context) -> AsyncConnection[Any]:
    """Open a connection past any pooler; a migration outlasts a pooled statement."""
    return await listen(ctx.settings.listen_conninfo, name="geodag bootstrap")
