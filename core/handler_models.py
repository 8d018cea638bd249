"""What models of handlers have in common, and the options of rasters."""

from pydantic import BaseModel, ConfigDict

from core.documents import Document


class Params(BaseModel):
    """Base of handler params: unknown keys are errors, types are checked, never coerced.

    An integer that is beyond every float is no float, where pydantic would make infinity of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Output(Document):
    """Base of handler outputs, of which others are made what they need."""


class AnyParams(BaseModel):
    """Params of handlers that take whatever they are given."""

    model_config = ConfigDict(frozen=True, extra="allow")


class AnyOutput(BaseModel):
    """Output of handlers that return what they were given."""

    model_config = ConfigDict(frozen=True, extra="allow")


class RasterOptions(Params):
    """What a submit may say about a raster; names of b2b.md `options`."""

    crs: str | None = None
    override_crs: bool = False
    nodata: float | None = None
    raster_type: str | None = None
    compression: str | None = None
    target_crs: str | None = None
    subdataset: str | None = None
    member: str | None = None
    datetime: str | None = None
    start_datetime: str | None = None
    end_datetime: str | None = None
    allow_empty: bool = False
