"""Lists of the tiles of a version, which its job stores beside them and which are read from the storage when needed.

A list is {grid, tiles: [{name, title, blob_path, size_bytes, sha256, window, transform, bbox, geometry}]}.
"""

import json
from typing import Any, Final

from core.errors import DataError
from core.ports import BlobRef, BlobRepository

Json = dict[str, Any]
MAX_BYTES: Final = 64 << 20


class TileListInvalid(DataError):
    """What a version names is no list of tiles."""

    code = "TILE_LIST_INVALID"


async def read_tiles(blobs: BlobRepository, path: str) -> list[Json]:
    """Return the entries of a list, each with at least `blob_path` and `size_bytes`.

    Raises:
        DataError: there is no such file, or it is longer than any list.
        TileListInvalid: it is something else.
        StorageUnavailable: the storage does not answer.
    """
    stored = await blobs.read(BlobRef.parse(path), MAX_BYTES)
    try:
        listed = json.loads(stored)
        return [
            {**tile, "blob_path": str(tile["blob_path"]), "size_bytes": int(tile["size_bytes"])}
            for tile in listed["tiles"]
        ]
    except (ValueError, LookupError, TypeError) as error:
        raise TileListInvalid(f"{path} is not a list of tiles", field="tiles_path", value=path) from error
