"""The deployable folder under the real Azure worker library: indexed, validated and invoked as in Azure."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from function.blueprints.elsewhere_bp import METHODS
from repositories import roles
from scripts.functions_package import write_package
from tests.support.databases import Database
from tests.support.gateway_routes import FUNCTIONS

COLD_SECONDS = 2.0
"""Of the processor, so that a busy machine does not count; our own modules are compiled within it."""
ROOT = Path(__file__).resolve().parents[3]
INTERPRETER = ROOT / ".venv-functions" / "bin" / "python"


@pytest.fixture
def probe(database: Database, keys_file: Path, tmp_path: Path) -> Any:
    """Return a function that runs the packaged app in the worker library's own interpreter."""
    package = tmp_path / "app"
    write_package(package)
    if not INTERPRETER.exists():
        pytest.fail(f"{INTERPRETER} is missing; run scripts/functions_venv.sh")

    def run(*calls: dict[str, Any]) -> Any:
        environment = database.environment(roles.GATEWAY) | {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(package),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ORCHESTRATOR_URL": "http://127.0.0.1:9",
            "GATEWAY_SERVICE_KEY": "key-gateway",
            "API_KEYS_FILE": str(keys_file),
            "PUBLIC_GATEWAY_URL": "http://gateway.test",
            "PUBLIC_SERVING_URL": "http://serving.test",
        }
        done = subprocess.run(
            [str(INTERPRETER), str(ROOT / "tests/support/functions_probe.py")],
            cwd=package,
            env=environment,
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def call(function: str, method: str, caller: str | None = None, body: str = "", **route: str) -> dict[str, Any]:
    """Return one call as the host hands it over."""
    return {
        "function": function,
        "method": method,
        "url": f"https://gateway.test/{FUNCTIONS[function][1]}",
        "headers": {"x-api-key": f"key-{caller}"} if caller else {},
        "params": route,
        "body": body,
    }


def check_modules(modules: set[str]) -> None:
    """Check that the app imported neither GDAL nor the code of other processes."""
    assert {"core", "edge", "function", "repositories", "psycopg"} <= modules
    assert not modules & {"rasterio", "osgeo", "numpy", "pyproj", "pypgstac", "fastapi", "starlette", "uvicorn"}
    assert not modules & {"messaging", "services", "handlers", "orchestrator", "worker", "serving", "ui", "cli"}


def test_the_worker_library_indexes_every_function_with_its_whole_route(probe: Any) -> None:
    found, probed = {}, probe()
    check_modules(set(probed["modules"]))
    assert probed["import_seconds"] < COLD_SECONDS
    for function in probed["functions"]:
        (trigger,) = [b for b in function["bindings"] if b["type"] == "httpTrigger"]
        (out,) = [b for b in function["bindings"] if b["type"] == "http"]
        assert (trigger["name"], trigger["authLevel"].lower(), out["name"]) == ("req", "anonymous", "$return")
        found[function["name"]] = (*trigger["methods"], trigger["route"])
    assert found.pop("elsewhere") == (*METHODS, "{*path}")
    assert found == FUNCTIONS


def test_the_worker_library_invokes_functions_and_encodes_their_answers(probe: Any) -> None:
    answers = probe(
        call("livez", "GET"),
        call("readyz", "GET"),
        call("platform_status", "GET", request_id="req_none"),
        call("platform_status", "GET", "submitter", request_id="req_none"),
        call("platform_submit", "POST", "submitter", body="{}"),
        call("platform_approve", "POST", "reviewer", body="{"),
        call("asset", "GET", "reviewer", asset_id="f" * 32),
        call("status_jobs", "GET", "submitter"),
    )["answers"]
    assert [answer.get("status") for answer in answers] == [200, 200, 401, 404, 503, 422, 404, 404], answers
    assert [json.loads(answer["body"]).get("code") for answer in answers] == [
        None,
        None,
        "UNAUTHENTICATED",
        "NOT_FOUND",
        "ORCHESTRATOR_UNAVAILABLE",
        "PARAMETER_INVALID",
        "NOT_FOUND",
        "NOT_FOUND",
    ]
    assert answers[0]["headers"]["content-type"] == "application/json"
    assert answers[2]["headers"]["content-type"] == "application/problem+json"
    assert answers[2]["headers"]["WWW-Authenticate"] == "Bearer"
