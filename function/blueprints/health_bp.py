"""Probes: alive as long as it answers, ready while it reads its views."""

import json

import azure.functions as func

from function.gateway import Gateway, add


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()

    async def livez(req: func.HttpRequest) -> func.HttpResponse:
        return _ok("alive")

    async def readyz(req: func.HttpRequest) -> func.HttpResponse:
        await gateway.queries.ping()
        return _ok("ready")

    add(blueprint, "livez", "api/livez", ["GET"], livez)
    add(blueprint, "readyz", "api/readyz", ["GET"], readyz)
    return blueprint


def _ok(status: str) -> func.HttpResponse:
    body = json.dumps({"status": status}).encode()
    return func.HttpResponse(body, headers={"Cache-Control": "no-store"}, mimetype="application/json")
