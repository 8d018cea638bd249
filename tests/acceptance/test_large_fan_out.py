"""10,000 tasks of one fan-out through all parts: the job ends, whoever asks is answered, and no orchestrator grows."""

import time

from tests.acceptance.conftest import NARROW_FAN_OUT, NARROW_WINDOW
from tests.acceptance.platform import Platform, http
from tests.support.waiting import wait_until

ITEMS = 10_000
ALLOWED_GROWTH_BYTES = 100_000_000
PAGE_SECONDS = 1.0
"""Which the quickest of some looks at a job has to meet: others may have met a busy machine."""
LOOKS = 5


def look(platform: Platform, job_id: str) -> tuple[float, int]:
    """Return how long a look at the job took, and the bytes of the answer."""
    url = f"{platform.orchestrator}/api/v1/jobs/{job_id}"
    began = time.monotonic()
    answer = http("GET", url, headers=platform.as_("operator"))
    assert answer.status == 200
    return time.monotonic() - began, len(answer.body)


def test_ten_thousand_tasks_end_in_order_and_nobody_waits_or_grows(platform: Platform) -> None:
    platform.completed(platform.create_job(NARROW_FAN_OUT, {"items": list(range(500))}), 60)
    in_flight = "SELECT active FROM dagapp.dag_fan_outs WHERE job_id = %s"
    with platform.watched() as grown:
        job_id = platform.create_job(NARROW_FAN_OUT, {"items": list(range(ITEMS))})
        wait_until(lambda: platform.value(in_flight, job_id), "tasks are under way", 60)
        seen = [(*look(platform, job_id), platform.value(in_flight, job_id)) for _ in range(LOOKS)]
        platform.completed(job_id, 240)
        url = f"{platform.orchestrator}/api/v1/jobs/{job_id}/nodes/aggregate/output"
        output = http("GET", url, headers=platform.as_("operator")).json
    print(f"orchestrators grew by {grown} bytes")
    assert max(grown.values()) < ALLOWED_GROWTH_BYTES, grown
    assert min(seconds for seconds, _, _ in seen) < PAGE_SECONDS
    assert max(size for _, size, _ in seen) < 100_000
    assert max(active for _, _, active in seen) <= NARROW_WINDOW
    assert (output["count"], output["succeeded"], output["failed"]) == (ITEMS, ITEMS, 0)
    items = [(one["echoed_params"]["item_index"], one["echoed_params"]["item_value"]) for one in output["results"]]
    assert items == [(number, number) for number in range(ITEMS)]
    attempts = "SELECT count(*) AS n, count(DISTINCT node_id) AS items FROM dagapp.dag_attempts WHERE job_id = %s"
    (run,) = platform.rows(attempts, job_id)
    assert run["items"] == ITEMS
