"""What was decided about a version, revision by revision: for whoever decides next, and for the platform."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic.dataclasses import dataclass as checked

from core.access import Audience, audiences
from core.b2b_assets import PastDecision
from core.identity import Caller, Role

ACTIONS: Final = ("approved", "rejected", "revoked", "unpublished", "superseded", "deleted", "restored")
"""Of the audit, those that are decisions about one version."""


@checked(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One decision, as `dagapi.decisions` shows it."""

    asset_id: str
    platform_id: str
    version_ordinal: int
    revision: int | None
    action: str
    actor: str
    actor_role: str
    reason: str | None
    created_at: datetime


def decision_views(rows: Sequence[DecisionRow], ordinal: int, caller: Caller) -> list[PastDecision]:
    """Return the decisions about one version of an asset; who only reads it is told of none.

    To a platform's people reviewers decide as reviewers, without their names.
    """
    return [_view(row, caller) for row in rows if row.version_ordinal == ordinal and _may_know(row, caller)]


def _view(row: DecisionRow, caller: Caller) -> PastDecision:
    named = caller.has(Role.REVIEWER, Role.ADMIN) or row.actor_role == Role.SUBMITTER
    return PastDecision(
        revision=row.revision,
        decision=row.action,
        reason=row.reason,
        decided_by=row.actor if named else None,
        role=row.actor_role,
        decided_at=row.created_at,
    )


def _may_know(row: DecisionRow, caller: Caller) -> bool:
    return not audiences(caller, row.platform_id).isdisjoint({Audience.SUBMITTER, Audience.REVIEWER})
