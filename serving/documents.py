"""The STAC item of a version, and its file."""

import json
import logging
from contextlib import closing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from core.access import INTERNAL, PRIVATE_CACHE, Door
from core.identity import Caller
from core.models.business import ApprovalState
from core.stac import ItemExtent, extent_of, tile_items
from repositories.database import SyncPool, read
from repositories.routes import Route, placed_in_collection, published_collection, published_item
from serving.errors import hidden
from serving.files import VersionFiles
from serving.ranges import ranged
from serving.routing import Admitted, Gate, check_query, is_unchanged

log = logging.getLogger(__name__)

GEOJSON = "application/geo+json"
COG = "image/tiff; application=geotiff; profile=cloud-optimized"
TileQuery = Annotated[
    str | None, Query(pattern=r"^r\d{4,9}c\d{4,9}$", description="Name of a tile, such as r0000c0001.")
]


class Catalogue:
    """Reads item documents: of catalogued versions from pgstac, of all others from the version itself."""

    def __init__(self, pool: SyncPool) -> None:
        self._pool = pool

    def item(self, route: Route) -> dict[str, Any]:
        """Return the STAC item of a version.

        Raises:
            NotFound: It has none.
        """
        catalogued = route.approval_state is ApprovalState.APPROVED and route.clearance_state in INTERNAL
        document = self._published(route) if catalogued else route.stac_item
        if document is None:
            raise hidden()
        return document

    def collection(self, gate: Gate, caller: Caller | None, collection_id: str) -> dict[str, Any]:
        """Return a collection; it exists for those who see at least one of its items, and covers what they see.

        Raises:
            NotFound: There is none, or nothing in it for this caller; nobody can tell which.
        """
        if "\0" in collection_id:
            raise hidden()
        with read(self._pool) as conn:
            with closing(placed_in_collection(conn, collection_id)) as versions:
                seen = [ItemExtent(one.bbox, one.starts, one.ends) for one in gate.seen(caller, versions, Door.STAC)]
            document = published_collection(conn, collection_id) if seen else None
        if document is None:
            raise hidden()
        return document | {"extent": extent_of(seen)}

    def _published(self, route: Route) -> dict[str, Any] | None:
        if route.stac_collection_id is None or route.stac_item_id is None:
            return None
        with read(self._pool) as conn:
            document = published_item(conn, route.stac_collection_id, route.stac_item_id)
        if document is None:
            log.error("approved version is not in the catalogue", extra={"item_id": route.stac_item_id})
            return None
        return with_nulls(document)


def with_nulls(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item with the nulls of its properties that mean something, all of which pgstac drops.

    An item over an interval has no instant, and a CRS may have no code; STAC wants both said.
    """
    properties = {"datetime": None} | item.get("properties", {})
    if "proj:wkt2" in properties or "proj:projjson" in properties:
        properties = {"proj:code": None} | properties
    return item | {"properties": properties}


def documents_router(gate: Gate, catalogue: Catalogue, files: VersionFiles) -> APIRouter:
    """Return the doors to STAC items and to their collections."""
    router = APIRouter()

    @router.api_route("/stac/collections/{collection_id}", methods=["GET", "HEAD"], response_class=Response)
    def stac_collection(request: Request, collection_id: str) -> Response:
        """Return a STAC collection to whoever sees an item in it."""
        caller = gate.caller(request.headers)
        check_query(request)
        content = json.dumps(catalogue.collection(gate, caller, collection_id), ensure_ascii=False, allow_nan=False)
        return Response(content.encode(), headers={"Cache-Control": PRIVATE_CACHE}, media_type="application/json")

    @router.api_route("/stac/{asset_id}", methods=["GET", "HEAD"], response_class=Response)
    def stac_item(request: Request, admitted: Annotated[Admitted, Depends(gate.at(Door.STAC))]) -> Response:
        """Return the STAC item of a version."""
        headers = admitted.headers("stac")
        if is_unchanged(request, headers):
            return Response(status_code=304, headers=headers)
        content = json.dumps(catalogue.item(admitted.route), ensure_ascii=False, allow_nan=False)
        return Response(content.encode(), headers=headers, media_type=GEOJSON)

    @router.api_route("/stac/{asset_id}/tiles", methods=["GET", "HEAD"], response_class=Response)
    def stac_tiles(request: Request, admitted: Annotated[Admitted, Depends(gate.at(Door.STAC))]) -> Response:
        """Return the items of the tiles of a version that is stored as tiles."""
        headers = admitted.headers("stac/tiles")
        if is_unchanged(request, headers):
            return Response(status_code=304, headers=headers)
        tiles, item = files.tiles(admitted.route), catalogue.item(admitted.route)
        if tiles is None:
            raise hidden()
        found = {"type": "FeatureCollection", "features": list(tile_items(item, tiles.tiles))}
        content = json.dumps(found, ensure_ascii=False, allow_nan=False)
        return Response(content.encode(), headers=headers, media_type=GEOJSON)

    return router


def downloads_router(gate: Gate, files: VersionFiles) -> APIRouter:
    """Return the door to files."""
    router = APIRouter()

    @router.api_route("/download/{asset_id}", methods=["GET", "HEAD"], response_class=Response)
    def download(
        request: Request, admitted: Annotated[Admitted, Depends(gate.at(Door.DOWNLOAD, "tile"))], tile: TileQuery = None
    ) -> Response:
        """Return the Cloud Optimized GeoTIFF of a version, whole or by byte ranges.

        Of a version that is stored as tiles that is the overview; `tile` names one of the tiles.
        """
        route = admitted.route
        headers = admitted.headers("download" if tile is None else f"download/{tile}")
        if is_unchanged(request, headers):
            return Response(status_code=304, headers=headers)
        tiles, name = files.tiles(route), f"{route.asset_id}-v{route.version_ordinal}"
        if tile is None:
            name += "" if tiles is None else "-overview"
            return ranged(files.blobs, files.cog(route), headers, COG, f"{name}.tif")
        entry = None if tiles is None else tiles.entry(tile)
        if entry is None:
            raise hidden()
        return ranged(files.blobs, files.tile(entry), headers, COG, f"{name}-{tile}.tif")

    return router
