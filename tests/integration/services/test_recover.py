"""Ownership by epoch, and when silence counts as death."""

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection

from core.errors import DatabaseUnavailable
from repositories.jobs import DueJob, JobRepository
from repositories.orchestrators import OrchestratorRepository
from services.advance import Ownership
from services.recover import OutageGuard, RecoverService
from services.work import pipelined
from tests.support.databases import Database, Server
from tests.support.engine import Engine, HandWorker
from tests.support.waiting import await_until

THRESHOLD = 15.0


async def register(engine: Engine, owner_id: str, *, silent_seconds: float = 0, state: str = "active") -> None:
    await engine.query(
        "INSERT INTO dagapp.dag_orchestrators (owner_id, host, pid, build_id, state, heartbeat_at)"
        " VALUES (%s, 'h', 1, 'b', %s, dagapp.clock() - make_interval(secs => %s))",
        owner_id,
        state,
        silent_seconds,
    )


async def owner_of(engine: Engine, job_id: str) -> tuple[str | None, int]:
    job = await engine.job(job_id)
    return job.owner_id, job.owner_epoch


async def test_a_created_job_belongs_to_the_instance_that_created_it(engine: Engine) -> None:
    assert await owner_of(engine, await engine.create("echo_test")) == ("owner-1", 1)


async def test_an_unowned_job_is_claimed_and_its_epoch_grows(engine: Engine) -> None:
    engine.owner_id = None
    job_id = await engine.create("echo_test")
    assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=False) == 1
    assert await owner_of(engine, job_id) == ("owner-2", 2)


@pytest.mark.parametrize(("silent", "state"), [(16.0, "active"), (0.0, "stopped"), (60.0, "draining")])
async def test_jobs_of_a_dead_owner_are_reclaimed(engine: Engine, silent: float, state: str) -> None:
    job_id = await engine.create("echo_test")
    await register(engine, "owner-1", silent_seconds=silent, state=state)
    assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=True) == 1
    assert await owner_of(engine, job_id) == ("owner-2", 2)


@pytest.mark.parametrize("remembered", [True, False])
async def test_what_comes_late_for_a_final_job_of_a_dead_owner_is_set_aside(
    engine: Engine, worker: HandWorker, remembered: bool
) -> None:
    """Seed 29 of the simulation: a child job ended after its cancelled parent, and the parent's owner was dead."""
    job_id = await engine.create("echo_test")
    await worker.run(await engine.message(job_id))
    survivor = RecoverService(engine.pool, "owner-2", THRESHOLD)
    if remembered:
        await register(engine, "owner-1", silent_seconds=60.0)
    assert await survivor.claim_jobs(may_reclaim=True) == 0
    await engine.query("UPDATE dagapp.dag_task_results SET processed = false, disposition = NULL")
    assert await survivor.claim_jobs(may_reclaim=True) == 1
    async with pipelined(engine.pool) as conn:
        due = await (await JobRepository(conn).due_results("owner-2", 10)).rows()
    assert [job.job_id for job in due] == [job_id]
    await engine.advance(job_id)
    (row,) = await engine.query("SELECT processed, disposition FROM dagapp.dag_task_results")
    assert (row["processed"], row["disposition"]) == (True, "superseded")
    assert await survivor.claim_jobs(may_reclaim=True) == 0


async def test_jobs_of_a_living_owner_are_left_alone(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await register(engine, "owner-1", silent_seconds=14.0)
    assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=True) == 0
    assert await owner_of(engine, job_id) == ("owner-1", 1)


async def test_nothing_is_reclaimed_while_the_outage_rule_holds(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await register(engine, "owner-1", silent_seconds=3600.0)
    assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=False) == 0
    assert await owner_of(engine, job_id) == ("owner-1", 1)


async def test_a_takeover_never_waits_for_a_locked_job(engine: Engine) -> None:
    engine.owner_id = None
    held, free = await engine.create("echo_test"), await engine.create("echo_test")
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (held,))
        async with asyncio.timeout(1.5):
            assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=True) == 1
        await holder.rollback()
    assert await owner_of(engine, free) == ("owner-2", 2)


async def test_a_process_stopped_inside_a_transaction_keeps_its_jobs_from_nobody(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await register(engine, "owner-1", silent_seconds=60)
    survivor = RecoverService(engine.pool, "owner-2", THRESHOLD, silent_seconds=0.3)
    locked, go_on = asyncio.Event(), asyncio.Event()

    async def stop_with_a_lock() -> None:
        async with pipelined(engine.pool) as conn:
            await (await JobRepository(conn).lock([job_id])).rows()
            locked.set()
            await go_on.wait()

    async def taken_over() -> bool:
        return await survivor.claim_jobs(may_reclaim=True) == 1

    stopped = asyncio.create_task(stop_with_a_lock())
    await locked.wait()
    assert not await taken_over()
    await await_until(taken_over, "the job of the stopped owner taken over", timeout_seconds=5)
    assert await owner_of(engine, job_id) == ("owner-2", 2)
    go_on.set()
    with pytest.raises(DatabaseUnavailable):
        await stopped


async def test_transactions_whose_clients_speak_are_left_alone(engine: Engine) -> None:
    survivor = RecoverService(engine.pool, "owner-2", THRESHOLD, silent_seconds=30.0)
    async with pipelined(engine.pool) as busy:
        await (await JobRepository(busy).lock([])).rows()
        assert await survivor.claim_jobs(may_reclaim=True) == 0
        assert await (await JobRepository(busy).lock([])).rows() == []


async def test_two_instances_share_ownerless_jobs_without_taking_one_twice(engine: Engine) -> None:
    engine.owner_id = None
    jobs = [await engine.create("echo_test") for _ in range(20)]
    services = [RecoverService(engine.pool, f"owner-{n}", THRESHOLD) for n in (2, 3)]
    claimed = await asyncio.gather(*(service.claim_jobs(may_reclaim=True) for service in services))
    assert sum(claimed) == 20
    assert {(await owner_of(engine, job_id))[1] for job_id in jobs} == {2}


async def test_a_released_job_is_anybodys(engine: Engine) -> None:
    job_id = await engine.create("echo_test")
    await register(engine, "owner-1")
    assert await RecoverService(engine.pool, "owner-1", THRESHOLD).release_jobs() == 1
    assert await owner_of(engine, job_id) == (None, 1)
    assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=False) == 1


