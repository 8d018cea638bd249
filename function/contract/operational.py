"""Rows of operators' routes and of the probes."""

from collections.abc import Mapping
from typing import Final

from core.b2b import MAX_ORDINAL
from core.openapi import Operation
from core.statuses import JobStatus
from function.contract.parts import (
    AFTER,
    ANYBODY,
    OPERATORS,
    PAGE,
    PLATFORM,
    TIMES,
    Route,
    choice,
    proxied,
    read,
    text,
    whole,
)

JOB: Final = "api/status/job/{job_id}"


ROUTES: Final[Mapping[str, Route]] = {
    "gateway_submit_batch": Route(
        "POST",
        "api/gateway/submit/batch",
        Operation("Start up to 1,000 jobs.", "operations", OPERATORS, status=202, untyped_body=True),
    ),
    "gateway_health": Route("GET", "api/gateway/health", read("How the gateway does.", "operations", OPERATORS)),
    "status_jobs": Route(
        "GET",
        "api/status/jobs",
        proxied(
            "List jobs.",
            "operations",
            choice("status", *JobStatus),
            text("workflow_id"),
            whole("limit", 1, 1000, 50),
            AFTER,
        ),
    ),
    "status_stats": Route(
        "GET", "api/status/stats", proxied("Figures by state.", "operations", whole("hours", 1, 24 * 366, 24))
    ),
    "status_lookup": Route(
        "GET",
        "api/status/lookup",
        proxied(
            "Which job works for what.",
            "operations",
            text("job_id"),
            text("request_id"),
            text("asset_id"),
            whole("version_ordinal", 0, MAX_ORDINAL),
            PAGE[0],
        ),
    ),
    "status_job": Route("GET", JOB, proxied("Return a job.", "operations", whole("wait", 0, 300, 0))),
    "status_job_nodes": Route("GET", f"{JOB}/nodes", proxied("Return the nodes of a job.", "operations")),
    "status_job_events": Route(
        "GET",
        f"{JOB}/events",
        proxied("Return the events of a job.", "operations", whole("after", 0, 2**53), whole("limit", 1, 10_000, 1000)),
    ),
    "proxy_health": Route("GET", "api/proxy/health", read("How many of each process live.", "operations", OPERATORS)),
    **{
        f"proxy_{method.lower()}": Route(
            method,
            "api/proxy/{target}/{*path}",
            Operation(
                "Reach what the allow-list names.",
                "operations",
                OPERATORS,
                status="2XX",
                any_query=True,
                body_required=False,
                untyped_body=method in ("POST", "PUT", "PATCH"),
            ),
        )
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    },
    "admin_health": Route("GET", "api/admin/health", read("What the gateway reaches.", "operations", OPERATORS)),
    "admin_config": Route("GET", "api/admin/config", read("Settings, without secrets.", "operations", OPERATORS)),
    "admin_active_jobs": Route(
        "GET",
        "api/admin/active-jobs",
        proxied("List running jobs.", "operations", whole("limit", 1, 1000, 50), AFTER),
    ),
    "admin_recent_events": Route("GET", "api/admin/recent-events", proxied("Newest events.", "operations", *PAGE)),
    "admin_workflows": Route("GET", "api/admin/workflows", proxied("List workflows.", "operations")),
    "admin_audit": Route(
        "GET",
        "api/admin/audit",
        proxied(
            "Who did what, when, why, from what to what.",
            "operations",
            text("asset_id"),
            whole("version_ordinal", 0, MAX_ORDINAL),
            PLATFORM,
            text("actor"),
            text("action"),
            text("request_id"),
            *TIMES,
            *PAGE,
        ),
    ),
    "livez": Route("GET", "api/livez", Operation("Say that the process lives.", "probes", ANYBODY)),
    "readyz": Route("GET", "api/readyz", Operation("Say whether it serves.", "probes", ANYBODY)),
    "openapi": Route(
        "GET", "api/openapi.json", Operation("Return this document.", "probes", ANYBODY, conditional=True)
    ),
}
