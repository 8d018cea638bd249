"""Requests that the OpenAPI documents allow and forbid, made by schemathesis: no 5xx, nothing that is not promised.

A few of each operation here; `scripts/schemathesis` makes more of them.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from core.identity import CALLER_HEADER, SERVICE_HEADER
from function.contract.table import openapi
from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from tests.integration.function.conftest import Platform
from tests.support.orchestrator_document import orchestrator_document

EXAMPLES: Final = os.environ.get("SCHEMATHESIS_EXAMPLES", "1")
PHASES: Final = os.environ.get("SCHEMATHESIS_PHASES", "fuzzing")
SEED: Final = os.environ.get("SCHEMATHESIS_SEED", "1")
CHECKS: Final = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance"
)
KEY: Final = "key-everybody"
MANY: Final = {
    "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
    "subject": "everybody",
    "roles": ["submitter", "reader", "reviewer", "admin", "operator"],
    "platform_id": "ddh",
}
"""A key with every role of a caller, so that more than refusals is seen."""


@pytest.fixture
def keys_file(keys_file: Path) -> Path:
    """Return the key file with the key of everybody in it."""
    keys = json.loads(keys_file.read_text())["keys"]
    keys_file.write_text(json.dumps({"keys": [*keys, MANY]}))
    return keys_file


async def play(document: Mapping[str, Any], base: str, folder: Path, headers: Mapping[str, str]) -> str:
    """Run schemathesis and return what it printed, an empty text when it found nothing."""
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    arguments = [
        "run", str(path), "--url", base, "--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", SEED,
        "--phases", PHASES, "--no-color", "--request-timeout", "30", "--no-shrink", "--continue-on-failure",
        "--suppress-health-check", "all",
        *(part for name, value in headers.items() for part in ("--header", f"{name}: {value}")),
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "schemathesis"),
        *arguments,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    (folder / "printed.txt").write_bytes(printed)
    return "" if process.returncode == 0 else printed.decode()


async def test_the_gateway_keeps_to_its_document(platform: Platform, tmp_path: Path) -> None:
    printed = await play(openapi("test", platform.gateway), platform.gateway, tmp_path, {CALLER_HEADER: KEY})
    assert printed == ""


async def test_the_orchestrator_refuses_well_whatever_is_sent(
    platform: Platform, settings: OrchestratorSettings, tmp_path: Path
) -> None:
    document = orchestrator_document(create_app(settings))
    credentials = {CALLER_HEADER: KEY, SERVICE_HEADER: "key-gateway"}
    assert await play(document, platform.orchestrator.base, tmp_path, credentials) == ""
