"""Parents with two levels of children, and jobs that take turns, while an orchestrator and a worker are killed."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from tests.acceptance.platform import Platform
from tests.acceptance.test_chaos import busy_owner, wait_for_takeover
from tests.support.waiting import wait_until

FAMILIES = 30
SWITCH = "pause:queue:functionapp-tasks"
TURNS = 10
MEMBERS = """
WITH RECURSIVE members AS (
    SELECT job_id, status, depth, outputs FROM dagapp.dag_jobs WHERE job_id = ANY(%s)
    UNION ALL
    SELECT j.job_id, j.status, j.depth, j.outputs FROM members AS m
    JOIN dagapp.dag_attempts AS a ON a.job_id = m.job_id JOIN dagapp.dag_jobs AS j ON j.parent_task_id = a.task_id
)
"""


def create(platform: Platform, workflow_id: str, inputs: list[dict[str, Any]]) -> list[str]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda one: platform.create_job(workflow_id, one), inputs))


def completed(platform: Platform, jobs: list[str]) -> bool:
    query = "SELECT count(*) FROM dagapp.dag_jobs WHERE status = 'COMPLETED' AND job_id = ANY(%s)"
    return bool(platform.value(query, jobs) == len(jobs))


def test_families_survive_the_death_of_their_owner_half_way(platform: Platform) -> None:
    platform.rows(
        "INSERT INTO dagapp.dag_settings (key, value, updated_by) VALUES (%s, 'true', 'test')"
        " ON CONFLICT (key) DO UPDATE SET value = 'true' RETURNING key",
        SWITCH,
    )
    tops = create(platform, "sub_workflow_test", [{"message": f"m{number}"} for number in range(FAMILIES)])
    waiting = platform.rows(MEMBERS + "SELECT depth, count(*) AS n FROM members GROUP BY depth ORDER BY depth", tops)
    assert [(row["depth"], row["n"]) for row in waiting] == [(depth, FAMILIES) for depth in range(3)]
    killed = busy_owner(platform, list(platform.stack.shape.orchestrator_names))
    platform.stack.kill(killed.part)
    platform.rows("DELETE FROM dagapp.dag_settings WHERE key = %s RETURNING key", SWITCH)
    wait_for_takeover(platform, killed, "killed")
    wait_until(lambda: completed(platform, tops), "every family ended", 90, every=0.5)
    ended = platform.rows(MEMBERS + "SELECT depth, status, count(*) AS n FROM members GROUP BY depth, status", tops)
    counts = {(row["depth"], row["status"]): row["n"] for row in ended}
    assert counts == {(0, "COMPLETED"): FAMILIES, (1, "COMPLETED"): FAMILIES, (2, "COMPLETED"): 2 * FAMILIES}
    outputs = platform.rows("SELECT outputs FROM dagapp.dag_jobs WHERE job_id = ANY(%s)", tops)
    said = sorted((row["outputs"]["first"], row["outputs"]["second"]) for row in outputs)
    assert said == sorted((f"m{number}", f"m{number} again") for number in range(FAMILIES))
    attempts = platform.rows(
        "SELECT a.state, count(*) AS n FROM dagapp.dag_attempts AS a WHERE a.queue = 'child-jobs' GROUP BY a.state"
    )
    assert [(row["state"], row["n"]) for row in attempts] == [("reported", 3 * FAMILIES)]


def test_jobs_take_turns_although_the_worker_with_the_slot_is_killed(platform: Platform) -> None:
    jobs = create(platform, "slots_test", [{"seconds": 0.5, "place": "acceptance"}] * TURNS)
    mine = "SELECT w.pid FROM dagapp.dag_attempts AS a JOIN dagapp.dag_workers AS w ON w.worker_id = a.worker_id"
    held = wait_until(
        lambda: platform.rows(f"{mine} WHERE a.state = 'leased' AND a.job_id = ANY(%s)", jobs), "one works", 30
    )
    names = {platform.stack.pid(name): name for name in platform.stack.shape.worker_names}
    assert held
    platform.stack.kill(names[held[0]["pid"]])
    wait_until(lambda: completed(platform, jobs), "every job had its turn", 120, every=0.5)
    spans = platform.rows(
        "SELECT leased_at, ended_at FROM dagapp.dag_attempts WHERE leased_at IS NOT NULL AND job_id = ANY(%s)"
        " ORDER BY leased_at",
        jobs,
    )
    assert len(spans) >= TURNS
    for earlier, later in pairwise(spans):
        assert earlier["ended_at"] <= later["leased_at"]
    none_left = "SELECT count(*) FROM dagapp.dag_slots WHERE job_id = ANY(%s)"
    wait_until(lambda: platform.value(none_left, jobs) == 0, "no slot is left behind", 20)
