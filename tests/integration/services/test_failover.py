"""Case D37: the server ends every connection again and again, and nothing is lost or doubled."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from psycopg import AsyncConnection

from core.errors import DatabaseUnavailable
from core.wire import ClaimOutcome, ResultDisposition
from repositories import roles
from repositories.engine_pool import engine_pool
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker
from tests.support.waiting import await_until

JOBS = 6
END_ALL = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'geodag_orchestrator'
"""
"""Waits until they have ended: a shot that is still on its way would hit the call that is left in peace."""
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'geodag_orchestrator' AND wait_event_type = 'Lock'
"""


async def test_jobs_end_although_the_server_ends_all_connections_again_and_again(database: Database) -> None:
    async with (
        await AsyncConnection.connect(database.admin, autocommit=True) as admin,
        engine_pool(database.conninfo(roles.ORCHESTRATOR), name="test", max_size=4, pooled=False) as pool,
    ):
        engine = Engine(pool)
        worker = HandWorker(engine)

        async def waits() -> bool:
            return await (await admin.execute(WAITING)).fetchone() == (1,)

        async def hit(call: Callable[[], Awaitable[Any]]) -> BaseException:
            """Return what a call raises whose connection ends while it waits for a row that somebody holds."""
            async with await AsyncConnection.connect(database.admin) as holder:
                await holder.execute("SELECT FROM dagapp.dag_attempts FOR UPDATE")
                running = asyncio.create_task(call())  # type: ignore[arg-type]
                await await_until(waits, "the call waits for the row")
                await admin.execute(END_ALL)
            (error,) = await asyncio.gather(running, return_exceptions=True)
            assert isinstance(error, BaseException)
            return error

        async def under_fire(call: Callable[[], Awaitable[Any]]) -> Any:
            """Make a call again until it is answered, as every client does; the first is hit, the next maybe."""
            assert isinstance(await hit(call), DatabaseUnavailable)
            answer, _ = await asyncio.gather(call(), admin.execute(END_ALL), return_exceptions=True)
            if isinstance(answer, BaseException):
                assert isinstance(answer, DatabaseUnavailable), answer
                return await call()
            return answer

        for _ in range(JOBS):
            job_id = await engine.create("echo_test")
            message, claim_id = await engine.message(job_id), uuid.uuid4().hex
            (claimed,) = await under_fire(partial(worker.claim, message, claim_id=claim_id))
            assert claimed.outcome is ClaimOutcome.GRANTED
            (answer,) = await under_fire(partial(worker.complete, message))
            assert answer.disposition in {ResultDisposition.APPLIED, ResultDisposition.DUPLICATE}
            assert (await engine.job(job_id)).status == "COMPLETED"
            events = Counter(await engine.events(job_id))
            assert events["node_started"] == events["job_completed"] == 1
