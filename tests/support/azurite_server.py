"""Azurite as tests run it: a real server on a free port, in memory, with a key of its own."""

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from azure.storage import blob
from azure.storage.blob.aio import BlobServiceClient

from cli.stack.azurite import Azurite, check_installed
from cli.stack.ports import HOST, choose_ports
from repositories.blob_names import CONTAINERS
from repositories.blobs_azure import PART_BYTES
from tests.support.waiting import wait_until

START_SECONDS = 30.0


@contextmanager
def running(
    log: Path, certificate: Path | None = None, private_key: Path | None = None, *, an_account_a_zone: bool = True
) -> Iterator[Azurite]:
    """Yield a server that answers; it is ended afterwards. With TLS it has an account for each zone, unless told."""
    check_installed()
    port = choose_ports(("azurite",), {})["azurite"]
    more = () if certificate is None or not an_account_a_zone else tuple(f"geodagtest{zone}" for zone in CONTAINERS)
    made = Azurite(
        "geodagtest", secrets.token_bytes(64), port, certificate=certificate, private_key=private_key, more=more
    )
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


def of_zones(azurite: Azurite) -> dict[str, Azurite]:
    """Return the account of each zone: its own where the server has several."""
    return {
        zone: replace(azurite, account=f"{azurite.account}{zone}") if azurite.more else azurite for zone in CONTAINERS
    }


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


def store(azurite: Azurite, path: str, source: Path) -> None:
    """Put a file in the place of whatever lies under a path."""
    container, _, name = path.partition("/")
    ca = None if azurite.certificate is None else str(azurite.certificate)
    with (
        blob.BlobServiceClient.from_connection_string(
            azurite.connection_string,
            connection_verify=ca or True,
            max_block_size=PART_BYTES,
            max_single_put_size=PART_BYTES,
        ) as service,
        source.open("rb") as content,
    ):
        service.get_blob_client(container, name).upload_blob(content, overwrite=True, max_concurrency=2)


def _service(azurite: Azurite) -> BlobServiceClient:
    ca = None if azurite.certificate is None else str(azurite.certificate)
    return BlobServiceClient.from_connection_string(azurite.connection_string, connection_verify=ca or True)


@asynccontextmanager
async def emptied(azurite: Azurite) -> AsyncIterator[None]:
    """Make the containers of the zones where they are missing; at the end of the block they hold nothing."""
    async with AsyncExitStack() as stack:
        zones = []
        for name, account in of_zones(azurite).items():
            zones.append((await stack.enter_async_context(_service(account))).get_container_client(name))
            if not await zones[-1].exists():
                await zones[-1].create_container()
        yield
        for container in zones:
            async for blob in container.list_blob_names():
                await container.delete_blob(blob)
