"""Measures both adapters of the task queue side by side: the queue in PostgreSQL, and Service Bus behind its relay.

Latency: one message at a time, from the commit that sends it to the moment a waiting receiver in another process has
it. Rate: many messages, sent in transactions of a hundred, until the last one is received and completed. The relay
runs in the sender's process, as in an orchestrator; Service Bus is the peer that `geodag up --queue servicebus` runs.

    python -m bench.queue [--latency N] [--rate N] [--json FILE]
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import uvloop
from psycopg import AsyncConnection

from bench.measures import percentile
from cli.stack import servicebus
from cli.stack.cluster import LOCAL_CONFIG, Cluster
from cli.stack.credentials import ensure_credentials
from cli.stack.files import PRIVATE, write_json
from cli.stack.layout import DATABASE, REPOSITORY
from cli.stack.ports import HOST, choose_ports
from cli.stack.processes import wait_until
from cli.stack.stack import listens
from core.handlers_catalog import LIGHT_QUEUE
from core.ports import TaskReceiver
from core.wire import TaskMessage
from messaging.postgres import PostgresTaskQueue, PostgresTaskReceiver
from messaging.relay import Relay
from messaging.servicebus import ServiceBus
from messaging.servicebus_tasks import ServiceBusTaskReceiver
from messaging.settings import QueueSettings
from repositories import roles
from repositories.database import AsyncPool, async_pool, listen, transaction
from repositories.engine_pool import queue_connection

ADAPTERS: Final = ("postgres", "servicebus")
WARM_UP: Final = 30
BATCH: Final = 100
TOGETHER: Final = 32
"""Messages at a time for the receiver, the light worker's free slots."""
READY: Final = "ready"
Arrival = tuple[str, float]
"""Message id, and when it came by the machine's monotonic clock."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database and a broker to measure at."""

    settings: dict[str, Any]
    """Of `QueueSettings`, without user and password."""
    passwords: dict[str, str]

    def of(self, role: str) -> QueueSettings:
        """Return the settings of a process."""
        return QueueSettings.model_validate(
            self.settings | {"postgres_user": role, "postgres_password": self.passwords[role]}
        )


@contextlib.contextmanager
def place(folder: Path) -> Iterator[Place]:
    """Start a database and a peer, and end them."""
    ports = choose_ports(("postgres", "servicebus"), {})
    credentials, key = ensure_credentials(folder), secrets.token_urlsafe(32)
    cluster = Cluster(folder, ports["postgres"], config=LOCAL_CONFIG)
    cluster.start()
    cluster.deploy(credentials.passwords)
    settings_file = folder / "servicebus.json"
    write_json(settings_file, servicebus.settings(key, 60.0), PRIVATE)
    peer = subprocess.Popen(servicebus.argv(ports["servicebus"], settings_file), cwd=REPOSITORY)
    try:
        wait_until(lambda: listens(ports["servicebus"]), 30)
        yield Place(
            {
                "postgres_host": HOST,
                "postgres_port": ports["postgres"],
                "postgres_db": DATABASE,
                "service_bus_connection_string": servicebus.connection_string(ports["servicebus"], key),
            },
            credentials.passwords,
        )
    finally:
        peer.terminate()
        peer.wait(10)
        cluster.stop()


def message(number: int, run: str) -> TaskMessage:
    """Return a message of about half a kilobyte."""
    return TaskMessage(
        task_id=f"{run}_n{number}_0",
        job_id=run,
        node_id=f"n{number}",
        attempt=0,
        dispatch_no=1,
        handler="echo",
        queue=LIGHT_QUEUE,
        params={"text": "x" * 250},
        timeout_seconds=60,
        token="00" * 16,
    )


def receiver_of(adapter: str, settings: QueueSettings) -> TaskReceiver:
    """Return the receiving side of an adapter, as a worker has it."""
    if adapter == "servicebus":
        bus = ServiceBus.of(settings)
        return ServiceBusTaskReceiver(bus.reader(LIGHT_QUEUE), closing=bus.close)
    return postgres_receiver(settings)


def postgres_receiver(settings: QueueSettings) -> PostgresTaskReceiver:
    """Return the receiving side of the embedded queue, which is the relay's too."""

    async def connect() -> AsyncConnection[Any]:
        return await queue_connection(settings.conninfo, name="bench", pooled=False)

    async def connect_to_listen() -> AsyncConnection[Any]:
        return await listen(settings.listen_conninfo, name="bench")

    return PostgresTaskReceiver(connect, connect_to_listen, queue=LIGHT_QUEUE, consumer_id=os.urandom(8).hex())


