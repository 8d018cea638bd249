"""Kinds about where a raster lies: CRS, transform, control points, longitudes."""

import warnings
from typing import Any, Final

import numpy as np
import pyproj
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.rpc import RPC
from rasterio.transform import Affine, from_origin

from tests.support.raster_cases.case import Case, truth_of
from tests.support.raster_cases.kinds import kind
from tests.support.raster_cases.places import Like, bbox_of
from tests.support.raster_path import write_raster

ALBERS: Final = (
    "+proj=aea +lat_1=44.25 +lat_2=60.75 +lat_0=31.5 +lon_0=9.5 +x_0=1000 +y_0=0 +ellps=intl +units=m +no_defs"
)
SINUSOIDAL: Final = "+proj=sinu +lon_0=0 +x_0=0 +y_0=0 +R=6371007.181 +units=m +no_defs"


@kind("A01", ("float32", 64, 64), ("uint8", 3, 700, "degrees"), ("int32", 513, 40, "laea"))
def crs_missing(like: Like) -> Case:
    """Write a transform without CRS."""
    write_raster(like.file, like.pixels(), transform=like.transform, crs=None)
    again = {"rerun_with_submit": {"crs": like.crs}}
    return Case("", "crs-missing", like.file, "reject", "crs", "CRS_MISSING", checks=again)


@kind("A03", ("int16", 50, 40), ("float64", 20, 30, "degrees"), ("uint8", 600, 9, "laea"))
def crs_no_authority(like: Like) -> Case:
    """Write a CRS that no authority has a code for; the place only chooses which."""
    text, transform = {
        "utm33": (ALBERS, from_origin(120000, 2100000, 500, 500)),
        "degrees": ("+proj=longlat +R=6371007.181 +no_defs", from_origin(12, 45, 0.01, 0.01)),
        "laea": (SINUSOIDAL, from_origin(1111950, 5559752, 463.3, 463.3)),
    }[like.place]
    pixels = like.pixels()
    write_raster(like.file, pixels, transform=transform, crs=CRS.from_proj4(text))
    truth = truth_of(pixels) | {"bbox4326": bbox_of(transform, like.height, like.width, text)}
    checks = {"proj_code": None, "proj_wkt2_or_projjson": True}
    return Case("", "crs-no-authority", like.file, "accept", checks=checks, truth=truth)


@kind("A05", ("uint16", 64, 64), ("uint8", 20, 20, "degrees"), ("float32", 5, 600, "laea"))
def crs_conflict(like: Like) -> Case:
    """Write one CRS and submit another."""
    write_raster(like.file, like.pixels(), transform=like.transform, crs=like.crs)
    other = {"utm33": "EPSG:32634", "degrees": "EPSG:4269", "laea": "EPSG:3034"}[like.place]
    names = {"message_names": [like.crs, other]}
    return Case("", "crs-conflict", like.file, "reject", "crs", "CRS_CONFLICT", {"crs": other}, names)


@kind("A07", ("uint8", 40, 40), ("float32", 9, 9), ("int16", 700, 5))
def crs_engineering(like: Like) -> Case:
    """Write a site grid, once under the name of a real CRS."""
    name = "WGS 84 / UTM zone 33N" if like.dtype == "float32" else "Quarry site grid"
    crs = CRS.from_wkt(f'LOCAL_CS["{name}",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]')
    write_raster(like.file, like.pixels(), transform=from_origin(1000, 2000, 1, 1), crs=crs)
    return Case("", "crs-engineering", like.file, "reject", "crs", "CRS_NOT_GEOREFERENCED")


@kind("A09", ("uint8", 96, 48), ("float32", 70, 90, "laea"), ("int16", 40, 40, "degrees"))
def rotated(like: Like) -> Case:
    """Turn the grid by 45, 30 or 10 degrees."""
    angle = {"utm33": 45, "laea": 30, "degrees": 10}[like.place]
    a, _, c, _, e, f = like.transform[:6]
    transform = Affine.translation(c, f) * Affine.rotation(angle) * Affine.scale(a, e)
    pixels = like.pixels(1, 250)
    write_raster(like.file, pixels, transform=transform, crs=like.crs, nodata=0)
    truth = truth_of(pixels) | {"bbox4326": like.bbox(transform)}
    checks = {"north_up": True, "output_not_all_zero": True}
    return Case("", "rotated", like.file, "accept_warn", code="RESAMPLED_TO_NORTH_UP", checks=checks, truth=truth)


