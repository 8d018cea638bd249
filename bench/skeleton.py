"""The floor to measure against: a bare FastAPI + psycopg app that stores a job and answers, without any engine.

It does what the same two requests need at the least: an insert in a transaction, and a read by key. Its settings come
from `SKELETON_DSN` and `SKELETON_PORT`; run `python -m bench.skeleton`. `bench.tasks` is the one whose jobs have tasks.
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
TABLES = """
CREATE TABLE skeleton_jobs (
    job_id text PRIMARY KEY, status text NOT NULL, inputs jsonb NOT NULL, outputs jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""


def create_app(dsn: str) -> FastAPI:
    """Return the app; `TABLES` exist already."""
    pool = open_pool(dsn)

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
        return {"job_id": job_id, "status": "COMPLETED"}

    @app.get("/jobs/{job_id}")
    async def read(job_id: str) -> DictRow | None:
        async with pool.connection() as conn:
            cursor = await conn.execute("SELECT * FROM skeleton_jobs WHERE job_id = %s", (job_id,))
            return await cursor.fetchone()

    return app


def open_pool(dsn: str) -> AsyncConnectionPool[AsyncConnection[DictRow]]:
    """Return a pool, not open yet, whose rows are dicts."""
    kwargs = {"row_factory": dict_row}
    return AsyncConnectionPool(dsn, open=False, min_size=2, max_size=POOL_SIZE, kwargs=kwargs)


def serve(app: FastAPI) -> None:
    """Serve on loopback until SIGTERM."""
    port = int(os.environ["SKELETON_PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", log_level="warning")


if __name__ == "__main__":
    serve(create_app(os.environ["SKELETON_DSN"]))
