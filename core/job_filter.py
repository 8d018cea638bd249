"""Which jobs somebody means, when he names none of them."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from core.statuses import JobStatus
from core.wire import Name


class JobFilter(BaseModel):
    """All that is said must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    workflow_id: Name | None = None
    status: JobStatus | None = None
    older_than_seconds: Annotated[float, Field(ge=0, le=10 * 365 * 86400)] | None = Field(
        default=None, description="Created before this many seconds."
    )
    correlation_id: Name | None = None
    error_code: Name | None = Field(default=None, description="Code of the root cause of a failed job.")

    @property
    def says_nothing(self) -> bool:
        """Return whether it means every job there is."""
        return not self.model_dump(exclude_none=True)


class JobBrief(BaseModel):
    """One job that a filter found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_id: str
    workflow_id: str
    status: JobStatus
    run_no: int
    created_at: datetime
