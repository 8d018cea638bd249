"""/api/admin/*: what operators look at, proxied with their own credential; not there for anybody else."""

from collections.abc import Mapping

import azure.functions as func

from function.blueprints.job_bp import gateway_health
from function.gateway import Endpoint, Gateway, add, json_answer


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = AdminEndpoints(gateway)
    add(blueprint, gateway, "admin_health", endpoints.health)
    add(blueprint, gateway, "admin_config", endpoints.config)
    add(blueprint, gateway, "admin_audit", endpoints.proxied("/api/v1/audit"))
    active = endpoints.proxied("/api/v1/jobs", {"status": "RUNNING"})
    add(blueprint, gateway, "admin_active_jobs", active)
    events = endpoints.proxied("/api/v1/events")
    add(blueprint, gateway, "admin_recent_events", events)
    add(blueprint, gateway, "admin_workflows", endpoints.proxied("/api/v1/workflows"))
    return blueprint


class AdminEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def health(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with what the gateway reaches."""
        await self._gateway.auth.operator(req.headers)
        return json_answer(req, await gateway_health(self._gateway))

    async def config(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the gateway's settings, secrets only as being set or not."""
        await self._gateway.auth.operator(req.headers)
        return json_answer(req, {"settings": dict(self._gateway.config)})

    def proxied(self, path: str, fixed: Mapping[str, str] | None = None) -> Endpoint:
        """Return the endpoint that proxies one question."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.operator(req.headers)
            return await self._gateway.proxy(req, path, query={**req.params, **(fixed or {})})

        return ask
