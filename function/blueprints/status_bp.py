"""/api/status/*: jobs for operators, proxied with their own credential; not there for anybody else."""

import azure.functions as func

from core import paging
from function.gateway import Endpoint, Gateway, add, segment


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = StatusEndpoints(gateway)
    add(blueprint, "status_jobs", endpoints.proxied("/api/v1/jobs", ("status", "limit")))
    add(blueprint, "status_stats", endpoints.proxied("/api/v1/stats", ("hours",)))
    lookup = ("job_id", "request_id", "asset_id", "version_ordinal", "limit")
    add(blueprint, "status_lookup", endpoints.proxied("/api/v1/lookup", lookup))
    add(blueprint, "status_job", endpoints.of_job("", ("wait",)))
    add(blueprint, "status_job_nodes", endpoints.of_job("/nodes", ()))
    add(blueprint, "status_job_events", endpoints.of_job("/events", ("after", "limit")))
    return blueprint


class StatusEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def proxied(self, path: str, names: tuple[str, ...]) -> Endpoint:
        """Return the endpoint that proxies one question; parameters that it does not have are refused."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            return await self._ask(req, path, names)

        return ask

    def of_job(self, what: str, names: tuple[str, ...]) -> Endpoint:
        """Return the endpoint that proxies one question about a job."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            return await self._ask(req, f"/api/v1/jobs/{segment(req.route_params['job_id'])}{what}", names)

        return ask

    async def _ask(self, req: func.HttpRequest, path: str, names: tuple[str, ...]) -> func.HttpResponse:
        await self._gateway.auth.operator(req.headers)
        paging.check_names(req.params, names)
        return await self._gateway.proxy(req, path, query=req.params)
