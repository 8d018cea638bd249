"""Sources behind URLs, fetched from a real host: the credential as it is, every hop through the guard."""

import hashlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from core.errors import Classification, GeodagError
from core.outgoing import OutgoingPolicy
from core.ports import BlobRef, BlobRepository
from edge.fetching import SourceClient
from tests.support.storage import Storage

COPY = BlobRef("bronze", "fetched/a/0/r1/task/dem.tif")
LOCAL = OutgoingPolicy(allow_loopback=True)
SECRET = "sig=SECRET-aa11"


@dataclass
class Host:
    """A partner's storage: answers by path."""

    url: str = ""
    seen: list[str] = field(default_factory=list)
    """Raw paths with queries, as they came over the wire."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.raw_path)
        kind, _, rest = request.match_info["what"].partition("-")
        match kind:
            case "file":
                return web.Response(body=b"pixels", headers={"ETag": '"e1"', "Set-Cookie": "a=b"})
            case "empty":
                return web.Response(body=b"")
            case "large":
                response = web.StreamResponse()
                await response.prepare(request)
                for _ in range(30):
                    await response.write(b"x" * 100)
                return response
            case "short":
                response = web.StreamResponse(headers={"Content-Length": "1000"})
                await response.prepare(request)
                await response.write(b"x" * 10)
                assert request.transport is not None
                request.transport.close()
                return response
            case "status":
                return web.Response(status=int(rest))
            case "hop":
                left = int(rest)
                return web.Response(status=302, headers={"Location": f"/hop-{left - 1}" if left else "/file"})
            case _:
                return web.Response(status=307, headers={"Location": request.query["to"]})


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made = Host()
    app = web.Application()
    app.router.add_get("/{what}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.mark.parametrize("query", ["sig=ab%2Bcd%2Fef%3D", "sig=ab+cd/ef=", None])
async def test_the_host_sees_the_credential_byte_for_byte(host: Host, blobs: BlobRepository, query: str | None) -> None:
    copy = await SourceClient(LOCAL, blobs, 1000).fetch(f"{host.url}/file", query, COPY)
    assert host.seen == ["/file" if query is None else f"/file?{query}"]
    assert (copy.size_bytes, copy.sha256, copy.etag) == (6, hashlib.sha256(b"pixels").hexdigest(), '"e1"')
    assert await blobs.read(COPY, 100) == b"pixels"


async def test_redirects_are_followed_three_times_and_never_with_the_credential(
    host: Host, blobs: BlobRepository
) -> None:
    client = SourceClient(LOCAL, blobs, 1000)
    await client.fetch(f"{host.url}/hop-2", SECRET, COPY)
    assert host.seen == [f"/hop-2?{SECRET}", "/hop-1", "/hop-0", "/file"]
    with pytest.raises(GeodagError) as refused:
        await client.fetch(f"{host.url}/hop-3", SECRET, BlobRef("bronze", "other"))
    assert refused.value.detail.code == "SOURCE_URL_FORBIDDEN"


@pytest.mark.parametrize(
    ("path", "code", "kind"),
    [
        ("status-403", "SOURCE_FORBIDDEN", Classification.PERMANENT),
        ("status-401", "SOURCE_FORBIDDEN", Classification.PERMANENT),
        ("status-404", "FILE_NOT_FOUND", Classification.PERMANENT),
        ("status-418", "FILE_UNREADABLE", Classification.PERMANENT),
        ("status-500", "SOURCE_UNAVAILABLE", Classification.TRANSIENT),
        ("status-429", "THROTTLED", Classification.THROTTLING),
        ("short", "SOURCE_UNAVAILABLE", Classification.TRANSIENT),
        ("empty", "FILE_EMPTY", Classification.PERMANENT),
        ("large", "FILE_TOO_LARGE", Classification.PERMANENT),
    ],
)
async def test_what_is_not_delivered_leaves_nothing_and_says_nothing_of_the_credential(
    host: Host, blobs: BlobRepository, storage: Storage, path: str, code: str, kind: Classification
) -> None:
    with pytest.raises(GeodagError) as refused:
        await SourceClient(LOCAL, blobs, 1000).fetch(f"{host.url}/{path}", SECRET, COPY)
    assert (refused.value.detail.code, refused.value.detail.classification) == (code, kind)
    assert "SECRET" not in refused.value.detail.model_dump_json() + repr(refused.value.__context__)
    assert storage.paths() == set()


class Rebinding(AbstractResolver):
    """A name that leads to a public address when it is looked at, and inside when it is used."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]
        return [{"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1"])
async def test_a_name_that_leads_inside_is_not_connected_to(blobs: BlobRepository, address: str) -> None:
    client = SourceClient(OutgoingPolicy(), blobs, 1000, Rebinding(address))
    with pytest.raises(GeodagError) as refused:
        await client.fetch("https://data.example.org/dem.tif", SECRET, COPY)
    assert refused.value.detail.code == "SOURCE_URL_FORBIDDEN"


@pytest.mark.parametrize(
    "to",
    [
        "http://10.0.0.5/",
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00::1]/",
        "https://2130706433/",
        "https://0x7f.0.0.1/",
        "file:///etc/passwd",
        "gopher://data.example.org/",
        "https://user:pw@data.example.org/",
        "https://[::1",
    ],
)
async def test_a_redirect_that_leads_inside_is_not_followed(
    host: Host, blobs: BlobRepository, storage: Storage, to: str
) -> None:
    with pytest.raises(GeodagError) as refused:
        await SourceClient(LOCAL, blobs, 1000).fetch(f"{host.url}/to", f"to={to}", COPY)
    assert refused.value.detail.code == "SOURCE_URL_FORBIDDEN"
    assert (len(host.seen), storage.paths()) == (1, set())


async def test_a_redirect_from_outside_to_a_name_that_is_rebound_is_refused_too(blobs: BlobRepository) -> None:
    resolver = Rebinding("127.0.0.1")
    with pytest.raises(GeodagError) as refused:
        await SourceClient(OutgoingPolicy(), blobs, 1000, resolver).fetch("https://rebound.example.org/a", None, COPY)
    assert refused.value.detail.code == "SOURCE_URL_FORBIDDEN"
