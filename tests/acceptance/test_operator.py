"""An operator at the terminal, against the running platform: pause, look, resume, cancel."""

import json
from typing import Any

from typer.testing import CliRunner

from cli.main import app
from tests.acceptance.platform import Platform
from tests.support.waiting import wait_until


def geodag(platform: Platform, *words: str) -> Any:
    """Run the command as an operator does and return what it printed as JSON."""
    done = CliRunner().invoke(app, [*words, "--home", str(platform.stack.home.root), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_an_operator_pauses_looks_resumes_and_cancels(platform: Platform) -> None:
    assert geodag(platform, "pause", "--workflow", "echo_test", "--reason", "maintenance")["paused"] is True
    try:
        held = platform.create_job("echo_test", {})
        nodes = {node["node_id"]: node for node in geodag(platform, "job", "show", held)["nodes"]}
        assert nodes["echo_handler"]["waiting_for"] == {
            "kind": "paused",
            "detail": {"switches": ["workflow:echo_test"]},
        }
    finally:
        assert geodag(platform, "resume", "--workflow", "echo_test")["paused"] is False
    wait_until(lambda: geodag(platform, "job", "show", held)["status"] == "COMPLETED", "the held job runs", 30)

    greeted = geodag(platform, "job", "run", "hello_world", "--input", "name=Ada", "--wait")
    assert (greeted["status"], greeted["outputs"]) == ("COMPLETED", {"message": "Hello, Ada!"})

    running = platform.create_job("sleep_test", {"seconds": 60})
    wait_until(lambda: geodag(platform, "job", "show", running)["nodes"][0] is not None, "the job is there", 10)
    assert geodag(platform, "job", "cancel", running, "--reason", "enough")["job"]["status"] == "CANCELLED"
    (event,) = platform.rows(
        "SELECT event_data FROM dagapp.dag_job_events WHERE job_id = %s AND event_type = 'job_cancelled'", running
    )
    assert event["event_data"] == {"actor": "operator", "reason": "enough"}
    again = geodag(platform, "job", "retry", "--workflow", "sleep_test", "--status", "cancelled", "--dry-run")
    assert running in [job["job_id"] for job in again["jobs"]]
