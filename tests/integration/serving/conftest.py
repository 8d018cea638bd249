"""One running serving process for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.azure_side import Azure
from tests.support.databases import Server
from tests.support.rasters import ELEVATION_CRS, ELEVATION_TRANSFORM, NODATA, elevation
from tests.support.serving_world import ServingWorld
from tests.support.storage import storage_of


@pytest.fixture(scope="module")
def world(azure: Azure | None, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingWorld]:
    """Return serving over a fresh database; every test adds assets of its own."""
    database = server.clone()
    root: Path = tmp_path_factory.mktemp("serving")
    with storage_of(azure, root / "blobs") as storage:
        world = ServingWorld(database, root, storage)
        world.put_cog("dem.tif", elevation(), ELEVATION_CRS, ELEVATION_TRANSFORM, NODATA)
        with world.serving():
            yield world
    server.drop(database)
