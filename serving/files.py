"""The files behind a version."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import rasterio
from anyio import from_thread
from pydantic import BaseModel, ConfigDict, ValidationError
from rasterio import Affine
from rasterio.errors import RasterioError
from rasterio.transform import array_bounds

from core.errors import DataError, StorageUnavailable
from core.payloads import is_payload
from core.ports import BlobRef, BlobRepository, GdalSource
from handlers.raster.grid import Grid
from repositories.routes import Route
from serving.errors import hidden

T = TypeVar("T")
LISTS_KEPT: Final = 64
"""Lists of tiles in memory; a blob never changes, so what was read stays right."""
MAX_LIST_BYTES: Final = 256 << 20


class TileEntry(BaseModel):
    """One tile of a version, as raster.stac_register_item lists it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    window: tuple[int, int, int, int]
    blob_path: str


class TileList(BaseModel):
    """The tiles of a version and the grid they lie in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: Grid
    tiles: tuple[dict[str, Any], ...]

    def entry(self, name: str) -> TileEntry | None:
        """Return a tile by its name."""
        found = next((tile for tile in self.tiles if tile["name"] == name), None)
        return None if found is None else TileEntry.model_validate(found)

    def first(self) -> TileEntry | None:
        """Return any tile."""
        return TileEntry.model_validate(self.tiles[0]) if self.tiles else None

    def bounds(self) -> tuple[float, float, float, float]:
        """Return west, south, east and north of the whole, in its CRS."""
        west, south, east, north = array_bounds(self.grid.height, self.grid.width, self.grid.affine())
        return west, south, east, north

    def moved(self, shift: float) -> "TileList":
        """Return the same tiles further east, in units of their CRS."""
        transform = (Affine.translation(shift, 0) * self.grid.affine())[:6]
        return self.model_copy(update={"grid": self.grid.model_copy(update={"transform": transform})})

    def under(self, left: int, top: int, right: int, bottom: int) -> list[TileEntry]:
        """Return the tiles that a window of the whole touches."""
        return [
            TileEntry.model_validate(tile) for tile in self.tiles if _touches(tile["window"], left, top, right, bottom)
        ]


def _touches(window: tuple[int, int, int, int], left: int, top: int, right: int, bottom: int) -> bool:
    west, north, width, height = window
    return west < right and left < west + width and north < bottom and top < north + height


class VersionFiles:
    """Finds and reads the files of versions; called in the threads of requests."""

    def __init__(self, blobs: BlobRepository) -> None:
        self.blobs = blobs
        self._far = blobs.local_path(BlobRef("silver", "any")) is None
        self._read_tiles = functools.lru_cache(maxsize=LISTS_KEPT)(self._fetch_tiles)

    def cog(self, route: Route) -> BlobRef:
        """Return a version's COG.

        Raises:
            NotFound: The version has none, as vectors do, or names a stored value of a job.
        """
        if route.data_type != "raster" or route.blob_path is None:
            raise hidden()
        return _shown(route.blob_path)

    def tiles(self, route: Route) -> TileList | None:
        """Return the list of a version's tiles, None when it is one file; kept for the next request.

        Raises:
            StorageUnavailable: The list or what it should say is not there.
        """
        return None if route.tiles_path is None else self._read_tiles(_shown(route.tiles_path))

    def tile(self, entry: TileEntry) -> BlobRef:
        """Return the COG of one tile."""
        return _shown(entry.blob_path)

    @contextmanager
    def reading(self, ref: BlobRef) -> Iterator[str]:
        """Yield the path under which GDAL opens a file, with the settings that it needs for that.

        Raises:
            StorageUnavailable: The file is not there.
        """
        source = self._source(ref)
        if not source.options:
            yield source.path
            return
        with rasterio.Env(**source.options):
            yield source.path

    def patiently(self, work: Callable[[], T]) -> T:
        """Return what `work` reads; in a far storage a read that fails is tried once more, from its beginning.

        The signature that it began with may have ended meanwhile; the second time it begins with a new one.
        """
        try:
            return work()
        except RasterioError:
            if not self._far:
                raise
        return work()

    def _source(self, ref: BlobRef) -> GdalSource:
        path = self.blobs.local_path(ref)
        if path is None:
            return from_thread.run(self.blobs.gdal_source, ref)
        if not path.is_file():
            raise StorageUnavailable("the file of this version cannot be read")
        return GdalSource(str(path))

    def _fetch_tiles(self, ref: BlobRef) -> TileList:
        try:
            path = self.blobs.local_path(ref)
            data = from_thread.run(self.blobs.read, ref, MAX_LIST_BYTES) if path is None else path.read_bytes()
            return TileList.model_validate_json(data)
        except (ValidationError, DataError, FileNotFoundError) as error:
            raise StorageUnavailable("the list of tiles of this version cannot be read") from error


def _shown(blob_path: str) -> BlobRef:
    ref = BlobRef.parse(blob_path)
    if is_payload(ref.container, ref.name):
        raise hidden()
    return ref
