"""Tiles, TileJSON and previews: titiler's factory with geodag's URLs, its access policy and the version's rendering.

The factory keeps what it is good at (reader, tile matrix sets, rendering, GDAL environment); a path names an asset,
never a file, and nothing in a query reaches GDAL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import rasterio
from attrs import define, field
from fastapi import APIRouter, Depends, Request, Response
from fastapi import Path as PathParameter
from morecantile import TileMatrixSet
from rasterio.enums import Resampling
from rio_tiler.errors import TileOutsideBounds
from rio_tiler.io import Reader
from rio_tiler.models import ImageData
from titiler.core.factory import TilerFactory
from titiler.core.models.mapbox import TileJSON

from core.access import Door
from core.ports import BlobRef
from serving.errors import hidden
from serving.files import VersionFiles
from serving.mosaic import assembled, window_of
from serving.rendering import FAST_PNG, Rendering, filled, has_data
from serving.routing import Admitted, Gate, is_unchanged
from serving.turns import bounds_on_map, moved, shifts, turn_of, turned

TILE_MATRIX_SET: Final = "WebMercatorQuad"
PREVIEW_SIZE: Final = 1024
"""Pixels on the longer side of a preview, at most."""
GDAL_CACHE_BYTES: Final = 200 << 20
MAX_LATITUDE: Final = 85.0511287798066

Zoom = Annotated[int, PathParameter(description="Level of the tile matrix.")]
Column = Annotated[int, PathParameter(description="Column, from the west.")]
Row = Annotated[int, PathParameter(description="Row, from the north.")]


def gdal_environment() -> dict[str, Any]:
    """Return GDAL's settings while a request reads: no listing of folders, no side files, a bounded cache in bytes."""
    return {
        "GDAL_CACHEMAX": GDAL_CACHE_BYTES,
        "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
        "GDAL_PAM_ENABLED": "NO",
    }


