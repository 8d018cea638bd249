"""The contract about requests: lists of them, many at once, cancelled, submitted again."""

from typing import Annotated, Any

from pydantic import Field

from core.b2b import MAX_BATCH, ONE_BY_ONE, Contract, StatusView, SubmitAccepted
from core.b2b_assets import Reason
from core.errors import ErrorDetail

Json = dict[str, Any]


class RequestList(Contract):
    """200 of requests: the newest first."""

    requests: list[StatusView]
    next_after: str | None


class CancelRequest(Contract):
    """Body of cancel."""

    reason: Reason | None = None


class BatchRequest(Contract):
    """Body of a batch: submits as they would be sent one by one."""

    submits: Annotated[list[Annotated[Json, ONE_BY_ONE]], Field(min_length=1, max_length=MAX_BATCH)]


class BatchResult(Contract):
    """What became of one submit of a batch: accepted or an error."""

    index: int
    accepted: SubmitAccepted | None = None
    error: ErrorDetail | None = None


class BatchAnswer(Contract):
    """200 of a batch: one result each, in their order."""

    results: list[BatchResult]
