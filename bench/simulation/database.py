"""The real PostgreSQL of a simulation: a clone whose clock is a one-row table and which records every change of status.

A pool here lends one connection for one transaction, which is one step; faults happen around it.
"""

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from bench.simulation.faults import Faults
from bench.simulation.world import Process, World
from repositories import roles
from repositories.database import AsyncPool
from repositories.engine_pool import OPTIONS, PREPARE_THRESHOLD
from repositories.piped import PipedConnection

Json = dict[str, Any]
SCHEMA = """
CREATE SCHEMA sim;
CREATE TABLE sim.clock (one boolean PRIMARY KEY DEFAULT true, now timestamptz NOT NULL);
INSERT INTO sim.clock (now) VALUES ('2026-01-01Z');
CREATE TABLE sim.moves (
    move_id bigint GENERATED ALWAYS AS IDENTITY, entity text, key text, source text, target text, run_no integer,
    lease_left interval);
CREATE TABLE sim.ends (job_id text, run_no integer, status text, PRIMARY KEY (job_id, run_no));
CREATE TABLE sim.effects (run_id text PRIMARY KEY, task_id text, item integer, seen_move bigint);
CREATE TABLE sim.overruns (slot_key text, held bigint, most integer);
GRANT USAGE ON SCHEMA sim TO PUBLIC;
GRANT SELECT ON sim.clock TO PUBLIC;
GRANT SELECT, INSERT ON sim.ends TO geodag_orchestrator;
GRANT SELECT, INSERT ON sim.effects TO geodag_worker;
GRANT SELECT ON sim.moves TO geodag_worker;

CREATE OR REPLACE FUNCTION dagapp.clock() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
AS $$ BEGIN RETURN (SELECT now FROM sim.clock); END $$;

CREATE FUNCTION sim.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE new_row jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
DECLARE old_row jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
DECLARE any_row jsonb := coalesce(new_row, old_row);
BEGIN
    INSERT INTO sim.moves (entity, key, source, target, run_no, lease_left) VALUES (
        TG_ARGV[0],
        CASE TG_ARGV[0] WHEN 'job' THEN any_row ->> 'job_id'
            WHEN 'node' THEN (any_row ->> 'job_id') || '/' || (any_row ->> 'node_id')
            ELSE any_row ->> 'task_id' END,
        old_row ->> TG_ARGV[1], new_row ->> TG_ARGV[1], (new_row ->> 'run_no')::integer,
        (old_row ->> 'lease_expires_at')::timestamptz - dagapp.clock());
    RETURN NULL;
END $$;

CREATE FUNCTION sim.count_slots() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO sim.overruns
    SELECT l.slot_key, count(*), l.limit_count
    FROM dagapp.dag_limits AS l JOIN dagapp.dag_slots AS s USING (slot_key)
    WHERE l.slot_key = NEW.slot_key AND s.granted_at IS NOT NULL
    GROUP BY l.slot_key HAVING count(*) > l.limit_count;
    RETURN NULL;
END $$;
CREATE TRIGGER sim_granted AFTER UPDATE ON dagapp.dag_slots FOR EACH ROW EXECUTE FUNCTION sim.count_slots();
"""
WATCHED = {
    "job": ("dag_jobs", "status", "(OLD.status, OLD.run_no) IS DISTINCT FROM (NEW.status, NEW.run_no)"),
    "node": ("dag_node_states", "status", "OLD.status IS DISTINCT FROM NEW.status"),
    "attempt": ("dag_attempts", "state", "OLD.state IS DISTINCT FROM NEW.state"),
}
"""By entity its table, the column that says where it stands, and which updates are noted."""
EMPTIED = ("dagapp.dag_jobs", "dagapp.dag_node_states", "dagapp.dag_attempts", "dagapp.dag_workflows",
           "dagapp.dag_orchestrators", "dagapp.dag_workers", "dagapp.dag_task_results", "dagapp.dag_job_events",
           "dagapp.dag_settings", "dagapp.dag_limits", "dagapp.dag_slots", "dagapp.dag_commands",
           "dagapp.dag_dead_letters", "dagqueue.messages", "dagqueue.dead_letters", "sim.moves", "sim.ends",
           "sim.effects", "sim.overruns")  # fmt: skip
CONNECTIONS = 3