async def test_a_result_of_a_job_that_ended_while_nobody_owned_it_is_set_aside_by_who_adopts_it(
    engine: Engine, worker: HandWorker
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.run(message)
    await engine.query("UPDATE dagapp.dag_task_results SET processed = false, disposition = NULL")
    await engine.query("UPDATE dagapp.dag_jobs SET owner_id = NULL")
    assert await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=True) == 1
    assert await owner_of(engine, job_id) == ("owner-2", 2)
    await engine.advance(job_id)
    (row,) = await engine.query("SELECT processed, disposition FROM dagapp.dag_task_results")
    assert (row["processed"], row["disposition"]) == (True, "superseded")


@pytest.mark.parametrize("stale", [("owner-1", 1), ("owner-2", 1)])
async def test_a_loop_that_slept_through_a_takeover_writes_nothing(
    engine: Engine, worker: HandWorker, stale: tuple[str, int]
) -> None:
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    await engine.lapse(message.task_id)
    await register(engine, "owner-1", silent_seconds=60)
    await RecoverService(engine.pool, "owner-2", THRESHOLD).claim_jobs(may_reclaim=True)
    owner_id, epoch = stale
    async with pipelined(engine.pool) as conn:
        due = [DueJob(job_id, epoch)]
        steps = await engine.advance_service.advance(conn, [job_id], Ownership.of(owner_id, due))
    assert list(steps) == []
    assert (await engine.attempt(message.task_id))["state"] == "leased"


async def test_only_what_is_due_is_found(engine: Engine, worker: HandWorker) -> None:
    await engine.create("echo_test")
    leased, reported = await engine.create("echo_test"), await engine.create("echo_test")
    messages = [await engine.message(leased), await engine.message(reported)]
    await worker.claim(*messages)
    await engine.lapse(messages[0].task_id)
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT FROM dagapp.dag_jobs WHERE job_id = %s FOR UPDATE", (reported,))
        await worker.complete(messages[1])
        await holder.rollback()
    async with engine.pool.connection() as conn:
        jobs = JobRepository(conn)
        timers = await (await jobs.due_timers("owner-1", 10)).rows()
        results = await (await jobs.due_results("owner-1", 10)).rows()
        leases = await (await jobs.due_leases("owner-1", 10)).rows()
        nobody = await (await jobs.due_results("owner-2", 10)).rows()
    assert (timers, nobody) == ([], [])
    assert [one.job_id for one in results] == [reported]
    assert [one.job_id for one in leases] == [leased]


def guard(started_at: float = 0.0) -> OutageGuard:
    return OutageGuard(started_at, threshold_seconds=15.0, lease_seconds=20.0)


def beat_until(one: OutageGuard, begin: float, end: float) -> None:
    moment = begin
    while moment <= end:
        one.beat(moment)
        moment += 5.0


def test_after_its_start_an_instance_expires_nothing_for_a_lease_and_reclaims_nothing_for_a_threshold() -> None:
    one = guard()
    assert not one.may_reclaim(100.0)
    beat_until(one, 0.0, 10.0)
    assert not one.may_reclaim(14.0)
    beat_until(one, 15.0, 15.0)
    assert one.may_reclaim(15.0)
    assert not one.may_expire_leases(19.0)
    beat_until(one, 20.0, 20.0)
    assert one.may_expire_leases(20.0)


def test_a_gap_above_half_the_threshold_starts_the_grace_anew() -> None:
    one = guard()
    beat_until(one, 0.0, 40.0)
    assert one.may_expire_leases(41.0)
    one.beat(48.0)
    assert not one.may_expire_leases(48.0)
    beat_until(one, 53.0, 68.0)
    assert one.may_expire_leases(68.0)


def test_a_short_gap_changes_nothing() -> None:
    one = guard()
    beat_until(one, 0.0, 40.0)
    one.beat(47.0)
    assert one.may_expire_leases(47.0)


def test_an_instance_that_was_stopped_trusts_nothing_before_its_next_heartbeat() -> None:
    one = guard()
    beat_until(one, 0.0, 40.0)
    assert not one.may_expire_leases(100.0)
    assert not one.may_reclaim(100.0)


async def test_silent_transactions_of_another_database_are_none_of_ours(database: Database, server: Server) -> None:
    elsewhere = server.clone()
    async with (
        await AsyncConnection.connect(elsewhere.conninfo()) as theirs,
        await AsyncConnection.connect(database.conninfo()) as silent,
        await AsyncConnection.connect(database.conninfo()) as own,
    ):
        for one in (theirs, silent):
            await one.execute("SELECT 1")
        assert await OrchestratorRepository(own).end_silent_transactions(0.0) == 1
        await theirs.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            await silent.execute("SELECT 1")
    server.drop(elsewhere)
