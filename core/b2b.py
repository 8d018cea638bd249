"""The contract with partners: what they send, what they get back. One set of models behind every door.

Refusals name the field: PARAMETER_MISSING for what is absent, PARAMETER_INVALID for what is wrong or unknown.
Members of `source` go by their own names, as the ingest rules do; other nested fields by their dotted path.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import ErrorDetails

from core.errors import CallerError, ErrorDetail, ParameterInvalid, ParameterMissing, PayloadTooLarge
from core.json_keys import unique
from core.json_text import refuse_constant
from core.models.business import ApprovalState, RequestState
from core.texts import is_clean, is_name
from core.wording import complaint, json_kind, readable

MAX_BODY_BYTES = 1_048_576
"""Of a JSON body; files go through an upload address."""
MAX_ORDINAL = 2**31 - 1
MAX_DIGITS = 40
"""Of a whole number in a body."""
MAX_FILES = 100
"""Of one version."""
MAX_BATCH = 100
"""Items of one batch."""
_CLEAN = "expected NFC text without control characters and without characters that turn or hide it"
Json = dict[str, Any]
M = TypeVar("M", bound=BaseModel)


def is_key(text: str) -> bool:
    """Return whether a text from a URL can be the id of anything: 1 to 64 plain characters."""
    return 1 <= len(text) <= 64 and text.isascii() and text.isprintable()


def _line(text: str) -> str:
    if not is_clean(text):
        raise ValueError(_CLEAN)
    return text


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError("expected NFC text of characters that are seen, with plain blanks inside only")
    return text


def _prose(text: str) -> str:
    if not is_clean(text, allowed="\n\r\t"):
        raise ValueError(_CLEAN)
    return text


def moment(text: str) -> datetime:
    """Return an RFC 3339 date and time with its zone; `ValueError` says what is wrong."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected an RFC 3339 date and time") from None
    if found.tzinfo is None:
        raise ValueError("expected a time zone, for example Z")
    return found


def _moment(text: str) -> str:
    moment(text)
    return text


def _public_url(text: str) -> str:
    """A stored URL carries no credential: neither user info nor a query."""
    scheme, separator, rest = text.partition("://")
    if scheme.lower() not in {"http", "https"} or not separator or not rest.partition("/")[0]:
        raise ValueError("expected an http or https URL")
    if any(c in rest for c in "@?#\\ ") or not is_clean(text):
        raise ValueError("expected a URL without user info, query or fragment")
    return text


Line = Annotated[str, AfterValidator(_line)]
Label = Annotated[str, AfterValidator(_name), Field(min_length=1, max_length=256)]
"""What two people must read alike, as identifiers and labels of versions."""
Ref = Label
"""A partner's identifier: a string, never a number."""
Part = Annotated[Line, Field(min_length=1, max_length=256)]
"""The name of something in a file."""
Prose = Annotated[str, Field(max_length=10_000), AfterValidator(_prose)]
MAX_QUERY_TEXT = 1000
"""Characters of a sentence in a query: encoded it is up to twelve times as long, and servers bound their URLs."""
Moment = Annotated[str, Field(max_length=64), AfterValidator(_moment)]
PublicUrl = Annotated[str, Field(max_length=2048), AfterValidator(_public_url)]
AssetIdText = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Ordinal = Annotated[int, Field(ge=0, le=MAX_ORDINAL)]
PlatformIdText = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Contract(BaseModel):
    """Base of bodies: unknown fields are errors, types are never coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Source(Contract):
    """Where the file lies: one blob of a zone, or a URL. `core.submission` checks the combination."""

    container_name: Label | None = None
    blob_name: str | None = None
    blob_names: list[str] | None = Field(
        default=None, description="Several files, with `workflow_id` raster_collection."
    )
    url: str | None = Field(
        default=None, description="https, of one file; a credential may stand in its query, which is kept sealed."
    )


class SubmitOptions(Contract):
    """What a submit may say about the file. Options of the other data type are refused, never ignored."""

    crs: Annotated[Prose, Field(min_length=1)] | None = None
    override_crs: bool = False
    nodata: float | None = None
    raster_type: Label | None = None
    compression: Label | None = None
    target_crs: Annotated[Prose, Field(min_length=1)] | None = None
    member: Annotated[Line, Field(min_length=1, max_length=1024)] | None = None
    subdataset: Annotated[Line, Field(min_length=1, max_length=1024)] | None = None
    variable: Annotated[Line, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="Another name of `subdataset`."
    )
    layer: Part | None = None
    x: Part | None = None
    y: Part | None = None
    wkt: Part | None = None
    encoding: Label | None = None
    datetime: Moment | None = None
    start_datetime: Moment | None = None
    end_datetime: Moment | None = None
    collection_id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$")] | None = None
    allow_empty: bool = False
    split_geometries: bool = False
    tolerate_files: Annotated[int, Field(ge=0, le=MAX_FILES)] | None = Field(
        default=None, description="raster_collection: files that may be refused or unlike the others. Default 0."
    )
    resolution_tolerance: Annotated[float, Field(ge=0, le=0.1)] | None = Field(
        default=None, description="raster_collection: share by which pixels may differ in size. Default 0.001."
    )


class SubmitRequest(Contract):
    """Body of submit and validate, once the platform's refs were gathered into `platform_refs`."""

    platform_id: PlatformIdText
    platform_refs: dict[str, Ref] = Field(description="Or flat beside the other fields.")
    version_label: Label | None = Field(default=None, description="Default: the ref that is the platform's version.")
    data_type: Literal["raster", "vector"]
    source: Source
    workflow_id: Label | None = Field(default=None, description="Default: the ingest of the data type.")
    title: Annotated[Line, Field(min_length=1, max_length=500)] | None = None
    description: Prose | None = None
    tags: Annotated[list[Annotated[Line, Field(min_length=1, max_length=100)]], Field(max_length=50)] = []
    access_level: Literal["ouo", "public"] = Field(default="ouo", description="A wish; the reviewer decides.")
    previous_version_ordinal: Ordinal | None = None
    options: SubmitOptions = SubmitOptions()
    callback_url: PublicUrl | None = None
    priority: Annotated[int, Field(ge=1, le=10)] = 5
    idempotency_key: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,255}$")] | None = None
    dry_run: bool = False


