"""/api/status/*: jobs for operators, proxied with their own credential; not there for anybody else."""

import azure.functions as func

from function.gateway import Endpoint, Gateway, add, segment


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = StatusEndpoints(gateway)
    add(blueprint, gateway, "status_jobs", endpoints.proxied("/api/v1/jobs"))
    add(blueprint, gateway, "status_stats", endpoints.proxied("/api/v1/stats"))
    add(blueprint, gateway, "status_lookup", endpoints.proxied("/api/v1/lookup"))
    add(blueprint, gateway, "status_job", endpoints.of_job(""))
    add(blueprint, gateway, "status_job_nodes", endpoints.of_job("/nodes"))
    add(blueprint, gateway, "status_job_events", endpoints.of_job("/events"))
    return blueprint


class StatusEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def proxied(self, path: str) -> Endpoint:
        """Return the endpoint that proxies one question."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            return await self._ask(req, path)

        return ask

    def of_job(self, what: str) -> Endpoint:
        """Return the endpoint that proxies one question about a job."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            return await self._ask(req, f"/api/v1/jobs/{segment(req.route_params['job_id'])}{what}")

        return ask

    async def _ask(self, req: func.HttpRequest, path: str) -> func.HttpResponse:
        await self._gateway.auth.operator(req.headers)
        return await self._gateway.proxy(req, path, query=req.params)
