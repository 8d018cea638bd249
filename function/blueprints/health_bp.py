"""Probes: alive as long as it answers, ready while it reads its views."""

import functools
import json

import azure.functions as func

from function.contract.table import openapi
from function.gateway import Gateway, add, conditional


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()

    async def livez(req: func.HttpRequest) -> func.HttpResponse:
        return _ok("alive")

    async def readyz(req: func.HttpRequest) -> func.HttpResponse:
        await gateway.queries.ping()
        return _ok("ready")

    async def document(req: func.HttpRequest) -> func.HttpResponse:
        return conditional(req, _document(gateway.version, gateway.urls.gateway))

    add(blueprint, gateway, "openapi", document)
    add(blueprint, gateway, "livez", livez)
    add(blueprint, gateway, "readyz", readyz)
    return blueprint


@functools.cache
def _document(version: str, server: str) -> bytes:
    """Return the OpenAPI document, made when somebody first asks: a cold start does not wait for it."""
    return json.dumps(openapi(version, server), ensure_ascii=False).encode()


def _ok(status: str) -> func.HttpResponse:
    body = json.dumps({"status": status}).encode()
    return func.HttpResponse(body, headers={"Cache-Control": "no-store"}, mimetype="application/json")
