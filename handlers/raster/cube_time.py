"""When a step of a variable is, as CF and UDUNITS say it."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from handlers.raster.cube_attributes import beside, check_storage, coordinates_of, numbers_of, text_of

_UNITS: Final = {
    "microsecond": 1e-6, "microsec": 1e-6, "millisecond": 1e-3, "millisec": 1e-3, "msec": 1e-3, "ms": 1e-3,
    "second": 1, "sec": 1, "s": 1, "minute": 60, "min": 60, "hour": 3600, "hr": 3600, "h": 3600,
    "day": 86400, "d": 86400,
}  # fmt: skip
"""Seconds of each; months and years have no fixed length."""
_SINCE: Final = re.compile(
    r"(?P<unit>[a-z]+) since (?P<year>\d{1,4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[T ]+(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.\d{0,9})?)?)?)?"
    r" ?(?:Z|UTC|GMT|(?P<sign>[+-])(?P<zone>\d{1,2})(?::?(?P<past>\d{2}))?)?",
    re.IGNORECASE | re.ASCII,
)
_CALENDARS: Final = frozenset({"", "standard", "gregorian", "proleptic_gregorian"})
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)
_REFERENCE, _PERIOD = "forecast_reference_time", "forecast_period"


def is_time(scale: Any) -> bool:
    """Return whether coordinates are moments, whether or not today's calendar has them."""
    units = text_of(scale.attrs.get("units")).lower()
    return " since " in units or units.startswith("day as ")


def described(scale: Any) -> str:
    """Return unit and calendar, for a reader."""
    calendar = text_of(scale.attrs.get("calendar"))
    return f"{text_of(scale.attrs.get('units'))}{f', calendar {calendar}' if calendar else ''}"


def time_of(dataset: Any, leading: list[tuple[Any, int]]) -> tuple[datetime | None, str | None]:
    """Return the time of a step, given its leading coordinates; what it says of one that is no date, otherwise.

    Scalar coordinates count as well. A reference time alone is when a forecast was made, not when it holds.
    """
    found = [*leading, *((scale, 0) for scale in _scalars(dataset))]
    times = [(scale, index) for scale, index in found if is_time(scale)]
    plain = [pair for pair in times if not _is(pair[0], _REFERENCE)]
    if plain:
        return _first(plain)
    made, unread = _first(times)
    ahead = next((_seconds(scale, index) for scale, index in found if _is(scale, _PERIOD)), None)
    if made is None or ahead is None:
        return None, unread or (f"{described(times[0][0])}, when a forecast was made" if times else None)
    return _moved(made, timedelta(), ahead), None


def _first(times: list[tuple[Any, int]]) -> tuple[datetime | None, str | None]:
    for scale, index in times:
        if (moment := moment_at(scale, index)) is not None:
            return moment, None
    return None, described(times[0][0]) if times else None


def _is(scale: Any, name: str) -> bool:
    return text_of(scale.attrs.get("standard_name")).lower() == name


def _scalars(dataset: Any) -> Iterator[Any]:
    """Yield the single numbers that a variable names as its coordinates."""
    for name in text_of(dataset.attrs.get("coordinates")).split():
        found = beside(dataset, name) if "/" not in name else None
        if found is not None and getattr(found, "shape", None) in ((), (1,)) and found.dtype.kind in "iuf":
            check_storage(found)
            yield found


def _seconds(scale: Any, index: int) -> float | None:
    """Return a duration."""
    seconds = _unit(text_of(scale.attrs.get("units")))
    return None if seconds is None else _value(scale, index) * seconds


def moment_at(scale: Any, index: int) -> datetime | None:
    """Return the moment of a coordinate to the second, None when it is none that the calendar of today can say."""
    found = _SINCE.fullmatch(" ".join(text_of(scale.attrs.get("units")).split()))
    seconds = _unit(found["unit"]) if found else None
    calendar = text_of(scale.attrs.get("calendar")).lower()
    if found is None or seconds is None or calendar not in _CALENDARS:
        return None
    since = _since(found, mixed=calendar != "proleptic_gregorian")
    moment = None if since is None else _moved(_GREGORIAN, since, _value(scale, index) * seconds)
    return moment if moment is not None and moment >= _GREGORIAN else None


def _unit(text: str) -> float | None:
    word = text.lower()
    return _UNITS.get(word, _UNITS.get(word.removesuffix("s")))


def _since(found: re.Match[str], *, mixed: bool) -> timedelta | None:
    """Return where counting begins, from 1582-10-15 on; before that day the mixed calendar counts Julian days."""
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
    ahead = timedelta(hours=int(found["zone"] or 0), minutes=int(found["past"] or 0))
    clock = timedelta(hours=hour, minutes=minute, seconds=second) - (-ahead if found["sign"] == "-" else ahead)
    if mixed and (year, month, day) < (1582, 10, 15):
        return timedelta(days=_julian_days(year, month, day) - _julian_days(1582, 10, 5)) + clock
    try:
        return datetime(year, month, day, tzinfo=UTC) - _GREGORIAN + clock
    except ValueError:
        return None


def _julian_days(year: int, month: int, day: int) -> int:
    """Return days on the Julian calendar, from some day on (Richards, Explanatory Supplement, 2013)."""
    before = (14 - month) // 12
    return day + (153 * (month + 12 * before - 3) + 2) // 5 + 365 * (year - before) + (year - before) // 4


def _value(scale: Any, index: int) -> float:
    """Return a coordinate, NaN where it is missing."""
    place = () if scale.shape == () else index
    stored = np.asarray(scale[place])
    missing = (numbers_of(scale.attrs.get(name)) for name in ("_FillValue", "missing_value"))
    if any((marks == stored).any() for marks in missing):
        return np.nan
    return float(coordinates_of(scale, place))


def _moved(start: datetime, since: timedelta, seconds: float) -> datetime | None:
    """Return the moment, to the nearest second."""
    try:
        moment = start + (since + timedelta(seconds=seconds) + timedelta(milliseconds=500))
    except (ValueError, OverflowError):
        return None
    return moment.replace(microsecond=0)
