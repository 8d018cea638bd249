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
from tests.support.business import fresh_refs
from tests.support.orchestrator_document import orchestrator_document

Json = dict[str, Any]
EXAMPLES: Final = os.environ.get("SCHEMATHESIS_EXAMPLES", "1")
PHASES: Final = os.environ.get("SCHEMATHESIS_PHASES", "fuzzing")
SEED: Final = os.environ.get("SCHEMATHESIS_SEED", "1")
OFF: Final = (
    "positive_data_acceptance",
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",
    "unsupported_method",
)
"""Checks of schemathesis that say nothing here. What a schema allows is refused rightly where it names what is not
there, is not NFC or needs a word more in this state; credentials and methods have tests of their own."""
ONE_BY_ONE: Final = (
    "/api/platform/submit/batch",
    "/api/assets/reviews/decisions",
    "/api/v1/requests/batch",
    "/api/v1/reviews/decisions",
)
"""What is wrong in one element of these is told in its own result, so that the whole is a 200."""
CONFIG: Final = "\n".join(
    [
        *(f"[checks.{name}]\nenabled = false" for name in OFF),
        "[checks.negative_data_rejection]",
        "expected-statuses = [400, 401, 403, 404, 405, 409, 410, 413, 422, 429, 503]",
        *(
            f'[[operations]]\ninclude-path = "{path}"\n[operations.checks.negative_data_rejection]\nenabled = false'
            for path in ONE_BY_ONE
        ),
    ]
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


def pointed(document: Json, known: Mapping[str, Any]) -> Json:
    """Return a document whose places name what is there, or what could be: more than 404 is seen then."""
    document["components"].pop("securitySchemes", None)
    for item in document["paths"].values():
        for operation in item.values():
            operation.pop("security", None)  # the header that each run has says who asks
            found = operation.get("parameters", [])
            operation["parameters"] = [one for one in found if one["name"] != "wait"]  # nobody has that much time
            for parameter in operation["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    return document


async def prepared(platform: Platform) -> Mapping[str, Any]:
    """Submit one asset that waits for a review and one that is being worked on; return what places may name."""
    done, open_ = await platform.submit(), await platform.submit(platform_refs=fresh_refs())
    await platform.end_job(done["request_id"])
    async with platform.orchestrator.context.pool.connection() as conn:
        jobs = await (await conn.execute("SELECT job_id FROM dagapp.dag_jobs")).fetchall()
    return {
        "asset_id": [done["asset_id"], open_["asset_id"], "0" * 32],
        "ordinal": [0, 1],
        "request_id": [done["request_id"], open_["request_id"], "req_0"],
        "job_id": [*(job_id for (job_id,) in jobs), "0" * 32],
        "platform_id": ["ddh", "nobody"],
        "workflow_id": ["raster_ingest", "none"],
        "queue": ["functionapp-tasks", "none"],
    }


async def play(document: Mapping[str, Any], base: str, folder: Path, headers: Mapping[str, str], *more: str) -> str:
    """Run schemathesis and return what it printed, an empty text when it found nothing."""
    path = folder / "openapi.json"
    (folder / "schemathesis.toml").write_text(CONFIG)
    path.write_text(json.dumps(document))
    arguments = [
        "run", str(path), "--url", base, "--max-examples", EXAMPLES, "--seed", SEED,
        "--phases", PHASES, "--no-color", "--request-timeout", "30", "--no-shrink", "--continue-on-failure",
        "--suppress-health-check", "all", *more,
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
    document = pointed(openapi("test", platform.gateway), await prepared(platform))
    assert await play(document, platform.gateway, tmp_path, {CALLER_HEADER: KEY}) == ""


async def test_the_orchestrator_refuses_well_whatever_is_sent(
    platform: Platform, settings: OrchestratorSettings, tmp_path: Path
) -> None:
    document = pointed(orchestrator_document(create_app(settings)), await prepared(platform))
    base, callbacks = platform.orchestrator.base, "^/api/v1/callbacks/"
    people = {CALLER_HEADER: KEY, SERVICE_HEADER: "key-gateway"}
    assert await play(document, base, tmp_path, people, "--exclude-path-regex", callbacks) == ""
    worker = {SERVICE_HEADER: "key-worker"}
    assert await play(document, base, tmp_path, worker, "--include-path-regex", callbacks) == ""
