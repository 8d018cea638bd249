"""Both steps in order, for `geodag up`, `geodag db deploy` and tests: prepare as administrator, migrate as deployer."""

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import AsyncConnection, conninfo

from repositories import bootstrap, migrate, roles


@dataclass(frozen=True, slots=True)
class Deployed:
    """What a deployment did."""

    created_database: bool
    migrations: tuple[str, ...]
    pgstac: str


async def deploy(admin: str, database: str, passwords: Mapping[str, str], *, host: str | None = None) -> Deployed:
    """Create, prepare and migrate a database; idempotent.

    Args:
        admin: Connection string of an administrator, to any database of the server.
        database: Name of geodag's database.
        passwords: Role to password for `roles.LOGIN_ROLES`; that of `geodag_deploy` is needed here.
        host: Where the deploy role connects when not to the administrator's host (a local socket asks no password).
    """
    async with await AsyncConnection.connect(admin, autocommit=True) as conn:
        created = await bootstrap.create_database(conn, database)
    async with await AsyncConnection.connect(conninfo.make_conninfo(admin, dbname=database), autocommit=True) as conn:
        await bootstrap.prepare(conn, passwords)
    deployer = {"user": roles.DEPLOY, "password": passwords[roles.DEPLOY], "dbname": database}
    dsn = conninfo.make_conninfo(admin, **deployer, **({"host": host} if host else {}))
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        done = await migrate.migrate(conn)
        state = await migrate.status(conn)
    if state.pgstac_installed != state.pgstac_wanted:
        await migrate.migrate_pgstac(dsn)
    return Deployed(created, done, state.pgstac_wanted)
