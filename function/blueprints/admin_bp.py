"""/api/admin/*: what operators look at, proxied with their own credential; not there for anybody else."""

from typing import Final

import azure.functions as func

from function.gateway import Gateway, add

_AUDIT_FILTERS: Final = (
    "asset_id", "version_ordinal", "platform_id", "actor", "action", "request_id", "since", "until", "limit", "after",
)  # fmt: skip


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = AdminEndpoints(gateway)
    add(blueprint, "admin_audit", "api/admin/audit", ["GET"], endpoints.audit)
    return blueprint


class AdminEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def audit(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy the question who did what."""
        await self._gateway.auth.operator(req.headers)
        query = {name: req.params[name] for name in _AUDIT_FILTERS if name in req.params}
        return await self._gateway.proxy(req, "/api/v1/audit", query=query)
