"""The values of jobs for operators, however large: what is more than a request may hold is streamed, never held."""

from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from core.errors import NotFound
from core.identity import Role
from core.ids import canonical_json
from core.models.engine import Job, NodeState
from core.payloads import PayloadRef
from orchestrator.deps import Context, context
from orchestrator.strict import StrictRoute
from repositories.database import transaction
from repositories.jobs import JobRepository
from repositories.nodes import NodeRepository
from services.insight import missing_node

HELD_BYTES: Final = 4 << 20
"""Values of at most that are read whole first, so that what is damaged is told by its code."""
router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], route_class=StrictRoute)


@router.get("/{job_id}/outputs")
async def get_outputs(request: Request, job_id: str) -> Response:
    """Return the outputs of a completed job."""
    ctx, job = await _job(request, job_id)
    return await _answer(ctx, job.outputs, job.outputs_ref, f"job {job_id} has no outputs")


@router.get("/{job_id}/inputs/{name}")
async def get_input(request: Request, job_id: str, name: str) -> Response:
    """Return one resolved input of a job."""
    ctx, job = await _job(request, job_id)
    ref = (job.input_refs or {}).get(name)
    nothing = f"job {job_id} has no input {name}"
    return await _answer(ctx, job.input_params.get(name), ref, nothing, may_be_null=name in job.input_params)


@router.get("/{job_id}/nodes/{node_id}/output")
async def get_node_output(request: Request, job_id: str, node_id: str) -> Response:
    """Return the output of one node."""
    ctx, node = await _node(request, job_id, node_id)
    nothing = f"node {node_id} has no output"
    if node.outcomes is not None:
        where = f"GET /api/v1/jobs/{job_id}/nodes/{node_id} (geodag job node {job_id} {node_id} --json)"
        nothing = f"node {node_id} is a batch of items: what each put out is in the outcomes of {where}"
    return await _answer(ctx, node.output, node.output_ref, nothing)


@router.get("/{job_id}/nodes/{node_id}/input")
async def get_node_input(request: Request, job_id: str, node_id: str) -> Response:
    """Return the params of the newest attempt of one node."""
    ctx, node = await _node(request, job_id, node_id)
    return await _answer(ctx, node.input_params, node.input_ref, f"node {node_id} has no params")


async def _job(request: Request, job_id: str) -> tuple[Context, Job]:
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    async with transaction(ctx.pool) as conn:
        job = await JobRepository(conn).get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}", field="job_id", value=job_id)
    return ctx, job


async def _node(request: Request, job_id: str, node_id: str) -> tuple[Context, NodeState]:
    ctx = context(request)
    ctx.auth.caller(request.headers, Role.OPERATOR)
    async with transaction(ctx.pool) as conn:
        node = await NodeRepository(conn).get(job_id, node_id)
        if node is None:
            raise await missing_node(conn, job_id, node_id)
    return ctx, node


async def _answer(ctx: Context, value: Any, ref: Any, nothing: str, *, may_be_null: bool = False) -> Response:
    """Return a value from its row or from its blob; what is not there is an error before the first byte.

    An answer whose value turns out damaged after that breaks off before its last byte.
    """
    if ref is None:
        if value is None and not may_be_null:
            raise NotFound(nothing)
        return Response(canonical_json(value), media_type="application/json")
    stored = PayloadRef.model_validate(ref)
    if stored.size_bytes <= HELD_BYTES:
        return Response(await ctx.desk.store.get(stored), media_type="application/json")
    parts = ctx.desk.store.stream(stored)
    first = await anext(parts, b"")
    headers = {"Content-Length": str(stored.size_bytes)}
    return StreamingResponse(_joined(first, parts), headers=headers, media_type="application/json")


async def _joined(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part
