"""The pool of hot statements, on a real server."""

from contextlib import AsyncExitStack

from repositories.engine_pool import engine_pool
from tests.support.databases import Database


async def test_one_caller_at_a_time_has_the_same_connection_however_many_there_are(database: Database) -> None:
    async with engine_pool(database.conninfo(), name="test", max_size=4, pooled=False) as pool:
        async with AsyncExitStack() as together:
            pids = [(await together.enter_async_context(pool.connection())).info.backend_pid for _ in range(4)]
        seen = set()
        for _ in range(5):
            async with pool.connection() as conn:
                seen.add(conn.info.backend_pid)
        assert len(set(pids)) == 4
        assert seen < set(pids)
        assert len(seen) == 1
