"""Plays one act in a gap of another, brings the jobs to their end as loops and workers do, and says what is wrong."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from core.ports import BlobRepository
from core.statuses import ATTEMPT_FINAL, JOB_FINAL
from repositories.database import AsyncPool
from repositories.stalls import stalled
from services.slots import SlotService
from tests.support.engine import Engine, workflows_of
from tests.support.gaps.acts import ACTS, loop_of, take_over
from tests.support.gaps.desk import HandDesk
from tests.support.gaps.scenes import CLOCK, SOURCES, Scene, good, prepare, serve
from tests.support.stepping import Caller, Stops

ROUNDS: Final = 60
MOST_STATEMENTS: Final = 60
CLEARED_EVERY: Final = 100
SLOT_KINDS: Final = frozenset({"slot", "fanslot"})
SWITCHES: Final = frozenset({"switch_on", "switch_off"})
ANEW: Final = frozenset({"retry", "rerun", "rerun_node", "skip"})
LIVE: Final = "SELECT job_id FROM dagapp.dag_jobs WHERE job_id = ANY(%s) AND status <> ALL(%s)"
OVERSLEPT: Final = """
SELECT j.job_id, j.wake_at - t.timer AS late, t.node_id FROM dagapp.dag_jobs AS j CROSS JOIN LATERAL (
    SELECT node_id, not_before AS timer FROM dagapp.dag_node_states WHERE job_id = j.job_id AND status = 'WAITING'
    UNION ALL
    SELECT node_id, redispatch_at FROM dagapp.dag_attempts WHERE job_id = j.job_id AND state = 'queued'
) AS t
WHERE j.job_id = ANY(%s) AND j.status = 'RUNNING' AND j.paused_at IS NULL AND t.timer IS NOT NULL
    AND NOT EXISTS (SELECT FROM dagapp.dag_settings WHERE value = 'true'::jsonb)
    AND (j.wake_at IS NULL OR j.wake_at > greatest(t.timer, j.updated_at) + interval '1 second')
"""
NEXT: Final = """
SELECT extract(epoch FROM min(wake_at) - dagapp.clock())::float8 AS seconds,
    EXISTS (SELECT FROM dagapp.dag_task_results WHERE job_id = ANY(%(jobs)s) AND NOT processed)
    OR EXISTS (SELECT FROM dagapp.dag_commands WHERE job_id = ANY(%(jobs)s) AND processed_at IS NULL)
    OR EXISTS (SELECT FROM dagapp.dag_slots WHERE job_id = ANY(%(jobs)s) AND granted_at IS NOT NULL AND NOT noticed)
    AS now
FROM dagapp.dag_jobs WHERE job_id = ANY(%(jobs)s) AND status IN ('PENDING', 'RUNNING')
"""
LEFT_OVER: Final = """
SELECT 'slot ' || holder AS what FROM dagapp.dag_slots WHERE job_id = ANY(%(jobs)s)
UNION ALL SELECT 'command ' || kind FROM dagapp.dag_commands WHERE job_id = ANY(%(jobs)s) AND processed_at IS NULL
UNION ALL SELECT 'message ' || message_id FROM dagqueue.messages
    WHERE task_id = ANY(SELECT task_id FROM dagapp.dag_attempts WHERE job_id = ANY(%(jobs)s))
UNION ALL SELECT 'attempt ' || task_id || ' ' || state FROM dagapp.dag_attempts
    WHERE job_id = ANY(%(jobs)s) AND state <> ALL(%(final)s)
UNION ALL SELECT 'node ' || node_id || ' ' || status FROM dagapp.dag_node_states
    WHERE job_id = ANY(%(jobs)s) AND status NOT IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
UNION ALL SELECT 'fan-out ' || node_id || ' ' || state || ' ' || active FROM dagapp.dag_fan_outs
    WHERE job_id = ANY(%(jobs)s) AND (state <> 'done' OR active <> 0)
UNION ALL SELECT 'items ' || f.node_id FROM dagapp.dag_fan_outs AS f JOIN dagapp.dag_node_states AS n
        ON n.job_id = f.job_id AND n.node_id = f.node_id AND n.status = 'COMPLETED'
    WHERE f.job_id = ANY(%(jobs)s) AND f.item_count <> (
        SELECT coalesce(sum(jsonb_array_length(i.items)), 0) FROM dagapp.dag_fan_out_items AS i
        WHERE i.job_id = f.job_id AND i.node_id = f.node_id)
"""
RESET: Final = (
    "UPDATE public.ahead SET seconds = 0",
    "DELETE FROM dagapp.dag_settings",
    "DELETE FROM dagapp.dag_limits",
    "UPDATE dagapp.dag_orchestrators SET state = 'stopped'",
)
"""What scenes leave that are over: time, switches, limits, an instance that said goodbye."""
EMPTIED: Final = """
TRUNCATE dagapp.dag_jobs, dagapp.dag_node_states, dagapp.dag_attempts, dagapp.dag_task_results,
    dagapp.dag_job_events, dagapp.dag_settings, dagapp.dag_slots, dagapp.dag_limits, dagapp.dag_commands,
    dagqueue.messages CASCADE
