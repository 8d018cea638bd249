"""A platform under load becomes the next build part by part, and its parts are killed in the middle of leaving."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from cli.stack.layout import THIS_BUILD, Build
from orchestrator import migration
from repositories import roles
from repositories.settings import PREFIXES, SHARED_NAMES, DatabaseSettings
from tests.acceptance.platform import Platform, http
from tests.acceptance.verdicts import check_applied_once
from tests.azure.upgrade.builds import module_file
from tests.azure.upgrade.clients import JOB_SECONDS, Crowd
from tests.azure.upgrade.doors import GRACE_SECONDS, TwoDoors
from tests.support.waiting import wait_until

SETTINGS = """
import json
from function.settings import GatewaySettings
from orchestrator.settings import OrchestratorSettings
from serving.settings import ServingSettings
from worker.settings import WorkerSettings
kinds = (GatewaySettings, OrchestratorSettings, ServingSettings, WorkerSettings)
print(json.dumps({k.__name__: {n.upper(): f.is_required() for n, f in k.model_fields.items()} for k in kinds}))
"""
UNFINISHED = "SELECT count(*) FROM dagapp.dag_jobs WHERE status IN ('PENDING', 'RUNNING')"


def test_a_build_starts_with_the_settings_of_the_build_before(previous: Build) -> None:
    before, now = settings_of(previous), settings_of(THIS_BUILD)
    for kind, known in before.items():
        needed = {name for name, required in now[kind].items() if required}
        assert needed <= known.keys(), f"{kind}: a new setting needs a default that holds"
        gone = {name for name in known.keys() - now[kind].keys() if name.startswith(PREFIXES)}
        assert gone <= SHARED_NAMES, f"{kind}: a name that is still set would stop the start"


def test_a_rolling_upgrade_under_load_loses_and_doubles_nothing(
    platform: Platform, doors: TwoDoors, builds: dict[str, Build], previous: Build
) -> None:
    check_builds_are_two(previous)
    stack = platform.stack

    def become(name: str, build: Build, crowd: Crowd) -> None:
        builds[name] = build
        before = len(crowd.created)
        with doors.beside() if name == "gateway" else ExitStack():
            stack.replace(name, GRACE_SECONDS)
        goes_on = f"work goes on beside the new {name}"
        wait_until(lambda: crowd.check() and len(crowd.created) > before, goes_on, JOB_SECONDS)

    with Crowd(platform, doors.url, "upgrade") as crowd:
        published = look_at_one(platform, crowd, 0)
        migrate(platform)
        crowd.check()
        become("worker-light-1", THIS_BUILD, crowd)
        become("orchestrator-1", THIS_BUILD, crowd)
        become("worker-heavy-1", THIS_BUILD, crowd)
        become("orchestrator-1", previous, crowd)
        become("orchestrator-2", THIS_BUILD, crowd)
        become("gateway", THIS_BUILD, crowd)
        become("orchestrator-1", THIS_BUILD, crowd)
        become("worker-light-2", THIS_BUILD, crowd)
        published |= look_at_one(platform, crowd, len(crowd.submitted))
        become("serving", THIS_BUILD, crowd)
    crowd.check()
    print(f"upgrade: {len(crowd.created)} jobs, {len(crowd.submitted)} rasters, tried again: {crowd.troubles}")
    for url, body in published.items():
        assert http("GET", url).body == body
    check_all_ended(platform, crowd)
    check_applied_once(platform, 0)
    wait_until(lambda: running_builds(platform) == {"local"}, "only this build beats", 15, every=0.2)


def test_whoever_is_killed_in_the_middle_of_leaving_loses_and_doubles_nothing(
    platform: Platform, doors: TwoDoors
) -> None:
    migrate(platform)
    before = platform.value("SELECT coalesce(max(event_id), 0) FROM dagapp.dag_job_events")
    with Crowd(platform, doors.url, "leaving", jobs=6) as crowd, doors.beside():
        wait_until(lambda: crowd.check() and len(crowd.created) > 12, "everybody is busy", 60)
        leave_and_be_killed(platform, {"worker-light-1": 0.05, "orchestrator-1": 0.02})
        is_due = "the heavy worker is busy, and what the first ones left undone is done"
        wait_until(lambda: crowd.check() and crowd.is_calm and busy(platform, "worker-heavy-1"), is_due, JOB_SECONDS)
        leave_and_be_killed(
            platform, {"worker-light-2": 0.15, "worker-heavy-1": 0.1, "orchestrator-2": 0.3, "gateway": 0.02}
        )
        done = len(crowd.submitted)
        wait_until(lambda: crowd.check() and len(crowd.submitted) > done, "a raster goes through", JOB_SECONDS)
    crowd.check()
    print(f"killed: {len(crowd.created)} jobs, {len(crowd.submitted)} rasters, tried again: {crowd.troubles}")
    check_all_ended(platform, crowd)
    check_applied_once(platform, before)


def leave_and_be_killed(platform: Platform, parts: Mapping[str, float]) -> None:
    """Ask parts to leave, freeze each so many seconds into that, and kill them at the end of their grace."""
    with ThreadPoolExecutor(len(parts)) as pool:
        frozen = dict(
            zip(parts, pool.map(lambda name: _leave_and_be_killed(platform, name, parts[name]), parts), strict=True)
        )
    print(f"killed: frozen while they left: {frozen}")
    assert any(frozen.values())
    platform.stack.wait_ready(60)


def _leave_and_be_killed(platform: Platform, name: str, depth_seconds: float) -> bool:
    """Return whether there was somebody to kill: one that is quick has left by then, as it should."""
    stack, asked = platform.stack, time.monotonic()
    pid = stack.pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    time.sleep(depth_seconds)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    if frozen := stack.pid(name) == pid:
        time.sleep(max(0.0, asked + GRACE_SECONDS - time.monotonic()))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: stack.pid(name) not in {None, pid}, f"{name} started again", 30)
    return frozen


def busy(platform: Platform, name: str) -> bool:
    """Return whether a worker runs a task."""
    query = (
        "SELECT count(*) FROM dagapp.dag_attempts AS a JOIN dagapp.dag_workers AS w USING (worker_id)"
        " WHERE w.pid = %s AND a.state = 'leased'"
    )
    return bool(platform.value(query, platform.stack.pid(name)))


def check_builds_are_two(previous: Build) -> None:
    """Check that the interpreters of the two builds find two trees; subprocesses of tasks look as this does."""
    assert module_file(previous, "worker").is_relative_to(previous.root)
    assert module_file(THIS_BUILD, "worker").is_relative_to(THIS_BUILD.root)


def settings_of(build: Build) -> dict[str, dict[str, bool]]:
    """Return every setting of the processes of a build, and whether it must be given."""
    done = subprocess.run((build.python, "-c", SETTINGS), cwd=build.root, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, bool]] = json.loads(done.stdout)
    return found


def migrate(platform: Platform) -> None:
    """Do what the deployment's migration job does."""
    stack = platform.stack
    settings = DatabaseSettings(
        postgres_host="127.0.0.1",
        postgres_port=stack.plan.ports["postgres"],
        postgres_db="geodag",
        postgres_user=roles.DEPLOY,
        postgres_password=stack.credentials.passwords[roles.DEPLOY],
    )
    asyncio.run(migration.run(settings))


