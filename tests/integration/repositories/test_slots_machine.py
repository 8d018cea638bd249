"""A state machine over two connections: whatever is requested, freed, killed or rolled back in between, no key ever
has more holders than its limit, no slot stays free while somebody waits, and the line is kept."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg import AsyncConnection, OperationalError

from repositories import roles
from repositories.slots import SlotRepository
from tests.integration.repositories.test_slots import wish
from tests.support.databases import Database
from tests.support.rows import seed_job

LIMITS = {"w:one": 1, "w:two": 2}
HOLDERS = [f"h{number}" for number in range(5)]
Answer = TypeVar("Answer")
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


class Session:
    """One process's connection: idle, inside a transaction, or blocked by the other one."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.pending: asyncio.Task[None] | None = None
        self.open = False
        self.conn: AsyncConnection[Any] | None = None

    async def connection(self) -> AsyncConnection[Any]:
        if self.conn is None or self.conn.closed:
            # How long the other one holds a lock is up to the machine's rules, not to the role's limit.
            self.conn = await AsyncConnection.connect(self._dsn, options="-c lock_timeout=0")
        return self.conn


class Slots(RuleBasedStateMachine):
    """Rules are what instances do; invariants look from a third connection at what was committed."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        dsn = self.database.conninfo(roles.ORCHESTRATOR)
        self.held: dict[str, int] = {}
        """What each key had when it was looked at last: a limit that was lowered takes nothing away."""
        self.sessions = [Session(dsn), Session(dsn)]
        self.observer = self.do(AsyncConnection.connect(self.database.admin, autocommit=True))
        self.do(self._reset())

    def do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.runner.run(work)

    async def _reset(self) -> None:
        jobs = "dagapp.dag_jobs, dagapp.dag_node_states, dagapp.dag_attempts"
        await self.observer.execute(f"TRUNCATE dagapp.dag_slots, dagapp.dag_limits, {jobs} CASCADE".encode())
        await seed_job(self.observer)

    @rule(
        who=st.integers(0, 1),
        asks=st.sets(st.tuples(st.sampled_from(sorted(LIMITS)), st.sampled_from(HOLDERS)), min_size=1, max_size=3),
        frees=st.sets(st.sampled_from(HOLDERS), max_size=3),
        priority=st.sampled_from([1, 5, 8]),
    )
    def change(self, who: int, asks: set[tuple[str, str]], frees: set[str], priority: int) -> None:
        session = self.sessions[who]
        if session.open or self.sessions[1 - who].pending is not None:
            return
        requests = [wish(h, key, LIMITS[key], priority) for key, h in sorted(asks) if h not in frees]
        self.do(self._change(session, requests, sorted(frees)))

    async def _change(self, session: Session, requests: list[dict[str, Any]], frees: list[str]) -> None:
        conn = await session.connection()
        session.pending = asyncio.ensure_future(SlotRepository(conn).change(requests, frees))
        session.open = True
        await self._settle(session)

    async def _settle(self, session: Session) -> None:
        """Wait until a session has done what it was asked, or waits for the other one."""
        while session.pending is not None and session.conn is not None:
            done, _ = await asyncio.wait([session.pending], timeout=0.005)
            if done:
                session.pending.result()
                session.pending = None
                return
            cursor = await self.observer.execute(BLOCKED, (session.conn.info.backend_pid,))
            row = await cursor.fetchone()
            if row is not None and row[0] and any(other.open for other in self.sessions if other is not session):
                return

    def _ready(self) -> list[Session]:
        return [session for session in self.sessions if session.open and session.pending is None]

    @precondition(lambda self: self._ready())
    @rule(commits=st.booleans())
    def end(self, commits: bool) -> None:
        self.do(self._end(self._ready()[0], commits))

    async def _end(self, session: Session, commits: bool) -> None:
        conn = await session.connection()
        await (conn.commit() if commits else conn.rollback())
        session.open = False
        await self._let_others_go_on()

    @precondition(lambda self: self._ready())
    @rule()
    def kill(self) -> None:
        self.do(self._kill(self._ready()[0]))

    async def _kill(self, session: Session) -> None:
        """End a process in the middle of its transaction, as kill -9 does."""
        conn = await session.connection()
        await self.observer.execute("SELECT pg_terminate_backend(%s, 1000)", (conn.info.backend_pid,))
        try:
            await conn.rollback()
        except OperationalError:
            await conn.close()
        session.open, session.conn = False, None
        await self._let_others_go_on()

    async def _let_others_go_on(self) -> None:
        for session in self.sessions:
            await self._settle(session)

    @rule(key=st.sampled_from(sorted(LIMITS)), limit=st.integers(0, 4))
    def set_limit(self, key: str, limit: int) -> None:
        if not any(session.open for session in self.sessions):
            self.do(SlotRepository(self.observer).set_limit(key, limit, "op"))

    @rule()
    def forget(self) -> None:
        self.do(SlotRepository(self.observer).forget(0, 10))

    @rule(key=st.sampled_from(sorted(LIMITS)))
    def unset_limit(self, key: str) -> None:
        if not any(session.open for session in self.sessions):
            self.do(SlotRepository(self.observer).unset_limit(key))

    @invariant()
    def the_line_is_kept(self) -> None:
        self.do(self._check())

    async def _check(self) -> None:
        cursor = await self.observer.execute(
            "SELECT l.slot_key, l.limit_count, count(s.granted_at), count(s.holder) - count(s.granted_at)"
            " FROM dagapp.dag_limits AS l LEFT JOIN dagapp.dag_slots AS s USING (slot_key) GROUP BY l.slot_key"
        )
        for key, limit, held, waiting in await cursor.fetchall():
            assert held <= max(limit, self.held.get(key, 0)), f"{held} hold {key}, whose limit is {limit}"
            assert not waiting or held >= limit, f"{waiting} wait for {key}, which {held} of {limit} hold"
            self.held[key] = held

    def teardown(self) -> None:
        self.do(self._close())
        self.runner.close()

    async def _close(self) -> None:
        for session in sorted(self.sessions, key=lambda one: one.pending is not None):
            if session.conn is not None:
                await self._end(session, commits=False)
        for connection in [self.observer, *(session.conn for session in self.sessions)]:
            if connection is not None:
                await connection.close()


def test_slots_are_never_granted_beyond_a_limit_nor_left_free(database: Database) -> None:
    machine = type("SlotsOfThisDatabase", (Slots,), {"database": database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
