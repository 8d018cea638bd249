"""One running serving process for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import Server
from tests.support.rasters import ELEVATION_CRS, ELEVATION_TRANSFORM, NODATA, elevation, write_cog
from tests.support.serving_world import ServingWorld


@pytest.fixture(scope="module")
def world(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingWorld]:
    """Return serving over a fresh database; every test adds assets of its own."""
    database = server.clone()
    root: Path = tmp_path_factory.mktemp("serving")
    world = ServingWorld(database, root)
    write_cog(world.blob("dem.tif"), elevation(), ELEVATION_CRS, ELEVATION_TRANSFORM, NODATA)
    with world.serving():
        yield world
    server.drop(database)
