"""What a raster needs is told by its header: more for more pixels, bounded memory, room for every copy."""

from typing import Any

import pytest

from handlers.raster.estimate import TILED_BYTES
from tests.support.raster_path import RasterPath, pattern, raw_tiff


def needs(raster: RasterPath, source: Any, **options: Any) -> dict[str, Any]:
    output = raster.validate(source, header_only=True, **options).output
    assert isinstance(output, dict)
    assert output["report"]["estimate"] == output["estimate"]
    return dict(output["estimate"])


def sparse(raster: RasterPath, side: int, block: int = 512) -> Any:
    """Write a header that declares a large raster of uint8 without any block."""
    tiles = (-(-side // block)) ** 2
    tags: dict[int, Any] = {
        256: (4, [side]), 257: (4, [side]), 258: (3, [8]), 259: (3, [8]), 262: (3, [1]), 277: (3, [1]),
        322: (3, [block]), 323: (3, [block]), 324: (4, [0] * tiles), 325: (4, [0] * tiles), 339: (3, [1]),
        33550: (12, [1.0, 1.0, 0.0]), 33922: (12, [0.0, 0.0, 0.0, 500000.0, 4600000.0, 0.0]),
        34735: (3, [1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633]),
    }  # fmt: skip
    return raw_tiff(raster.folder / f"sparse-{side}.tif", tags)


def test_a_small_raster_needs_little(raster: RasterPath) -> None:
    found = needs(raster, raster.write(pattern(60, 60)))
    assert found["route"] == "direct"
    assert found["memory_bytes"] < 200 << 20
    assert found["scratch_bytes"] < 100_000
    assert 0 < found["seconds"] < 5


def test_memory_is_bounded_and_everything_else_grows(raster: RasterPath) -> None:
    small, large = needs(raster, sparse(raster, 5_000)), needs(raster, sparse(raster, 50_000))
    assert large["memory_bytes"] < 700 << 20
    assert large["scratch_bytes"] > 2_500_000_000
    assert large["seconds"] > 50 * small["seconds"] / 2


@pytest.mark.parametrize(("side", "route"), [(60_000, "direct"), (70_000, "tiled")])
def test_the_route_is_taken_by_decoded_size(raster: RasterPath, side: int, route: str) -> None:
    assert (side * side > TILED_BYTES) == (route == "tiled")
    assert needs(raster, sparse(raster, side))["route"] == route


def test_copies_and_warps_need_room_and_time(raster: RasterPath) -> None:
    source = sparse(raster, 5_000)
    plain, warped = needs(raster, source), needs(raster, source, target_crs="EPSG:3857")
    assert warped["scratch_bytes"] - plain["scratch_bytes"] == 25_000_000
    assert warped["seconds"] > plain["seconds"]
    assert warped["memory_bytes"] >= plain["memory_bytes"]
