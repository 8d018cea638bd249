"""What validation found out about a raster and COG creation needs to know, as it travels between the two tasks."""

from enum import StrEnum
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from core.documents import Document, is_empty

NodataValue = int | float | str | None
"""A number, or one of the words nan, inf and -inf that JSON numbers cannot say, or no value at all."""


class RasterType(StrEnum):
    """What the pixels mean; decides profile, resampling and rendering."""

    RGB = "rgb"
    RGBA = "rgba"
    NIR = "nir"
    ELEVATION = "elevation"
    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    VEGETATION_INDEX = "vegetation_index"
    MULTISPECTRAL = "multispectral"


IMAGERY = frozenset({RasterType.RGB, RasterType.RGBA, RasterType.NIR, RasterType.MULTISPECTRAL})


class CrsSource(StrEnum):
    """Who says which CRS it is."""

    FILE = "file"
    GCPS = "gcps"
    SUBMIT = "submit"


class Orientation(StrEnum):
    """How rows and columns lie on the ground."""

    NORTH_UP = "north_up"
    FLIPPED = "flipped"
    """Rows run north or columns run west; an exact flip makes it north-up."""
    ROTATED = "rotated"
    """Rows are not parallel to an axis of the CRS; only resampling makes it north-up."""


class Validity(StrEnum):
    """What says which pixels hold data; the first that applies of mask, alpha, nodata."""

    ALL = "all"
    NODATA = "nodata"
    ALPHA = "alpha"
    MASK = "mask"


ALPHA_DTYPES = ("uint8", "uint16")
"""Of an alpha band that readers understand."""


class RasterFacts(Document):
    """One raster as it will be processed, after every rule was applied."""

    page: int | None = Field(default=None, description="Directory in the file, from 1; null when there is only one.")
    member: str | None = Field(default=None, description="Name in the archive; null when the source is none.")
    sidecars: tuple[str, ...] = Field(default=(), description="Which of aux, mask, prj, world were read with it.")
    width: int
    height: int
    count: int
    dtype: str
    crs_wkt: str = Field(description="WKT2 of the CRS that holds, with its vertical part.")
    crs_code: str | None = Field(
        default=None, description="authority:code of the horizontal part, when PROJ says equal."
    )
    crs_source: CrsSource
    transform: tuple[float, float, float, float, float, float] = Field(
        description="Affine a..f in the source: x = a*column + b*row + c, y = d*column + e*row + f."
    )
    bounds: tuple[float, float, float, float] = Field(description="West, south, east, north of the four corners.")
    orientation: Orientation = Orientation.NORTH_UP
    has_gcps: bool = Field(default=False, description="True when GCPs alone give the position.")
    longitude_shift: float = Field(default=0.0, description="Degrees to add to all longitudes, a multiple of 360.")
    roll_columns: int = Field(default=0, description="Columns to move from the left edge to the right.")
    nodata: NodataValue = Field(default=None, description="The nodata value that holds.")
    file_nodata: NodataValue = Field(default=None, description="What GDAL reads from the file.")
    nodata_tag: str | None = Field(default=None, description="What is written in the file, also when it cannot hold.")
    validity: Validity = Validity.ALL
    alpha_is_data: bool = Field(default=False, description="The band tagged alpha holds data.")
    nonfinite_pixels: int = Field(default=0, description="NaN or infinite values that are not nodata.")
    raster_type: RasterType
    type_evidence: str
    palette: bool = False
    stale_statistics: bool = Field(default=False, description="STATISTICS_* tags came with the file.")
    findings: tuple[dict[str, Any], ...] = Field(default=(), description="Findings of validation, for the lineage.")
    alpha_to_mask: int | None = Field(
        default=None,
        exclude_if=is_empty,
        description="Band, from 1, whose zeros the mask is made of: alpha that readers would overlook.",
    )
    masked_alpha: int | None = Field(
        default=None, exclude_if=is_empty, description="Band, from 1, that is alpha beside a mask, which wins."
    )
    nodata_of_bands: tuple[NodataValue, ...] = Field(
        default=(), exclude_if=is_empty, description="What each band has for itself, where that differs from nodata."
    )

    @field_validator("nodata", "file_nodata")
    @classmethod
    def _as_pixels_have_it(cls, value: NodataValue, info: ValidationInfo) -> NodataValue:
        """Return a number of float pixels as a float: stored JSON spells 1e20 like a whole number."""
        is_float = str(info.data.get("dtype", "")).startswith("float")
        return float(value) if is_float and isinstance(value, int) else value

    @property
    def hides_alpha(self) -> bool:
        """Whether the alpha band loses its tag, because maps would draw by its values what the mask says already."""
        return self.masked_alpha is not None and self.dtype not in ALPHA_DTYPES
