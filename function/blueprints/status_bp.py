"""/api/status/*: jobs for operators, proxied with their own credential; not there for anybody else."""

from typing import Final

import azure.functions as func

from core import paging
from function.gateway import Endpoint, Gateway, add, segment

_LIST_FILTERS: Final = ("status", "limit")


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = StatusEndpoints(gateway)
    job = "api/status/job/{job_id}"
    add(blueprint, "status_jobs", "api/status/jobs", ["GET"], endpoints.jobs)
    add(blueprint, "status_stats", "api/status/stats", ["GET"], endpoints.proxied("/api/v1/stats", ("hours",)))
    lookup = endpoints.proxied("/api/v1/lookup", ("job_id", "request_id", "asset_id", "version_ordinal", "limit"))
    add(blueprint, "status_lookup", "api/status/lookup", ["GET"], lookup)
    add(blueprint, "status_job", job, ["GET"], endpoints.job)
    add(blueprint, "status_job_nodes", f"{job}/nodes", ["GET"], endpoints.nodes)
    add(blueprint, "status_job_events", f"{job}/events", ["GET"], endpoints.events)
    return blueprint


class StatusEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def jobs(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy the list of jobs."""
        await self._gateway.auth.operator(req.headers)
        query = {name: req.params[name] for name in _LIST_FILTERS if name in req.params}
        return await self._gateway.proxy(req, "/api/v1/jobs", query=query)

    def proxied(self, path: str, names: tuple[str, ...]) -> Endpoint:
        """Return the endpoint that proxies one question; parameters that it does not have are refused."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.operator(req.headers)
            paging.check_names(req.params, names)
            return await self._gateway.proxy(req, path, query=req.params)

        return ask

    async def job(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy one job."""
        return await self._of_job(req, "")

    async def nodes(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy the nodes of a job."""
        return await self._of_job(req, "/nodes")

    async def events(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy the events of a job."""
        return await self._of_job(req, "/events")

    async def _of_job(self, req: func.HttpRequest, what: str) -> func.HttpResponse:
        await self._gateway.auth.operator(req.headers)
        return await self._gateway.proxy(req, f"/api/v1/jobs/{segment(req.route_params['job_id'])}{what}")
