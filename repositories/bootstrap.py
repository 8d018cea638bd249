"""Step one of two, run once by the database's administrator: extensions, roles, memberships, rights on the database.

Step two is `repositories.migrate`, run by a role that is NOSUPERUSER CREATEROLE. Everything here is idempotent, names
nothing that is secret in SQL text, and works for a superuser as well as for `azure_pg_admin`, who can create extensions
and roles but is not one.
"""

from collections.abc import Mapping

import psycopg
from psycopg import AsyncConnection, errors, sql

from repositories import roles

LOCK_KEY = 4241
"""Transaction advisory lock of bootstrap and migrations of one database."""
COLLISION_RETRIES = 10


async def prepare(conn: AsyncConnection, passwords: Mapping[str, str] | None = None) -> None:
    """Prepare the connection's database for migrations, in one transaction.

    Args:
        conn: Of the administrator, connected to the database that is to hold geodag.
        passwords: Role to password, for roles that log in with one; the server sees only SCRAM verifiers.
    """
    for left in range(COLLISION_RETRIES, -1, -1):
        try:
            async with conn.transaction():
                await _prepare(conn, passwords or {})
        except psycopg.Error as error:
            if not left or not _is_collision(error):
                raise
        else:
            break


def _is_collision(error: psycopg.Error) -> bool:
    """Return whether another database's bootstrap got in between: roles are the cluster's, advisory locks are not."""
    if isinstance(error, errors.DuplicateObject | errors.UniqueViolation | errors.DeadlockDetected):
        return True
    return isinstance(error, errors.InternalError) and "tuple concurrently updated" in str(error)


async def _prepare(conn: AsyncConnection, passwords: Mapping[str, str]) -> None:
    await conn.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
    await _create_extensions(conn)
    await _create_roles(conn)
    await _grant_memberships(conn)
    await _apply_settings(conn)
    await _grant_here(conn)
    for role, password in passwords.items():
        await set_password(conn, role, password)


async def set_password(conn: AsyncConnection, role: str, password: str) -> None:
    """Set a role's password from a verifier computed here, so that the clear text reaches no server log."""
    verifier = conn.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    await conn.execute(
        sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier)), prepare=False
    )


async def create_database(conn: AsyncConnection, name: str) -> bool:
    """Create the database when it is missing; needs autocommit. Returns whether it was created."""
    cursor = await conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
    if await cursor.fetchone():
        return False
    await conn.execute(
        sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name)), prepare=False
    )
    return True


async def _create_extensions(conn: AsyncConnection) -> None:
    cursor = await conn.execute("SELECT extname FROM pg_extension")
    present = {row[0] for row in await cursor.fetchall()}
    for extension in roles.EXTENSIONS:
        if extension not in present:
            await _run(conn, "CREATE EXTENSION {} WITH SCHEMA public", extension)


async def _create_roles(conn: AsyncConnection) -> None:
    cursor = await conn.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", (list(roles.ATTRIBUTES),))
    present = {row[0] for row in await cursor.fetchall()}
    for role, attributes in roles.ATTRIBUTES.items():
        if role not in present:
            await _run(conn, f"CREATE ROLE {{}} {attributes}", role)


async def _grant_memberships(conn: AsyncConnection) -> None:
    cursor = await conn.execute(
        "SELECT granted.rolname, member.rolname FROM pg_auth_members AS m"
        " JOIN pg_roles AS granted ON granted.oid = m.roleid JOIN pg_roles AS member ON member.oid = m.member"
    )
    present = {(row[0], row[1]) for row in await cursor.fetchall()}
    for role, member in roles.MEMBERSHIPS:
        if (role, member) not in present:
            await _run(conn, "GRANT {} TO {}", role, member)
    await _let_deploy_alter_pgstac_roles(conn)


async def _let_deploy_alter_pgstac_roles(conn: AsyncConnection) -> None:
    """Give the deploy role what `pypgstac migrate` does to pgstac's roles; from 16 on that takes ADMIN OPTION."""
    for role in roles.PGSTAC_ROLES:
        await _run(conn, "GRANT {} TO {} WITH ADMIN OPTION", role, roles.DEPLOY)


async def _apply_settings(conn: AsyncConnection) -> None:
    for role in roles.PROCESS_ROLES:
        for setting, value in roles.SETTINGS.items():
            await _run(conn, f"ALTER ROLE {{}} SET {setting} = '{value}'", role)
        await _run(conn, f"ALTER ROLE {{}} SET search_path = {roles.SEARCH_PATHS[role]}", role)


async def grant_database(conn: AsyncConnection, database: str) -> None:
    """Give the rights on the database itself; a clone of a database does not inherit them."""
    await _run(conn, "REVOKE ALL ON DATABASE {} FROM PUBLIC", database)
    for privilege, grantees in roles.DATABASE_RIGHTS.items():
        names = ", ".join("{}" for _ in grantees)
        await _run(conn, f"GRANT {privilege} ON DATABASE {{}} TO {names}", database, *grantees)


async def _grant_here(conn: AsyncConnection) -> None:
    cursor = await conn.execute("SELECT current_database()")
    row = await cursor.fetchone()
    await grant_database(conn, row[0] if row else "")
    await _run(conn, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")


async def _run(conn: AsyncConnection, statement: str, *names: str) -> None:
    await conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)), prepare=False)