def receive(adapter: str, settings: QueueSettings, told: Connection) -> None:
    """Be the other process: receive, complete and tell, until the pipe says stop."""
    uvloop.run(_receive(adapter, settings, told))


async def _receive(adapter: str, settings: QueueSettings, told: Connection) -> None:
    receiver = receiver_of(adapter, settings)
    while not receiver.hears:
        await receiver.receive(TOGETHER, 0.1)
    told.send(READY)
    while not told.poll():
        deliveries = await receiver.receive(TOGETHER, 0.5)
        if deliveries:
            now = time.monotonic()
            await receiver.complete(deliveries)
            told.send([(one.message_id, now) for one in deliveries])
    await receiver.close()


class Side:
    """The sender of one adapter, and the receiver's reports."""

    def __init__(self, pool: AsyncPool, told: Connection) -> None:
        self._pool = pool
        self._told = told

    async def arrivals(self, count: int) -> list[Arrival]:
        """Wait for so many messages."""
        found: list[Arrival] = []
        while len(found) < count:
            found += await asyncio.to_thread(self._told.recv)
        return found

    async def send(self, messages: Sequence[TaskMessage]) -> None:
        """Send in one transaction."""
        async with transaction(self._pool) as conn:
            await PostgresTaskQueue().enqueue(conn, messages)

    async def latency(self, count: int) -> list[float]:
        """Return seconds from commit to receipt, one message at a time."""
        run, seconds = os.urandom(8).hex(), []
        for number in range(WARM_UP + count):
            await self.send([message(number, run)])
            committed_at = time.monotonic()
            ((_, came_at),) = await self.arrivals(1)
            seconds.append(came_at - committed_at)
        return seconds[WARM_UP:]

    async def rate(self, count: int) -> float:
        """Return messages a second."""
        run, began = os.urandom(8).hex(), time.monotonic()
        arriving = asyncio.create_task(self.arrivals(count))
        for first in range(0, count, BATCH):
            await self.send([message(number, run) for number in range(first, min(first + BATCH, count))])
        found = await arriving
        return count / (max(at for _, at in found) - began)


@contextlib.asynccontextmanager
async def relaying(adapter: str, settings: QueueSettings) -> AsyncIterator[None]:
    """Run the relay that an orchestrator runs, where the adapter has one."""
    if adapter != "servicebus":
        yield
        return

    async def none() -> int:
        return 0

    bus = ServiceBus.of(settings)
    relay = Relay(postgres_receiver(settings), bus, LIGHT_QUEUE, none, max_unclaimed=1_000_000)
    running = asyncio.create_task(relay.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await relay.close()
        await bus.close()


async def measure(adapter: str, at: Place, latency: int, rate: int) -> dict[str, float]:
    """Measure one adapter."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(
        target=receive, args=(adapter, at.of(roles.WORKER), there), daemon=True
    )
    other.start()
    settings = at.of(roles.ORCHESTRATOR)
    async with async_pool(settings.conninfo, name="bench", min_size=1, max_size=4) as pool, relaying(adapter, settings):
        await asyncio.to_thread(here.recv)
        side = Side(pool, here)
        seconds = await side.latency(latency)
        found = {
            "latency p50, ms": 1000 * percentile(seconds, 0.5),
            "latency p99, ms": 1000 * percentile(seconds, 0.99),
            "messages/s": await side.rate(rate),
        }
        here.send("stop")
    await asyncio.to_thread(other.join, 20)
    return found


def print_sides(sides: dict[str, dict[str, float]], write: Callable[[str], object] = sys.stdout.write) -> None:
    """Print a table, and what the broker adds."""
    rows = list(next(iter(sides.values())))
    write(f"{'':20}" + "".join(f"{name:>14}" for name in sides) + f"{'added':>14}\n")
    for row in rows:
        values = [side[row] for side in sides.values()]
        added = f"{values[-1] - values[0]:14.2f}" if row.startswith("latency") and len(values) > 1 else ""
        write(f"{row:20}" + "".join(f"{value:14.2f}" for value in values) + added + "\n")


def main() -> None:
    """Run the bench that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=int, default=300)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--json", type=Path, help="Also write the numbers here.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="geodag-bench-") as folder:
        Path(folder).chmod(0o755)
        with place(Path(folder)) as at:
            sides = {one: uvloop.run(measure(one, at, arguments.latency, arguments.rate)) for one in ADAPTERS}
    print_sides(sides)
    if arguments.json:
        arguments.json.write_text(json.dumps(sides, indent=2))


if __name__ == "__main__":
    main()
