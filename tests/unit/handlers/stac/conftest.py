"""Fixtures of the STAC handlers."""

from pathlib import Path

import pytest

from tests.support.raster_path import RasterPath


@pytest.fixture
def raster(tmp_path: Path) -> RasterPath:
    """Return the raster handlers over an empty folder."""
    return RasterPath(tmp_path)
