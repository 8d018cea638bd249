"""Every error geodag raises on purpose, grouped by who must act.

    GeodagError
    ├── CallerError            the caller sends something else
    │   ├── ParameterMissing   PARAMETER_MISSING
    │   ├── ParameterInvalid   PARAMETER_INVALID
    │   ├── PayloadTooLarge    PAYLOAD_TOO_LARGE
    │   ├── NotFound           NOT_FOUND
    │   ├── Forbidden          FORBIDDEN
    │   ├── Unauthenticated    UNAUTHENTICATED
    │   └── Conflict           IDEMPOTENCY_CONFLICT, VERSION_*, …
    │       └── InvalidTransition   INVALID_TRANSITION
    ├── DataError              the owner of the file sends a better one (codes of ingest-rules)
    ├── WorkflowError          the author of a workflow mends it
    └── TransientError         nobody: it is tried again
        ├── Throttled          THROTTLED, QUOTA_EXCEEDED
        ├── DatabaseUnavailable    DATABASE_UNAVAILABLE
        └── StorageUnavailable     STORAGE_UNAVAILABLE
            └── BlobDamaged        likewise; of a stored value it is PAYLOAD_CORRUPT

`HTTP` status codes are not known here; one table at the edge maps codes to them.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from core.wording import readable, storable


class Classification(StrEnum):
    """Whether trying again can help."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    THROTTLING = "throttling"


Text = Annotated[str, AfterValidator(readable)]
"""What an error says; data may be part of it, and what cannot be stored of that is replaced."""
Shown = Annotated[Any, AfterValidator(storable)]
"""A value as an error shows it."""


class AttemptFailure(BaseModel):
    """One earlier failure of the same node; carries no ids, so it may be shown outside."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt: int
    code: str
    message: Text
    at: datetime


class ErrorDetail(BaseModel):
    """The shape of an error everywhere: task result, job, B2B status, problem details."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str = Field(description="Stable, upper-case.")
    message: Text = Field(description="What was found and what was expected.")
    field: Text | None = Field(default=None, description="The input that is at fault.")
    value: Shown = Field(default=None, description="The offending value, when it may be shown.")
    expected: Shown = Field(default=None, description="The value that would be right, when there is one.")
    remediation: Text | None = Field(default=None, description="What the reader can do.")
    user_fixable: bool = False
    classification: Classification = Classification.PERMANENT
    error_id: str | None = Field(default=None, description="Finds the log line.")
    next_actions: tuple[str, ...] = Field(default=(), description="Machine-readable ways out.")
    node_id: str | None = Field(default=None, description="The workflow node that failed, in errors of jobs and nodes.")
    attempts: tuple[AttemptFailure, ...] = Field(default=(), description="Newest failures of that node, oldest first.")
    retry_after_seconds: int | None = Field(default=None, description="When to try again, where that is known.")


class Finding(BaseModel):
    """One thing noticed about an input and what was done about it."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    code: Text
    level: Text = Field(description="info | warning")
    field: Text | None = None
    from_: Shown = Field(default=None, alias="from")
    to: Shown = None
    message: Text


class GeodagError(Exception):
    """Root of the tree; carries what `ErrorDetail` needs."""

    code: ClassVar[str] = "INTERNAL"
    classification: ClassVar[Classification] = Classification.PERMANENT
    user_fixable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        value: Any = None,
        expected: Any = None,
        remediation: str | None = None,
        next_actions: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.detail = ErrorDetail(
            code=code or self.code,
            message=message,
            field=field,
            value=value,
            expected=expected,
            remediation=remediation,
            user_fixable=self.user_fixable,
            classification=self.classification,
            next_actions=next_actions,
        )


class CallerError(GeodagError):
    """The caller can mend the request."""

    user_fixable = True


class ParameterMissing(CallerError):
    code = "PARAMETER_MISSING"


class ParameterInvalid(CallerError):
    code = "PARAMETER_INVALID"


class PayloadTooLarge(CallerError):
    code = "PAYLOAD_TOO_LARGE"


class NotFound(CallerError):
    code = "NOT_FOUND"


class MethodNotAllowed(CallerError):
    code = "METHOD_NOT_ALLOWED"


class Forbidden(CallerError):
    code = "FORBIDDEN"


class Unauthenticated(CallerError):
    code = "UNAUTHENTICATED"


class Conflict(CallerError):
    """The request is right in itself but not in the present state; always give a `code`."""

    code = "CONFLICT"


class InvalidTransition(Conflict):
    code = "INVALID_TRANSITION"


class DataError(GeodagError):
    """The file is at fault; `code` is one of ingest-rules."""

    user_fixable = True


class WorkflowError(GeodagError):
    """A workflow definition is at fault."""

    code = "WORKFLOW_INVALID"


class TransientError(GeodagError):
    """Trying again later can help."""

    code = "UNAVAILABLE"
    classification = Classification.TRANSIENT


class Throttled(TransientError):
    code = "THROTTLED"
    classification = Classification.THROTTLING

    def __init__(self, message: str, *, retry_after_seconds: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.detail = self.detail.model_copy(update={"retry_after_seconds": retry_after_seconds})


class DatabaseUnavailable(TransientError):
    code = "DATABASE_UNAVAILABLE"


class StorageUnavailable(TransientError):
    code = "STORAGE_UNAVAILABLE"


class BlobDamaged(StorageUnavailable):
    """The storage answers, but with other bytes than were stored; it may have been the way."""
