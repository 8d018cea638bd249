"""Keeps what the parts of a raster counted in small files, and adds it up to the statistics of the whole.

Values counted one by one add up exactly. Of others each part has a histogram between its own extremes; they are
poured into one between the extremes of all, which moves percentiles by at most one bin of a part and one of the whole.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handlers.raster.scan import MAX_CLASSES, Distinct
from handlers.raster.statistics import BINS, BandStatistics, Moments, Tally, poured

Counts = NDArray[np.int64]


def save(path: Path, bands: Sequence[Tally]) -> None:
    """Write the tallies of one part; only what is not zero."""
    arrays: dict[str, Any] = {"about": np.array(json.dumps([_about(band) for band in bands]))}
    for number, band in enumerate(bands):
        places = np.flatnonzero(band.counts)
        arrays |= {f"places_{number}": places.astype(np.int32), f"counts_{number}": band.counts[places]}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> list[Tally]:
    """Read the tallies of one part."""
    with np.load(path, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        return [_band(one, arrays[f"places_{n}"], arrays[f"counts_{n}"]) for n, one in enumerate(about)]


def total(paths: Sequence[Path], pixels: int) -> list[BandStatistics]:
    """Return the statistics of each band of a raster of `pixels` pixels; one part is in memory at a time."""
    bands = [_Whole(band) for band in load(paths[0])]
    for parts in map(load, paths):
        for band, part in zip(bands, parts, strict=True):
            band.add_moments(part)
    for parts in map(load, paths):
        for band, part in zip(bands, parts, strict=True):
            band.add_counts(part)
    return [band.tally.statistics(pixels) for band in bands]


@dataclass(slots=True)
class _Whole:
    """The tally of all parts of one band; first all moments are added, then all counts."""

    tally: Tally

    def __init__(self, like: Tally) -> None:
        moments = None if like.moments is None else Moments()
        self.tally = Tally(np.zeros_like(like.counts), like.offset, moments)

    def add_moments(self, part: Tally) -> None:
        ours, theirs = self.tally.moments, part.moments
        if ours is None or theirs is None or theirs.count == 0:
            return
        count = ours.count + theirs.count
        with np.errstate(over="ignore", invalid="ignore"):
            delta = theirs.mean - ours.mean
            ours.squares += theirs.squares + delta * delta * ours.count * theirs.count / count
            ours.mean += delta * theirs.count / count
        ours.count = count
        ours.low, ours.high = min(ours.low, theirs.low), max(ours.high, theirs.high)
        ours.distinct.values = _joined((ours.distinct.values, theirs.distinct.values))

    def add_counts(self, part: Tally) -> None:
        if self.tally.moments is None or part.moments is None:
            self.tally.counts += part.counts
        elif part.moments.count:
            self.tally.counts += _poured(part, part.moments, self.tally.moments)


def _joined(sets: Iterable[set[int] | None]) -> set[int] | None:
    joined: set[int] = set()
    for values in sets:
        if values is None or len(joined := joined | values) > MAX_CLASSES:
            return None
    return joined


def _poured(part: Tally, theirs: Moments, ours: Moments) -> Counts:
    """Return a part's histogram over the bins of the whole, each bin taken for its middle."""
    width = theirs.high - theirs.low
    if width <= 0:
        return poured(np.array([float(theirs.low)]), np.array([theirs.count]), ours)
    places = np.flatnonzero(part.counts)
    return poured(theirs.low + (places + 0.5) * (width / BINS), part.counts[places], ours)


def _about(band: Tally) -> dict[str, Any]:
    found: dict[str, Any] = {"bins": band.counts.size, "offset": band.offset, "moments": None}
    if band.moments is not None:
        values = band.moments.distinct.values
        moments = {name: getattr(band.moments, name) for name in ("count", "low", "high", "mean", "squares")}
        found["moments"] = moments | {"distinct": None if values is None else sorted(values)}
    return found


def _band(about: dict[str, Any], places: Counts, weights: Counts) -> Tally:
    counts = np.zeros(about["bins"], np.int64)
    counts[places] = weights
    said = about["moments"]
    if said is None:
        return Tally(counts, about["offset"])
    distinct = said.pop("distinct")
    moments = Moments(**said, distinct=Distinct(None if distinct is None else set(distinct)))
    return Tally(counts, about["offset"], moments)