class SubmitAccepted(Contract):
    """202: where to look from now on."""

    request_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    status_url: str


class ValidationReport(Contract):
    """200 of validate and of a dry run: what would happen, and the file's report. Nothing was stored."""

    asset_id: str
    version_ordinal: int
    revision: int
    verdict: str
    report: Json


class UploadRequest(Contract):
    """Body of uploads: one file of one platform."""

    platform_id: PlatformIdText
    filename: str
    size_bytes: Annotated[int, Field(ge=1)] | None = None


class UploadAddress(Contract):
    """A write-only address for one blob; PUT the bytes, then submit `container_name` and `blob_name`."""

    upload_url: str = Field(repr=False)
    method: Literal["PUT"] = "PUT"
    headers: dict[str, str] = {}
    container_name: str
    blob_name: str
    max_bytes: int
    expires_at: str


class StatusView(Contract):
    """Everything a partner learns of a request; never a job id."""

    request_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    state: RequestState
    progress: Json
    review: ApprovalState | None
    reason: str | None
    deleted: bool = Field(
        description="The version or its asset was deleted: no review follows, no report is left; `reason` says so."
    )
    errors: list[ErrorDetail]
    warnings: list[Json]
    report_url: str | None
    services: dict[str, str] | None = Field(description="Null until the caller may see them.")
    next_actions: list[str] = Field(description="What the caller may do about it.")


def parse_body(raw: bytes) -> Json:
    """Return the JSON object of a request body.

    Raises:
        PayloadTooLarge: longer than MAX_BODY_BYTES.
        ParameterInvalid: not JSON, not an object, a repeated key, or a number that is not finite.
    """
    if len(raw) > MAX_BODY_BYTES:
        raise PayloadTooLarge(f"the body has {len(raw)} bytes; expected at most {MAX_BODY_BYTES}", field="body")
    try:
        body = json.loads(
            raw, object_pairs_hook=unique, parse_int=_whole, parse_float=_finite, parse_constant=refuse_constant
        )
    except RecursionError:
        raise ParameterInvalid("the body is nested too deeply", field="body") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ParameterInvalid(f"the body is not JSON: it breaks off at {where}", field="body") from None
    except UnicodeDecodeError:
        raise ParameterInvalid("the body is not text in UTF-8", field="body") from None
    except ValueError as error:
        raise ParameterInvalid(f"the body is not the JSON that was expected: {error}", field="body") from None
    if not isinstance(body, dict):
        raise ParameterInvalid(f"the body is a JSON {json_kind(body)}; expected an object", field="body")
    return body


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value


def parse(model: type[M], body: Mapping[str, Any]) -> M:
    """Return a validated model, or raise the `CallerError` of its first problem."""
    try:
        return model.model_validate(dict(body))
    except ValidationError as error:
        raise caller_error(error) from None


def caller_error(error: ValidationError) -> CallerError:
    """Return what a validation failure says to the caller: the first missing field, else the first wrong one."""
    problems = error.errors(include_url=False)
    missing = [p for p in problems if p["type"] == "missing"]
    first = (missing or problems)[0]
    others = sorted({_field(p) for p in problems} - {_field(first)})
    also = f" (also: {', '.join(others[:10])})" if others else ""
    if missing:
        return ParameterMissing(f"{_field(first)} is missing{also}", field=_field(first))
    value = _shown(first["input"])
    return ParameterInvalid(
        f"{_field(first)}: {complaint(first)}, found {value!r}{also}", field=_field(first), value=value
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """An element of a list that is none of its kind; whatever is told of it, the others go on."""

    error: CallerError


def _or_refused(value: Any, handler: Callable[[Any], Any]) -> Any:
    try:
        return handler(value)
    except ValidationError as error:
        return Refused(caller_error(error))


ONE_BY_ONE = WrapValidator(_or_refused)
"""Of elements that are refused each on their own; `refusal` tells which are."""


def refusal(element: object) -> CallerError | None:
    """Return why an element of a list is none of its kind, None when it is one."""
    return element.error if isinstance(element, Refused) else None


def _field(problem: ErrorDetails) -> str:
    parts = [str(part) for part in problem["loc"]]
    if parts[:1] == ["source"] and len(parts) > 1:
        parts = parts[1:]
    return _shown(".".join(parts)) or "body"


def _shown(value: Any) -> Any:
    """A value that may stand in an answer: short, printable, without structure."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if abs(value) < 1e18 else "a huge number"
    if isinstance(value, str):
        return readable(value[:100])
    return json_kind(value)
