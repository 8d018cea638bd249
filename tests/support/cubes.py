"""NetCDF-4 files of arrays that are known before they are written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LATITUDES = np.linspace(49.95, 45.05, 50)
LONGITUDES = np.linspace(5.05, 12.95, 80)
VALUES = (np.add.outer(np.arange(50), np.arange(80)) * 3 - 40).astype(np.int16)


def axis(file: Any, name: str, values: Array, units: str | None, **attributes: Any) -> Any:
    """Write coordinates as NetCDF-4 does: a dimension scale."""
    scale = file.create_dataset(name, data=values)
    if units is not None:
        scale.attrs["units"] = units
    scale.attrs.update(attributes)
    scale.make_scale(name)
    return scale


def variable(file: Any, name: str, values: Array, axes: list[str], **attributes: Any) -> Any:
    """Write a variable over named axes."""
    dataset = file.create_dataset(name, data=values, chunks=True, compression="gzip", shuffle=True)
    for place, one in enumerate(axes):
        dataset.dims[place].attach_scale(file[one])
    dataset.attrs.update(attributes)
    return dataset


def write(
    path: Path,
    *,
    latitudes: Array = LATITUDES,
    longitudes: Array = LONGITUDES,
    values: Array = VALUES,
    more: Callable[[Any], None] = lambda _: None,
    **attributes: Any,
) -> Path:
    """Write a file with one variable over latitude and longitude."""
    with h5py.File(path, "w") as file:
        axis(file, "lat", latitudes, "degrees_north")
        axis(file, "lon", longitudes, "degrees_east")
        variable(file, "t2m", values, ["lat", "lon"], **attributes)
        more(file)
    return path