@kind("A11", ("uint16", 80, 100, "degrees"), ("uint8", 40, 60, "utm33"), ("float32", 90, 33, "laea"))
def control_points(like: Like) -> Case:
    """Place the raster by control points alone."""
    a, _, c, _, e, f = like.transform[:6]
    corners = [(row, column) for row in (0, like.height) for column in (0, like.width)]
    points = [GroundControlPoint(row=r, col=k, x=c + a * k, y=f + e * r) for r, k in corners]
    pixels = like.pixels(1, 4000 if like.dtype != "uint8" else 250)
    write_raster(like.file, pixels, transform=None, crs=like.crs, gcps=points)
    truth = truth_of(pixels) | {"bbox4326": like.bbox()}
    checks = {"output_not_all_zero": True, "north_up": True}
    return Case("", "gcp-only", like.file, "accept_warn", code="GEOREFERENCED_FROM_GCPS", checks=checks, truth=truth)


def linear_rpc() -> RPC:
    """Return coefficients that are linear around (9.2, 45.5)."""

    def one(place: int, value: float = 1.0) -> list[float]:
        return [value if place == at else 0.0 for at in range(20)]

    return RPC(
        height_off=200, height_scale=500, lat_off=45.5, lat_scale=0.05, long_off=9.2, long_scale=0.05,
        line_off=31.5, line_scale=32, line_num_coeff=one(2, -1.0), line_den_coeff=one(0),
        samp_off=31.5, samp_scale=32, samp_num_coeff=one(1), samp_den_coeff=one(0),
    )  # fmt: skip


@kind("A13", ("uint16", 64, 64), ("uint8", 30, 700), ("float32", 9, 9))
def rpc_only(like: Like) -> Case:
    """Write rational polynomials and nothing else."""

    def add(dst: Any) -> None:
        dst.rpcs = linear_rpc()

    write_raster(like.file, like.pixels(1, 200), transform=None, crs=None, before=add)
    says = {"message_says": "orthorectify first"}
    return Case("", "rpc-only", like.file, "reject", "georeferencing", "RPC_ONLY", checks=says)


@kind("A15", ("int16", 60, 45), ("uint8", 700, 30, "laea"), ("float64", 30, 600, "degrees"))
def south_up(like: Like) -> Case:
    """Start in the south; a pixel's value is its row from there."""
    a, _, c, _, e, f = like.transform[:6]
    south = f + e * like.height
    high = like.height if like.dtype != "uint8" else 250
    rows = (np.arange(like.height) % high).astype(like.dtype)
    pixels = np.repeat(rows[:, None], like.width, axis=1)
    write_raster(like.file, pixels, transform=Affine(a, 0, c, 0, -e, south), crs=like.crs)
    truth = truth_of(pixels) | {
        "output_first_row_value": rows[-1].item(),
        "output_last_row_value": 0,
        "bounds": [c, south, c + a * like.width, f],
    }
    checks = {"first_output_row_is_north": True}
    return Case("", "south-up", like.file, "accept_warn", code="FLIPPED_TO_NORTH_UP", checks=checks, truth=truth)


@kind("A59", ("uint16", 100, 100), ("float32", 30, 200, "degrees"), ("int16", 64, 64, "mercator"))
def antimeridian(like: Like) -> Case:
    """Lie across 180 degrees: UTM 60, degrees beyond 180, or the Pacific Mercator."""
    crs, transform, bbox = {
        "utm33": ("EPSG:32660", from_origin(590000, 7300000, 1000, 1000), [178.9025, 64.8701, -178.8495, 65.8087]),
        "degrees": ("EPSG:4326", from_origin(179.0, 10.0, 0.01, 0.01), [179.0, 9.7, -179.0, 10.0]),
        "mercator": ("EPSG:3832", from_origin(3300000, 100000, 2000, 2000), None),
    }[like.place]
    pixels = like.pixels(1, 3000)
    write_raster(like.file, pixels, transform=transform, crs=crs, nodata=0)
    truth = truth_of(pixels) | ({"bbox4326": bbox} if bbox else {})
    checks = {"bbox_west_greater_than_east": True, "geometry": "MultiPolygon split at 180"}
    return Case("", "antimeridian", like.file, "accept", checks=checks, truth=truth)


