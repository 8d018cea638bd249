"""Azurite as tests run it: a real server on a free port, in memory, with a key of its own."""

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from azure.storage.blob.aio import BlobServiceClient

from cli.stack.azurite import Azurite
from cli.stack.ports import HOST, choose_ports
from repositories.blob_names import CONTAINERS
from tests.support.waiting import wait_until

START_SECONDS = 30.0


@contextmanager
def running(log: Path, certificate: Path | None = None, private_key: Path | None = None) -> Iterator[Azurite]:
    """Yield a server that answers; it is ended afterwards."""
    port = choose_ports(("azurite",), {})["azurite"]
    made = Azurite("geodagtest", secrets.token_bytes(64), port, certificate=certificate, private_key=private_key)
    environment = {"PATH": os.environ["PATH"], **made.environment()}
    with log.open("wb") as output:
        child = subprocess.Popen(made.argv(), env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: listens(port) or child.poll() is not None, "Azurite listens", START_SECONDS)
        assert child.poll() is None, log.read_text()
        yield made
    finally:
        child.terminate()
        child.wait(10)


def listens(port: int) -> bool:
    """Return whether somebody accepts connections at a port of this machine."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


async def names(azurite: Azurite) -> list[str]:
    """Return every blob of the zones, as container/name."""
    found = []
    async with _service(azurite) as service:
        for zone in CONTAINERS:
            found += [f"{zone}/{name}" async for name in service.get_container_client(zone).list_blob_names()]
    return sorted(found)


async def fetched(azurite: Azurite, path: str, scratch: Path) -> Path:
    """Return a local copy of a blob."""
    container, _, name = path.partition("/")
    target = scratch / f"fetched-{secrets.token_hex(8)}{Path(name).suffix}"
    async with _service(azurite) as service:
        content = await (await service.get_blob_client(container, name).download_blob()).readall()
    await asyncio.to_thread(target.write_bytes, content)
    return target


def _service(azurite: Azurite) -> BlobServiceClient:
    ca = None if azurite.certificate is None else str(azurite.certificate)
    return BlobServiceClient.from_connection_string(azurite.connection_string, connection_verify=ca or True)


@asynccontextmanager
async def emptied(azurite: Azurite) -> AsyncIterator[None]:
    """Make the containers of the zones where they are missing; at the end of the block they hold nothing."""
    async with _service(azurite) as service:
        there = [found.name async for found in service.list_containers()]
        for name in CONTAINERS.difference(there):
            await service.create_container(name)
        yield
        for name in CONTAINERS:
            container = service.get_container_client(name)
            async for blob in container.list_blob_names():
                await container.delete_blob(blob)
