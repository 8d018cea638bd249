"""What came out of a cube, and what a reader of the result has to know of it."""

from dataclasses import dataclass

from handlers.raster.findings import Findings


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was chosen, and how what the file says of it was taken."""

    chosen: str
    crs_by_convention: bool = False
    """Latitudes and longitudes without a grid mapping are WGS 84."""
    unified: int = 0
    """Pixels that did not hold the nodata value but mean the same."""
    dropped: tuple[str, ...] = ()
    """Missing values that no pixel can hold."""
    unread_time: str | None = None
    """Unit and calendar of a time that is no date of today's calendar."""

    def note(self, findings: Findings) -> None:
        """Say all of it."""
        findings.info("SUBDATASET_USED", "this variable was read", field="subdataset", now=self.chosen)
        if self.crs_by_convention:
            message = "latitudes and longitudes without a grid mapping are WGS 84"
            findings.info("CRS_BY_CONVENTION", message, field="crs")
        if self.unified:
            message = f"{self.unified} pixel(s) hold a further missing value or lie outside of the valid range: nodata"
            findings.warn("MISSING_UNIFIED", message, field="nodata", now=self.unified)
        for text in self.dropped:
            message = f"the missing value {text} cannot occur among the pixels and was dropped"
            findings.warn("NODATA_DROPPED", message, field="nodata", was=text)
        if self.unread_time is not None:
            message = f"the time of the step is no date of today's calendar: {self.unread_time}; state options.datetime"
            findings.warn("DATETIME_UNREADABLE", message, field="datetime", was=self.unread_time)
