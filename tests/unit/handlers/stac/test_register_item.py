"""Items: clean by stac-validator, their fields read back by pystac and compared with plain rasterio."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pystac
import pytest
import rasterio
from pystac.extensions.file import FileExtension
from pystac.extensions.projection import ProjectionExtension
from pystac.extensions.render import RenderExtension
from pystac.extensions.version import ItemVersionExtension

from core.errors import Classification, ParameterInvalid, StorageUnavailable
from core.stac import collection_document
from core.stac_params import RegisterItemOutput
from tests.support.raster_path import UTM33, Made, RasterPath, pattern, stack
from tests.support.stac_schemas import stac_errors

NOW = "2024-05-01T10:00:00Z"


def item_of(raster: RasterPath, made: Made, **options: Any) -> dict[str, Any]:
    outcome = raster.register(made, {"platform:request_id": "r-1"}, **({"datetime": NOW} | options))
    output = RegisterItemOutput.model_validate(outcome.output)
    assert (output.stac_item_id, output.stac_collection_id) == ("asset-v0", "ddh-rasters")
    return output.stac_item


@pytest.fixture
def made(raster: RasterPath) -> Made:
    """Return the COG of a scaled raster with a name, a unit and a nodata value."""

    def describe(dst: Any) -> None:
        dst.scales, dst.offsets, dst.descriptions = (0.0001,), (0.0,), ("index",)
        dst.set_band_unit(1, "1")

    return raster.make(raster.write(pattern(64, 96, "int16", -2000, 9000), nodata=-32768, before=describe))


def test_the_item_is_clean_by_stac_validator(raster: RasterPath, made: Made, tmp_path: Path) -> None:
    assert stac_errors(item_of(raster, made), tmp_path) == []


def test_stac_validator_finds_a_broken_item(raster: RasterPath, made: Made, tmp_path: Path) -> None:
    item = item_of(raster, made)
    del item["properties"]["datetime"]
    assert stac_errors(item, tmp_path) != []


def test_the_collection_is_clean_by_stac_validator(tmp_path: Path) -> None:
    assert stac_errors(collection_document("ddh-rasters", "Rasters of DDH"), tmp_path) == []


def test_the_item_says_where_the_pixels_are(raster: RasterPath, made: Made) -> None:
    """C05, proj-extension: version 2 alone, its schema and its fields agree."""
    item = item_of(raster, made)
    assert "proj:epsg" not in json.dumps(item)
    (schema,) = [uri for uri in item["stac_extensions"] if "/projection/" in uri]
    assert schema.endswith("/projection/v2.0.0/schema.json")
    projection = ProjectionExtension.ext(pystac.Item.from_dict(item))
    with rasterio.open(made.path) as cog:
        assert projection.code == UTM33
        assert projection.shape == list(cog.shape)
        assert projection.transform == list(cog.transform)[:6]
        assert projection.bbox == list(cog.bounds)
    assert str(projection.wkt2).startswith("PROJCRS")
    assert projection.projjson["type"] == "ProjectedCRS"


def test_the_asset_is_the_stored_file(raster: RasterPath, made: Made) -> None:
    item = pystac.Item.from_dict(item_of(raster, made))
    asset = item.assets["data"]
    assert asset.href == "http://127.0.0.1:8080/download/asset?version=0"
    assert asset.media_type == pystac.MediaType.COG
    assert asset.roles == ["data"]
    content = made.path.read_bytes()
    assert FileExtension.ext(asset).size == len(content)
    assert FileExtension.ext(asset).checksum == "1220" + hashlib.sha256(content).hexdigest()


def test_bands_carry_name_type_scale_and_statistics(raster: RasterPath, made: Made) -> None:
    (band,) = item_of(raster, made)["assets"]["data"]["bands"]
    values = pattern(64, 96, "int16", -2000, 9000)
    assert (band["name"], band["data_type"], band["nodata"], band["unit"]) == ("index", "int16", -32768, "1")
    assert (band["raster:scale"], band["raster:offset"], band["raster:sampling"]) == (0.0001, 0.0, "area")
    statistics = band["statistics"]
    assert (statistics["minimum"], statistics["maximum"]) == (values.min(), values.max())
    assert statistics["mean"] == pytest.approx(values.mean())
    assert statistics["stddev"] == pytest.approx(values.std())


def test_version_rendering_lineage_and_traceability(raster: RasterPath, made: Made) -> None:
    document = item_of(raster, made)
    item = pystac.Item.from_dict(document)
    assert ItemVersionExtension(item).version == "v1"
    assert RenderExtension.ext(item).renders["default"].assets == ["data"]
    properties = document["properties"]
    assert properties["platform:request_id"] == "r-1"
    assert properties["title"] == "A raster"
    assert properties["processing:software"]["GDAL"] == rasterio.__gdal_version__
    assert "COG written with deflate" in properties["processing:lineage"]
    (link,) = document["links"]
    assert (link["rel"], link["href"]) == ("collection", "http://127.0.0.1:8080/stac/collections/ddh-rasters")


def test_properties_of_the_submit_never_replace_those_of_the_file(raster: RasterPath, made: Made) -> None:
    outcome = raster.register(made, {"proj:code": "EPSG:1", "title": "mine", "platform:x": 1}, datetime=NOW)
    assert isinstance(outcome.output, dict)
    properties = outcome.output["stac_item"]["properties"]
    assert (properties["proj:code"], properties["title"], properties["platform:x"]) == (UTM33, "A raster", 1)


def test_nan_and_infinity_are_words_in_an_item(raster: RasterPath) -> None:
    """C25, json-nan: parsers that know JSON alone read it; statistics that there are not are left out."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    for nodata, word in ((np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")):
        values = pattern(32, 32, "float32", -20, 300)
        values[:9] = nodata
        source = raster.write(values, f"{word}.tif", nodata=nodata)
        item = json.loads(json.dumps(item_of(raster, raster.make(source))), parse_constant=refuse)
        (band,) = item["assets"]["data"]["bands"]
        assert band["nodata"] == word
        assert band["statistics"]["minimum"] >= -20


