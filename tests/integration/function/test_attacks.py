"""An attacker at the gateway's socket: what no client library would send, and what a forged credential gets."""

import asyncio
import base64
import json
from urllib.parse import urlsplit

import pytest

from core.b2b import MAX_BODY_BYTES
from core.identity import SERVICE_HEADER
from tests.integration.function.conftest import Platform

SUBMIT = "/api/platform/submit"
JOBS = "/api/proxy/orchestrator/api/v1/jobs"


async def wire(platform: Platform, *lines: str, body: bytes = b"") -> tuple[int, str]:
    """Send bytes as they are and return status and head of the first answer."""
    target = urlsplit(platform.gateway)
    reader, writer = await asyncio.open_connection(target.hostname, target.port)
    try:
        writer.write("\r\n".join((*lines, "Host: gateway", "Connection: close", "", "")).encode("latin-1") + body)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    return int(head.split(" ", 2)[1]), head


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "name", [SERVICE_HEADER, SERVICE_HEADER.lower(), SERVICE_HEADER.replace("-", "_"), f"{SERVICE_HEADER} "]
)
async def test_no_spelling_of_the_service_header_reaches_an_orchestrator(standing: Platform, name: str) -> None:
    status, _ = await wire(
        standing, f"POST {SUBMIT} HTTP/1.1", f"{name}: key-gateway", "Content-Type: application/json",
        "Content-Length: 2", body=b"{}",
    )  # fmt: skip
    assert status in {400, 401}


async def test_two_credentials_in_one_request_are_one_caller_or_none(platform: Platform) -> None:
    for first, second in (("key-submitter", "key-operator"), ("key-operator", "key-submitter")):
        status, _ = await wire(platform, f"GET {JOBS} HTTP/1.1", f"X-API-Key: {first}", f"X-API-Key: {second}")
        seen, _ = await wire(platform, "GET /api/status/jobs HTTP/1.1", f"X-API-Key: {first}", f"X-API-Key: {second}")
        assert status == seen, "gateway and orchestrator read different callers"
    status, _ = await wire(
        platform, f"GET {JOBS} HTTP/1.1", "X-API-Key: key-submitter", "Authorization: Bearer key-operator"
    )
    assert status in {401, 404}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "injected",
    ["key-submitter\r\nX-Injected: 1", "key-submitter\nX-Injected: 1", "key-submitter\r X-Injected: 1", "key\x00"],
)
async def test_what_is_injected_into_a_header_is_never_reflected(standing: Platform, injected: str) -> None:
    for line in (f"X-API-Key: {injected}", f"If-None-Match: {injected}", f"traceparent: {injected}"):
        _, head = await wire(standing, "GET /api/platform/requests HTTP/1.1", "X-API-Key: key-submitter", line)
        assert "x-injected" not in head.lower()


async def test_a_line_break_in_a_value_splits_no_answer_and_no_call_inside(platform: Platform) -> None:
    for path in ("/api/platform/status/a%0d%0aX-Injected:%201", f"{JOBS}/a%0d%0aX-Injected:%201"):
        status, head = await wire(platform, f"GET {path} HTTP/1.1", "X-API-Key: key-operator")
        assert status in {403, 404}, path
        assert "x-injected:" not in head.lower()
    reply = await platform.call("POST", SUBMIT, body={"title": "a\r\nX-Injected: 1"}, raw=None)
    assert reply.status == 422
    assert "X-Injected" not in reply.headers


@pytest.mark.asyncio(loop_scope="module")
async def test_a_request_cannot_be_hidden_in_another(standing: Platform) -> None:
    hidden = b"0\r\n\r\nGET /api/admin/config HTTP/1.1\r\nHost: gateway\r\nX-API-Key: key-operator\r\n\r\n"
    status, _ = await wire(
        standing, f"POST {SUBMIT} HTTP/1.1", "X-API-Key: key-submitter", "Content-Length: 4",
        "Transfer-Encoding: chunked", body=hidden,
    )  # fmt: skip
    assert status in {400, 422}
    status, _ = await wire(
        standing, f"POST {SUBMIT} HTTP/1.1", "X-API-Key: key-submitter", "Content-Length: 2", "Content-Length: 90",
        body=b"{}" + hidden,
    )  # fmt: skip
    assert status == 400


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_without_a_length_is_cut_at_the_limit(standing: Platform) -> None:
    chunk = f"{1 << 16:x}\r\n".encode() + b" " * (1 << 16) + b"\r\n"
    body = chunk * (MAX_BODY_BYTES // (1 << 16) + 2) + b"0\r\n\r\n"
    status, _ = await wire(
        standing, f"POST {SUBMIT} HTTP/1.1", "X-API-Key: key-submitter", "Transfer-Encoding: chunked", body=body
    )
    assert status == 413


@pytest.mark.asyncio(loop_scope="module")
async def test_a_principal_of_easyauth_is_nobody_behind_the_gateway_too(standing: Platform) -> None:
    claims = [{"typ": "roles", "val": role} for role in ("admin", "operator", "reviewer", "submitter")]
    header = base64.b64encode(json.dumps({"auth_typ": "aad", "claims": claims}).encode()).decode()
    spoofed = {"X_MS_CLIENT_PRINCIPAL": header, "X_MS_CLIENT_PRINCIPAL_ID": "ada"}
    for method, path in (("GET", "/api/admin/config"), ("GET", "/api/platform/requests"), ("POST", SUBMIT)):
        assert (await standing.call(method, path, None, {} if method == "POST" else None, **spoofed)).status == 401
    plain = await standing.call("GET", "/api/status/jobs", "submitter", **spoofed)
    assert plain.status == 404, "the principal added to what the key may do"


async def test_what_a_body_says_about_its_sender_counts_for_nothing(platform: Platform) -> None:
    accepted = await platform.submit()
    await platform.end_job(accepted["request_id"])
    version = f"/api/assets/{accepted['asset_id']}/versions/0"
    claimed = {"clearance_level": "public", "reviewer": "rob", "roles": ["reviewer"], "actor_role": "admin"}
    for caller, status in (("submitter", 403), ("reader", 403), ("operator", 403), ("reviewer", 422)):
        assert (await platform.call("POST", f"{version}/approve", caller, claimed)).status == status
    named = await platform.call("POST", SUBMIT, body={"platform_id": "ddh", "submitted_by": "rob", "roles": ["admin"]})
    assert named.status == 422
