"""What comes with a raster: archives around it and sidecars beside it."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
from rasterio.enums import MaskFlags
from rasterio.transform import from_origin

from handlers import archives
from handlers.raster import crs as crs_rules
from tests.support.raster_path import ORIGIN, UTM33, RasterPath, pattern, pixels

PRJ = pyproj.CRS.from_epsg(32633).to_wkt("WKT1_ESRI")
WORLD = "10\n0\n0\n-10\n500005\n4649771\n"
AUX = """<PAMDataset>
  <SRS>EPSG:32633</SRS><GeoTransform>500000, 10, 0, 4649776, 0, -10</GeoTransform>
  <Metadata><MDI key="AUTHOR">someone</MDI><MDI key="OVERVIEW_FILE">/etc/passwd</MDI></Metadata>
  <Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">/etc/passwd</MDI></Metadata>
  <PAMRasterBand band="1">
    <Description>height</Description><NoDataValue>7</NoDataValue><UnitType>m</UnitType><Scale>0.5</Scale>
    <Metadata><MDI key="STATISTICS_MINIMUM">1</MDI></Metadata><Histograms/>
  </PAMRasterBand>
</PAMDataset>"""


def plain(raster: RasterPath, name: str = "source.tif", **settings: Any) -> Path:
    """Write a raster without place or CRS."""
    return raster.write(pattern(20, 30, "int16", 0, 90), name, **{"transform": None, "crs": None, **settings})


def zipped(raster: RasterPath, *files: Path, folder: str = "") -> Path:
    path = raster.folder / "delivery.zip"
    with zipfile.ZipFile(path, "w") as target:
        for file in files:
            target.write(file, folder + file.name)
    return path


def outside(raster: RasterPath, name: str, content: str) -> Path:
    """Write a sidecar into a folder of its own, so that only an archive brings it."""
    folder = raster.folder / "parts"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    return folder / name


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_raster_is_taken_out_of_any_archive(raster: RasterPath, mode: str) -> None:
    source = raster.write(pattern(20, 30))
    path = raster.folder / "delivery.bin"
    with tarfile.open(path, mode) as target:  # type: ignore[call-overload]
        target.add(source, "some/folder/Site_DEM.tif")
        target.add(raster.write(pattern(5, 5), "x.tif"), "__MACOSX/x.tif")
    made = raster.make(path)
    np.testing.assert_array_equal(pixels(made.path), pixels(source))
    assert made.codes == ["MEMBER_USED"]
    assert made.facts["member"] == "some/folder/Site_DEM.tif"
    assert made.facts["raster_type"] == "elevation", "the name in the archive counts, not that of the archive"


def test_the_digest_and_size_are_those_of_the_archive(raster: RasterPath) -> None:
    path = zipped(raster, raster.write(pattern(20, 30)))
    output = raster.validate(path, size=path.stat().st_size).output
    assert isinstance(output, dict)
    assert output["file_size_bytes"] == path.stat().st_size


def test_several_rasters_are_listed_and_one_may_be_named(raster: RasterPath) -> None:
    one, two = raster.write(pattern(20, 30), "one.tif"), raster.write(pattern(9, 9, seed=2), "two.tif")
    path = zipped(raster, one, two, folder="d/")
    refusal = raster.rejection(path).detail
    assert (refusal.code, refusal.field) == ("MEMBER_REQUIRED", "member")
    assert "d/one.tif; d/two.tif" in refusal.message
    made = raster.make(path, member="d/two.tif")
    np.testing.assert_array_equal(pixels(made.path), pixels(two))
    wrong = raster.rejection(path, member="d/three.tif").detail
    assert (wrong.code, wrong.field) == ("PARAMETER_INVALID", "member")
    assert "d/one.tif" in wrong.message


def test_a_plain_file_has_no_members(raster: RasterPath) -> None:
    refusal = raster.rejection(raster.write(pattern(5, 5)), member="x.tif").detail
    assert (refusal.code, refusal.field) == ("PARAMETER_INVALID", "member")


def _archive(raster: RasterPath, kind: str) -> Path:
    path = raster.folder / "delivery.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        if kind == "traversal":
            target.writestr("../x.tif", b"II*\0")
        if kind == "bomb":
            target.writestr("x.tif", bytes(archives.RATIO_FREE_BYTES + 1))
        if kind == "no raster":
            target.writestr("roads.shp", b"\x00\x00\x27\x0a" + bytes(100))
    if kind == "cut":
        path.write_bytes(zipped(raster, raster.write(pattern(90, 90))).read_bytes()[:4000])
    if kind == "no tar":
        path.write_bytes(b"\x1f\x8b\x08\x00broken")
    return path


@pytest.mark.parametrize(
    ("kind", "code", "field"),
    [
        ("traversal", "ARCHIVE_UNSAFE", "file"),
        ("bomb", "ARCHIVE_TOO_LARGE", "file"),
        ("no raster", "FORMAT_NOT_ALLOWED", "format"),
        ("empty", "FORMAT_NOT_ALLOWED", "format"),
        ("cut", "RASTER_UNREADABLE", "file"),
        ("no tar", "RASTER_UNREADABLE", "file"),
    ],
)
def test_archives_that_are_refused_leave_nothing(raster: RasterPath, kind: str, code: str, field: str) -> None:
    refusal = raster.rejection(_archive(raster, kind)).detail
    assert (refusal.code, refusal.field) == (code, field)
    assert [path.name for path in (raster.folder / "run-1").iterdir()] == ["out"]


def test_a_lying_raster_in_an_archive_is_refused_like_any_other(raster: RasterPath) -> None:
    inside = raster.write(pattern(40, 40))
    inside.write_bytes(inside.read_bytes()[:900])
    assert raster.rejection(zipped(raster, inside)).detail.code == "RASTER_UNREADABLE"


def test_sidecars_come_out_of_the_archive_too(raster: RasterPath) -> None:
    source = plain(raster)
    path = zipped(raster, source, outside(raster, "SOURCE.TFW", WORLD), outside(raster, "source.prj", PRJ))
    made = raster.make(path)
    assert made.codes == ["MEMBER_USED", "SIDECAR_USED"]
    assert (made.facts["crs_code"], made.facts["sidecars"]) == (UTM33, ["prj", "world"])
    with rasterio.open(made.path) as cog:
        assert cog.transform == ORIGIN
        np.testing.assert_array_equal(cog.read(), pixels(source))


def test_a_sidecar_and_the_submit_must_agree(raster: RasterPath) -> None:
    source = plain(raster)
    source.with_suffix(".tfw").write_text(WORLD)
    source.with_suffix(".prj").write_text(PRJ)
    assert raster.rejection(source, crs="EPSG:32634").detail.code == "CRS_CONFLICT"


def test_the_own_place_of_a_file_wins_over_its_sidecars(raster: RasterPath) -> None:
    source = raster.write(pattern(20, 30), transform=from_origin(600000, 5000000, 5, 5), crs="EPSG:32632")
    source.with_suffix(".tfw").write_text(WORLD)
    source.with_suffix(".prj").write_text(PRJ)
    outcome = raster.validate(source)
    assert [f.code for f in outcome.findings if f.level == "warning"] == ["SIDECAR_IGNORED", "SIDECAR_IGNORED"]
    made = raster.make(source)
    with rasterio.open(made.path) as cog:
        assert (cog.crs.to_epsg(), cog.transform) == (32632, from_origin(600000, 5000000, 5, 5))


def test_sidecars_that_say_the_same_are_no_warning(raster: RasterPath) -> None:
    source = raster.write(pattern(20, 30))
    source.with_suffix(".tfw").write_text(WORLD)
    source.with_suffix(".prj").write_text(PRJ)
    assert raster.codes(source) == ["SIDECAR_USED"]


def test_metadata_beside_a_file_are_used_but_never_what_names_a_file(raster: RasterPath) -> None:
    source = plain(raster)
    source.with_name("source.tif.aux.xml").write_text(AUX)
    made = raster.make(source)
    assert (made.facts["nodata"], made.facts["validity"]) == (7, "nodata")
    with rasterio.open(made.path) as cog:
        assert (cog.crs.to_epsg(), cog.transform, cog.nodata) == (32633, ORIGIN, 7)
        assert (cog.descriptions, cog.units, cog.scales) == (("height",), ("m",), (0.5,))
        assert cog.tags()["AUTHOR"] == "someone"
        assert "OVERVIEW_FILE" not in {**cog.tags(), **cog.tags(ns="OVERVIEWS")}
        assert "STATISTICS_MINIMUM" not in cog.tags(1)
        np.testing.assert_array_equal(cog.read(), pixels(source))


def test_the_nodata_of_the_file_wins_over_that_of_its_sidecar(raster: RasterPath) -> None:
    source = plain(raster, nodata=3)
    source.with_name("source.tif.aux.xml").write_text(AUX)
    assert raster.make(source).facts["nodata"] == 3


def test_a_mask_beside_a_file_is_kept_exactly(raster: RasterPath) -> None:
    valid = pattern(20, 30) % 3 > 0
    source = raster.write(pattern(20, 30))
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="NO"), rasterio.open(source, "r+") as dst:
        dst.write_mask(valid)
    assert source.with_name("source.tif.msk").exists()
    made = raster.make(source)
    assert made.facts["validity"] == "mask"
    with rasterio.open(made.path) as cog:
        assert MaskFlags.per_dataset in cog.mask_flag_enums[0]
        np.testing.assert_array_equal(cog.dataset_mask() > 0, valid)
        np.testing.assert_array_equal(cog.read(), pixels(source))


def test_overviews_beside_a_file_are_not_needed(raster: RasterPath) -> None:
    source = raster.write(pattern(20, 30))
    source.with_name("source.tif.ovr").write_bytes(b"anything")
    assert raster.codes(source) == []


BILLION = "".join(f'<!ENTITY e{n} "{("&e" + str(n - 1) + ";" if n else "lol") * 10}">' for n in range(10))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("source.tfw", "10 0 0 -10 500005"),
        ("source.tfw", "10 0 0 -10 nan 5"),
        ("source.tfw", "ten\n0\n0\n-10\n1\n2"),
        ("source.tfw", "1 " * 5000),
        ("source.prj", "no CRS at all"),
        ("source.prj", "+proj=utm +zone=33 +nadgrids=/etc/passwd"),
        ("source.prj", "x" * 20_000),
        ("source.tif.aux.xml", f"<!DOCTYPE a [{BILLION}]><PAMDataset>&e9;</PAMDataset>"),
        ("source.tif.aux.xml", "<!DOCTYPE a SYSTEM 'http://127.0.0.1:9/x.dtd'><PAMDataset/>"),
        ("source.tif.aux.xml", "<PAMDataset>"),
        ("source.tif.aux.xml", ""),
        ("source.tif.aux.xml", "<VRTDataset/>"),
        ("source.tif.aux.xml", "<a>" * 500 + "</a>" * 500),
        ("source.tif.aux.xml", "<PAMDataset>" + "<Metadata/>" * 300_000 + "</PAMDataset>"),
        ("source.tif.aux.xml", "<PAMDataset><SRS>nonsense</SRS></PAMDataset>"),
        ("source.tif.aux.xml", "<PAMDataset><GeoTransform>1,2,3</GeoTransform></PAMDataset>"),
        (
            "source.tif.aux.xml",
            "<PAMDataset><PAMRasterBand band='1'><NoDataValue>x</NoDataValue></PAMRasterBand></PAMDataset>",
        ),
        ("source.tif.msk", "<VRTDataset><VRTRasterBand/></VRTDataset>"),
        ("source.tif.msk", "II*\0"),
        ("source.tif.msk", ""),
    ],
)
def test_broken_and_hostile_sidecars_are_refused(raster: RasterPath, name: str, content: str) -> None:
    source = raster.write(pattern(20, 30))
    source.with_name(name).write_text(content)
    refusal = raster.rejection(source).detail
    assert (refusal.code, refusal.field, refusal.value) == ("SIDECAR_INVALID", "sidecar", name)


def test_a_mask_of_another_raster_is_refused(raster: RasterPath) -> None:
    source = raster.write(pattern(20, 30))
    raster.write(pattern(30, 20), "source.tif.msk", before=lambda dst: dst.update_tags(INTERNAL_MASK_FLAGS_1="2"))
    assert "20 x 30" in raster.rejection(source).detail.message


def test_a_sidecar_that_is_a_link_is_refused(raster: RasterPath) -> None:
    source = raster.write(pattern(20, 30))
    source.with_suffix(".tfw").symlink_to("/etc/hostname")
    assert raster.rejection(source).detail.code == "SIDECAR_INVALID"


@pytest.mark.parametrize("code", [3035, 31467, 2180, 2263, 32633, 3413, 5041])
def test_an_esri_text_is_the_crs_that_it_means(code: int) -> None:
    ours = pyproj.CRS.from_epsg(code)
    theirs = pyproj.CRS.from_wkt(ours.to_wkt("WKT1_ESRI"))
    read = crs_rules.from_rasterio(rasterio.crs.CRS.from_wkt(theirs.to_wkt()))
    assert read is not None
    assert crs_rules.equal(ours, read)
    assert crs_rules.code_of(read) == f"EPSG:{code}"


@pytest.mark.parametrize(("left", "right"), [(3035, 3034), (31467, 31466), (32633, 32733), (4326, 4258), (2263, 32118)])
def test_different_crs_stay_different(left: int, right: int) -> None:
    assert not crs_rules.equal(pyproj.CRS.from_epsg(left), pyproj.CRS.from_epsg(right))


def test_archives_name_their_rasters_by_content(raster: RasterPath) -> None:
    path = raster.folder / "a.tar"
    source = raster.write(pattern(5, 5))
    with tarfile.open(path, "w") as target:
        target.add(source, "data.bin")
        info = tarfile.TarInfo("fake.tif")
        info.size = 4
        target.addfile(info, io.BytesIO(b"text"))
    assert raster.make(path).facts["member"] == "data.bin"
