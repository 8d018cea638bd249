"""20 MB through the whole platform: by reference everywhere, and no orchestrator grows by it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from cli.stack.layout import BlobsKind
from tests.acceptance.platform import Platform, http
from tests.support.adapters import BLOBS, IDENTITY
from tests.support.waiting import wait_until

VALUES = 100_000
BYTES_EACH = 200
PARTS_UNDER_WAY_BYTES = (32 if IDENTITY else 16) << 20
"""What a far storage adds: a few parts of one blob on their way, however large it is; with TLS, sealed and opened."""
ALLOWED_GROWTH_BYTES = 25_000_000 + (0 if BLOBS is BlobsKind.FOLDERS else PARTS_UNDER_WAY_BYTES)


def finish(platform: Platform, count: int) -> str:
    """Run the workflow and return its job."""
    job_id = platform.create_job("large_values", {"count": count, "bytes_each": BYTES_EACH})

    def ended() -> str | None:
        (job,) = platform.rows("SELECT status, outputs, error FROM dagapp.dag_jobs WHERE job_id = %s", job_id)
        assert job["status"] != "FAILED", job["error"]
        return job["status"] if job["status"] == "COMPLETED" else None

    wait_until(ended, f"{count} values", 120, every=0.2)
    return job_id


@contextmanager
def watched(platform: Platform) -> Iterator[dict[str, int]]:
    """Watch the memory of every orchestrator; at the end the dictionary has how much each grew at its peak."""
    processes = {name: psutil.Process(platform.stack.pid(name)) for name in platform.stack.shape.orchestrator_names}
    before = {name: process.memory_info().rss for name, process in processes.items()}
    grown = dict.fromkeys(processes, 0)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            for name, process in processes.items():
                grown[name] = max(grown[name], process.memory_info().rss - before[name])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield grown
    finally:
        done.set()
        thread.join()


def test_20_megabytes_go_from_task_to_task_and_no_orchestrator_grows(platform: Platform) -> None:
    for _ in range(2):
        finish(platform, 2000)
    with watched(platform) as grown:
        job_id = finish(platform, VALUES)
        url = f"{platform.orchestrator}/api/v1/jobs/{job_id}/nodes/process/output"
        answer = http("GET", url, headers=platform.as_("operator"))
    print(f"orchestrators grew by {grown} bytes")
    assert max(grown.values()) < ALLOWED_GROWTH_BYTES, grown
    output = json.loads(answer.body)
    assert len(answer.body) > 20_000_000
    assert (output["processed"], len(output["results"])) == (VALUES, VALUES)
    assert len(set(output["results"])) == VALUES
    (job,) = platform.rows("SELECT * FROM dagapp.dag_jobs WHERE job_id = %s", job_id)
    assert job["outputs"] == {"made": VALUES, "processed": VALUES, "last": output["results"][-1]}
    (size,) = platform.rows(
        "SELECT max(length(n::text)) AS bytes FROM dagapp.dag_node_states AS n WHERE job_id = %s", job_id
    )
    assert size["bytes"] < 10_000
