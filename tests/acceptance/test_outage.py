"""PostgreSQL restarted, and away for longer than leases last, under load: no job lost, no living task declared dead."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.acceptance.conftest import LEASE_SECONDS
from tests.acceptance.platform import Platform
from tests.support.waiting import wait_until

JOBS = 40
AWAY_SECONDS = 2 * LEASE_SECONDS


def leased(platform: Platform, jobs: list[str]) -> int:
    """Return how many of the jobs' attempts are running."""
    query = "SELECT count(*) FROM dagapp.dag_attempts WHERE state = 'leased' AND job_id = ANY(%s)"
    return int(platform.value(query, jobs))


def start_sleepers(platform: Platform, seconds: float) -> list[str]:
    """Create sleeping jobs and return once all of them run."""
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: platform.create_job("sleep_test", {"seconds": seconds}), range(JOBS)))
    wait_until(lambda: leased(platform, jobs) == JOBS, "every sleeper running", 30)
    return jobs


def check_each_ran_once(platform: Platform, jobs: list[str]) -> None:
    """Check that every job completed with its first attempt and nothing was declared dead."""
    ended = "SELECT count(*) FROM dagapp.dag_jobs WHERE status = 'COMPLETED' AND job_id = ANY(%s)"
    wait_until(lambda: platform.value(ended, jobs) == JOBS, "every job completed", 60, every=0.2)
    attempts = platform.rows("SELECT state, attempt FROM dagapp.dag_attempts WHERE job_id = ANY(%s)", jobs)
    assert [(row["state"], row["attempt"]) for row in attempts] == [("reported", attempts[0]["attempt"])] * JOBS
    losses = "SELECT coalesce(sum(losses_used + retries_used), 0) FROM dagapp.dag_node_states WHERE job_id = ANY(%s)"
    assert platform.value(losses, jobs) == 0


def test_a_database_away_for_twice_the_lease_costs_nobody_a_task(platform: Platform) -> None:
    jobs = start_sleepers(platform, AWAY_SECONDS + 3)
    platform.stack.hold_database()
    back = time.monotonic() + AWAY_SECONDS
    wait_until(lambda: time.monotonic() > back, "the outage to last", AWAY_SECONDS + 1)
    platform.stack.release_database()
    check_each_ran_once(platform, jobs)
    platform.stack.wait_ready(30)


def test_a_crash_of_the_database_under_load_loses_no_job(platform: Platform) -> None:
    jobs = start_sleepers(platform, 4)
    before = platform.stack.pid("postgres")
    platform.stack.kill("postgres")
    wait_until(lambda: platform.stack.pid("postgres") not in {None, before}, "the supervisor to start it again", 30)
    wait_until(platform.database_answers, "the database answering again", 30)
    check_each_ran_once(platform, jobs)
    job = platform.create_job("echo_test", {"message": "after the crash"})
    done = "SELECT count(*) FROM dagapp.dag_jobs WHERE status = 'COMPLETED' AND job_id = %s"
    wait_until(lambda: platform.value(done, job) == 1, "a new job completed", 20)
