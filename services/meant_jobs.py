"""Which jobs an order by filter means: those that could obey it, so that a limit is not used up by others."""

from collections.abc import Mapping
from typing import Any

from core.dag.orders import Kind
from core.errors import NotFound, ParameterMissing
from core.job_filter import JobFilter
from core.statuses import JOB_FINAL, JobStatus

ACTIVE = frozenset({JobStatus.PENDING, JobStatus.RUNNING})
UNSUCCESSFUL = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})
MANY: Mapping[Kind, frozenset[JobStatus]] = {
    Kind.CANCEL: ACTIVE,
    Kind.PAUSE: ACTIVE,
    Kind.RESUME: ACTIVE,
    Kind.PRIORITY: ACTIVE,
    Kind.RETRY: UNSUCCESSFUL,
    Kind.RERUN: frozenset(JOB_FINAL),
}
"""What can be ordered for many jobs at once, and in which statuses it means them unless the filter names one."""


def statuses_meant(wanted: JobFilter, kind: str, args: Mapping[str, Any]) -> frozenset[JobStatus]:
    """Return in which statuses an order by filter means jobs.

    Raises:
        NotFound: There is no such order for many jobs.
        ParameterMissing: The filter says nothing.
    """
    usual = {known.value: statuses for known, statuses in MANY.items()}.get(kind)
    if usual is None:
        known = ", ".join(sorted(MANY))
        raise NotFound(f"{kind!r} cannot be ordered for many jobs; {known} can", field="kind", value=kind[:32])
    if wanted.says_nothing:
        raise ParameterMissing(
            "filter says nothing, which would mean every job",
            field="filter",
            remediation="Name a workflow, a status, an age, a correlation_id or an error_code.",
        )
    if wanted.status is not None:
        return frozenset({wanted.status})
    return usual & UNSUCCESSFUL if args.get("only_unsuccessful") is True else usual
