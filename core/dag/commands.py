"""What a human does to a job, decided purely; services write the decision as they write one of `advance`."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.orders import DIRECT, obey
from core.dag.run import Run
from core.dag.state import Decision, JobState
from core.errors import CallerError
from core.handlers_catalog import CATALOG, HandlerSpec
from core.models.engine import Command


def direct_command(
    job_id: str, now: datetime, kind: str, args: Mapping[str, Any], *, actor: str, reason: str | None = None
) -> Command:
    """Return a command to be put behind those that a state has."""
    return Command(
        command_id=DIRECT, job_id=job_id, kind=kind, args=dict(args), actor=actor, reason=reason, created_at=now
    )


def refusal_of(
    workflow: Workflow, state: JobState, command: Command, *, catalog: Mapping[str, HandlerSpec] = CATALOG
) -> CallerError | None:
    """Return why a job would refuse a command. Of the state it needs the nodes, the fan-outs and `reopen_refusal`."""
    try:
        obey(Run(workflow, state, command.created_at, catalog), command)
    except CallerError as error:
        return error
    return None


def command(
    workflow: Workflow,
    state: JobState,
    now: datetime,
    kind: str,
    args: Mapping[str, Any] | None = None,
    *,
    actor: str,
    reason: str | None = None,
    catalog: Mapping[str, HandlerSpec] = CATALOG,
) -> Decision:
    """Decide what one command does and everything that follows from it.

    Raises:
        CallerError: What `core.dag.orders.obey` raises; a `Conflict` tells the state that won.
    """
    order = direct_command(state.job.job_id, now, kind, args or {}, actor=actor, reason=reason)
    decision = advance(workflow, replace(state, commands=(*state.commands, order)), now, catalog=catalog)
    if decision.commands_done and (refusal := decision.commands_done[-1].refusal) is not None:
        raise refusal
    return decision
