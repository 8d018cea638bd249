"""An orchestrator that takes Entra tokens: both credentials, real signatures, and no way around them."""

import base64
import json
from typing import Any

import pytest
from pydantic import ValidationError

from core.identity import SERVICE_HEADER
from orchestrator.settings import OrchestratorSettings
from repositories.settings import SettingsError
from tests.integration.orchestrator.conftest import StartOrchestrator
from tests.support.doors import Door
from tests.support.tokens import AUDIENCE, ISSUER, SigningKey, provider

KEY = SigningKey("one")


def entra(url: str) -> dict[str, Any]:
    return {"identity_mode": "entra", "entra_issuer": ISSUER, "entra_audience": AUDIENCE, "entra_jwks_url": url}


async def create(door: Door, **headers: str) -> tuple[int, str]:
    """Ask for a job with exactly these headers; returns status and code."""
    body = {"workflow_id": "echo_test", "inputs": {}}
    async with door.session.post(f"{door.base}/api/v1/jobs", json=body, headers=headers) as answer:
        return answer.status, str((await answer.json()).get("code", ""))


async def test_tokens_open_the_door_with_the_gateways_beside_them(start: StartOrchestrator) -> None:
    async with provider(KEY) as source, start(**entra(source.url)) as door:
        caller = {"Authorization": f"Bearer {KEY.token(roles=['operator'])}"}
        gateway = {SERVICE_HEADER: KEY.token(oid="gateway", roles=["gateway"])}
        assert await create(door, **caller, **gateway) == (202, "")
        assert await create(door, **caller) == (401, "UNAUTHENTICATED")
        assert await create(door, **gateway) == (401, "UNAUTHENTICATED")
        assert await create(door, **caller, **{SERVICE_HEADER: KEY.token(roles=["operator"])}) == (
            401,
            "UNAUTHENTICATED",
        )
        weak = {"Authorization": f"Bearer {KEY.token(roles=['reviewer'])}"}
        assert await create(door, **weak, **gateway) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "claims",
    [{"exp": 1}, {"aud": "api://other"}, {"iss": "https://evil.example"}],
    ids=["expired", "audience", "issuer"],
)
async def test_a_wrong_token_is_refused_over_http(start: StartOrchestrator, claims: dict[str, Any]) -> None:
    async with provider(KEY) as source, start(**entra(source.url)) as door:
        gateway = {SERVICE_HEADER: KEY.token(oid="gateway", roles=["gateway"])}
        wrong = {"Authorization": f"Bearer {KEY.token(**claims)}"}
        assert await create(door, **wrong, **gateway) == (401, "UNAUTHENTICATED")


async def test_a_spoofed_principal_is_nobody(start: StartOrchestrator) -> None:
    claims = [{"typ": "oid", "val": "eve"}, {"typ": "roles", "val": "operator"}]
    header = {"X-MS-CLIENT-PRINCIPAL": base64.b64encode(json.dumps({"claims": claims}).encode()).decode()}
    async with provider(KEY) as source, start(**entra(source.url)) as door:
        gateway = {SERVICE_HEADER: KEY.token(oid="gateway", roles=["gateway"])}
        assert await create(door, **header, **gateway) == (401, "UNAUTHENTICATED")


async def test_without_the_providers_keys_a_token_is_answered_503_and_an_api_key_still_works(
    start: StartOrchestrator,
) -> None:
    async with provider(KEY) as source:
        source.down = True
        async with start(**entra(source.url)) as door:
            with_token = {"Authorization": f"Bearer {KEY.token()}", SERVICE_HEADER: "key-gateway"}
            assert await create(door, **with_token) == (503, "IDENTITY_UNAVAILABLE")
            assert await create(door, **{"X-API-Key": "key-operator", SERVICE_HEADER: "key-gateway"}) == (202, "")


def test_an_incomplete_mode_stops_the_start(settings: OrchestratorSettings) -> None:
    facts = settings.model_dump()
    with pytest.raises(ValidationError, match="ENTRA_AUDIENCE, ENTRA_JWKS_URL required"):
        OrchestratorSettings(**{**facts, "identity_mode": "entra", "entra_issuer": ISSUER})
    with pytest.raises(ValidationError, match="API_KEYS_FILE is required"):
        OrchestratorSettings(**{**facts, "api_keys_file": None})
    with pytest.raises(ValidationError, match="should match pattern"):
        OrchestratorSettings(**{**facts, **entra("http://elsewhere.example/keys")})


async def test_easyauth_where_the_platform_is_not_in_front_stops_the_start(start: StartOrchestrator) -> None:
    asked = {**entra("https://login.example/keys"), "identity_mode": "easyauth"}
    with pytest.raises(SettingsError, match="WEBSITE_AUTH_ENABLED"):
        async with start(**asked):
            raise AssertionError("it started")


async def test_a_key_file_that_is_none_stops_the_start_naming_the_place(
    start: StartOrchestrator, settings: OrchestratorSettings
) -> None:
    assert settings.api_keys_file is not None
    settings.api_keys_file.write_text('{"keys": [{"sha256": "short", "subject": "x", "roles": []}]}')
    with pytest.raises(SettingsError, match=r"keys\.0\.sha256"):
        async with start():
            raise AssertionError("it started")
