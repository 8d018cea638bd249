"""/api/assets/*: assets and versions as the caller may know them, and decisions about them (proxied)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import azure.functions as func

from core import b2b, paging
from core.b2b_assets import AssetAddress, AssetList, CommentList, VersionAddress, VersionList
from core.errors import NotFound
from core.identity import Caller
from core.review_view import comment_views
from core.status_view import (
    AssetFilter,
    AssetRow,
    VersionRow,
    asset_view,
    listed_for,
    may_see_request,
    version_view,
    visible_versions,
)
from function.gateway import Endpoint, Gateway, add, json_answer

VERSION_DECISIONS: Final = ("approve", "reject", "revoke", "supersede", "restore", "comments")
REF_PREFIX: Final = "ref."
ASSET_DECISIONS: Final = ("clearance", "unpublish", "restore")


def build(gateway: Gateway) -> func.Blueprint:
    """Return the blueprint."""
    blueprint = func.Blueprint()
    endpoints = AssetEndpoints(gateway)
    add(blueprint, gateway, "assets", endpoints.assets)
    add(blueprint, gateway, "asset", endpoints.asset)
    add(blueprint, gateway, "asset_expose", endpoints.of_asset(""))
    add(blueprint, gateway, "asset_delete", endpoints.of_asset(""))
    add(blueprint, gateway, "asset_versions", endpoints.versions)
    add(blueprint, gateway, "asset_latest", endpoints.latest)
    add(blueprint, gateway, "asset_version", endpoints.version)
    add(blueprint, gateway, "asset_version_comment_list", endpoints.comments)
    add(blueprint, gateway, "asset_version_delete", endpoints.of_version(""))
    for decision in ASSET_DECISIONS:
        add(blueprint, gateway, f"asset_{decision}", endpoints.of_asset(f"/{decision}"))
    for decision in VERSION_DECISIONS:
        add(blueprint, gateway, f"asset_version_{decision}", endpoints.of_version(f"/{decision}"))
    return blueprint


class AssetEndpoints:
    """The endpoints of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def assets(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the assets that the caller may know of, the newest first."""
        caller = await self._gateway.auth.caller(req.headers)
        wanted, limit = listed_for(caller, asset_filter(req.params)), paging.read_limit(req.params.get("limit"))
        after = paging.read_cursor("assets", req.params.get("after"), datetime, str)
        found = [] if wanted is None else await self._gateway.queries.assets(wanted, after=after, limit=limit + 1)
        page = paging.page("assets", found, limit, lambda row: (row[0].created_at, row[0].asset_id))
        visible = [(asset, visible_versions(caller, asset, versions)) for asset, versions in page.rows]
        views = [asset_view(asset, shown) for asset, shown in visible if shown]
        return json_answer(req, AssetList(assets=views, next_after=page.next_after))

    async def asset(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with an asset."""
        _, asset, shown = await self._visible(req)
        return json_answer(req, asset_view(asset, shown))

    async def versions(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the versions of an asset, oldest first."""
        caller, asset, shown = await self._visible(req)
        decisions = await self._gateway.queries.decisions([asset.asset_id])
        return json_answer(
            req, VersionList(versions=[version_view(one, caller, decisions, self._gateway.urls) for one in shown])
        )

    async def version(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with one version and its validation report."""
        return await self._one(req, int(req.route_params["ordinal"]))

    async def latest(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with the highest approved version."""
        return await self._one(req, None)

    async def comments(self, req: func.HttpRequest) -> func.HttpResponse:
        """Answer with what was said about a version to whoever may take part: its platform's people and reviewers."""
        caller, asset, shown = await self._visible(req)
        version = self._version(shown, int(req.route_params["ordinal"]))
        if not may_see_request(caller, asset.platform_id):
            raise NotFound("there is no such version", field="version_ordinal")
        rows = await self._gateway.queries.comments(asset.asset_id, version.version_ordinal)
        return json_answer(req, CommentList(comments=comment_views(rows, caller)))

    def of_asset(self, what: str) -> Endpoint:
        """Return the endpoint that proxies one decision about an asset."""

        async def decide(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.caller(req.headers)
            where = b2b.parse(AssetAddress, {"asset_id": req.route_params["asset_id"]})
            return await self._proxy(req, f"/api/v1/assets/{where.asset_id}{what}")

        return decide

    def of_version(self, what: str) -> Endpoint:
        """Return the endpoint that proxies one decision about a version."""

        async def decide(req: func.HttpRequest) -> func.HttpResponse:
            await self._gateway.auth.caller(req.headers)
            address = {"asset_id": req.route_params["asset_id"], "version_ordinal": int(req.route_params["ordinal"])}
            where = b2b.parse(VersionAddress, address)
            return await self._proxy(req, f"/api/v1/assets/{where.asset_id}/versions/{where.version_ordinal}{what}")

        return decide

    async def _proxy(self, req: func.HttpRequest, path: str) -> func.HttpResponse:
        reason = {"reason": req.params["reason"]} if req.method == "DELETE" and "reason" in req.params else {}
        return await self._gateway.proxy(req, path, query=reason)

    async def _one(self, req: func.HttpRequest, ordinal: int | None) -> func.HttpResponse:
        caller, asset, shown = await self._visible(req)
        version = self._version(shown, asset.latest_approved_version_ordinal if ordinal is None else ordinal)
        decisions = await self._gateway.queries.decisions([asset.asset_id])
        return json_answer(req, version_view(version, caller, decisions, self._gateway.urls))

    def _version(self, shown: Sequence[VersionRow], wanted: int | None) -> VersionRow:
        version = next((v for v in shown if v.version_ordinal == wanted), None)
        if version is None:
            raise NotFound("there is no such version", field="version_ordinal")
        return version

    async def _visible(self, req: func.HttpRequest) -> tuple[Caller, AssetRow, list[VersionRow]]:
        caller = await self._gateway.auth.caller(req.headers)
        asset, versions = await self._gateway.queries.asset(req.route_params["asset_id"])
        shown = visible_versions(caller, asset, versions)
        if asset is None or not shown:
            raise NotFound("there is no such asset", field="asset_id")
        return caller, asset, shown


def asset_filter(params: Mapping[str, str]) -> AssetFilter:
    """Return what a list of assets is asked for; `ref.NAME=VALUE` asks for a ref of the platform, any number of them.

    Raises:
        ParameterInvalid: a parameter has a value that is none of its own.
    """
    refs = [name for name in params if name.startswith(REF_PREFIX)]
    wanted = {name.removeprefix(REF_PREFIX): paging.read_text(name, params) or "" for name in refs}
    return AssetFilter(
        platform_id=paging.read_text("platform_id", params),
        refs=wanted or None,
        data_type=paging.read_one_of("data_type", params, ("raster", "vector")),
        published=paging.read_one_of("published", params, ("true", "false")) == "true",
    )
