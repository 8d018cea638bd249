"""Statistics of the valid pixels of each band: exact extremes, mean and deviation, and the p2 and p98 for rendering.

8- and 16-bit integers are counted value by value in one pass, so everything is exact. Of others moments are counted,
and a histogram of 65,536 bins between the extremes, so that percentiles are off by at most 2/65,536 of the range. Where
an overview tells about where the extremes lie, one pass does both; a second one is made when a value lies beyond.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.io import DatasetReader

from handlers.raster import gdal
from handlers.raster.facts import NodataValue
from handlers.raster.nodata import equals_nodata, in_dtype
from handlers.raster.rewrite import OnWindow
from handlers.raster.scan import MAX_CLASSES, Distinct
from handlers.raster.windows import block_windows

BINS: Final = 65_536
FINE_BINS: Final = 4 * BINS
"""Over three times the range of an overview, so that they are finer than the bins between the extremes."""
LOW_SHARE: Final = 0.02
HIGH_SHARE: Final = 0.98

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class BandStatistics:
    """Of the valid pixels of one band; None where there are none, or where a moment exceeds a double."""

    minimum: float | None
    maximum: float | None
    mean: float | None
    stddev: float | None
    p2: float | None
    p98: float | None
    valid_percent: float
    classes: tuple[int, ...] | None
    """Distinct values of an integer band, None when there are more than 64."""


NOTHING_VALID: Final = BandStatistics(None, None, None, None, None, None, 0.0, ())


@dataclass(slots=True)
class Moments:
    """Running count, extremes, mean and squared deviation (Chan's parallel update)."""

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0
    distinct: Distinct = field(default_factory=Distinct)

    def add(self, pixels: Array) -> None:
        """Count the pixels of one window."""
        if pixels.size == 0:
            return
        values = pixels.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # values near 1e308; the result is left out then
            count, mean = values.size, float(values.mean())
            delta, total = mean - self.mean, self.count + values.size
            values -= mean
            self.squares += float(np.dot(values, values)) + delta * delta * self.count * count / total
            self.mean += delta * count / total
        self.count = total
        self.low, self.high = min(self.low, pixels.min().item()), max(self.high, pixels.max().item())
        if pixels.dtype.kind in "iu":
            self.distinct.add(pixels)


@dataclass(slots=True)
class Rough:
    """A histogram over a range that is guessed, so wide that the extremes usually lie in it."""

    low: float
    high: float
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(FINE_BINS, np.int64))

    def add(self, pixels: Array) -> None:
        """Count the pixels of one window."""
        self.counts += _binned(pixels, self.low, self.high, FINE_BINS)

    def holds(self, moments: Moments) -> bool:
        """Return whether every value lay within the range."""
        return self.low <= moments.low and moments.high <= self.high

    def between(self, moments: Moments) -> NDArray[np.int64]:
        """Return the counts between the extremes."""
        places = np.flatnonzero(self.counts)
        middles = self.low + (places + 0.5) * ((self.high - self.low) / FINE_BINS)
        return poured(middles, self.counts[places], moments)


@dataclass(slots=True)
class Tally:
    """What statistics of one band are made from; `handlers.raster.tallies` adds up those of parts."""

    counts: NDArray[np.int64]
    """How often each value occurs, or how many values fall into each bin between the extremes of `moments`."""
    offset: int = 0
    """Value of the first count; without moments only."""
    moments: Moments | None = None
    """None where every value is counted by itself."""

    def statistics(self, total: int) -> BandStatistics:
        """Return the statistics of a band of `total` pixels."""
        if self.moments is None:
            return from_counts(self.counts, self.offset, total)
        return from_moments(self.moments, self.counts, total)


def band_statistics(src: DatasetReader, nodata: NodataValue, on_window: OnWindow) -> list[BandStatistics]:
    """Return the statistics of every band of an open raster; of an alpha band, of all its values."""
    total = src.width * src.height
    return [band.statistics(total) for band in tallies(src, nodata, on_window)]


def tallies(src: DatasetReader, nodata: NodataValue, on_window: OnWindow) -> list[Tally]:
    """Return what the statistics of every band are made from."""
    scalar = in_dtype(nodata, src.dtypes[0])
    dtype = np.dtype(src.dtypes[0])
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        offset = int(np.iinfo(dtype).min)
        counts = [np.zeros(2 ** (8 * dtype.itemsize), np.int64) for _ in src.indexes]
        for pixels in _valid_pixels(src, scalar, on_window):
            for band, values in enumerate(pixels):
                counts[band] += np.bincount(values.astype(np.int64) - offset, minlength=counts[band].size)
        return [Tally(count, offset) for count in counts]
    moments, rough = [Moments() for _ in src.indexes], _rough(src, scalar)
    for pixels in _valid_pixels(src, scalar, on_window):
        for band, values in enumerate(pixels):
            moments[band].add(values)
            if rough:
                rough[band].add(values)
    if rough and all(guess.holds(moment) for guess, moment in zip(rough, moments, strict=True)):
        return [Tally(guess.between(moment), moments=moment) for guess, moment in zip(rough, moments, strict=True)]
    histograms = [np.zeros(BINS, np.int64) for _ in src.indexes]
    for pixels in _valid_pixels(src, scalar, on_window):
        for band, values in enumerate(pixels):
            histograms[band] += _histogram(values, moments[band])
    return [Tally(histogram, moments=moment) for histogram, moment in zip(histograms, moments, strict=True)]


