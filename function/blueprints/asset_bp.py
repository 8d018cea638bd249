"""/api/assets/*: assets and versions as the caller may know them, and reviewers' decisions (proxied)."""

import json
from typing import Any

import azure.functions as func

from core import b2b
from core.errors import NotFound
from core.identity import Caller
from core.status_view import AssetRow, VersionRow, asset_view, version_view, visible_versions
from function.gateway import Gateway, add


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = AssetEndpoints(gateway)
    version = "api/assets/{asset_id}/versions/{ordinal:int}"
    add(blueprint, "asset", "api/assets/{asset_id}", ["GET"], endpoints.asset)
    add(blueprint, "asset_versions", "api/assets/{asset_id}/versions", ["GET"], endpoints.versions)
    add(blueprint, "asset_version", version, ["GET"], endpoints.version)
    add(blueprint, "asset_latest", "api/assets/{asset_id}/versions/latest", ["GET"], endpoints.latest)
    add(blueprint, "asset_approve", f"{version}/approve", ["POST"], endpoints.approve)
    add(blueprint, "asset_reject", f"{version}/reject", ["POST"], endpoints.reject)
    return blueprint


class AssetEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def asset(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with an asset."""
        asset, shown = await self._visible(req)
        return _json(asset_view(asset, shown))

    async def versions(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the versions of an asset, oldest first."""
        _, shown = await self._visible(req)
        return _json({"versions": [version_view(version) for version in shown]})

    async def version(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with one version and its validation report."""
        return await self._one(req, int(req.route_params["ordinal"]))

    async def latest(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the highest approved version."""
        return await self._one(req, None)

    async def approve(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy an approval."""
        return await self._decide(req, "approve")

    async def reject(self, req: func.HttpRequest) -> func.HttpResponse:
        """Proxy a rejection."""
        return await self._decide(req, "reject")

    async def _one(self, req: func.HttpRequest, ordinal: int | None) -> func.HttpResponse:
        asset, shown = await self._visible(req)
        wanted = asset.latest_approved_version_ordinal if ordinal is None else ordinal
        version = next((v for v in shown if v.version_ordinal == wanted), None)
        if version is None:
            raise NotFound("there is no such version", field="version_ordinal")
        return _json(version_view(version))

    async def _decide(self, req: func.HttpRequest, decision: str) -> func.HttpResponse:
        await self._gateway.auth.caller(req.headers)
        where = b2b.parse(
            b2b.VersionAddress,
            {"asset_id": req.route_params["asset_id"], "version_ordinal": int(req.route_params["ordinal"])},
        )
        path = f"/api/v1/assets/{where.asset_id}/versions/{where.version_ordinal}/{decision}"
        return await self._gateway.proxy(req, path)

    async def _visible(self, req: func.HttpRequest) -> tuple[AssetRow, list[VersionRow]]:
        caller: Caller = await self._gateway.auth.caller(req.headers)
        asset, versions = await self._gateway.queries.asset(req.route_params["asset_id"])
        shown = visible_versions(caller, asset, versions)
        if asset is None or not shown:
            raise NotFound("there is no such asset", field="asset_id")
        return asset, shown


def _json(body: dict[str, Any]) -> func.HttpResponse:
    headers = {"Cache-Control": "private, no-store"}
    return func.HttpResponse(
        json.dumps(body, ensure_ascii=False).encode(), headers=headers, mimetype="application/json"
    )
