"""Runs one granted task, inline or in a subprocess, and turns whatever happens into a result."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pydantic_core
from pydantic import BaseModel, ValidationError

from core.documents import newer, unknown
from core.errors import Classification, ErrorDetail, Finding, GeodagError, ParameterInvalid
from core.handlers_catalog import RunMode
from core.ports import BlobRef, BlobRepository, ExternalExport
from core.wire import Json, TaskMessage, TaskResult, TaskStatus
from edge.fetching import SourceClient
from edge.peeking import peek
from handlers.context import NO_ZONE, Checkpoint, Fetch, InlineContext, Outcome, TaskCancelled, TaskInfo, no_fetch
from handlers.failures import INTERNAL, TIMEOUT, error_of, out_of_memory
from handlers.json_values import to_json
from handlers.registry import WALKS, resolve
from worker.batches import run_batch
from worker.child_process import ChildDied, Listener, PeakMemory
from worker.files import output_blob, place_scratch, stage_sidecars, staging_place
from worker.frames import BrokenFrame, Done, Log, Note, Progress, Run, Saved
from worker.journal import Journal
from worker.pool import ProcessPool, TimedOut
from worker.reuse import Reuse
from worker.state_dir import remove
from worker.tasks import RunningTask
from worker.values import TaskValues

OpenTransaction = Callable[[str, str], AbstractAsyncContextManager[Any]]
"""(task_id, token) -> a database transaction that holds the attempt's fence."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What execution needs of the worker."""

    implementations: Mapping[str, str]
    pool: ProcessPool
    blobs: BlobRepository
    values: TaskValues
    scratch: Path
    memory_bytes: int
    journal: Journal
    open_transaction: OpenTransaction
    logger: logging.Logger
    sources: SourceClient | None = None
    external: ExternalExport = NO_ZONE


@dataclass(frozen=True, slots=True)
class _Produced:
    """An outcome whose files are blobs already."""

    output: Json
    findings: tuple[Finding, ...]
    metrics: Json


