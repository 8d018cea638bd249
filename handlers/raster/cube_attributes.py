"""What attributes of variables say, whatever type they have; and what a file may not refer to."""

from typing import Any, Final

import h5py
import numpy as np

MAX_TEXT: Final = 200
_FILTERS: Final = frozenset({1, 2, 3, 4, 5, 6})
"""deflate, shuffle, fletcher32, szip, nbit, scaleoffset: part of HDF5 itself."""


class CubeError(Exception):
    """A file that is not read; the text says why."""


class CubeForbidden(CubeError):
    """It refers to something outside of itself."""


class CubeContradicts(CubeError):
    """Its coordinates and its grid mapping cannot both be right."""


def check_storage(dataset: Any) -> None:
    """Refuse a dataset whose pixels cannot be read from the file alone, before any is read.

    Raises:
        CubeForbidden: external storage, a virtual dataset, a filter that is not part of HDF5.
    """
    if not isinstance(dataset, h5py.Dataset):
        return  # an array of classic NetCDF, which cannot lie elsewhere
    if dataset.is_virtual or dataset.external:
        raise CubeForbidden("pixels lie in another file")
    plist = dataset.id.get_create_plist()
    filters = {plist.get_filter(index)[0] for index in range(plist.get_nfilters())}
    if not filters <= _FILTERS:
        raise CubeForbidden("it is compressed by a filter that is not part of HDF5")


def text_of(value: Any) -> str:
    """Return a text attribute, empty when it is none; bounded."""
    plain = plain_of(value)
    return plain[:MAX_TEXT] if isinstance(plain, str) else ""


def plain_of(value: Any) -> Any:
    """Return an attribute as Python has it: text, a number, or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return plain_of(value.item()) if value.size == 1 else [plain_of(item) for item in value.ravel().tolist()]
    return value.item() if isinstance(value, np.generic) else value


def numbers_of(value: Any) -> Any:
    """Return the real numbers of an attribute as an array; a single text may hold one."""
    if value is None:
        return np.empty(0)
    if isinstance(plain_of(value), str):
        return _number_in(plain_of(value))
    array = np.asarray(value).ravel()
    return array if array.dtype.kind in "iuf" else np.empty(0)


def _number_in(text: str) -> Any:
    for kind in (int, float):
        try:
            return np.array([kind(text)])
        except (ValueError, OverflowError):
            continue
    return np.empty(0)


def factor_of(attributes: Any, name: str, default: float) -> float:
    """Return scale or offset, one number for all values.

    Raises:
        CubeError: it is none, or several.
    """
    if attributes.get(name) is None:
        return default
    found = numbers_of(attributes.get(name))
    if found.size != 1:
        raise CubeError(f"{name} is not one number")
    return float(found[0])


def coordinates_of(scale: Any, places: Any = slice(None)) -> Any:
    """Return coordinates as doubles, unpacked."""
    values = np.asarray(scale[places], np.float64)
    unpacked: Any = values * factor_of(scale.attrs, "scale_factor", 1.0) + factor_of(scale.attrs, "add_offset", 0.0)
    return unpacked


def beside(dataset: Any, name: str) -> Any | None:
    """Return what a variable calls by a name: from its own group, or the next one above that has it."""
    place = dataset.parent
    while name not in place:
        above = getattr(place, "parent", place)
        if above == place:
            return None
        place = above
    return place.get(name)
