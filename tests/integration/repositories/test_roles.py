"""The role table, cell by cell: every role tries every privilege on every relation and function, from outside."""

import contextlib
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

from repositories import migrate, roles
from tests.support.databases import Database, Server

Cells = dict[str, str]

READ, APPEND, WRITE, ALL = "S", "SI", "SIUD", "SIUDT"
ENGINE = (
    "dag_workflows", "dag_orchestrators", "dag_workers", "dag_jobs", "dag_node_states", "dag_attempts",
    "dag_task_results", "dag_checkpoints", "dag_settings", "dag_fan_outs", "dag_fan_out_items", "dag_commands",
    "dag_limits", "dag_slots", "dag_dead_letters",
)  # fmt: skip
BUSINESS = (
    "platforms", "geospatial_assets", "asset_versions", "platform_requests", "platform_request_jobs",
    "webhook_secrets", "webhook_deliveries", "platform_usage", "request_secrets", "submit_batches",
)  # fmt: skip

ALLOWED: dict[str, Cells] = {
    roles.ORCHESTRATOR: {
        **{f"dagapp.{name}": WRITE for name in (*ENGINE, *BUSINESS)},
        "dagapp.dag_job_events": APPEND,
        "dagapp.asset_audit": APPEND,
        "dagapp.version_comments": APPEND,
        "dagapp.schema_migrations": READ,
        "dagqueue.messages": WRITE,
        "dagqueue.dead_letters": WRITE,
        "dagqueue.consumers": WRITE,
        "fence.catalogue_writer": "SU",
        "pgstac.items": ALL,
        "pgstac.collections": ALL,
    },
    roles.WORKER: {
        "fence.catalogue_writer": "SU",
        "dagqueue.messages": "SUD",
        "dagqueue.dead_letters": APPEND,
        "dagqueue.consumers": WRITE,
        "geo.by_a_worker": ALL,
        "pgstac.items": ALL,
        "pgstac.collections": ALL,
    },
    roles.GATEWAY: {
        "dagapi.platforms": READ,
        "dagapi.assets": READ,
        "dagapi.versions": READ,
        "dagapi.requests": READ,
        "dagapi.comments": READ,
        "dagapi.decisions": READ,
    },
    roles.SERVING: {
        "dagserve.routes": READ,
        "dagserve.reports": READ,
        "geo.by_a_worker": READ,
        "pgstac.items": READ,
        "pgstac.collections": READ,
    },
}
"""Everything that is not here is refused; pgstac itself grants ALL to its writers.

S select, I insert, U update, D delete, T truncate.
"""

FUNCTIONS: dict[str, set[str]] = {
    roles.ORCHESTRATOR: {"dagapp.clock", "dagapp.ensure_event_partitions"},
    roles.WORKER: {"dagapp.clock", "fence.hold"},
    roles.GATEWAY: {"dagapi.find_assets", "dagapi.find_reviews", "dagapi.find_requests"},
    roles.SERVING: set(),
}
CREATE_IN: dict[str, set[str]] = {
    roles.ORCHESTRATOR: {"pgstac"},
    roles.WORKER: {"geo", "pgstac"},
    roles.GATEWAY: set(),
    roles.SERVING: set(),
}
"""Schemas in which a role may create; pgstac's own grants give it to its writers."""
SCHEMAS = (*migrate.SCHEMAS, "pgstac", "public")
NOT_ALLOWED = (
    errors.InsufficientPrivilege,
    # What a view of several tables answers to writes, before rights are looked at.
    errors.ObjectNotInPrerequisiteState,
    errors.FeatureNotSupported,
    errors.WrongObjectType,
)


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[Database]:
    """One clone for all cells, each is rolled back; a worker has left a table in geo."""
    database = server.clone()
    with psycopg.connect(database.conninfo(roles.WORKER)) as conn:
        conn.execute("CREATE TABLE geo.by_a_worker (id integer PRIMARY KEY)")
    yield database
    server.drop(database)


def relations(database: Database) -> list[tuple[str, str, str]]:
    """Return (schema, name, first column) of everything that holds rows, read as the administrator."""
    with psycopg.connect(database.admin) as admin:
        return admin.execute(
            "SELECT n.nspname::text, c.relname::text, a.attname::text FROM pg_class AS c"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE a.attnum = 1 AND c.relkind IN ('r', 'p', 'v', 'm')"
            " AND (n.nspname = ANY(%s) OR (n.nspname = 'pgstac' AND c.relname IN ('items', 'collections')))"
            " ORDER BY 1, 2",
            (list(migrate.SCHEMAS),),
        ).fetchall()


