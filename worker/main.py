"""Composition root of a worker: `python -m worker.main`."""

import asyncio
import logging
import os
import signal
import sys

import uvloop
from psycopg import AsyncConnection

from core.errors import GeodagError
from core.handlers_catalog import CATALOG
from core.outgoing import OutgoingPolicy
from core.ports import BlobRepository, ExternalExport, TaskReceiver
from edge.fetching import SourceClient
from edge.heap import settle_heap
from handlers.registry import IMPLEMENTATIONS
from messaging.postgres import PostgresTaskReceiver
from repositories.blobs import open_blobs
from repositories.data_factory import RESOURCE, DataFactoryExport
from repositories.database import async_pool, listen
from repositories.engine_pool import queue_connection
from repositories.external_zone import CopyExport
from repositories.logs import setup_logging
from worker.app import Outside, Worker
from worker.settings import WorkerSettings
from worker.state_dir import FolderTaken
from worker.transactions import fenced

_EXIT_SECONDS = 5.0
_BAD_SETTINGS = 78


async def serve(settings: WorkerSettings) -> None:
    """Run a worker until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _leave, loop, stop)
    name = f"geodag-worker-{settings.worker_type}"
    async with async_pool(settings.conninfo, name=name, min_size=0, max_size=4) as pool:

        async def connect() -> AsyncConnection:
            return await queue_connection(settings.conninfo, name=f"{name}-queue", pooled=settings.is_pooled)

        async def connect_to_listen() -> AsyncConnection:
            return await listen(settings.listen_conninfo, name=f"{name}-listener")

        receiver: TaskReceiver
        if settings.uses_service_bus:
            receiver = service_bus_receiver(settings)
        else:
            receiver = PostgresTaskReceiver(
                connect, connect_to_listen, queue=settings.worker_queue, consumer_id=os.urandom(8).hex()
            )
        blobs = open_blobs(settings)
        policy = OutgoingPolicy(allow_loopback=settings.source_allow_loopback)
        outside = Outside(
            receiver=receiver,
            blobs=blobs,
            sources=SourceClient(policy, blobs, settings.source_max_bytes),
            open_transaction=fenced(pool),
            external=external_zone(settings, blobs),
            catalog=CATALOG,
            implementations=IMPLEMENTATIONS,
            listens=lambda: receiver.hears,
        )
        try:
            await Worker(settings, outside, logging.getLogger("worker")).run(stop)
        finally:
            await blobs.close()


def service_bus_receiver(settings: WorkerSettings) -> TaskReceiver:
    """Return the receiver of a worker at Service Bus; a process without one does not pay for the SDK."""
    from messaging.servicebus import ServiceBus
    from messaging.servicebus_tasks import ServiceBusTaskReceiver

    bus = ServiceBus.of(settings)
    return ServiceBusTaskReceiver(bus.reader(settings.worker_queue), closing=bus.close)


def external_zone(settings: WorkerSettings, blobs: BlobRepository) -> ExternalExport:
    """Return what copies public versions outside: the factory that the settings name, or ourselves."""
    identity = settings.identity
    if settings.adf_factory_id is None or identity is None:
        return CopyExport(blobs)

    async def token() -> str:
        return (await asyncio.to_thread(identity.token, RESOURCE)).text

    return DataFactoryExport(blobs, settings.adf_factory_id, settings.adf_pipeline, token, settings.adf_endpoint)


def _leave(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Begin to drain; when that takes longer than it may, end anyway: leases and locks run out by themselves."""
    if not stop.is_set():
        stop.set()
        loop.call_later(_EXIT_SECONDS, os._exit, 1)


def main() -> None:
    """Read the settings and serve."""
    try:
        settings = WorkerSettings.load()
    except GeodagError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_BAD_SETTINGS) from None
    setup_logging(settings.log_level, settings.log_format, f"worker-{settings.worker_type}")
    settle_heap()
    try:
        uvloop.run(serve(settings))
    except FolderTaken as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_BAD_SETTINGS) from None


if __name__ == "__main__":
    main()
