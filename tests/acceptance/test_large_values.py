"""20 MB through the whole platform: by reference everywhere, and no orchestrator grows by it."""

import json

from cli.stack.layout import BlobsKind
from tests.acceptance.platform import Platform, http
from tests.support.adapters import BLOBS, IDENTITY

VALUES = 100_000
BYTES_EACH = 200
WARMING = 4
"""Jobs before the one that counts, so that each orchestrator has loaded and connected what large values need."""
OF_SEVERAL_PARTS = 25_000
PARTS_UNDER_WAY_BYTES = (32 if IDENTITY else 16) << 20
"""What a far storage adds: a few parts of one blob on their way, however large it is; with TLS, sealed and opened."""
ALLOWED_GROWTH_BYTES = 25_000_000 + (0 if BLOBS is BlobsKind.FOLDERS else PARTS_UNDER_WAY_BYTES)


def finish(platform: Platform, count: int) -> str:
    """Run the workflow and return its job."""
    job_id = platform.create_job("large_values", {"count": count, "bytes_each": BYTES_EACH})
    platform.completed(job_id, 120)
    return job_id


def test_20_megabytes_go_from_task_to_task_and_no_orchestrator_grows(platform: Platform) -> None:
    for _ in range(WARMING):
        finish(platform, OF_SEVERAL_PARTS)
    with platform.watched() as grown:
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
