"""A whole worker in this process, with handlers of the tests."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from psycopg import AsyncConnection
from pydantic import BaseModel, ConfigDict

from core.handler_models import AnyOutput, AnyParams
from core.handlers_catalog import CATALOG, LIGHT_QUEUE, HandlerSpec, RunMode
from core.ports import BlobRepository, TaskReceiver
from edge.fetching import SourceClient
from handlers.registry import IMPLEMENTATIONS
from messaging.postgres import PostgresTaskReceiver
from repositories.blobs import open_blobs
from repositories.database import async_pool, listen
from tests.integration.worker.conftest import Orchestrator
from worker.app import Outside, Worker
from worker.main import service_bus_receiver
from worker.settings import WorkerSettings
from worker.transactions import fenced

HERE = Path(__file__).parent


class DoubledOutput(BaseModel):
    model_config = ConfigDict(extra="forbid")
    blob_path: str


class Numbers(BaseModel):
    ratio: float


def _spec(name: str, output: type[BaseModel] = AnyOutput, staged: Iterable[str] = ()) -> HandlerSpec:
    return HandlerSpec(name, LIGHT_QUEUE, RunMode.SUBPROCESS, AnyParams, output, staged=tuple(staged))


SPECS = (
    _spec("hang"),
    _spec("wait_for_cancel"),
    _spec("litter"),
    _spec("kill_itself"),
    _spec("answer"),
    _spec("look_around"),
    _spec("allocate"),
    _spec("write_file", DoubledOutput, ["source"]),
    _spec("link_out", DoubledOutput),
    HandlerSpec("inline.stubborn", LIGHT_QUEUE, RunMode.INLINE, AnyParams, AnyOutput),
    HandlerSpec("inline.deaf", LIGHT_QUEUE, RunMode.INLINE, AnyParams, AnyOutput),
    HandlerSpec("inline.answer", LIGHT_QUEUE, RunMode.INLINE, AnyParams, AnyOutput),
    HandlerSpec("inline.find", LIGHT_QUEUE, RunMode.INLINE, AnyParams, AnyOutput),
    HandlerSpec("inline.cleanup", LIGHT_QUEUE, RunMode.INLINE, AnyParams, AnyOutput),
    HandlerSpec("inline.numbers", LIGHT_QUEUE, RunMode.INLINE, AnyParams, Numbers),
    HandlerSpec("inline.write", LIGHT_QUEUE, RunMode.INLINE, AnyParams, AnyOutput, database=True),
)
CATALOG_OF_TEST = {**CATALOG, **{spec.name: spec for spec in SPECS}}
TARGETS = {
    **IMPLEMENTATIONS,
    **{spec.name: f"jail_handlers:{spec.name}" for spec in SPECS if spec.mode is RunMode.SUBPROCESS},
    "inline.stubborn": "tests.integration.worker.inline_handlers:stubborn",
    "inline.deaf": "tests.integration.worker.inline_handlers:deaf",
    "inline.answer": "tests.integration.worker.inline_handlers:answer",
    "inline.find": "tests.integration.worker.inline_handlers:find",
    "inline.cleanup": "tests.integration.worker.inline_handlers:cleanup",
    "inline.numbers": "tests.integration.worker.inline_handlers:numbers",
    "inline.write": "tests.integration.worker.inline_handlers:write",
}


class Run:
    """A running worker and its way out."""

    def __init__(self, worker: Worker, task: asyncio.Task[None], stop: asyncio.Event) -> None:
        self.worker = worker
        self.task = task
        self.stop = stop

    async def drain(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, 6)

    async def health(self, path: str = "health") -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.worker.health_port}/{path}") as response,
        ):
            return response.status, await response.json()


@asynccontextmanager
async def running(
    blobs: BlobRepository | None = None, sources: SourceClient | None = None, **changes: Any
) -> AsyncIterator[Run]:
    settings = WorkerSettings.load().model_copy(update=changes)

    async def connect() -> AsyncConnection[Any]:
        return await listen(settings.conninfo(), name="test-worker")

    async with async_pool(settings.conninfo(), name="test-worker", min_size=0) as pool:
        receiver: TaskReceiver
        if settings.uses_service_bus:
            receiver = service_bus_receiver(settings)
        else:
            receiver = PostgresTaskReceiver(
                connect, connect, queue=settings.worker_queue, consumer_id=os.urandom(4).hex(), lock_seconds=5
            )
        mine = open_blobs(settings)
        outside = Outside(
            receiver=receiver,
            blobs=blobs or mine,
            open_transaction=fenced(pool),
            catalog=CATALOG_OF_TEST,
            implementations=TARGETS,
            sources=sources,
            import_paths=(str(HERE),),
            listens=lambda: receiver.hears,
        )
        worker, stop = Worker(settings, outside, logging.getLogger("worker")), asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        run = Run(worker, task, stop)
        try:
            yield run
        finally:
            if not task.done():
                await run.drain()
            await mine.close()


def checkpoints(orchestrator: Orchestrator) -> dict[str, Any]:
    """Return every checkpoint that came with a beat, by task."""
    return {beat.task_id: beat.checkpoint for call in orchestrator.beats for beat in call.beats if beat.checkpoint}
