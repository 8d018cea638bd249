"""Nobody who holds an attempt ever waits for a job's row: job before attempts, everywhere (architecture §3.2)."""

import asyncio

from core.wire import Beat
from repositories.jobs import JobRepository
from services.loading import lock_jobs
from services.work import pipelined
from tests.support.engine import Engine, HandWorker


async def test_a_checkpoint_never_waits_for_the_row_of_its_job(engine: Engine, worker: HandWorker) -> None:
    """Its foreign key locks the job's row too: waiting for it with the attempt in hand would be a deadlock."""
    job_id = await engine.create("echo_test")
    message = await engine.message(job_id)
    await worker.claim(message)
    beat = Beat(task_id=message.task_id, token=message.token, checkpoint={"phase": "half", "state": {"n": 1}})
    async with engine.pool.connection() as holder:
        await holder.execute("SELECT set_config('lock_timeout', '1s', true)")
        assert await (await JobRepository(holder).lock([job_id])).rows()
        async with asyncio.timeout(1.5):
            assert (await worker.beat(beat)).revoked == ()
        await holder.rollback()
    assert len(await engine.query("SELECT phase FROM dagapp.dag_checkpoints")) == 1


async def test_a_job_is_free_for_its_result_while_a_checkpoint_is_saved(engine: Engine, worker: HandWorker) -> None:
    job_id = await engine.create("echo_test")
    await engine.message(job_id)
    async with engine.pool.connection() as saving:
        await saving.execute(
            "INSERT INTO dagapp.dag_checkpoints (job_id, node_id, params_digest, phase, state, saved_by)"
            " VALUES (%s, 'other', 'x', 'half', '{}', 'x')",
            (job_id,),
        )
        async with pipelined(engine.pool) as conn:
            assert set((await lock_jobs(conn, [job_id])).jobs) == {job_id}
        await saving.rollback()