def look_at_one(platform: Platform, crowd: Crowd, known: int) -> dict[str, bytes]:
    """Publish the next raster that comes through; return what serving shows of it."""
    wait_until(lambda: crowd.check() and len(crowd.submitted) > known, "a raster went through", JOB_SECONDS)
    answer = http(
        "GET",
        f"{platform.gateway}/api/platform/status/{crowd.submitted[known]}",
        headers=platform.as_("submitter-ddh"),
    )
    asset = answer.json["asset_id"]
    assert platform.approve(asset, 0).status == 200
    urls = (f"{platform.serving}/preview/{asset}.png", f"{platform.serving}/download/{asset}")
    shown = {url: http("GET", url) for url in urls}
    assert {url: answer.status for url, answer in shown.items()} == dict.fromkeys(urls, 200)
    return {url: answer.body for url, answer in shown.items()}


def check_all_ended(platform: Platform, crowd: Crowd) -> None:
    """Check that every job came to its end, well, and that fan-outs have a result for each item."""
    wait_until(lambda: platform.value(UNFINISHED) == 0, "every job ended", JOB_SECONDS, every=0.2)
    jobs = platform.rows("SELECT job_id, workflow_id, status, error, outputs FROM dagapp.dag_jobs")
    assert set(crowd.created) <= {job["job_id"] for job in jobs}
    failed = [job for job in jobs if job["status"] != "COMPLETED"]
    assert not failed, failed[:3]
    counts = {"fan_out_test": 12, "retry_fan_out_test": 8}
    fanned = [job for job in jobs if job["workflow_id"] in counts]
    assert fanned
    assert all(job["outputs"]["count"] == counts[job["workflow_id"]] for job in fanned)
    left = "SELECT count(*) FROM dagqueue.messages"
    wait_until(lambda: platform.value(left) == 0, "no message left", JOB_SECONDS, every=0.5)


def running_builds(platform: Platform) -> set[str]:
    """Return the builds of everybody who beats."""
    seen = "heartbeat_at > dagapp.clock() - interval '5 s'"
    rows = platform.rows(
        f"SELECT build_id FROM dagapp.dag_workers WHERE {seen}"
        f" UNION SELECT build_id FROM dagapp.dag_orchestrators WHERE {seen}"
    )
    return {row["build_id"] for row in rows}