@kind("A61", ("int16", 100, 100), ("float32", 100, 100, "laea"))
def polar(like: Like) -> Case:
    """Cover a pole."""
    crs = {"utm33": "EPSG:3031", "laea": "EPSG:3413"}[like.place]
    pixels = like.pixels(0, 4000)
    write_raster(like.file, pixels, transform=from_origin(-1e6, 1e6, 20000, 20000), crs=crs, nodata=-9999)
    south = {"bbox_south": -90.0, "bbox_north_between": [-77.5, -76.5]} if like.place == "utm33" else {}
    checks = {"bbox_contains_pole": True, "bbox_lon": [-180, 180], "no_inf_in_json": True}
    return Case("", "polar", like.file, "accept", checks=checks, truth=truth_of(pixels) | south)


@kind("A63", ("float32", 180, 360), ("uint8", 90, 180), ("int16", 720, 1440))
def whole_earth(like: Like) -> Case:
    """Cover the whole globe in degrees."""
    pixels = like.pixels()
    step = 180 / like.height
    write_raster(like.file, pixels, transform=from_origin(-180, 90, step, step), crs="EPSG:4326")
    truth = truth_of(pixels) | {"bbox4326": [-180, -90, 180, 90]}
    return Case("", "global-extent", like.file, "accept", checks={"no_inf_in_json": True}, truth=truth)


@kind("A65", ("float32", 180, 360), ("int16", 90, 180), ("uint16", 360, 720))
def longitudes_to_360(like: Like) -> Case:
    """Count longitudes from 0 to 360; a pixel's value is its western longitude, rounded down."""
    step = 180 / like.height
    values = np.floor(np.arange(like.width) * step).astype(like.dtype)
    pixels = np.repeat(values[None], like.height, axis=0)
    write_raster(like.file, pixels, transform=from_origin(0, 90, step, step), crs="EPSG:4326")
    samples = [
        [lon, lat, np.floor((lon % 360) // step * step)] for lon, lat in ((-0.5, 10.5), (0.5, 10.5), (-179.5, -40.5))
    ]
    checks = {"bbox": [-180, -90, 180, 90]}
    truth = truth_of(pixels) | {"samples": samples}
    return Case("", "lon-0-360", like.file, "accept_warn", code="LONGITUDES_SHIFTED", checks=checks, truth=truth)


@kind("A67", ("float32", 64, 64), ("int16", 20, 600, "laea"), ("float64", 33, 33, "degrees"))
def compound_crs(like: Like) -> Case:
    """Add heights over a geoid to the CRS."""
    pixels = like.pixels(0, 900)
    write_raster(like.file, pixels, transform=like.transform, crs=f"{like.crs}+5773")
    truth = truth_of(pixels) | {"bbox4326": like.bbox()}
    checks = {"proj_code_horizontal": like.crs, "vertical_kept": "EPSG:5773"}
    return Case("", "compound-crs", like.file, "accept", checks=checks, truth=truth)


@kind("A75", ("uint8", 64, 64), ("float32", 20, 700, "laea"), ("uint16", 33, 17, "degrees"))
def world_file(like: Like) -> Case:
    """Deliver the place beside the picture: a world file, and a .prj that says the same as the submit."""
    pixels = like.pixels()
    with warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning):
        write_raster(like.file, pixels, transform=None, crs=None)
    a, _, c, _, e, f = like.transform[:6]
    lines = (a, 0.0, 0.0, e, c + a / 2, f + e / 2)
    like.file.with_suffix(".tfw").write_text("".join(f"{value!r}\n" for value in lines))
    like.file.with_suffix(".prj").write_text(pyproj.CRS.from_user_input(like.crs).to_wkt("WKT1_ESRI"))
    checks = {"transform": list(like.transform[:6])}
    return Case("", "world-file", like.file, "accept", submit={"crs": like.crs}, checks=checks, truth=truth_of(pixels))


@kind("A85", ("int16", 64, 64), ("float32", 5, 600, "degrees"), ("uint8", 520, 20, "laea"))
def pixel_is_point(like: Like) -> Case:
    """Say that the position is that of the pixel's middle."""
    pixels = like.pixels()
    write_raster(like.file, pixels, transform=like.transform, crs=like.crs, tags={"AREA_OR_POINT": "Point"})
    a, _, c, _, e, f = like.transform[:6]
    checks = {"bounds": [c, f + e * like.height, c + a * like.width, f], "no_second_half_pixel_shift": True}
    return Case("", "pixel-is-point", like.file, "accept", checks=checks, truth=truth_of(pixels))
