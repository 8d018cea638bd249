"""/api/admin/*: what operators look at, proxied with their own credential; not there for anybody else."""

from collections.abc import Mapping
from typing import Final

import azure.functions as func

from core import paging
from function.blueprints.job_bp import gateway_health
from function.gateway import Endpoint, Gateway, add, json_answer

_AUDIT_FILTERS: Final = (
    "asset_id", "version_ordinal", "platform_id", "actor", "action", "request_id", "since", "until", "limit", "after",
)  # fmt: skip


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = AdminEndpoints(gateway)
    add(blueprint, "admin_health", endpoints.health)
    add(blueprint, "admin_config", endpoints.config)
    add(blueprint, "admin_audit", endpoints.proxied("/api/v1/audit", _AUDIT_FILTERS))
    active = endpoints.proxied("/api/v1/jobs", ("limit",), {"status": "RUNNING"})
    add(blueprint, "admin_active_jobs", active)
    events = endpoints.proxied("/api/v1/events", ("limit", "after"))
    add(blueprint, "admin_recent_events", events)
    add(blueprint, "admin_workflows", endpoints.proxied("/api/v1/workflows", ()))
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

    def proxied(self, path: str, names: tuple[str, ...], fixed: Mapping[str, str] | None = None) -> Endpoint:
        """Return the endpoint that proxies one question; parameters that it does not have are refused."""

        async def ask(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.operator(req.headers)
            paging.check_names(req.params, names)
            return await self._gateway.proxy(req, path, query={**req.params, **(fixed or {})})

        return ask