def test_findings_are_part_of_the_lineage(raster: RasterPath) -> None:
    values = pattern(32, 32, "float32")
    values[0] = np.nan
    item = item_of(raster, raster.make(raster.write(values)))
    assert "NODATA_SET_TO_NAN" in item["properties"]["processing:lineage"]


@pytest.mark.parametrize("kind", ["nan", "palette", "rgba", "compound", "no code", "polar", "antimeridian"])
def test_unusual_rasters_give_clean_items_without_nan(raster: RasterPath, tmp_path: Path, kind: str) -> None:
    item = item_of(raster, raster.make(unusual(raster, kind)))
    json.dumps(item, allow_nan=False)
    assert stac_errors(item, tmp_path) == []
    if kind == "no code":
        assert item["properties"]["proj:code"] is None
        assert item["properties"]["proj:wkt2"]
    if kind == "compound":
        assert item["properties"]["proj:code"] == UTM33
        assert "EGM96" in item["properties"]["proj:wkt2"]


def unusual(raster: RasterPath, kind: str) -> Path:
    """Write one of the rasters whose item is easily got wrong."""
    albers = "+proj=aea +lat_1=44.25 +lat_2=60.75 +lat_0=31.5 +lon_0=9.5 +ellps=intl +units=m +no_defs"
    match kind:
        case "nan":
            values = pattern(32, 32, "float32")
            values[:9] = np.nan
            return raster.write(values)
        case "palette":
            palette = {value: (value, 0, 0, 255) for value in range(9)}
            return raster.write(
                pattern(32, 32, high=8), photometric="palette", before=lambda dst: dst.write_colormap(1, palette)
            )
        case "rgba":
            bands = stack(4, 32, 32)
            bands[3] = 255
            return raster.write(bands, photometric="RGB", alpha="YES")
        case "compound":
            return raster.write(pattern(32, 32, "float32"), crs="EPSG:32633+5773")
        case "no code":
            return raster.write(pattern(32, 32), crs=rasterio.crs.CRS.from_proj4(albers))
        case "polar":
            polar = rasterio.transform.from_origin(-1e6, 1e6, 20000, 20000)
            return raster.write(pattern(100, 100, "int16"), crs="EPSG:3031", transform=polar)
        case _:
            far = rasterio.transform.from_origin(590000, 7300000, 1000, 1000)
            return raster.write(pattern(100, 100, "uint16"), crs="EPSG:32660", transform=far)


def test_an_interval_has_no_instant(raster: RasterPath, made: Made, tmp_path: Path) -> None:
    options = {"datetime": None, "start_datetime": "2024-01-01", "end_datetime": "2024-02-01T12:00:00+02:00"}
    item = item_of(raster, made, **options)
    assert item["properties"]["datetime"] is None
    assert item["properties"]["start_datetime"] == "2024-01-01T00:00:00Z"
    assert item["properties"]["end_datetime"] == "2024-02-01T10:00:00Z"
    assert stac_errors(item, tmp_path) == []


def test_the_date_of_the_file_is_used_when_none_was_given(raster: RasterPath) -> None:
    made = raster.make(raster.write(pattern(8, 8), tags={"TIFFTAG_DATETIME": "2023:04:05 06:07:08"}))
    outcome = raster.register(made)
    assert [finding.code for finding in outcome.findings] == ["DATETIME_FROM_FILE"]
    assert isinstance(outcome.output, dict)
    assert outcome.output["stac_item"]["properties"]["datetime"] == "2023-04-05T06:07:08Z"


def test_without_any_date_the_time_of_processing_is_used_and_said(raster: RasterPath, made: Made) -> None:
    outcome = raster.register(made)
    assert [finding.code for finding in outcome.findings] == ["DATETIME_ASSUMED"]
    assert isinstance(outcome.output, dict)
    assumed = datetime.fromisoformat(outcome.output["stac_item"]["properties"]["datetime"])
    assert abs(datetime.now(UTC) - assumed) < timedelta(minutes=5)


def test_a_wrong_date_is_refused(raster: RasterPath, made: Made) -> None:
    with pytest.raises(ParameterInvalid):
        raster.register(made, datetime="yesterday")


def test_bytes_that_changed_on_the_way_are_noticed(raster: RasterPath, made: Made) -> None:
    content = bytearray(made.path.read_bytes())
    content[-1] ^= 1
    made.path.write_bytes(content)
    with pytest.raises(StorageUnavailable, match="SHA-256") as refusal:
        raster.register(made)
    assert refusal.value.detail.classification is Classification.TRANSIENT


def test_another_raster_with_the_right_digest_is_noticed(raster: RasterPath, made: Made) -> None:
    made.output["raster"]["shape"] = [1, 1]
    with pytest.raises(StorageUnavailable, match="another raster"):
        raster.register(made)


def test_a_file_that_is_no_raster_is_noticed(raster: RasterPath, made: Made) -> None:
    made.path.write_bytes(b"not a raster")
    made.output["sha256"] = hashlib.sha256(b"not a raster").hexdigest()
    with pytest.raises(StorageUnavailable, match="cannot be opened"):
        raster.register(made)
