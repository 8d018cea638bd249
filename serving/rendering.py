"""How a version is drawn: its own default rendering, always usable, always 8-bit PNG."""

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from rio_tiler.colormap import cmap
from rio_tiler.io import Reader
from rio_tiler.models import ImageData
from titiler.core.resources.enums import ImageType
from titiler.core.utils import render_image

Colour = tuple[int, int, int, int]

# The PNG profile with ZLEVEL 1: 6 ms instead of 31 ms a tile for 16-21 % more bytes (geo-stack.md §7.2).
FAST_PNG: Final = ImageType.pngraw
STATISTICS_SIZE: Final = 256
"""Pixels on the longer side that a fallback stretch is computed from."""


class Rendering(BaseModel):
    """The `render` document of a version, as raster.create_cog writes it; nodata and masks are the file's own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    bidx: tuple[int, ...] | None = Field(None, description="Bands to show, from 1; one (grey or mapped) or three.")
    rescale: tuple[tuple[float, float], ...] | None = Field(
        None, description="One range for each of bidx in data units, shown as 0..255; null: values are colours already."
    )
    colormap: dict[int, Colour] | None = Field(None, description="Class value to RGBA.")
    colormap_name: str | None = Field(None, description="A named colour ramp over the rescaled single band.")
    resampling: Literal["nearest", "bilinear", "cubic", "average"] = "nearest"

    @classmethod
    def of(cls, document: dict[str, Any] | None) -> "Rendering":
        """Return the rendering of a version; without a document the file decides."""
        return cls.model_validate(document or {})

    def read_options(self, src: Reader) -> dict[str, Any]:
        """Return what the reader needs: bands and how pixels between pixels are made."""
        options = {"indexes": self._bands(src), "resampling_method": self.resampling}
        return options | {"reproject_method": self.resampling}

    def draw(self, image: ImageData, src: Reader) -> bytes:
        """Return the image as PNG with an alpha channel; changes the image.

        Args:
            image: (bands, height, width) as read with `read_options`, with its mask.
            src: The dataset it was read from, still open.
        """
        colours = self._colours(src)
        content, _ = render_image(
            image, colormap=colours, output_format=FAST_PNG, rescale=self._ranges(image, src, colours)
        )
        return bytes(content)

    def _bands(self, src: Reader) -> tuple[int, ...]:
        if self.bidx:
            return self.bidx
        return (1, 2, 3) if src.dataset.count >= 3 else (1,)

    def _colours(self, src: Reader) -> Any:
        if self.colormap is not None:
            return self.colormap
        if self.colormap_name is not None:
            return cmap.get(self.colormap_name)
        return src.colormap or None

    def _ranges(self, image: ImageData, src: Reader, colours: Any) -> Any:
        """Return the stretch: the version's, or one from the data where values are neither 8-bit nor classes."""
        if self.rescale is not None:
            return self.rescale
        if image.array.dtype == "uint8" or (colours and self.colormap_name is None):
            return None
        found = src.statistics(indexes=self._bands(src), max_size=STATISTICS_SIZE, percentiles=[2, 98])
        return tuple(_wide(band.percentile_2, band.percentile_98) for band in found.values())


def has_data(image: ImageData) -> bool:
    """Return whether at least one pixel of an image is not wholly transparent."""
    return bool(_shown(image).any())


def filled(image: ImageData | None, other: ImageData | None) -> ImageData | None:
    """Return an image with another of the same raster and tile where it shows nothing; may change it."""
    if image is None or other is None:
        return other if image is None else image
    shown = _shown(image)
    data, mask = (
        np.where(shown, mine, others) for mine, others in zip(_data_and_mask(image), _data_and_mask(other), strict=True)
    )
    if image.alpha_mask is not None:
        image.alpha_mask = np.where(shown, image.alpha_mask, other.alpha_mask)
    image.array = np.ma.MaskedArray(data, mask)
    return image


def _shown(image: ImageData) -> NDArray[np.bool_]:
    """Return which pixels are not wholly transparent, (height, width) or (bands, height, width)."""
    if image.alpha_mask is not None:
        return np.asarray(image.alpha_mask > 0)
    return ~np.ma.getmaskarray(image.array)


def _data_and_mask(image: ImageData) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    return image.array.data, np.ma.getmaskarray(image.array)


def _wide(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low, low + 1.0)