"""


@dataclass(slots=True)
class Played:
    """What came of one act in a gap of another."""

    gaps: int
    """How often the first act stopped."""
    waited: bool
    """Whether the second had to wait for the first."""
    wrong: list[str]


class Stage:
    """One database on which many scenes are played."""

    def __init__(
        self, pool: AsyncPool, admin_pool: AsyncPool, observer: AsyncConnection[Any], blobs: BlobRepository
    ) -> None:
        self._pool = pool
        self._observer = observer
        self._blobs = blobs
        self._played = 0
        self._workflows = workflows_of(*SOURCES)
        self.admin = self._engine(admin_pool)
        self._others = [self._engine(pool, owner) for owner in ("owner-1", "owner-2")]
        self._loops = [loop_of(engine, str(engine.owner_id)) for engine in self._others]

    async def build(self) -> None:
        """Give the database its clock, and let the first instance be dead for whoever asks."""
        await self.admin.query(CLOCK)
        await self.admin.query(
            "INSERT INTO dagapp.dag_orchestrators (owner_id, host, pid, build_id, state)"
            " VALUES ('owner-1', 'here', 1, 'build', 'stopped')"
        )

    async def clear(self) -> None:
        """Forget what a scene that went wrong has left."""
        await self.admin.query(EMPTIED)

    def _engine(self, pool: AsyncPool, owner_id: str = "owner-1") -> Engine:
        return Engine(pool, self._workflows, owner_id=owner_id, blobs=self._blobs, desk_of=HandDesk)

    async def play(self, kind: str, time: str, first: str, second: str, gap: int) -> Played:
        """Let the second act run in a gap of the first: 0 lies before all of its statements."""
        await self._begin()
        scene = await prepare(self.admin, kind, time, self._go_on)
        scene.acts = frozenset({first, second})
        one, other = Caller(self._pool, Stops.STATEMENTS), Caller(self._pool, Stops.NOWHERE)
        act = one.start(lambda: ACTS[first](scene, self._engine(one.pool)))
        await one.settled(self._observer)
        for _ in range(gap):
            await one.step(self._observer)
        gaps, waited = gap, False
        if not one.over:
            asked = other.start(lambda: ACTS[second](scene, self._engine(other.pool)))
            waited = not await other.settled(self._observer)
            gaps += await self._finish(one, other)
            self._note(scene, second, asked)
        self._note(scene, first, act)
        await self._drive(scene)
        return Played(gaps, waited, [*scene.wrong, *[found async for found in self._faults(scene, time)]])

    async def _begin(self) -> None:
        if self._played and self._played % CLEARED_EVERY == 0:
            await self.clear()
        self._played += 1
        for statement in RESET:
            await self.admin.query(statement)

    async def _finish(self, one: Caller, other: Caller) -> int:
        """Let both come to their ends; return how often the first stopped on the way."""
        stopped = 0
        for _ in range(MOST_STATEMENTS):
            if not one.over:
                stopped += await one.step(self._observer)
            await other.settled(self._observer)
            if one.over and other.over:
                return stopped
        raise AssertionError("they do not come to an end")

    def _note(self, scene: Scene, name: str, call: "asyncio.Future[Any]") -> None:
        if (error := call.exception()) is not None:
            scene.wrong.append(f"{name} raised {type(error).__name__}: {error} ({error.__cause__!r})")

    async def _drive(self, scene: Scene) -> None:
        """Bring the jobs to their end: loops do what is due, workers what they get; else time goes on."""
        for _ in range(ROUNDS):
            await self._go_on()
            if scene.kind in SLOT_KINDS:
                await SlotService(self._pool).sweep()
            if scene.acts & SWITCHES:
                await self.admin.pauses.release_held()
            jobs = await scene.family()
            live = await self._look(scene, jobs)
            if not live and not scene.held:
                left = await self.admin.query("SELECT holder FROM dagapp.dag_slots WHERE job_id = ANY(%s)", jobs)
                if not left:
                    await scene.receive(self.admin)
                    await take_over(scene, self.admin)  # of what ended while nobody owned it, as instances do in time
                    await self._go_on()
                    return
            if await self._work(scene) or await self._resume(scene, jobs):
                continue
            (row,) = await self._rows(NEXT, {"jobs": jobs})
            if row["now"]:
                continue
            if row["seconds"] is None and live:
                scene.wrong.append("nothing will ever happen")
                return
            await scene.forward(max(row["seconds"] or 30.0, 0.0) + 0.1)
        scene.wrong.append("it does not come to an end")

    async def _look(self, scene: Scene, jobs: list[str]) -> bool:
        """Note what nobody looks at, or ever will; return whether any job goes on."""
        async with self.admin.pool.connection() as conn:
            scene.wrong += [f"overslept {row}" for row in await _rows_of(conn, OVERSLEPT, (jobs,))]
            scene.wrong += [f"stalled: {one}" for one in await stalled(conn, jobs)]
            return bool(await _rows_of(conn, LIVE, (jobs, list(JOB_FINAL))))

    async def _rows(self, statement: Any, values: Any) -> list[dict[str, Any]]:
        async with self.admin.pool.connection() as conn:
            return await _rows_of(conn, statement, values)

    async def _go_on(self) -> None:
        """Let loops do what is due, and what jobs have asked them for."""
        for loop, engine in zip(self._loops, self._others, strict=True):
            loop.wake(unowned=True)
            await loop.step()
            await serve(engine)

    async def _work(self, scene: Scene) -> bool:
        """Run what is leased, and take what waits; return whether there was anything."""
        held, scene.held = scene.held, []
        if held:
            scene.note(await scene.worker(self.admin).report(*map(good, held)))
        return bool(await scene.receive(self.admin) or held)

    async def _resume(self, scene: Scene, jobs: list[str]) -> bool:
        """Let go on what is paused; return whether anything was."""
        switches = await self.admin.query("SELECT key FROM dagapp.dag_settings WHERE value = 'true'::jsonb")
        if switches:
            await self.admin.pause("all", on=False)
        paused = await self.admin.query(
            "SELECT job_id FROM dagapp.dag_jobs WHERE job_id = ANY(%s) AND paused_at IS NOT NULL"
            " AND status IN ('PENDING', 'RUNNING')",
            jobs,
        )
        for row in paused:
            await self.admin.order(row["job_id"], "resume")
        return bool(switches or paused)

    async def _faults(self, scene: Scene, time: str) -> Any:
        """Yield what is wrong with jobs that have ended."""
        jobs = await scene.family()
        for row in await self.admin.query(
            "SELECT job_id, status, error, outputs, run_no FROM dagapp.dag_jobs WHERE job_id = ANY(%s)", jobs
        ):
            if row["status"] not in _ends(scene, time, row):
                yield f"job {row['job_id']} is {row['status']}: {row['error']}"
            elif "skip" not in scene.acts and (row["outputs"] or {}).get("n", 5) != 5:
                yield f"job {row['job_id']} counted {row['outputs']}"
        keys = {"jobs": jobs, "final": list(ATTEMPT_FINAL)}
        for row in await self._rows(LEFT_OVER, keys):
            yield f"left over: {row['what']}"
        for fault in await self._result_faults(jobs, overtaken=bool(scene.acts & (ANEW | {"cancel"}))):
            yield fault
        for name, tasks in (("granted", scene.granted), ("applied", scene.applied)):
            for task, times in Counter(tasks).items():
                if times > 1:
                    yield f"{task} was {name} {times} times"
        for fault in await self._event_faults(jobs):
            yield fault

    async def _result_faults(self, jobs: list[str], *, overtaken: bool) -> list[str]:
        rows = await self.admin.query(
            "SELECT r.task_id, r.processed, r.disposition, a.state FROM dagapp.dag_task_results AS r"
            " JOIN dagapp.dag_attempts AS a USING (task_id) WHERE r.job_id = ANY(%s)",
            jobs,
        )
        return [f"result {row}" for row in rows if _is_wrong(row, overtaken=overtaken)]

    async def _event_faults(self, jobs: list[str]) -> list[str]:
        rows = await self.admin.query(
            "SELECT job_id, task_id, event_type, count(*) AS n FROM dagapp.dag_job_events AS e"
            " WHERE job_id = ANY(%s)"
            " AND event_type IN ('node_completed', 'job_completed', 'job_cancelled', 'job_failed')"
            " GROUP BY job_id, task_id, node_id, event_type HAVING count(*) > CASE WHEN task_id IS NULL"
            " THEN (SELECT run_no FROM dagapp.dag_jobs AS j WHERE j.job_id = e.job_id) ELSE 1 END",
            jobs,
        )
        return [f"twice: {row}" for row in rows]


def _ends(scene: Scene, time: str, job: Mapping[str, Any]) -> set[str]:
    """Return how a job may end; one that failed before comes to a good end when what failed was started anew."""
    ends, is_child = {"COMPLETED"}, job["job_id"] not in scene.jobs
    if "cancel" in scene.acts or (is_child and scene.acts & ANEW):
        ends.add("CANCELLED")
    is_anew = job["run_no"] > 1 and "rerun_node" not in scene.acts
    if time == "failed" and not is_anew and (is_child or job["job_id"] == scene.jobs[0]):
        ends.add("FAILED")
    return ends


async def _rows_of(conn: AsyncConnection[Any], statement: Any, values: Any) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()


def _is_wrong(result: Mapping[str, Any], *, overtaken: bool) -> bool:
    """Return whether a result of an attempt that ended by it was not applied, or another was."""
    if not result["processed"] or result["disposition"] == "poison":
        return True
    in_time = result["state"] in {"reported", "released"}
    return not overtaken and (result["disposition"] == "applied") != in_time