class HandlerFailed(GeodagError):
    """A subprocess reported an error; it is passed on as it is."""

    def __init__(self, detail: ErrorDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail


class Executor:
    """Runs tasks."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def execute(self, task: RunningTask) -> TaskResult | None:
        """Return the result, or None when the handler stopped because it was told to."""
        self._tools.journal.write(f"{task.task_id} started")
        result = await (self._result(task) if task.message.items is None else self._batch(task))
        if result is not None:
            self._tools.journal.write(f"{task.task_id} finished")
        return result

    async def _batch(self, task: RunningTask) -> TaskResult | None:
        try:
            async with _Until(task.deadline):
                message = await self._tools.values.message_of(task)
        except TimedOut:
            return _failure(task, _timeout(task.message.timeout_seconds))
        except Exception as exc:  # noqa: BLE001 - the boundary of a task, as below
            return _failure(task, error_of(exc, _adapter(self._tools.logger, task)))
        return await run_batch(task, message, self._result)

    async def _result(self, task: RunningTask) -> TaskResult | None:
        started = asyncio.get_running_loop().time()
        try:
            produced = await self._produce(task)
            output = _checked_output(task, produced.output)
            ref = None
            if (large := self._tools.values.large(task, output)) is not None:
                async with _Until(task.deadline):
                    ref = await self._tools.values.keep(task, large)
        except TaskCancelled:
            if task.stop.is_set():
                return None
            message = "the handler stopped without having been told to"
            return _failure(task, ErrorDetail(code=INTERNAL, message=message))
        except TimedOut:
            return _failure(task, _timeout(task.message.timeout_seconds))
        except Exception as exc:  # noqa: BLE001 - the boundary of a task: whatever it raises is its result
            return _failure(task, error_of(exc, _adapter(self._tools.logger, task)))
        seconds = round(asyncio.get_running_loop().time() - started, 6)
        return TaskResult(
            task_id=task.task_id,
            token=task.message.token,
            status=TaskStatus.COMPLETED,
            output=output if ref is None else None,
            output_ref=ref,
            findings=produced.findings,
            metrics={"run_seconds": seconds, **produced.metrics},
            peak_rss_bytes=task.peak_rss_bytes,
        )

    async def _produce(self, task: RunningTask) -> _Produced:
        if task.message.params_ref is not None:
            async with _Until(task.deadline):
                task.message = await self._tools.values.message_of(task)
        params = _checked_params(task)
        if task.spec.mode is RunMode.INLINE:
            return await self._run_inline(task, params)
        return await self._run_in_process(task)

    async def _run_inline(self, task: RunningTask, params: BaseModel) -> _Produced:
        handler = resolve(self._tools.implementations[task.spec.name])
        async with _Until(task.deadline):
            outcome: Outcome = await handler(self._inline_context(task), params)
        findings = tuple(Finding.model_validate(to_json(one, "findings")) for one in outcome.findings)
        return _Produced(to_json(outcome.output), findings, to_json(outcome.metrics, "metrics"))

    def _inline_context(self, task: RunningTask) -> InlineContext:
        message = task.message
        return InlineContext(
            task=_info(message),
            params=message.params,
            logger=_adapter(self._tools.logger, task),
            checkpoint=Checkpoint(task.checkpoint, task.save),
            report=lambda progress: setattr(task, "progress", to_json(progress, "progress")),
            open_transaction=lambda: self._tools.open_transaction(message.task_id, message.token),
            write_journal=self._tools.journal.write,
            stop=task.stop,
            fetch=self._fetch_of(task),
            external=self._tools.external,
        )

    def _fetch_of(self, task: RunningTask) -> Fetch:
        """Return the guarded client for handlers that fetch, with the credential of this task's claim."""
        client = self._tools.sources
        if not task.spec.fetches or client is None:
            return no_fetch
        return lambda url, ref: client.fetch(url, task.credential, ref)

    async def _run_in_process(self, task: RunningTask) -> _Produced:
        reuse = Reuse(self._tools.blobs, self._tools.logger) if task.spec.reusable else None
        async with _Until(task.deadline):
            if reuse and (known := await reuse.find(task)):
                return _Produced(known, (), {"reused": True})
        scratch = place_scratch(self._tools.scratch, task.task_id)
        try:
            async with _Until(task.deadline):
                params = await self._staged_params(task, scratch)
            reply = await self._call_child(task, params, scratch)
            async with _Until(task.deadline):
                output = await self._upload(task, reply, scratch)
                if reuse:
                    await reuse.keep(task, output, [BlobRef.parse(output[name]) for name in reply.files])
            return _Produced(output, reply.findings, reply.metrics)
        finally:
            await asyncio.shield(asyncio.to_thread(remove, scratch))

    async def _staged_params(self, task: RunningTask, scratch: Path) -> Json:
        """Return the params with local paths in place of blob paths."""
        params = dict(task.message.params)
        for name in task.spec.staged:
            outer, _, inner = name.partition(".")
            if inner and params.get(outer) is not None:
                params[outer] = [{**one, inner: await self._stage(one[inner], scratch)} for one in params[outer]]
            elif params.get(outer) is not None:
                params[outer] = await self._stage(params[outer], scratch)
                if task.spec.sidecars:
                    await stage_sidecars(
                        self._tools.blobs, self._tools.blobs.locate(task.message.params[outer]), scratch
                    )
        return params | await self._peeked(task, scratch) if task.spec.peeked else params

    async def _stage(self, path: str, scratch: Path) -> str:
        ref = self._tools.blobs.locate(path)
        return str(await self._tools.blobs.stage(ref, staging_place(scratch, ref)))

    async def _peeked(self, task: RunningTask, scratch: Path) -> Json:
        """Return the params that name a local copy of what lies behind a URL, in a folder of its own."""
        client, params = self._tools.sources, task.message.params
        if client is None:
            raise GeodagError("this worker fetches nothing")
        target = scratch / "source" / str(params["file_name"])
        target.parent.mkdir(mode=0o700)
        walk = resolve(WALKS[task.spec.name])
        whole = await peek(client, str(params[task.spec.peeked]), task.credential, target, walk)
        return {task.spec.peeked: str(target), "whole": whole}

    async def _call_child(self, task: RunningTask, params: Json, scratch: Path) -> Done:
        loop = asyncio.get_running_loop()
        run = _run_frame(self._tools, task, params, scratch)
        try:
            reply = await self._tools.pool.run(
                run, self._listener(task), timeout_seconds=task.deadline - loop.time(), stop=task.stop
            )
        except ChildDied as exc:
            raise HandlerFailed(_death(exc)) from exc
        except BrokenFrame as exc:
            raise HandlerFailed(ErrorDetail(code=INTERNAL, message=f"the subprocess sent nonsense: {exc}")) from exc
        task.peak_rss_bytes = reply.peak_rss_bytes
        if isinstance(reply, Done):
            return reply
        raise TaskCancelled if reply.error is None else HandlerFailed(reply.error)

    def _listener(self, task: RunningTask) -> Listener:
        logger = _adapter(self._tools.logger, task)

        def listen(frame: Progress | Saved | Note | Log | PeakMemory) -> None:
            match frame:
                case PeakMemory():
                    task.peak_rss_bytes = frame.rss_bytes
                case Progress():
                    task.progress = frame.model_dump(exclude={"kind"})
                case Saved():
                    task.save(frame.model_dump(exclude={"kind"}))
                case Note():
                    self._tools.journal.write(frame.line)
                case Log():
                    logger.log(frame.level, frame.event, extra={"child_logger": frame.logger, **_log_extra(frame)})

        return listen

    async def _upload(self, task: RunningTask, reply: Done, scratch: Path) -> Json:
        """Upload the files of an outcome under names that contain the attempt; return the completed output."""
        output = dict(reply.output)
        for name, file in reply.files.items():
            source, ref = output_blob(task.message, task.place, scratch, file)
            await self._tools.blobs.upload(source, ref)
            output[name] = str(ref)
        return output


def _failure(task: RunningTask, error: ErrorDetail) -> TaskResult:
    return TaskResult(
        task_id=task.task_id,
        token=task.message.token,
        status=TaskStatus.FAILED,
        error=error,
        peak_rss_bytes=task.peak_rss_bytes,
    )


class _Until:
    """Limit the block to the task's run time; a `TimeoutError` of the block's own passes as it is."""

    __slots__ = ("_limit",)

    def __init__(self, deadline: float) -> None:
        self._limit = asyncio.timeout_at(deadline)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, raised, trace)
        except TimeoutError as exc:
            raise TimedOut from exc
        if self._limit.expired() and isinstance(raised, TimeoutError):
            raise TimedOut from raised


