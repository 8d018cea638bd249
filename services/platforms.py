"""The registry of platforms, for those who run it: what each may do, and how much of it at a time."""

from typing import Any

from core.b2b_platforms import PlatformChange, PlatformList, PlatformView
from core.errors import NotFound
from core.identity import Caller, Role
from core.models.business import Platform
from repositories.audit import AuditRepository, NewAuditEntry
from repositories.database import AsyncPool, transaction
from repositories.platforms import PlatformRepository

Json = dict[str, Any]
KEEPERS = (Role.ADMIN, Role.OPERATOR)


class PlatformService:
    """Lists and changes platforms."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    async def all(self) -> PlatformList:
        """Return every platform, active or not."""
        async with transaction(self._pool) as conn:
            rows = await PlatformRepository(conn).all()
        return PlatformList(platforms=[_view(row) for row in rows])

    async def change(self, caller: Caller, platform_id: str, body: PlatformChange) -> PlatformView:
        """Change what a platform may do; what is not named stays.

        Raises:
            NotFound: there is no such platform.
        """
        changes = body.model_dump(exclude_none=True, exclude={"reason"})
        async with transaction(self._pool) as conn:
            platforms = PlatformRepository(conn)
            before = await platforms.lock(platform_id)
            if before is None:
                raise NotFound(f"there is no platform {platform_id[:64]}", field="platform_id")
            after = before.model_copy(update=changes)
            if after != before:
                await platforms.store(after)
                if (before.requests_per_minute, before.request_burst) != (
                    after.requests_per_minute,
                    after.request_burst,
                ):
                    await platforms.forget_usage(platform_id)
                await AuditRepository(conn).add(_entry(caller, before, after, body.reason))
        return _view(after)


def _view(platform: Platform) -> PlatformView:
    return PlatformView(**{name: getattr(platform, name) for name in PlatformView.model_fields})


def _entry(caller: Caller, before: Platform, after: Platform, reason: str | None) -> NewAuditEntry:
    changed = [name for name in PlatformView.model_fields if getattr(before, name) != getattr(after, name)]
    return NewAuditEntry(
        asset_id=None,
        version_ordinal=None,
        action="platform_changed",
        actor=caller.subject,
        actor_role=min(str(role) for role in caller.roles.intersection(KEEPERS)),
        reason=reason,
        before={name: getattr(before, name) for name in changed},
        after={name: getattr(after, name) for name in changed},
        platform_id=before.platform_id,
    )
