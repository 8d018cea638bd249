"""Workflow definitions, the broken files among them."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.identity import Role
from orchestrator.deps import context, workflow_view
from orchestrator.strict import StrictRoute

router = APIRouter(prefix="/api/v1/workflows", tags=["workflows"], route_class=StrictRoute)
operations = APIRouter(prefix="/api/v1/operations", tags=["workflows"], route_class=StrictRoute)


@router.get("")
async def list_workflows(request: Request) -> Response:
    """List every workflow version, and every file that gave none with its reason."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    found = [workflow_view(one) for key in ctx.shelf.catalogue.ids() for one in ctx.shelf.catalogue.versions(key)]
    broken = [{"file": one.file, "error": one.error} for one in ctx.shelf.catalogue.broken]
    return JSONResponse({"workflows": found, "broken": broken})


@router.get("/{workflow_id}")
async def get_workflow(request: Request, workflow_id: str, version: int | None = None) -> Response:
    """Return one definition in canonical form, by default the default version."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    workflow = ctx.shelf.get(workflow_id, version)
    return JSONResponse({**workflow_view(workflow), "definition": workflow.to_json()})


@operations.get("")
async def list_operations(request: Request) -> Response:
    """List what a request may be beside one job, and every file that gave none with its reason."""
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    known = ctx.business.operations
    found = [one.model_dump(mode="json") for _, one in sorted(known.operations.items())]
    return JSONResponse(
        {"operations": found, "broken": [{"file": one.file, "error": one.error} for one in known.broken]}
    )