def _checked_params(task: RunningTask) -> BaseModel:
    """Return the params as the handler's model; JSON mode, so that a list may be a tuple and a string a date.

    The orchestrator has checked them already: what is unknown here is so because a newer build wrote it.
    """
    try:
        return task.spec.params.model_validate_json(pydantic_core.to_json(task.message.params))
    except ValidationError as exc:
        if news := unknown(exc):
            raise newer([f"params.{field}" for field in news]) from exc
        first = exc.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "params"
        raise ParameterInvalid(f"params.{field}: {first['msg']}", field=field) from exc


def _checked_output(task: RunningTask, output: Json) -> Json:
    try:
        return task.spec.output.model_validate(output).model_dump(mode="json", by_alias=True)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        where = ".".join(["output", *(str(part) for part in first["loc"])])
        message = f"handler {task.spec.name} returned an output that breaks its contract: {where}: {first['msg']}"
        raise HandlerFailed(ErrorDetail(code=INTERNAL, message=message, field=where)) from exc


def _run_frame(tools: Tools, task: RunningTask, params: Json, scratch: Path) -> Run:
    model = task.spec.params
    return Run(
        task_id=task.task_id,
        job_id=task.message.job_id,
        node_id=task.message.node_id,
        attempt=task.message.attempt,
        target=tools.implementations[task.spec.name],
        params_type=f"{model.__module__}:{model.__qualname__}",
        params=params,
        scratch=str(scratch),
        memory_bytes=task.spec.memory_bytes or tools.memory_bytes,
        checkpoint=task.checkpoint,
    )


def _death(died: ChildDied) -> ErrorDetail:
    if died.out_of_memory:
        return out_of_memory("the subprocess was stopped at its memory limit")
    return ErrorDetail(code=INTERNAL, message=str(died), classification=Classification.TRANSIENT)


def _timeout(seconds: float) -> ErrorDetail:
    message = f"the task did not end within its {seconds:g} seconds"
    return ErrorDetail(code=TIMEOUT, message=message, classification=Classification.TRANSIENT)


def _info(message: TaskMessage) -> TaskInfo:
    return TaskInfo(message.task_id, message.job_id, message.node_id, message.attempt)


def _adapter(logger: logging.Logger, task: RunningTask) -> logging.LoggerAdapter[logging.Logger]:
    message = task.message
    return _TaskLogger(
        logger,
        {"task_id": message.task_id, "job_id": message.job_id, "node_id": message.node_id, "attempt": message.attempt},
    )


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's ids to what the caller gives in `extra`."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Merge both sides; the plain adapter would drop the caller's."""
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


def _log_extra(frame: Log) -> Json:
    return {name: frame.extra[name] for name in ("error_id", "traceback", "target") if name in frame.extra}
