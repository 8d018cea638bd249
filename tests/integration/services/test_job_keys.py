"""Idempotency keys of jobs: one key of an actor is one job, however many calls come at once."""

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection

from core.errors import Conflict, ParameterInvalid
from core.statuses import JobStatus
from repositories import roles
from repositories.database import AsyncPool
from repositories.jobs import JobRepository
from services.job_keys import JobKey, jobs_of_keys
from services.jobs import Created, Order
from services.submits import Submits
from services.work import pipelined
from tests.support.databases import Database
from tests.support.engine import Engine, workflows_of
from tests.support.plans import Recorded, Session, recording

PLAIN = """
workflow_id: plain
version: 1
inputs:
  a: {type: integer, required: true}
nodes:
  start: {type: start, next: work}
  work: {handler: echo, params: {v: "{{ inputs.a }}"}, next: end}
  end: {type: end}
"""
ONCE = PLAIN.replace("plain", "once").replace("version: 1", "version: 1\ndeduplicate: inputs")


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    return Engine(pool, workflows_of(PLAIN, ONCE))


async def order(engine: Engine, a: int, key: str | None = "k", actor: str = "ada", workflow_id: str = "plain") -> Order:
    body = {"workflow_id": workflow_id, "inputs": {"a": a}}
    under = None if key is None else JobKey.of(actor, key, body)
    return await engine.jobs.order(workflow_id=workflow_id, inputs={"a": a}, submitted_by=actor, key=under)


async def create(engine: Engine, *orders: Order) -> list[Created]:
    async with pipelined(engine.pool) as conn:
        return await engine.jobs.create_or_find(conn, orders)


async def counted(engine: Engine) -> int:
    (row,) = await engine.query("SELECT count(*)::int AS jobs FROM dagapp.dag_jobs")
    return int(row["jobs"])


async def test_the_same_key_and_body_is_the_same_job_and_another_body_a_conflict(engine: Engine) -> None:
    (first,) = await create(engine, await order(engine, 1))
    (again,) = await create(engine, await order(engine, 1))
    assert (first.existing, again.existing, again.job.job_id) == (False, True, first.job.job_id)
    with pytest.raises(Conflict) as refused:
        await create(engine, await order(engine, 2))
    detail = refused.value.detail
    assert (detail.code, detail.field, detail.value) == ("IDEMPOTENCY_CONFLICT", "idempotency_key", "k")
    others = await create(engine, await order(engine, 2, "K"), await order(engine, 1, actor="bob"))
    assert [one.existing for one in others] == [False, False]
    assert await counted(engine) == 3


async def test_a_job_that_is_found_by_its_key_is_the_whole_job(engine: Engine) -> None:
    (made,) = await create(engine, await order(engine, 1))
    async with pipelined(engine.pool) as conn:
        await conn.execute("""UPDATE dagapp.dag_jobs SET slots_above = '["a"]', waiting_for = '{}'""")
        body = {"workflow_id": "plain", "inputs": {"a": 1}}
        found = await jobs_of_keys(conn, [JobKey.of("ada", "k", body)])
        assert found == await JobRepository(conn).newest_of("plain", list(JobStatus), 9)
    assert found == [await engine.job(made.job.job_id)]
    assert found[0].slots_above == ["a"]


async def test_of_many_calls_at_once_one_creates(engine: Engine) -> None:
    orders = [await order(engine, 1) for _ in range(6)]
    made = await asyncio.gather(*(create(engine, one) for one in orders))
    assert len({one.job.job_id for (one,) in made}) == 1
    assert [one.existing for (one,) in made].count(False) == 1
    assert await counted(engine) == len(await engine.messages()) == 1


async def test_of_many_bodies_at_once_one_gets_the_key(engine: Engine) -> None:
    orders = [await order(engine, a) for a in range(6)]
    made = await asyncio.gather(*(create(engine, one) for one in orders), return_exceptions=True)
    assert [type(one) for one in made].count(Conflict) == 5
    assert await counted(engine) == 1


async def test_calls_that_share_a_transaction_are_told_apart(engine: Engine) -> None:
    submits = Submits(engine.pool, engine.jobs, engine.offers)
    wanted = [(1, "k"), (1, "k"), (2, "k"), (2, None), (3, "other")]
    orders = [await order(engine, *one) for one in wanted]
    answers = await asyncio.gather(*map(submits.create, orders), return_exceptions=True)
    conflict = answers.pop(2)
    assert isinstance(conflict, Conflict)
    made = [one for one in answers if isinstance(one, Created)]
    assert [one.existing for one in made] == [False, True, False, False]
    assert await counted(engine) == 3


async def test_a_job_is_found_by_its_key_before_anything_is_checked(engine: Engine) -> None:
    submits, wanted = Submits(engine.pool, engine.jobs, engine.offers), await order(engine, 1)
    assert wanted.key is not None
    assert await submits.known(wanted.key) is None
    made = await submits.create(wanted)
    known = await submits.known(wanted.key)
    assert known is not None
    assert (known.existing, known.job.job_id) == (True, made.job.job_id)
    other = (await order(engine, 2)).key
    assert other is not None
    with pytest.raises(Conflict, match="another body"):
        await submits.known(other)


async def test_a_workflow_that_deduplicates_takes_no_key(engine: Engine) -> None:
    with pytest.raises(ParameterInvalid, match="once deduplicates") as refused:
        await order(engine, 1, workflow_id="once")
    assert refused.value.detail.field == "idempotency_key"
    mixed = [await order(engine, 1, None, workflow_id="once"), await order(engine, 1), await order(engine, 1, None)]
    assert [one.existing for one in await create(engine, *mixed)] == [False, False, False]
    assert [one.existing for one in await create(engine, *mixed[:2])] == [True, True]


@pytest.mark.parametrize("value", [float("nan"), "a\x00", "\ud800", {"deep": float("inf")}])
def test_a_body_that_no_row_can_hold_has_no_key(value: Any) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        JobKey.of("ada", "k", {"workflow_id": "plain", "inputs": {"a": value}})
    assert str(refused.value.detail.field).startswith("inputs.a")


MANY = """
INSERT INTO dagapp.dag_jobs (job_id, workflow_id, workflow_version, definition_hash, status, input_params)
SELECT md5(n::text) || md5('body'), workflow_id, workflow_version, definition_hash, status, input_params
FROM dagapp.dag_jobs, generate_series(1, 4000) AS n
"""


@pytest.mark.parametrize("statistics", ["of empty tables", "of full tables"])
async def test_a_key_leads_to_its_job(engine: Engine, database: Database, statistics: str) -> None:
    wanted = await order(engine, 1)
    assert wanted.key is not None
    async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
        await admin.execute("ALTER TABLE dagapp.dag_jobs SET (autovacuum_enabled = false)")
        await admin.execute("ANALYZE")
        await create(engine, wanted)
        await admin.execute(MANY)
        if statistics == "of full tables":
            await admin.execute("ANALYZE")
    statements: Recorded = {}
    async with engine.pool.connection() as conn:
        before, conn.cursor_factory = conn.cursor_factory, recording(statements)
        assert [job.job_id for job in await jobs_of_keys(conn, [wanted.key])] == [wanted.key.job_id]
        conn.cursor_factory = before
    async with Session.open(database.conninfo(roles.ORCHESTRATOR)) as session:
        scans = [scan for query, values in statements.items() for scan in await session.scans(query, values)]
    assert [(scan.table, scan.kind == "Seq Scan", scan.visited <= 2) for scan in scans] == [("dag_jobs", False, True)]
