"""How much a platform may ask for at a time, and who changes that."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from core.b2b_platforms import PlatformChange
from core.errors import Forbidden, NotFound, Throttled
from repositories.audit import AuditFilter
from repositories.database import transaction
from services.audit import AuditService
from services.platforms import PlatformService
from tests.support.business import ADMIN, FOREIGNER, OPERATOR, SUBMITTER, Business, fresh_refs, submit_body


async def limit(business: Business, **limits: int) -> None:
    body = PlatformChange.model_validate(limits)
    await PlatformService(business.pool).change(ADMIN, "ddh", body)


async def throttled(call: Any) -> Throttled:
    with pytest.raises(Throttled) as refused:
        await call
    return refused.value


async def later(business: Business, seconds: float) -> None:
    """Let time pass for the platforms' usage."""
    async with transaction(business.pool) as conn:
        await conn.execute(
            "UPDATE dagapp.platform_usage SET busy_until = busy_until - make_interval(secs => %s)", (seconds,)
        )


async def test_a_platform_calls_so_often_at_once_and_then_at_its_rate(business: Business) -> None:
    await limit(business, requests_per_minute=1, request_burst=3)
    for _ in range(3):
        await business.submit(platform_refs=fresh_refs())
    counts = await business.counts()
    refused = await throttled(business.submit(platform_refs=fresh_refs()))
    assert refused.detail.code == "THROTTLED"
    assert refused.detail.retry_after_seconds is not None
    assert 50 <= refused.detail.retry_after_seconds <= 61
    assert await business.counts() == counts
    await later(business, 60)
    await business.submit(platform_refs=fresh_refs())
    await throttled(business.submit(platform_refs=fresh_refs()))


async def test_of_calls_at_the_same_moment_exactly_the_burst_passes(business: Business) -> None:
    await limit(business, requests_per_minute=1, request_burst=4)
    answers = await asyncio.gather(
        *(business.submit(platform_refs=fresh_refs()) for _ in range(12)), return_exceptions=True
    )
    assert sum(isinstance(answer, Throttled) for answer in answers) == 8
    assert not [a for a in answers if isinstance(a, BaseException) and not isinstance(a, Throttled)]


async def test_another_platform_is_not_slowed_down(business: Business) -> None:
    await limit(business, requests_per_minute=1, request_burst=1)
    await business.submit()
    await throttled(business.submit())
    business.put("arcgis/x.tif", b"pixels")
    await business.submit(
        FOREIGNER,
        platform_id="arcgis",
        platform_refs={"item_id": "1", "layer_index": "0"},
        source={"container_name": "bronze", "blob_name": "arcgis/x.tif"},
    )


async def test_validations_and_upload_addresses_count_too_and_strangers_do_not(business: Business) -> None:
    await limit(business, requests_per_minute=1, request_burst=2)
    for _ in range(5):
        with pytest.raises(Forbidden):
            await business.submit(FOREIGNER)
    await business.submits.check(SUBMITTER, submit_body())
    wish = {"platform_id": "ddh", "filename": "a.tif"}
    await business.uploads.grant(SUBMITTER, wish, datetime.now(UTC))
    await throttled(business.uploads.grant(SUBMITTER, wish, datetime.now(UTC)))
    await throttled(business.submits.check(SUBMITTER, submit_body()))


async def test_so_many_requests_are_open_and_no_more(business: Business) -> None:
    await limit(business, max_open_requests=2)
    first = await business.submit(platform_refs=fresh_refs(), key="k", title="t")
    second = await business.submit(platform_refs=fresh_refs())
    refused = await throttled(business.submit(platform_refs=fresh_refs()))
    assert (refused.detail.code, refused.detail.value, refused.detail.expected) == ("QUOTA_EXCEEDED", 2, 2)
    assert refused.detail.retry_after_seconds == 30
    assert (await business.counts())["requests"] == 2
    await business.finish(await business.job_of(second))
    await business.submit(platform_refs=fresh_refs())
    assert first.request_id


async def test_a_repeated_submit_gets_its_answer_whatever_is_open(business: Business) -> None:
    await limit(business, max_open_requests=1)
    first = await business.submit(key="k")
    assert await business.submit(key="k") == first


async def test_changes_of_a_platform_are_audited_and_take_effect(business: Business) -> None:
    service = PlatformService(business.pool)
    view = await service.change(OPERATOR, "ddh", PlatformChange(is_active=False, reason="contract ended"))
    assert view.is_active is False
    with pytest.raises(Exception, match="no active platform"):
        await business.submit()
    await service.change(ADMIN, "ddh", PlatformChange(is_active=True, review_days=3))
    await service.change(ADMIN, "ddh", PlatformChange(review_days=3))
    page = await AuditService(business.pool).find(AuditFilter(platform_id="ddh"), after=None, limit=10)
    assert [(e.action, e.actor_role, e.reason, e.before, e.after) for e in page.rows] == [
        (
            "platform_changed",
            "admin",
            None,
            {"is_active": False, "review_days": 14},
            {"is_active": True, "review_days": 3},
        ),
        ("platform_changed", "operator", "contract ended", {"is_active": True}, {"is_active": False}),
    ]
    assert [one.platform_id for one in (await service.all()).platforms] == ["arcgis", "ddh", "geonode"]
    with pytest.raises(NotFound):
        await service.change(ADMIN, "nobody", PlatformChange(review_days=3))


async def test_a_new_rate_begins_anew(business: Business) -> None:
    await limit(business, requests_per_minute=1, request_burst=1)
    await business.submit(platform_refs=fresh_refs())
    await throttled(business.submit(platform_refs=fresh_refs()))
    await PlatformService(business.pool).change(ADMIN, "ddh", PlatformChange(requests_per_minute=2))
    await business.submit(platform_refs=fresh_refs())
    await throttled(business.submit(platform_refs=fresh_refs()))
