"""The files behind a version."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import StorageUnavailable
from core.payloads import is_payload
from core.ports import BlobRef, BlobRepository
from handlers.raster.grid import Grid
from repositories.routes import Route
from serving.errors import hidden

LISTS_KEPT: Final = 64
"""Lists of tiles in memory; a blob never changes, so what was read stays right."""


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

    def under(self, left: int, top: int, right: int, bottom: int) -> list[TileEntry]:
        """Return the tiles that a window of the whole touches."""
        return [
            TileEntry.model_validate(tile) for tile in self.tiles if _touches(tile["window"], left, top, right, bottom)
        ]


def _touches(window: tuple[int, int, int, int], left: int, top: int, right: int, bottom: int) -> bool:
    west, north, width, height = window
    return west < right and left < west + width and north < bottom and top < north + height


@lru_cache(maxsize=LISTS_KEPT)
def _read_tiles(path: Path) -> TileList:
    try:
        return TileList.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StorageUnavailable("the list of tiles of this version cannot be read") from error


class VersionFiles:
    """Finds the local file of a version's COG."""

    def __init__(self, blobs: BlobRepository) -> None:
        self._blobs = blobs

    def cog(self, route: Route) -> Path:
        """Return the path of a version's COG.

        Raises:
            NotFound: The version has none, as vectors do, or names a stored value of a job.
            StorageUnavailable: The version names a file that is not there.
        """
        if route.data_type != "raster" or route.blob_path is None:
            raise hidden()
        return self._local(route.blob_path)

    def tiles(self, route: Route) -> TileList | None:
        """Return the list of a version's tiles, None when it is one file; kept for the next request.

        Raises:
            StorageUnavailable: The list or what it should say is not there.
        """
        return None if route.tiles_path is None else _read_tiles(self._local(route.tiles_path))

    def tile(self, entry: TileEntry) -> Path:
        """Return the path of the COG of one tile."""
        return self._local(entry.blob_path)

    def _local(self, blob_path: str) -> Path:
        ref = BlobRef.parse(blob_path)
        if is_payload(ref.container, ref.name):
            raise hidden()
        path = self._blobs.local_path(ref)
        if path is None or not path.is_file():
            raise StorageUnavailable("the file of this version cannot be read")
        return path
