"""Public versions go outside and come back: jobs in the decision's transaction, paths on the version, no orphans."""

from typing import Any

import pytest

from core.b2b_assets import ClearanceRequest
from core.wire import TaskMessage
from services.approvals import ApprovalService
from services.external import ACTOR, EXPORT, WITHDRAW, ExternalJobs
from tests.support.business import ADMIN, Business


@pytest.fixture
def outside(business: Business) -> Business:
    """Return the business with an external zone."""
    business.approvals = ApprovalService(business.pool, business.blobs, ExternalJobs(business.engine.jobs))
    return business


async def jobs(outside: Business) -> list[tuple[str, str]]:
    rows = await outside.engine.query(
        "SELECT workflow_id, job_id FROM dagapp.dag_jobs WHERE workflow_id IN (%s, %s) ORDER BY created_at, job_id",
        EXPORT,
        WITHDRAW,
    )
    return [(row["workflow_id"], row["job_id"]) for row in rows]


async def ended(outside: Business, job_id: str) -> TaskMessage:
    """Let the one task of such a job succeed, as a worker would report it."""
    message = await outside.engine.message(job_id)
    params: dict[str, Any] = message.params
    if message.handler == "external.export":
        path = f"{params['output_prefix']}/{message.task_id}/cog.tif"
        output: dict[str, Any] = {"external_blob_path": path, "run_id": "run-1", "size_bytes": params["size_bytes"]}
    else:
        output = {"removed": 1}
    await outside.worker.run(message, output=output)
    return message


async def test_an_approval_as_public_exports_and_a_revocation_withdraws(outside: Business) -> None:
    accepted = await outside.approved("public")
    ((kind, job_id),) = await jobs(outside)
    message = await outside.engine.message(job_id)
    assert (kind, message.handler) == (EXPORT, "external.export")
    folder = message.params["output_prefix"]
    assert folder.startswith(f"external/{accepted.asset_id}/0/r1-")
    assert (await outside.row(accepted))["external_blob_path"] is None
    await ended(outside, job_id)
    row = await outside.row(accepted)
    path = f"{folder}/{message.task_id}/cog.tif"
    assert (row["external_blob_path"], row["adf_run_id"]) == (path, "run-1")
    await outside.revoke(accepted)
    row = await outside.row(accepted)
    assert (row["external_blob_path"], row["adf_run_id"]) == (None, None)
    (_, (kind, job_id)) = await jobs(outside)
    assert (await ended(outside, job_id)).params == {"folder": folder}
    assert kind == WITHDRAW
    actions = [action for action, actor, _ in await outside.audit(accepted) if actor == "orchestrator"]
    assert actions == ["processed", "exported", "withdrawn"]


async def test_what_is_for_our_own_use_stays_inside_until_its_clearance_is_raised(outside: Business) -> None:
    accepted = await outside.approved("ouo")
    assert await jobs(outside) == []
    for level, expected in (("public", [EXPORT]), ("ouo", [EXPORT])):
        body = ClearanceRequest(clearance_level=level, reason="decided")
        await outside.approvals.set_clearance(ADMIN, accepted.asset_id, body)
        assert [kind for kind, _ in await jobs(outside)] == expected
    # Its export was under way when it ceased to be public: what it made is taken back, and the version names nothing.
    await ended(outside, (await jobs(outside))[0][1])
    assert (await outside.row(accepted))["external_blob_path"] is None
    assert [kind for kind, _ in await jobs(outside)] == [EXPORT, WITHDRAW]


async def test_a_job_made_by_hand_writes_nothing_to_a_version(outside: Business) -> None:
    accepted = await outside.approved("public")
    ((_, first),) = await jobs(outside)
    message = await outside.engine.message(first)
    inputs = {"asset_id": accepted.asset_id, "version_ordinal": 0, "revision": 1, **message.params}
    forged = await outside.engine.create(EXPORT, inputs)
    await ended(outside, forged)
    assert (await outside.row(accepted))["external_blob_path"] is None
    rows = await outside.engine.query("SELECT submitted_by FROM dagapp.dag_jobs WHERE job_id = %s", first)
    assert rows == [{"submitted_by": ACTOR}]


async def test_an_export_that_fails_is_in_the_audit_and_the_version_stays_public(outside: Business) -> None:
    accepted = await outside.approved("public")
    ((_, job_id),) = await jobs(outside)
    await outside.fail(job_id, code="EXPORT_INCOMPLETE", message="3 bytes", field="blob_path")
    assert (await outside.audit(accepted))[-1] == ("adf_export_failed", "orchestrator", "system")
    assert (await outside.row(accepted))["approval_state"] == "approved"
    # What its attempts may have left is taken away.
    assert [kind for kind, _ in await jobs(outside)] == [EXPORT, WITHDRAW]
