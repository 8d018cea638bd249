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

JOBS = 6
TIMES = 2
"""How often a call is made under fire before it is left in peace."""
END_ALL = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'geodag_orchestrator'
"""
"""Waits until they have ended: a shot that is still on its way would hit the call that is left in peace."""


async def test_jobs_end_although_the_server_ends_all_connections_again_and_again(database: Database) -> None:
    unanswered: Counter[str] = Counter()
    async with (
        await AsyncConnection.connect(database.admin, autocommit=True) as admin,
        engine_pool(database.conninfo(roles.ORCHESTRATOR), name="test", max_size=4, pooled=False) as pool,
    ):
        engine = Engine(pool)
        worker = HandWorker(engine)

        async def under_fire(call: Callable[[], Awaitable[Any]]) -> Any:
            """Make a call again until it is answered, as every client does."""
            for _ in range(TIMES):
                answer, _ = await asyncio.gather(call(), admin.execute(END_ALL), return_exceptions=True)
                if not isinstance(answer, BaseException):
                    return answer
                assert isinstance(answer, DatabaseUnavailable), answer
                unanswered[type(answer).__name__] += 1
            return await call()

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
    assert unanswered
