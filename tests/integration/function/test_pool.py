"""The gateway holds one connection an instance, however many callers read."""

import asyncio

import psycopg

from function.queries import GatewayQueries
from repositories import roles
from tests.support.databases import Database


async def test_twenty_readers_share_one_connection(database: Database) -> None:
    queries = GatewayQueries(database.conninfo(roles.GATEWAY))
    await asyncio.gather(*(queries.ping() for _ in range(20)))
    with psycopg.connect(database.admin) as admin:
        statement = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()"
        seen = admin.execute(statement, (roles.GATEWAY,)).fetchone()
    await queries.close()
    assert seen == (1,)