class SimulatedDatabase:
    """Connections to one clone, shared by all processes of a history."""

    def __init__(self, admin: AsyncConnection[Any], by_role: Mapping[str, Sequence[AsyncConnection[Any]]]) -> None:
        self._admin = admin
        self._idle = {role: list(connections) for role, connections in by_role.items()}
        self._told: datetime | None = None
        self.transactions = 0

    @classmethod
    @asynccontextmanager
    async def connected(cls, admin: str, dsns: Mapping[str, str]) -> AsyncIterator["SimulatedDatabase"]:
        """Yield a database; `admin` and `dsns` (by role) lead to a fresh clone of the migrated template."""
        connections: dict[str, list[AsyncConnection[Any]]] = {}
        try:
            admin_connection = await AsyncConnection.connect(admin, autocommit=True)
            connections["admin"] = [admin_connection]
            await prepare(admin_connection)
            for role, dsn in dsns.items():
                connections[role] = [
                    await PipedConnection.connect(dsn, options=OPTIONS, prepare_threshold=PREPARE_THRESHOLD)
                    for _ in range(CONNECTIONS)
                ]
            yield cls(admin_connection, {role: connections[role] for role in dsns})
        finally:
            for connection in itertools.chain.from_iterable(connections.values()):
                await connection.close()

    async def empty(self) -> None:
        """Forget everything that a history left."""
        tables = sql.SQL(", ").join(sql.Identifier(*name.split(".")) for name in EMPTIED)
        await self._admin.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(tables))
        self.transactions = 0
        self._told = None

    async def tell_time(self, moment: datetime) -> None:
        """Set the one clock."""
        if moment != self._told:
            await self._admin.execute("UPDATE sim.clock SET now = %s", (moment,))
            self._told = moment

    async def rows(self, query: str, *values: object) -> list[Json]:
        """Return what the database says, outside the history."""
        async with self._admin.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(query.encode(), values)
            return await cursor.fetchall()

    def pool(
        self, world: World, process: Process, faults: Faults, role: str = roles.ORCHESTRATOR, *, stalls: bool = True
    ) -> AsyncPool:
        """Return what a process takes its connections from; without `stalls` it gets to them at once."""
        return cast(AsyncPool, _Pool(self, world, process, faults, self._idle[role], stalls))


class _Pool:
    """Lends a connection for one transaction, after the process got its turn."""

    def __init__(
        self,
        database: SimulatedDatabase,
        world: World,
        process: Process,
        faults: Faults,
        idle: list[AsyncConnection[Any]],
        stalls: bool,
    ) -> None:
        self._database = database
        self._world = world
        self._process = process
        self._faults = faults
        self._idle = idle
        self._stalls = stalls

    @asynccontextmanager
    async def connection(self, _timeout_seconds: float | None = None) -> AsyncIterator[AsyncConnection[Any]]:
        """Yield a connection inside a transaction; the answer to its commit may get lost."""
        await self._world.pause(self._process, self._faults.stall_seconds() if self._stalls else 0.0)
        if self._faults.no_database():
            raise psycopg.OperationalError("simulated: no connection")
        await self._database.tell_time(self._world.clock)
        connection = self._idle.pop()
        try:
            yield connection
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise
        finally:
            self._idle.append(connection)
        self._database.transactions += 1
        if self._faults.commit_unanswered():
            raise psycopg.OperationalError("simulated: the connection broke during the commit")


async def prepare(admin: AsyncConnection[Any]) -> None:
    """Turn a clone of the template into the database of a simulation; idempotent."""
    cursor = await admin.execute("SELECT to_regnamespace('sim') IS NOT NULL")
    if await cursor.fetchone() == (True,):
        return
    await admin.execute(SCHEMA)
    for entity, (table, column, changed) in WATCHED.items():
        names = {"table": sql.Identifier("dagapp", table), "changed": sql.SQL(changed)}
        values = {"entity": sql.Literal(entity), "name": sql.Literal(column)}
        await admin.execute(
            sql.SQL(
                "CREATE TRIGGER sim_made AFTER INSERT OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION"
                " sim.note({entity}, {name});"
                "CREATE TRIGGER sim_moved AFTER UPDATE ON {table} FOR EACH ROW"
                " WHEN ({changed}) EXECUTE FUNCTION sim.note({entity}, {name})"
            ).format(**names, **values)
        )
    cursor = await admin.execute(
        "SELECT format('%I.%I', nspname, relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE nspname IN ('dagapp', 'dagqueue') AND relkind = 'r'"
    )
    for (table,) in await cursor.fetchall():
        # A vacuum would move rows at a moment that no seed decides.
        await admin.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
