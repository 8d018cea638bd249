"""One case: an input, what a submit says of it, and what must come of it, computed before the input was written."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Array = NDArray[Any]

WARNINGS: Final[Mapping[str, str]] = {
    "resampled to north-up": "RESAMPLED_TO_NORTH_UP",
    "georeferenced from GCPs": "GEOREFERENCED_FROM_GCPS",
    "flipped to north-up": "FLIPPED_TO_NORTH_UP",
    "NaN found, nodata set to NaN": "NODATA_SET_TO_NAN",
    "nodata outside dtype range, dropped": "NODATA_DROPPED",
    "nodata kept as mask for JPEG": "NODATA_TO_MASK",
    "band 4 is marked alpha but holds data": "ALPHA_IS_DATA",
    "longitudes shifted to -180..180": "LONGITUDES_SHIFTED",
}
"""What a manifest calls a warning, and its code."""


@dataclass(frozen=True, slots=True)
class Case:
    """An input and its right outcome."""

    id: str
    kind: str
    source: Path
    outcome: str
    """accept, accept_warn or reject."""
    field: str | None = None
    code: str | None = None
    """Of the error, or of the warning."""
    submit: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    checks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    truth: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def read_manifest(folder: Path) -> list[Case]:
    """Return the raster cases that `make_cases.py` wrote into a folder."""
    entries = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return [_from_entry(folder, entry) for entry in entries if entry["group"] == "raster"]


def _from_entry(folder: Path, entry: Json) -> Case:
    expected = entry["expected"]
    return Case(
        id=entry["id"],
        kind=entry["kind"],
        source=folder / entry["file"],
        outcome=expected["outcome"],
        field=expected["field"],
        code=WARNINGS[expected["warn"]] if expected["warn"] else expected["code"],
        submit=entry["submit"],
        checks=expected["checks"],
        truth=entry["truth"],
    )


def truth_of(pixels: Array, valid: Array | None = None, band: int = 1) -> Json:
    """Return what is known of an array (bands, height, width) before it is written; `band` has the statistics."""
    bands = pixels[None] if pixels.ndim == 2 else pixels
    mask = np.ones(bands.shape[1:], bool) if valid is None else valid
    chosen = bands[band - 1][mask]
    return {
        "count": bands.shape[0],
        "height": bands.shape[1],
        "width": bands.shape[2],
        "dtype": bands.dtype.name,
        "valid_pixels": int(mask.sum()),
        "band": band,
        "band1_min": chosen.min().item(),
        "band1_max": chosen.max().item(),
        "band1_mean": float(chosen.astype("float64").mean()),
    }
