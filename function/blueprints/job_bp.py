"""/api/gateway/*: operators' own jobs, many at once, and how the gateway does."""

import azure.functions as func

from core.errors import DatabaseUnavailable
from function.gateway import Gateway, add, json_answer


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()

    async def submit_batch(req: func.HttpRequest) -> func.HttpResponse:
        await gateway.auth.operator(req.headers)
        return await gateway.proxy(req, "/api/v1/jobs/batch")

    async def health(req: func.HttpRequest) -> func.HttpResponse:
        await gateway.auth.operator(req.headers)
        return json_answer(req, await gateway_health(gateway))

    add(blueprint, gateway, "gateway_submit_batch", submit_batch)
    add(blueprint, gateway, "gateway_health", health)
    return blueprint


async def gateway_health(gateway: Gateway) -> dict[str, str]:
    """Return whether the gateway reads its views and reaches an orchestrator."""
    client = gateway.orchestrator
    reached = any([await client.probe(number, "/livez") for number in range(client.size)])
    found = {"database": await _database(gateway), "orchestrator": "ok" if reached else "unavailable"}
    return {"status": "ok" if set(found.values()) == {"ok"} else "degraded", **found}


async def _database(gateway: Gateway) -> str:
    try:
        await gateway.queries.ping()
    except DatabaseUnavailable:
        return "unavailable"
    return "ok"
