"""A batch gives the items that its COGs would get one by one."""

from typing import Any

import pytest

from core.errors import ParameterInvalid, StorageUnavailable
from core.handler_models import RasterOptions
from core.stac_params import RegisterItemsParams
from handlers.stac.register_items import register_items
from tests.support.raster_path import Made, RasterPath, pattern

NOON = "2024-05-01T12:00:00Z"


@pytest.fixture
def two(raster: RasterPath) -> list[Made]:
    """Return two COGs."""
    return [
        raster.make(raster.write(pattern(20, 30, seed=seed), f"{seed}.tif"), raster_type="continuous")
        for seed in (1, 2)
    ]


def batch(two: list[Made], ids: tuple[str, str] = ("a-v0", "b-v0")) -> RegisterItemsParams:
    """Return the params of a batch; the second item has a date of its own."""
    items: list[dict[str, Any]] = [
        {
            "cog": str(made.path), "cog_facts": {**made.output, "blob_path": "silver/x/cog.tif"}, "item_id": item_id,
            "title": item_id, "href": f"http://127.0.0.1/download/{item_id}?version=0",
        }
        for made, item_id in zip(two, ids, strict=True)
    ]  # fmt: skip
    items[1]["options"] = {"datetime": "2020-01-01T00:00:00Z"}
    shared = {"collection_id": "ddh-rasters", "version_label": "v1", "properties": {"platform:x": 1}}
    return RegisterItemsParams.model_validate({"items": items, "options": RasterOptions(datetime=NOON), **shared})


def test_items_come_in_order_as_each_would_alone(raster: RasterPath, two: list[Made]) -> None:
    found = register_items(raster.context(), batch(two)).output
    assert isinstance(found, dict)
    assert (found["stac_collection_id"], found["stac_item_ids"]) == ("ddh-rasters", ["a-v0", "b-v0"])
    first, second = found["stac_items"]
    alone: Any = raster.register(two[0], {"platform:x": 1}, datetime=NOON).output
    assert first["assets"]["data"]["file:checksum"] == alone["stac_item"]["assets"]["data"]["file:checksum"]
    assert first["properties"] == {**alone["stac_item"]["properties"], "title": "a-v0"}
    assert (second["id"], second["properties"]["datetime"]) == ("b-v0", "2020-01-01T00:00:00Z")
    assert [step["message"] for step in raster.progress[-2:]] == ["reading COGs back"] * 2


def test_an_id_that_occurs_twice_is_refused(raster: RasterPath, two: list[Made]) -> None:
    with pytest.raises(ParameterInvalid) as refused:
        register_items(raster.context(), batch(two, ("a-v0", "a-v0")))
    assert (refused.value.detail.field, refused.value.detail.value) == ("items", "a-v0")


def test_one_cog_with_other_bytes_stops_the_batch(raster: RasterPath, two: list[Made]) -> None:
    two[1].path.write_bytes(two[0].path.read_bytes())
    with pytest.raises(StorageUnavailable, match="SHA-256"):
        register_items(raster.context(), batch(two))
