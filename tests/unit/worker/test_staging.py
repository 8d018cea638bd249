"""Where blobs are staged: equal names of different folders never meet, what belongs together does."""

from pathlib import Path

from core.ports import BlobRef
from worker.files import staging_place


def test_equal_names_of_different_folders_lie_apart_and_sidecars_beside_their_raster(tmp_path: Path) -> None:
    places = {
        path: staging_place(tmp_path, BlobRef.parse(path))
        for path in ("silver/a/t1/coarse.tif", "silver/a/t2/coarse.tif", "bronze/a/t1/coarse.tif", "silver/coarse.tif")
    }
    assert len(set(places.values())) == len(places)
    assert all(place.is_dir() and place.is_relative_to(tmp_path) for place in places.values())
    assert staging_place(tmp_path, BlobRef("silver", "a/t1/coarse.tfw")) == places["silver/a/t1/coarse.tif"]
