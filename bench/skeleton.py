"""The floor to measure against: a bare FastAPI + psycopg app that stores a job and answers, without any engine.

It does what the same two requests need at the least: an insert in a transaction, and a read by key. A list of items
is a fan-out: a row for each, results stored as many at a time as the engine's window has, then gathered. Its settings
come from `SKELETON_DSN` and `SKELETON_PORT`; run `python -m bench.skeleton`.
"""

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

POOL_SIZE = 10
WINDOW = 512
TABLES = """
CREATE TABLE skeleton_jobs (
    job_id text PRIMARY KEY, status text NOT NULL, inputs jsonb NOT NULL, outputs jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE skeleton_tasks (
    job_id text, number integer, item jsonb NOT NULL, output jsonb, PRIMARY KEY (job_id, number))
"""
FAN_OUT = """
INSERT INTO skeleton_tasks (job_id, number, item)
SELECT %s, number, item FROM jsonb_array_elements(%s) WITH ORDINALITY AS items (item, number)
"""
RESULTS = "UPDATE skeleton_tasks SET output = item WHERE job_id = %s AND number BETWEEN %s AND %s"
FAN_IN = """
UPDATE skeleton_jobs SET status = 'COMPLETED', outputs = (
    SELECT jsonb_agg(output ORDER BY number) FROM skeleton_tasks AS t WHERE t.job_id = skeleton_jobs.job_id)
WHERE job_id = %s
"""


def create_app(dsn: str) -> FastAPI:
    """Return the app; `TABLES` exist already."""
    kwargs = {"row_factory": dict_row}
    pool = AsyncConnectionPool[AsyncConnection[DictRow]](dsn, open=False, min_size=2, max_size=POOL_SIZE, kwargs=kwargs)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with pool:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/jobs", status_code=202)
    async def create(body: dict[str, Any]) -> dict[str, Any]:
        job_id, inputs = uuid.uuid4().hex, Jsonb(body["inputs"])
        async with pool.connection() as conn:
            await conn.execute(
                "INSERT INTO skeleton_jobs (job_id, status, inputs, outputs) VALUES (%s, 'COMPLETED', %s, %s)",
                (job_id, inputs, inputs),
            )
        if (items := body["inputs"].get("items")) is not None:
            await fan_out(job_id, items)
        return {"job_id": job_id, "status": "COMPLETED"}

    async def fan_out(job_id: str, items: list[Any]) -> None:
        async with pool.connection() as conn:
            await conn.execute(FAN_OUT, (job_id, Jsonb(items)))
            await conn.commit()
            for first in range(1, len(items) + 1, WINDOW):
                await conn.execute(RESULTS, (job_id, first, first + WINDOW - 1))
                await conn.commit()
            await conn.execute(FAN_IN, (job_id,))

    @app.get("/jobs/{job_id}")
    async def read(job_id: str) -> DictRow | None:
        async with pool.connection() as conn:
            cursor = await conn.execute("SELECT * FROM skeleton_jobs WHERE job_id = %s", (job_id,))
            return await cursor.fetchone()

    return app


def main() -> None:
    """Serve on loopback until SIGTERM."""
    app = create_app(os.environ["SKELETON_DSN"])
    port = int(os.environ["SKELETON_PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", log_level="warning")


if __name__ == "__main__":
    main()
