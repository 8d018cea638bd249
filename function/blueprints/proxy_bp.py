"""/api/proxy/*: what operators reach of the processes behind the gateway, by an allow-list and with their own key."""

import asyncio
from typing import Final

import azure.functions as func

from core.errors import NotFound
from core.proxying import proxied_path
from function.client import OrchestratorClient
from function.gateway import Gateway, add, json_answer

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = ProxyEndpoints(gateway)
    add(blueprint, gateway, "proxy_health", endpoints.health)
    for method in METHODS:
        add(blueprint, gateway, f"proxy_{method.lower()}", endpoints.forward)
    return blueprint


class ProxyEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def forward(self, req: func.HttpRequest) -> func.HttpResponse:
        """Forward a call that the allow-list names; everything else is not there."""
        await self._gateway.auth.operator(req.headers)
        target = req.route_params["target"]
        path = proxied_path(target, req.method, req.route_params.get("path") or "")
        client = self._gateway.targets.get(target)
        if client is None:
            raise NotFound("there is no such resource", field="path")
        return await self._gateway.proxy(req, path, query=dict(req.params), client=client)

    async def health(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with how many addresses of each target live."""
        await self._gateway.auth.operator(req.headers)
        targets = self._gateway.targets
        alive = await asyncio.gather(*(_alive(client) for client in targets.values()))
        found = {
            name: {"status": "up" if up == of else "degraded" if up else "down", "alive": up, "of": of}
            for name, (up, of) in zip(targets, alive, strict=True)
        }
        status = "ok" if all(one["status"] == "up" for one in found.values()) else "degraded"
        return json_answer(req, {"status": status, "targets": found})


async def _alive(client: OrchestratorClient) -> tuple[int, int]:
    answers = await asyncio.gather(*(client.probe(number, "/livez") for number in range(client.size)))
    return sum(answers), client.size
