"""A skeleton whose jobs have tasks, still without an engine: what architecture §3.6 and issue 3 measure against.

A job is stored with its tasks, one for each of its items; a worker claims tasks and reports their results, up to 100 by
each call; with the last result the job is complete, its outputs in the order of the items, and whoever waits for it is
told. There is no graph and no condition; no lease, attempt, retry or event; no caller is checked. A worker that dies
keeps its tasks. Settings: `SKELETON_DSN` and `SKELETON_PORT`; run `python -m bench.tasks`, and as its worker
`python -m bench.tasks URL …`, which keeps a claim open at each of these instances.
"""

import asyncio
import os
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import psycopg
import uvloop
from fastapi import FastAPI
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from bench.skeleton import open_pool, serve

BATCH = 100
WAIT_SECONDS = 1.0
TABLES = """
CREATE TABLE skeleton_jobs (
    job_id text PRIMARY KEY, status text NOT NULL, inputs jsonb NOT NULL, outputs jsonb, open integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE skeleton_tasks (
    task_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id text NOT NULL, number integer NOT NULL,
    state text NOT NULL DEFAULT 'queued', item jsonb NOT NULL, output jsonb);
CREATE INDEX ON skeleton_tasks (task_id) WHERE state = 'queued';
CREATE INDEX ON skeleton_tasks (job_id)
"""
NEW_JOB = """
WITH job AS (
    INSERT INTO skeleton_jobs (job_id, status, inputs, open) VALUES (%(job_id)s, 'RUNNING', %(inputs)s, %(open)s))
INSERT INTO skeleton_tasks (job_id, number, item)
SELECT %(job_id)s, number, item FROM jsonb_array_elements(%(items)s) WITH ORDINALITY AS items (item, number)
"""
CLAIM = """
UPDATE skeleton_tasks AS t SET state = 'running'
FROM (SELECT task_id FROM skeleton_tasks WHERE state = 'queued' ORDER BY task_id LIMIT %s FOR UPDATE SKIP LOCKED) AS q
WHERE t.task_id = q.task_id RETURNING t.task_id, t.item
"""
REPORT = """
WITH done AS (
    UPDATE skeleton_tasks AS t SET state = 'done', output = r.output
    FROM jsonb_to_recordset(%s) AS r (task_id bigint, output jsonb)
    WHERE t.task_id = r.task_id AND t.state = 'running' RETURNING t.job_id),
counts AS (SELECT job_id, count(*) AS ended FROM done GROUP BY job_id ORDER BY job_id)
UPDATE skeleton_jobs AS j SET open = j.open - counts.ended FROM counts WHERE j.job_id = counts.job_id
RETURNING j.job_id, j.open
"""
COMPLETE = """
UPDATE skeleton_jobs AS j SET status = 'COMPLETED', outputs = (
    SELECT jsonb_agg(output ORDER BY number) FROM skeleton_tasks AS t WHERE t.job_id = j.job_id)
WHERE j.job_id = ANY(%s)
"""
TELL = "SELECT pg_notify('skeleton_done', job_id) FROM unnest(%s::text[]) AS complete (job_id)"
Waiters = defaultdict[str, set[asyncio.Event]]
Pool = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]


class Tasks:
    """The tasks of all jobs, and whoever waits at this instance."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._idle: set[asyncio.Event] = set()
        self.ends: Waiters = defaultdict(set)

    async def create(self, inputs: dict[str, Any]) -> str:
        """Store a job and its tasks, tell who waits for some, and return its id."""
        items, job_id = inputs.get("items", [inputs]), uuid.uuid4().hex
        values = {"job_id": job_id, "inputs": Jsonb(inputs), "items": Jsonb(items), "open": len(items)}
        async with self._pool.connection() as conn:
            await conn.execute(NEW_JOB, values)
        for one in self._idle:
            one.set()
        return job_id

    async def claim(self) -> list[DictRow]:
        """Return tasks that are the caller's now, none after a while without any."""
        new, end = asyncio.Event(), asyncio.get_running_loop().time() + WAIT_SECONDS
        self._idle.add(new)
        try:
            while not (found := await self._claimed()):
                async with asyncio.timeout_at(end):  # never around a claim, whose tasks nobody would have
                    await new.wait()
                new.clear()
            return found
        except TimeoutError:
            return []
        finally:
            self._idle.discard(new)

    async def _claimed(self) -> list[DictRow]:
        async with self._pool.connection() as conn:
            return await (await conn.execute(CLAIM, (BATCH,))).fetchall()

    async def report(self, results: list[dict[str, Any]]) -> None:
        """Store results, and complete jobs that have all of theirs."""
        async with self._pool.connection() as conn:
            jobs = await (await conn.execute(REPORT, (Jsonb(results),))).fetchall()
            if complete := [job["job_id"] for job in jobs if job["open"] == 0]:
                await conn.execute(COMPLETE, (complete,))
                await conn.execute(TELL, (complete,))

    async def read(self, job_id: str, wait: float) -> DictRow | None:
        """Return a job, once it is complete or after so many seconds."""
        end = asyncio.Event()
        self.ends[job_id].add(end)
        try:
            job = await self._job(job_id)
            if wait and job is not None and job["status"] != "COMPLETED":
                with suppress(TimeoutError):
                    await asyncio.wait_for(end.wait(), wait)
                job = await self._job(job_id)
            return job
        finally:
            self.ends[job_id].discard(end)
            if not self.ends[job_id]:
                del self.ends[job_id]

    async def _job(self, job_id: str) -> DictRow | None:
        async with self._pool.connection() as conn:
            return await (await conn.execute("SELECT * FROM skeleton_jobs WHERE job_id = %s", (job_id,))).fetchone()


def create_app(dsn: str) -> FastAPI:
    """Return the app; `TABLES` exist already."""
    pool = open_pool(dsn)
    tasks = Tasks(pool)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with pool, await psycopg.AsyncConnection.connect(dsn, autocommit=True) as listener:
            listening = asyncio.create_task(_listen(listener, tasks.ends))
            yield
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/jobs", status_code=202)
    async def create(body: dict[str, Any]) -> dict[str, str]:
        return {"job_id": await tasks.create(body["inputs"]), "status": "RUNNING"}

    @app.post("/claims")
    async def claim() -> list[DictRow]:
        return await tasks.claim()

    @app.post("/results")
    async def report(body: list[dict[str, Any]]) -> dict[str, int]:
        await tasks.report(body)
        return {"accepted": len(body)}

    @app.get("/jobs/{job_id}")
    async def read(job_id: str, wait: float = 0) -> DictRow | None:
        return await tasks.read(job_id, wait)

    return app


async def _listen(conn: psycopg.AsyncConnection[Any], ends: Waiters) -> None:
    await conn.execute("LISTEN skeleton_done")
    async for notification in conn.notifies():
        for one in ends.get(notification.payload, ()):
            one.set()


async def work(instances: Sequence[str]) -> None:
    """Claim, echo and report until cancelled."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for url in instances:
            group.create_task(_work_for(session, url))


async def _work_for(session: aiohttp.ClientSession, url: str) -> None:
    while True:
        async with session.post(f"{url}/claims") as answer:
            answer.raise_for_status()
            tasks = await answer.json()
        if tasks:
            results = [{"task_id": task["task_id"], "output": task["item"]} for task in tasks]
            async with session.post(f"{url}/results", json=results) as answer:
                answer.raise_for_status()


if __name__ == "__main__":
    if sys.argv[1:]:
        uvloop.run(work(sys.argv[1:]))
    else:
        serve(create_app(os.environ["SKELETON_DSN"]))