def may(conn: "psycopg.Connection[tuple[object, ...]]", statement: sql.SQL | sql.Composed) -> bool:
    """Return whether the statement passes the permission check; what else is wrong with it does not matter."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(statement)
    except NOT_ALLOWED:
        return False
    except psycopg.DatabaseError:
        return True
    return True


def attempts(schema: str, name: str, column: str) -> dict[str, sql.SQL | sql.Composed]:
    """Return one harmless statement per privilege."""
    table, first = sql.Identifier(schema, name), sql.Identifier(column)
    return {
        "S": sql.SQL("SELECT {} FROM {} LIMIT 0").format(first, table),
        "I": sql.SQL("INSERT INTO {} DEFAULT VALUES").format(table),
        "U": sql.SQL("UPDATE {} SET {} = DEFAULT").format(table, first),
        "D": sql.SQL("DELETE FROM {}").format(table),
        "T": sql.SQL("TRUNCATE {} CASCADE").format(table),
    }


@pytest.mark.parametrize("role", roles.PROCESS_ROLES)
def test_a_role_may_do_to_each_relation_what_the_table_says_and_no_more(shared: Database, role: str) -> None:
    found: Cells = {}
    every = relations(shared)
    with psycopg.connect(shared.conninfo(role), autocommit=True) as conn:
        for schema, name, column in every:
            if rights := "".join(p for p, s in attempts(schema, name, column).items() if may(conn, s)):
                found[f"{schema}.{name}"] = rights
    assert found == ALLOWED[role]
    assert len(every) >= 28


@pytest.mark.parametrize("role", roles.PROCESS_ROLES)
def test_a_role_may_execute_the_functions_of_the_table_and_no_other(shared: Database, role: str) -> None:
    calls = {
        "dagapp.clock": "SELECT dagapp.clock()",
        "dagapp.ensure_event_partitions": "SELECT dagapp.ensure_event_partitions(0)",
        "dagapp.forget_jobs": "SELECT dagapp.forget_jobs()",
        "fence.hold": "SELECT fence.hold('x', 'y')",
        "dagapi.find_assets": "SELECT dagapi.find_assets(NULL, NULL, NULL, false, NULL, NULL, 1)",
        "dagapi.find_requests": "SELECT dagapi.find_requests(NULL, NULL, NULL, NULL, NULL, 1)",
        "dagapi.find_reviews": "SELECT dagapi.find_reviews(NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1)",
    }
    with psycopg.connect(shared.admin) as admin:
        names = admin.execute(
            "SELECT pronamespace::regnamespace || '.' || proname FROM pg_proc"
            " WHERE pronamespace::regnamespace::text = ANY(%s)",
            (list(migrate.SCHEMAS),),
        ).fetchall()
    assert {name for (name,) in names} == set(calls)
    with psycopg.connect(shared.conninfo(role), autocommit=True) as conn:
        assert {name for name, call in calls.items() if may(conn, sql.SQL(call))} == FUNCTIONS[role]


@pytest.mark.parametrize("role", roles.PROCESS_ROLES)
def test_a_role_may_create_only_where_the_table_says(shared: Database, role: str) -> None:
    with psycopg.connect(shared.conninfo(role), autocommit=True) as conn:
        statement = sql.SQL("CREATE TABLE {} (id integer)")
        found = {s for s in SCHEMAS if may(conn, statement.format(sql.Identifier(s, "intruder")))}
        assert found == CREATE_IN[role]
        assert not may(conn, sql.SQL("CREATE SCHEMA intruder"))


@pytest.mark.parametrize("role", roles.PROCESS_ROLES)
def test_only_the_orchestrator_can_become_the_owner_and_nobody_a_creator_of_roles(shared: Database, role: str) -> None:
    becomes = set()
    with psycopg.connect(shared.conninfo(role), autocommit=True) as conn:
        for other in (roles.OWNER, roles.DEPLOY, *roles.PROCESS_ROLES, "pgstac_admin", "postgres"):
            if other != role and may(conn, sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(other))):
                becomes.add(other)
        assert not may(conn, sql.SQL("CREATE ROLE intruder"))
        assert not may(conn, sql.SQL("CREATE EXTENSION pgcrypto"))
        assert not may(conn, sql.SQL("COPY (SELECT 1) TO PROGRAM 'true'"))
        assert not may(conn, sql.SQL("SELECT pg_read_file('/etc/passwd')"))
    assert becomes == ({roles.OWNER, roles.WORKER} if role == roles.ORCHESTRATOR else set())


def test_membership_alone_gives_the_orchestrator_no_right_of_the_owner(shared: Database) -> None:
    with psycopg.connect(shared.conninfo(roles.ORCHESTRATOR), autocommit=True) as conn:
        assert not may(conn, sql.SQL("ALTER TABLE dagapp.dag_jobs ADD COLUMN x text"))
        assert not may(conn, sql.SQL("DROP TABLE dagapp.asset_audit"))
        assert not may(conn, sql.SQL("UPDATE dagapp.asset_audit SET reason = 'rewritten'"))
        assert not may(conn, sql.SQL("DELETE FROM dagapp.dag_job_events_default"))


def test_the_owner_cannot_log_in(shared: Database) -> None:
    dsn = psycopg.conninfo.make_conninfo(shared.conninfo(roles.WORKER), user=roles.OWNER)
    with pytest.raises(psycopg.OperationalError), psycopg.connect(dsn):
        pass


def test_a_role_without_a_grant_cannot_connect(shared: Database) -> None:
    with psycopg.connect(shared.admin, autocommit=True) as admin:
        with contextlib.suppress(errors.DuplicateObject):
            admin.execute("CREATE ROLE stranger LOGIN")
        name = shared.name
        row = admin.execute("SELECT has_database_privilege('stranger', %s, 'CONNECT')", (name,)).fetchone()
    assert row == (False,)


@pytest.mark.parametrize("role", roles.PROCESS_ROLES)
def test_every_process_role_has_short_timeouts(shared: Database, role: str) -> None:
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "timezone")
    with psycopg.connect(shared.conninfo(role)) as conn:
        row = conn.execute("SELECT current_setting(%s), current_setting(%s), current_setting(%s),"
                           " current_setting(%s)", names).fetchone()  # fmt: skip
    assert row == ("5s", "2s", "30s", "UTC")


def test_no_function_of_ours_is_executable_by_everybody(shared: Database) -> None:
    with psycopg.connect(shared.admin) as admin:
        open_ones = admin.execute(
            "SELECT p.oid::regprocedure FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner)))"
            " AS a WHERE a.grantee = 0 AND p.pronamespace::regnamespace::text = ANY(%s)",
            (list(migrate.SCHEMAS),),
        ).fetchall()
    assert open_ones == []


def test_every_security_definer_function_of_ours_pins_its_search_path(shared: Database) -> None:
    with psycopg.connect(shared.admin) as admin:
        rows = admin.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND pronamespace::regnamespace::text = ANY(%s)",
            (list(migrate.SCHEMAS),),
        ).fetchall()
    assert {name for name, _ in rows} == {
        "hold",
        "forget_jobs",
        "ensure_event_partitions",
        "find_assets",
        "find_reviews",
        "find_requests",
    }
    assert all("search_path=pg_catalog, pg_temp" in config for _, config in rows)


def test_who_may_delete_jobs_need_not_be_allowed_to_delete_what_goes_with_them(database: Database) -> None:
    with psycopg.connect(database.admin) as conn:
        conn.execute("CREATE ROLE a_janitor")
        conn.execute("GRANT USAGE ON SCHEMA dagapp TO a_janitor")
        conn.execute("GRANT SELECT, DELETE ON dagapp.dag_jobs TO a_janitor")
        conn.execute(
            "INSERT INTO dagapp.dag_workflows (definition_hash, workflow_id, version, definition)"
            " VALUES ('h', 'w', 1, '{}')"
        )
        conn.execute(
            "INSERT INTO dagapp.dag_jobs (job_id, workflow_id, workflow_version, definition_hash, input_params)"
            " VALUES ('j', 'w', 1, 'h', '{}')"
        )
        conn.execute("INSERT INTO dagapp.dag_node_states (job_id, node_id) VALUES ('j', 'n')")
        conn.execute("SET ROLE a_janitor")
        conn.execute("DELETE FROM dagapp.dag_jobs WHERE job_id = 'j'")
        conn.execute("RESET ROLE")
        assert conn.execute("SELECT count(*) FROM dagapp.dag_node_states").fetchone() == (0,)
        conn.rollback()  # roles belong to the whole server
