"""The document of every refusal (RFC 9457), as a model for the contract."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from core.errors import AttemptFailure, Classification


class Problem(BaseModel):
    """`application/problem+json`; `code` is stable, what is not known is left out."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str = Field(description="What was found and what was expected.")
    instance: str
    code: str
    user_fixable: bool
    classification: Classification
    field: str | None = None
    value: Any = None
    expected: Any = None
    remediation: str | None = None
    error_id: str | None = None
    next_actions: list[str] = Field(default_factory=list)
    node_id: str | None = None
    attempts: list[AttemptFailure] = Field(default_factory=list)
    retry_after_seconds: int | None = Field(default=None, description="As `Retry-After`, for each item of a batch too.")
