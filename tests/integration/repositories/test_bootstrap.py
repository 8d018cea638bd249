"""The administrator's step works for one who is no superuser, as on Azure, and passwords stay out of the server."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import AsyncConnection, conninfo, sql

from repositories import bootstrap, migrate, roles
from repositories.deploy import deploy
from tests.support.databases import PASSWORDS, Database, Server

ADMIN = "cloud_admin"


@pytest.fixture
def managed(server: Server) -> Iterator[str]:
    """A database owned by a NOSUPERUSER CREATEROLE administrator; the provider has allowed the extensions."""
    with psycopg.connect(server.cluster.admin_conninfo(), autocommit=True) as superuser:
        superuser.execute(f"CREATE ROLE {ADMIN} LOGIN CREATEROLE CREATEDB NOSUPERUSER PASSWORD 'admin'".encode())
        superuser.execute(f"CREATE DATABASE managed TEMPLATE template0 OWNER {ADMIN}".encode())
    with psycopg.connect(server.cluster.admin_conninfo("managed"), autocommit=True) as superuser:
        for extension in roles.EXTENSIONS:
            superuser.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
    yield conninfo.make_conninfo(
        host="127.0.0.1", port=server.cluster.port, dbname="managed", user=ADMIN, password="admin"
    )
    with psycopg.connect(server.cluster.admin_conninfo(), autocommit=True) as superuser:
        superuser.execute("DROP DATABASE managed WITH (FORCE)")
        superuser.execute(f"DROP ROLE {ADMIN}".encode())


async def test_an_administrator_without_superuser_rights_deploys_everything(managed: str) -> None:
    done = await deploy(managed, "managed", PASSWORDS)
    assert len(done.migrations) == len(migrate.load_migrations())
    dsn = conninfo.make_conninfo(managed, user=roles.ORCHESTRATOR, password=PASSWORDS[roles.ORCHESTRATOR])
    async with await AsyncConnection.connect(dsn) as conn:
        assert (await migrate.status(conn)).ready
    again = await deploy(managed, "managed", PASSWORDS)
    assert (again.created_database, again.migrations) == (False, ())


async def test_bootstraps_of_several_databases_of_one_server_do_not_fail_each_other(server: Server) -> None:
    databases = [server.clone() for _ in range(4)]

    async def prepare(database: Database) -> None:
        async with await AsyncConnection.connect(database.admin, autocommit=True) as admin:
            for _ in range(3):
                await bootstrap.prepare(admin, PASSWORDS)

    await asyncio.gather(*(prepare(database) for database in databases))
    for database in databases:
        server.drop(database)


async def test_the_server_stores_verifiers_and_the_statement_carries_no_clear_text(server: Server) -> None:
    async with await AsyncConnection.connect(server.cluster.admin_conninfo(), autocommit=True) as admin:
        await admin.execute("SET log_statement = 'all'")
        await bootstrap.set_password(admin, roles.GATEWAY, PASSWORDS[roles.GATEWAY])
        cursor = await admin.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", (roles.GATEWAY,))
        (stored,) = await cursor.fetchone() or ("",)
    assert stored.startswith("SCRAM-SHA-256$")
    assert PASSWORDS[roles.GATEWAY] not in server.cluster.log.read_text()


async def test_roles_have_the_attributes_and_memberships_of_the_table_and_no_others(server: Server) -> None:
    async with await AsyncConnection.connect(server.cluster.admin_conninfo(), autocommit=True) as admin:
        cursor = await admin.execute(
            "SELECT rolname::text, rolcanlogin, rolinherit, rolsuper OR rolcreatedb OR rolreplication OR rolbypassrls,"
            " rolcreaterole FROM pg_roles WHERE rolname LIKE 'geodag%%' ORDER BY 1",
            (),
        )
        attributes = await cursor.fetchall()
        cursor = await admin.execute(
            "SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members"
            " WHERE member::regrole::text LIKE 'geodag%%'",
            (),
        )
        memberships = {(role, member) for role, member in await cursor.fetchall()}
    assert attributes == [
        ("geodag_deploy", True, True, False, True),
        ("geodag_gateway", True, True, False, False),
        ("geodag_migrator", False, False, False, False),
        ("geodag_orchestrator", True, True, False, False),
        ("geodag_owner", False, True, False, False),
        ("geodag_serving", True, True, False, False),
        ("geodag_worker", True, True, False, False),
    ]
    assert memberships == set(roles.MEMBERSHIPS)
