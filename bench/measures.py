"""What the benches measure with: HTTP calls, percentiles, and CPU time of whole process trees."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp
import psutil

Json = dict[str, Any]
BATCH = 250
"""Jobs in one batch submit."""
LOOK_SECONDS = 0.02
LOOKS = 10_000


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of unsorted values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, its living descendants, and what it has reaped."""
    root = psutil.Process(pid)
    times = root.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in root.children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += spent.user + spent.system
    return float(total)


class CpuMeter:
    """Measures CPU seconds of named processes over a stretch of time."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before: dict[str, float] = {}
        self.spent: dict[str, float] = {}

    def __enter__(self) -> "CpuMeter":
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spent = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}


@dataclass(frozen=True, slots=True)
class Door:
    """Where jobs are made and read, with which headers."""

    session: aiohttp.ClientSession
    base: str
    query: str = ""

    async def create(self, workflow_id: str, inputs: Json) -> str:
        """Create a job and return its id."""
        body = {"workflow_id": workflow_id, "inputs": inputs}
        async with self.session.post(f"{self.base}/jobs", json=body) as answer:
            answer.raise_for_status()
            return str((await answer.json())["job_id"])

    async def create_many(self, workflow_id: str, inputs: Json, count: int) -> list[str]:
        """Create jobs by one call and return their ids."""
        body = {"jobs": [{"workflow_id": workflow_id, "inputs": inputs}] * count}
        async with self.session.post(f"{self.base}/jobs/batch", json=body) as answer:
            answer.raise_for_status()
            return [str(job["job_id"]) for job in (await answer.json())["jobs"]]

    async def any_is(self, status: str) -> bool:
        """Return whether there is a job in a status."""
        async with self.session.get(f"{self.base}/jobs", params={"status": status, "limit": 1}) as answer:
            answer.raise_for_status()
            return bool((await answer.json())["jobs"])

    async def finished(self, job_id: str) -> Json:
        """Return a job once it is final."""
        while True:
            async with self.session.get(f"{self.base}/jobs/{job_id}{self.query}") as answer:
                answer.raise_for_status()
                job: Json = await answer.json()
            if job["status"] in {"COMPLETED", "FAILED", "CANCELLED"}:
                return job

    async def run(self, workflow_id: str, inputs: Json) -> float:
        """Return the seconds from submit to completed of one job."""
        began = time.perf_counter()
        job = await self.finished(await self.create(workflow_id, inputs))
        if job["status"] != "COMPLETED":
            raise RuntimeError(f"job ended as {job['status']}: {job.get('error')}")
        return time.perf_counter() - began


async def one_at_a_time(count: int, run: Callable[[], Awaitable[float]]) -> list[float]:
    """Return the seconds of each of `count` runs, one after the other."""
    return [await run() for _ in range(count)]


async def all_at_once(count: int, in_flight: int, door: Door, workflow_id: str, inputs: Json) -> float:
    """Return the seconds from the first submit to the last completed job; at most `in_flight` calls at a time."""
    gate = asyncio.Semaphore(in_flight)

    async def create() -> str:
        async with gate:
            return await door.create(workflow_id, inputs)

    began = time.perf_counter()
    ids = await asyncio.gather(*(create() for _ in range(count)))
    await _all_completed(door, ids, gate)
    return time.perf_counter() - began


async def in_batches(count: int, door: Door, workflow_id: str, inputs: Json) -> float:
    """Return the seconds from the first of some batch submits until no job runs any more; nobody waits for one."""
    began = time.perf_counter()
    batches = [min(BATCH, count - start) for start in range(0, count, BATCH)]
    await asyncio.gather(*(door.create_many(workflow_id, inputs, size) for size in batches))
    for _ in range(LOOKS):
        if not await door.any_is("RUNNING"):
            break
        await asyncio.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - began
    if await door.any_is("RUNNING") or await door.any_is("FAILED"):
        raise RuntimeError("not every job completed")
    return seconds


async def _all_completed(door: Door, job_ids: Sequence[str], gate: asyncio.Semaphore) -> None:
    async def finish(job_id: str) -> str:
        async with gate:
            return str((await door.finished(job_id))["status"])

    ends = await asyncio.gather(*(finish(job_id) for job_id in job_ids))
    if set(ends) != {"COMPLETED"}:
        raise RuntimeError(f"not every job completed: {sorted(set(ends))}")
