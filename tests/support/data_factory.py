"""A loopback peer of Azure Data Factory's REST interface: pipelines, runs, errors as the documentation has them.

https://learn.microsoft.com/rest/api/datafactory/pipelines/create-run, …/pipeline-runs/get. A run copies the blob that
its parameters name and is over after `looks` looks. Hooks: `fail` ends runs badly, `refuse` answers with an error.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from core.ports import BlobRef
from repositories.blobs_folder import FolderBlobRepository

FACTORY = "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.DataFactory/factories/geodag"
TOKEN = "management-token"


@dataclass
class Run:
    """One pipeline run."""

    parameters: dict[str, str]
    looked: int = 0


@dataclass
class DataFactory:
    """The peer and what it was asked."""

    blobs: FolderBlobRepository
    url: str = ""
    looks: int = 1
    fail: str | None = None
    refuse: tuple[int, str] | None = None
    runs: dict[str, Run] = field(default_factory=dict)

    async def create_run(self, request: web.Request) -> web.Response:
        """Begin a run of the one pipeline there is."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if request.match_info["pipeline"] != "copy blob":
            return _error(404, "PipelineNotFound")
        run_id = f"run-{len(self.runs) + 1}"
        self.runs[run_id] = Run(await request.json())
        return web.json_response({"runId": run_id})

    async def get_run(self, request: web.Request) -> web.Response:
        """Say how a run is doing; it copies when it ends."""
        if (refusal := self._refusal(request)) is not None:
            return refusal
        run_id = request.match_info["run"]
        if (run := self.runs.get(run_id)) is None:
            return _error(404, "PipelineRunNotFound")
        run.looked += 1
        status = "InProgress" if run.looked <= self.looks else "Failed" if self.fail else "Succeeded"
        if status == "Succeeded":
            await self._copy(run.parameters)
        return web.json_response({"runId": run_id, "status": status, "message": self.fail or ""})

    async def _copy(self, names: dict[str, str]) -> None:
        source, target = (BlobRef(names[f"{end}Container"], names[f"{end}Name"]) for end in ("source", "target"))
        await self.blobs.write_stream(target, self.blobs.stream(source), 1 << 30)

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "AuthenticationFailed")
        if request.query.get("api-version") != "2018-06-01":
            return _error(400, "InvalidApiVersionParameter")
        return None if self.refuse is None else _error(*self.refuse)


def _error(status: int, code: str) -> web.Response:
    body: dict[str, Any] = {"error": {"code": code, "message": "names of things that no log should have"}}
    return web.json_response(body, status=status)


@asynccontextmanager
async def data_factory(blobs: FolderBlobRepository) -> AsyncIterator[DataFactory]:
    """Run the peer."""
    peer = DataFactory(blobs)
    app = web.Application()
    app.router.add_post(f"{FACTORY}/pipelines/{{pipeline}}/createRun", peer.create_run)
    app.router.add_get(f"{FACTORY}/pipelineruns/{{run}}", peer.get_run)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield peer
    finally:
        await runner.cleanup()
