"""What became of a case, as the handlers or the platform show it."""

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import DatasetReader

from tests.support.raster_cases.case import Array, Case

RESAMPLED: Final = frozenset({"RESAMPLED_TO_NORTH_UP", "GEOREFERENCED_FROM_GCPS"})
ARRANGED: Final = frozenset({"FLIPPED_TO_NORTH_UP", "LONGITUDES_SHIFTED"})
LOSSY: Final = frozenset({"jpeg"})
LOSS: Final = 24
"""How far a lossy profile may move an extreme of sharp patterns of uint8."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a case."""

    case: Case
    error: Mapping[str, Any] | None = None
    """code, field, message and classification."""
    findings: tuple[Mapping[str, Any], ...] = ()
    cog: Path | None = None
    item: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    """How long it took."""
    left_behind: tuple[str, ...] = ()
    """Files or blobs that exist though the case was refused."""

    @property
    def warnings(self) -> set[str]:
        """Codes of the findings that are warnings."""
        return {finding["code"] for finding in self.findings if finding["level"] == "warning"}

    def open(self, **options: Any) -> DatasetReader:
        """Open the COG."""
        assert self.cog is not None
        return rasterio.open(self.cog, **options)

    @property
    def band(self) -> Mapping[str, Any]:
        """First band of the item's asset."""
        band: Mapping[str, Any] = self.item["assets"]["data"]["bands"][self.case.truth.get("band", 1) - 1]
        return band

    def source_pixels(self) -> Array:
        """Return the pixels of the input by plain rasterio, without looking beside it; what is not finite is NaN."""
        with (
            warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning),
            rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"),
            rasterio.open(self.case.source) as src,
        ):
            pixels = np.asarray(src.read())
        if pixels.dtype.kind == "f":
            pixels[~np.isfinite(pixels)] = np.nan
        return pixels
