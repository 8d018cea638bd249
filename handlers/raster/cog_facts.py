"""Describes a finished COG: place, bands, statistics and default rendering."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rasterio.enums import ColorInterp, MaskFlags
from rasterio.io import DatasetReader

from handlers.context import ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.facts import NodataValue, RasterFacts
from handlers.raster.nodata import as_json
from handlers.raster.render import default_render
from handlers.raster.statistics import BandStatistics, band_statistics

Json = dict[str, Any]


def describe_cog(ctx: ProcessContext, path: Path, facts: RasterFacts, compression: str) -> tuple[Json, Json]:
    """Return the facts of a COG and its default rendering, both without NaN."""
    with gdal.open_geotiff(path) as cog:
        nodata = nodata_of(cog)
        statistics = band_statistics(cog, nodata, ctx.follow("measuring pixels"))
        render = render_of(cog, facts, nodata, statistics)
        return facts_of(cog, facts, nodata, statistics, compression), render


def render_of(cog: DatasetReader, facts: RasterFacts, nodata: NodataValue, statistics: list[BandStatistics]) -> Json:
    """Return the default rendering of an open COG."""
    return default_render(
        facts.raster_type,
        cog.dtypes[0],
        [color.name for color in cog.colorinterp],
        cog.descriptions,
        statistics,
        nodata,
        cog.colormap(1) if cog.colorinterp[0] is ColorInterp.palette else None,
    )


def has_mask(cog: DatasetReader) -> bool:
    """Return whether a mask of its own says what is valid, no alpha band and no nodata value."""
    flags = cog.mask_flag_enums[0]
    return MaskFlags.per_dataset in flags and MaskFlags.alpha not in flags


def nodata_of(cog: DatasetReader) -> NodataValue:
    """Return the nodata value of a COG as JSON can say it."""
    whole = cog.nodata is not None and cog.dtypes[0].startswith(("int", "uint"))
    return int(cog.nodata) if whole else as_json(cog.nodata)


def facts_of(
    cog: DatasetReader, facts: RasterFacts, nodata: NodataValue, statistics: list[BandStatistics], compression: str
) -> Json:
    """Return the facts of an open COG."""
    crs = crs_rules.from_rasterio(cog.crs)
    assert crs is not None
    return {
        "crs_code": crs_rules.code_of(crs),
        "crs_wkt": crs_rules.wkt2(crs),
        "shape": [cog.height, cog.width],
        "count": cog.count,
        "dtype": cog.dtypes[0],
        "transform": list(cog.transform[:6]),
        "bounds": list(cog.bounds),
        "nodata": nodata,
        "raster_type": str(facts.raster_type),
        "type_evidence": facts.type_evidence,
        "compression": compression,
        "overviews": cog.overviews(1),
        "source_crs_code": facts.crs_code,
        "bands": [_band(cog, band, statistics[band - 1]) for band in cog.indexes],
    }


def _band(cog: DatasetReader, band: int, statistics: BandStatistics) -> Json:
    return {
        "description": cog.descriptions[band - 1],
        "unit": cog.units[band - 1] or None,
        "scale": cog.scales[band - 1],
        "offset": cog.offsets[band - 1],
        "color": cog.colorinterp[band - 1].name,
        "statistics": {key: value for key, value in asdict(statistics).items() if key != "classes"},
        "classes": None if statistics.classes is None else list(statistics.classes),
    }