def _rough(src: DatasetReader, nodata: Any) -> list[Rough]:
    """Return empty histograms around what the smallest overview shows; none where it shows too little."""
    levels = len(src.overviews(1))
    if not levels:
        return []
    with gdal.open_geotiff(Path(src.name), overview_level=levels - 1) as coarse:
        shown = next(_valid_pixels(coarse, nodata, lambda _done, _all: None))
    found = []
    for values in shown:
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        if not 0 < high - low < math.inf:
            return []
        found.append(Rough(2 * low - high, 2 * high - low))
    return found


def _valid_pixels(src: DatasetReader, nodata: Any, on_window: OnWindow) -> Iterator[list[Array]]:
    """Yield, per window, the valid pixels of each band as flat arrays."""
    block_height, block_width = src.block_shapes[0]
    pixel_bytes = np.dtype(src.dtypes[0]).itemsize * src.count
    masked = MaskFlags.per_dataset in src.mask_flag_enums[0]
    done, total = 0, src.width * src.height
    for window in block_windows(src.width, src.height, block_width, block_height, pixel_bytes):
        data = src.read(window=window)
        mask = src.read_masks(1, window=window) > 0 if masked else None
        yield [_valid(values, nodata, mask, color) for values, color in zip(data, src.colorinterp, strict=True)]
        done += window.width * window.height
        on_window(done, total)


def _valid(values: Array, nodata: Any, mask: NDArray[np.bool_] | None, color: ColorInterp) -> Array:
    if color is ColorInterp.alpha:
        return values.ravel()
    valid = np.isfinite(values) if values.dtype.kind == "f" else np.ones(values.shape, np.bool_)
    if nodata is not None:
        valid &= ~equals_nodata(values, nodata)
    if mask is not None:
        valid &= mask
    return values.ravel() if valid.all() else values[valid]


def from_counts(counts: NDArray[np.int64], offset: int, total: int) -> BandStatistics:
    """Return everything from how often each value occurs."""
    places = np.flatnonzero(counts)
    if places.size == 0:
        return NOTHING_VALID
    values, weights = places + offset, counts[places]
    count = int(weights.sum())
    mean = float((values * weights).sum()) / count
    squares = float((np.square(values - mean) * weights).sum())
    below = np.cumsum(weights)
    low, high = (float(values[np.searchsorted(below, math.ceil(share * count))]) for share in (LOW_SHARE, HIGH_SHARE))
    return BandStatistics(
        minimum=int(values[0]),
        maximum=int(values[-1]),
        mean=mean,
        stddev=math.sqrt(squares / count),
        p2=low,
        p98=high,
        valid_percent=100.0 * count / total,
        classes=tuple(int(value) for value in values) if values.size <= MAX_CLASSES else None,
    )


def _histogram(values: Array, moments: Moments) -> NDArray[np.int64]:
    """Return how many values fall into each of `BINS` equal parts of their range."""
    return _binned(values, moments.low, moments.high, BINS)


def _binned(values: Array, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Return how many values fall into each of the equal parts of a range; those beyond count at its ends."""
    width = high - low
    if values.size == 0 or width <= 0 or not math.isfinite(width) or not math.isfinite(bins / width):
        return np.zeros(bins, np.int64)
    places = values.astype(np.float64)
    with np.errstate(over="ignore"):  # beyond everything is beyond the end
        places -= low
        places *= bins / width
    return np.bincount(np.clip(places, 0, bins - 1, out=places).astype(np.int64), minlength=bins)


def poured(middles: Array, counts: NDArray[np.int64], moments: Moments) -> NDArray[np.int64]:
    """Return counts of other bins, each taken for its middle, over the bins between the extremes of `moments`."""
    width = moments.high - moments.low
    if width <= 0 or not math.isfinite(width):
        return np.zeros(BINS, np.int64)
    numbers = np.clip(((middles - moments.low) * (BINS / width)).astype(np.int64), 0, BINS - 1)
    return np.bincount(numbers, weights=counts, minlength=BINS).astype(np.int64)


def from_moments(moments: Moments, histogram: NDArray[np.int64], total: int) -> BandStatistics:
    if moments.count == 0:
        return NOTHING_VALID
    classes = moments.distinct.values if isinstance(moments.low, int) else None
    return BandStatistics(
        minimum=moments.low,
        maximum=moments.high,
        mean=moments.mean if math.isfinite(moments.mean) else None,
        stddev=math.sqrt(moments.squares / moments.count) if math.isfinite(moments.squares) else None,
        p2=_percentile(histogram, LOW_SHARE, moments),
        p98=_percentile(histogram, HIGH_SHARE, moments),
        valid_percent=100.0 * moments.count / total,
        classes=None if classes is None else tuple(sorted(classes)),
    )


def _percentile(histogram: NDArray[np.int64], share: float, moments: Moments) -> float:
    """Return the middle of the bin in which the share of the pixels is reached."""
    if not histogram.any():
        return float(moments.low)
    place = int(np.searchsorted(np.cumsum(histogram), math.ceil(share * moments.count)))
    return moments.low + (place + 0.5) * (moments.high - moments.low) / BINS