@define(kw_only=True)
class VersionTiler(TilerFactory):  # type: ignore[misc]
    """The doors that show pixels of one version of one asset, in WebMercatorQuad."""

    router: APIRouter = field(factory=APIRouter)
    gate: Gate
    files: VersionFiles
    public_url: str
    environment_dependency: Any = field(default=gdal_environment)

    def register_routes(self) -> None:
        """Register this factory's doors and none of titiler's own, which take file names from the query."""
        self.tile()
        self.tilejson()
        self.preview()

    @property
    def matrix_set(self) -> TileMatrixSet:
        """Return the one tile matrix set."""
        return self.supported_tms.get(TILE_MATRIX_SET)

    def tile(self) -> None:
        """Register the tiles: 204 for no data, 404 outside the matrix; the lower decorator comes first."""

        @self.router.api_route("/tiles/{asset_id}/{z}/{x}/{y}", methods=["GET", "HEAD"], response_class=Response)
        @self.router.api_route("/tiles/{asset_id}/{z}/{x}/{y}.png", methods=["GET", "HEAD"], response_class=Response)
        def tile(
            request: Request,
            z: Zoom,
            x: Column,
            y: Row,
            admitted: Annotated[Admitted, Depends(self.gate.at(Door.TILES))],
            env: Annotated[dict[str, Any], Depends(self.environment_dependency)],
        ) -> Response:
            """Return a tile of 256 x 256 pixels."""
            if not _in_matrix(self.matrix_set, z, x, y):
                raise hidden()
            headers = admitted.headers(f"tiles/{z}/{x}/{y}")
            if is_unchanged(request, headers):
                return Response(status_code=304, headers=headers)
            content = self.files.patiently(lambda: self._draw_tile(admitted, x, y, z, env))
            if content is None:
                return Response(status_code=204, headers=headers)
            return Response(content, headers=headers, media_type=FAST_PNG.mediatype)

    def tilejson(self) -> None:
        """Register the TileJSON document."""

        @self.router.api_route(
            "/tiles/{asset_id}/tilejson.json",
            methods=["GET", "HEAD"],
            response_model=TileJSON,
            response_model_exclude_none=True,
        )
        def tilejson(
            request: Request,
            admitted: Annotated[Admitted, Depends(self.gate.at(Door.TILEJSON))],
            env: Annotated[dict[str, Any], Depends(self.environment_dependency)],
        ) -> Response:
            """Return what a map client needs to show the version."""
            headers = admitted.headers("tilejson")
            if is_unchanged(request, headers):
                return Response(status_code=304, headers=headers)
            document = self.files.patiently(lambda: self._describe(admitted, env))
            content = document.model_dump_json(exclude_none=True)
            return Response(content, headers=headers, media_type="application/json")

    def preview(self) -> None:
        """Register the preview."""

        @self.router.api_route("/preview/{asset_id}.png", methods=["GET", "HEAD"], response_class=Response)
        def preview(
            request: Request,
            admitted: Annotated[Admitted, Depends(self.gate.at(Door.PREVIEW))],
            env: Annotated[dict[str, Any], Depends(self.environment_dependency)],
        ) -> Response:
            """Return the whole version, in its own CRS, at most 1024 pixels long."""
            headers = admitted.headers("preview")
            if is_unchanged(request, headers):
                return Response(status_code=304, headers=headers)
            content = self.files.patiently(lambda: self._draw_preview(admitted, env))
            return Response(content, headers=headers, media_type=FAST_PNG.mediatype)

    def _draw_tile(self, admitted: Admitted, x: int, y: int, z: int, env: dict[str, Any]) -> bytes | None:
        """Return a tile as PNG, None where the version has no data."""
        rendering = Rendering.of(admitted.route.render)
        with rasterio.Env(**env), self._open_at(admitted, x, y, z, rendering) as src:
            image = _read(src, x, y, z, rendering)
            for shift in self._shifts(admitted, src, x, y, z):
                with self._open_at(admitted, x, y, z, rendering, shift) as beyond:
                    image = filled(image, _read(beyond, x, y, z, rendering))
            return rendering.draw(image, src) if image is not None and has_data(image) else None

    def _draw_preview(self, admitted: Admitted, env: dict[str, Any]) -> bytes:
        rendering = Rendering.of(admitted.route.render)
        with rasterio.Env(**env), self._open(self.files.cog(admitted.route)) as src:
            image = src.preview(max_size=PREVIEW_SIZE, **rendering.read_options(src))
            return rendering.draw(image, src)

    def _describe(self, admitted: Admitted, env: dict[str, Any]) -> TileJSON:
        route = admitted.route
        with rasterio.Env(**env):
            with self._open(self.files.cog(route)) as src:
                west, south, east, north = src.get_geographic_bounds(self.matrix_set.rasterio_geographic_crs)
                minzoom, maxzoom = self._zooms(src)
            tiles = self.files.tiles(route)
            if tiles is not None and (first := tiles.first()) is not None:
                with self._open(self.files.tile(first)) as src:
                    _, maxzoom = self._zooms(src)
        west, east, middle = bounds_on_map(west, east)
        south, north = max(south, -MAX_LATITUDE), min(north, MAX_LATITUDE)
        address = f"{self.public_url}/tiles/{route.asset_id}/{{z}}/{{x}}/{{y}}.png?version={admitted.requested}"
        return TileJSON(
            name=route.title,
            description=route.description,
            version=f"{route.version_ordinal}.{route.revision}.0",
            tiles=[address],
            minzoom=minzoom,
            maxzoom=maxzoom,
            bounds=[west, south, east, north],
            center=(middle, (south + north) / 2, minzoom),
        )

    def _zooms(self, src: Reader) -> tuple[int, int]:
        """Return the levels that suit a file; across ±180° a map seems as wide as the Earth, so there it is turned."""
        west, _, east, _ = src.get_geographic_bounds(self.matrix_set.rasterio_geographic_crs)
        whole = bounds_on_map(west, east)
        if whole[:2] == (west, east):
            return src.minzoom, src.maxzoom
        with self.reader(None, dataset=src.dataset, tms=turned(self.matrix_set, whole[2])) as there:
            return there.minzoom, there.maxzoom

    def _shifts(self, admitted: Admitted, src: Reader, x: int, y: int, z: int) -> list[float]:
        """Return by how much to move a version east, in units of its CRS, for what a tile shows of it beyond ±180°."""
        world, tile = self.matrix_set.xy_bbox, self.matrix_set.xy_bounds(x, y, z)
        turn = turn_of(src.crs)
        if turn is None:
            return []
        scale = turn / (world.right - world.left)
        tiles = self.files.tiles(admitted.route)
        west, _, east, _ = src.bounds if tiles is None else tiles.bounds()
        return shifts((west, east), (tile.left * scale, tile.right * scale), turn)

    @contextmanager
    def _open_at(
        self, admitted: Admitted, x: int, y: int, z: int, rendering: Rendering, shift: float = 0.0
    ) -> Iterator[Reader]:
        """Yield a reader of what a tile of the matrix needs: of a version that is stored as tiles, only that.

        Args:
            shift: How far to move the version east first, in units of its CRS.
        """
        tiles = self.files.tiles(admitted.route)
        tiles = tiles.moved(shift) if tiles is not None and shift else tiles
        bounds = tuple(self.matrix_set.xy_bounds(x, y, z))
        needed = None if tiles is None else window_of(tiles, bounds, self.matrix_set.rasterio_crs)
        if tiles is None or needed is None:
            with self._open(self.files.cog(admitted.route), shift) as src:
                yield src
            return
        reduced = Resampling.nearest if rendering.resampling == "nearest" else Resampling.average
        with assembled(self.files, tiles, *needed, self.matrix_set, reduced) as src:
            yield src

    @contextmanager
    def _open(self, ref: BlobRef, shift: float = 0.0) -> Iterator[Reader]:
        with self.files.reading(ref) as path, self.reader(path, tms=self.matrix_set) as src:
            if not shift:
                yield src
                return
            with moved(src.dataset, shift) as there, self.reader(there, tms=self.matrix_set) as beyond:
                yield beyond


def _read(src: Reader, x: int, y: int, z: int, rendering: Rendering) -> ImageData | None:
    """Return the pixels of a tile, None where a raster does not reach."""
    try:
        return src.tile(x, y, z, **rendering.read_options(src))
    except TileOutsideBounds:
        return None


def _in_matrix(matrix_set: TileMatrixSet, z: int, x: int, y: int) -> bool:
    """Return whether a tile exists at all; the levels of WebMercatorQuad are powers of two."""
    return matrix_set.minzoom <= z <= matrix_set.maxzoom and 0 <= x < 1 << z and 0 <= y < 1 << z
