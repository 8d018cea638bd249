"""Reads for partners and reviewers on the orchestrator; the gateway answers the same from its views."""

from core.b2b import StatusView, is_key
from core.b2b_assets import AssetView, VersionList
from core.errors import NotFound
from core.identity import Caller
from core.status_view import (
    AssetRow,
    PublicUrls,
    RequestFacts,
    VersionRow,
    asset_view,
    may_see_request,
    status_view,
    version_view,
    visible_versions,
)
from repositories.assets import AssetRepository
from repositories.audit import AuditRepository
from repositories.database import AsyncPool, snapshot, transaction
from repositories.requests import RequestRepository


class StatusService:
    """Status of requests, and the versions of assets a caller may know of."""

    def __init__(self, pool: AsyncPool, urls: PublicUrls) -> None:
        self._pool = pool
        self._urls = urls

    async def request(self, caller: Caller, request_id: str) -> StatusView:
        """Return a request of the caller's platform; another platform's is as unknown as none."""
        facts = await self._facts(request_id)
        if facts is None or not may_see_request(caller, facts.platform_id):
            raise NotFound(
                "there is no such request", field="request_id", value=request_id[:64] if is_key(request_id) else None
            )
        return status_view(facts, caller, self._urls)

    async def _facts(self, request_id: str) -> RequestFacts | None:
        if not is_key(request_id):
            return None
        async with transaction(self._pool) as conn:
            return await RequestRepository(conn).facts(request_id)

    async def versions(self, caller: Caller, asset_id: str) -> VersionList:
        """Return the versions of an asset that the caller may know of, oldest first."""
        _, shown = await self._visible(caller, asset_id)
        async with transaction(self._pool) as conn:
            decisions = await AuditRepository(conn).decisions(asset_id)
        return VersionList(versions=[version_view(version, caller, decisions, self._urls) for version in shown])

    async def asset(self, caller: Caller, asset_id: str) -> AssetView:
        """Return an asset of which the caller may know at least one version."""
        return asset_view(*await self._visible(caller, asset_id))

    async def _visible(self, caller: Caller, asset_id: str) -> tuple[AssetRow, list[VersionRow]]:
        async with snapshot(self._pool) as conn:
            assets = AssetRepository(conn)
            asset = await assets.get(asset_id)
            shown = visible_versions(caller, asset, await assets.versions(asset_id))
        if asset is None or not shown:
            raise NotFound("there is no such asset", field="asset_id", value=asset_id[:64])
        return asset, shown
