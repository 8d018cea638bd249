"""`geodag jobs`, `events` and `audit`: the engine and its people as an operator sees them."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Group

from cli.operator import MOST_ROWS, AtMost, OnlyStatus, OnlyWorkflow, pages, query_of
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import none_matches, print_text, print_warning, row_table, show, words_of
from cli.target import Target

JOB_COLUMNS = ("job_id", "workflow_id", "status", "created_at", "completed_at", "correlation_id")
EVENT_COLUMNS = ("time", "node", "event", "status", "detail")
LIMITS = "/api/proxy/orchestrator/api/v1/settings/limits"
LIMIT_COLUMNS = ("slot_key", "limit", "set_by", "asked", "held", "waiting")
SLOT_COLUMNS = ("job_id", "node_id", "workflow_id", "priority", "requested_at", "granted_at")
UNASKED = "Nobody has asked for a slot of this key yet; the limit counts once somebody does.\n"
WORKFLOWS = "/api/proxy/orchestrator/api/v1/workflows"
WORKFLOW_COLUMNS = ("workflow_id", "version", "name", "description")
AUDIT_COLUMNS = ("time", "what", "action", "who", "change", "why")
Json = dict[str, Any]


def jobs(
    status: OnlyStatus = None,
    workflow: OnlyWorkflow = None,
    limit: AtMost = 20,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the newest jobs."""
    facts = {"limit": min(limit, MOST_ROWS), "status": status, "workflow_id": workflow}
    rows = list(islice(pages(_asked(Target.of(home)), "/api/status/jobs", "jobs", facts), limit))
    if not rows and not as_json:
        print_text(none_matches({"workflow": workflow, "status": status}))
        return
    show(rows, row_table("Jobs", JOB_COLUMNS, rows), as_json=as_json)


def events(
    job: Annotated[str, typer.Argument(help="A job id, or the id of the request it works for.")],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show every transition of a job in order."""
    target = Target.of(home)
    path = f"/api/status/job/{_job_id(target, job)}/events"
    rows = list(pages(_asked(target), path, "events", {"limit": MOST_ROWS}))
    show(rows, row_table(f"Events of {job}", EVENT_COLUMNS, [_line(row) for row in rows]), as_json=as_json)


def audit(
    asset: Annotated[str | None, typer.Option(help="Only about this asset.")] = None,
    version: Annotated[int | None, typer.Option(min=0, help="Only about this version of it.")] = None,
    platform: Annotated[str | None, typer.Option(help="Only about this platform.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only by this subject.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, for example approved.")] = None,
    request: Annotated[str | None, typer.Option(help="Only about this request.")] = None,
    since: Annotated[str | None, typer.Option(help="From this time on, e.g. 2026-01-31T00:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Say who did what, when, why, from what to what; the newest first."""
    query = {
        "asset_id": asset, "version_ordinal": version, "platform_id": platform, "actor": actor, "action": action,
        "request_id": request, "since": since, "until": until, "limit": limit,
    }  # fmt: skip
    path = "/api/admin/audit?" + query_of(query)
    rows = _rows(Target.of(home), path, "entries")
    show(rows, row_table("Audit", AUDIT_COLUMNS, [_act(row) for row in rows]), as_json=as_json)


def workflows(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """List the workflows that a running platform has, and on stderr the files that are broken."""
    answer: Json = _asked(Target.of(home))(WORKFLOWS)
    show(answer, row_table("Workflows", WORKFLOW_COLUMNS, answer["workflows"]), as_json=as_json)
    for one in answer["broken"]:
        print_warning(f"{one['file']} is broken: {one['error']}")


def limits(
    key: Annotated[str | None, typer.Argument(help="A key as the list shows it.")] = None,
    limit: Annotated[int | None, typer.Argument(min=0, help="How many may hold it at a time from now on.")] = None,
    unset: Annotated[bool, typer.Option(help="Leave the limit of the key to its workflows again.")] = False,
    reason: Annotated[str | None, typer.Option(help="Kept with the change in the audit.")] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the keys of slots, show who holds one and who waits for it, or change its limit."""
    changes = limit is not None or unset
    if (key is None and changes) or (limit is not None and unset):
        raise typer.BadParameter("give a key with a limit, a key with --unset, a key alone, or neither")
    if reason is not None and not changes:
        raise typer.BadParameter("--reason belongs to a change; give a key with a limit, or with --unset")
    target = Target.of(home)
    if key is not None and not changes:
        answer = _asked(target)(_limit_path(key))
        show(answer, _slots_of(answer), as_json=as_json)
        return
    if key is None:
        rows = _rows(target, LIMITS, "limits")
    else:
        said = {name: value for name, value in {"limit": limit, "reason": reason}.items() if value is not None}
        rows = [asyncio.run(_change_limit(target, key, "DELETE" if unset else "PUT", said))["limit"]]
    show(rows, row_table("Limits", LIMIT_COLUMNS, rows), as_json=as_json)
    if limit is not None and rows[0].get("asked") is None and not as_json:
        print_text(UNASKED)


def _limit_path(key: str) -> str:
    """Return the address of a key: in a query, where no `..`, `//` or `%` of it means another one."""
    return f"{LIMITS}/by-key?key={quote(key, safe='')}"


async def _change_limit(target: Target, key: str, method: str, body: Json) -> Any:
    async with target.client("operator") as client:
        return await client.call(method, target.urls.gateway + _limit_path(key), body)


def _slots_of(answer: Json) -> Group:
    """Return a key as tables: its limit, and those who hold and wait where there are any."""
    limit, holders, line = answer["limit"], answer["holders"], answer["line"]
    held = f"Held by, the oldest first{_of(holders, limit['held'])}"
    waiting = f"Waiting, the next first{_of(line, limit['waiting'])}"
    tables = [row_table("Limit", LIMIT_COLUMNS, [limit])]
    tables += [row_table(held, SLOT_COLUMNS, holders)] if holders else []
    tables += [row_table(waiting, SLOT_COLUMNS[:-1], line)] if line else []
    return Group(*tables)


def _of(rows: list[Json], count: int) -> str:
    """Return which part of all is shown, where it is not all."""
    return f": {len(rows)} of {count}" if count > len(rows) else ""


def _act(row: Json) -> Json:
    """Return an audit row as one line: what changed as name: from → to."""
    before, after = row.get("before") or {}, row.get("after") or {}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changes = (f"{name}: {_told(before.get(name))} → {_told(after.get(name))}" for name in names)
    version = row.get("version_ordinal")
    about = row.get("asset_id") or row.get("platform_id") or after.get("switch") or after.get("slot_key")
    return {
        "time": str(row["created_at"])[:19].replace("T", " "),
        "what": f"{about}{'' if version is None else f' v{version}'}",
        "action": row["action"],
        "who": f"{row['actor']} ({row['actor_role']})",
        "change": "; ".join(changes),
        "why": row.get("reason"),
    }


def _told(value: Any) -> Any:
    return "–" if value is None else value


def _line(event: Json) -> Json:
    """Return an event as one line for people: the time of day is enough, and data as name=value."""
    data = event.get("event_data") or {}
    return {
        "time": str(event.get("created_at")).partition("T")[2][:12],
        "node": event.get("node_id"),
        "event": event.get("event_type"),
        "status": event.get("event_status"),
        "detail": " ".join(f"{name}={words_of(value)}" for name, value in data.items()),
    }


def _job_id(target: Target, text: str) -> str:
    """Return the newest job of a request id; anything else is taken as a job id."""
    found = _rows(target, f"/api/status/lookup?{query_of({'request_id': text})}", "jobs")
    return str(found[0]["job_id"]) if found else text


def _asked(target: Target) -> Callable[[str], Json]:
    """Return what answers a path with the operator's credential."""
    return lambda path: asyncio.run(_get(target, path))


def _rows(target: Target, path: str, name: str) -> list[Json]:
    answer = _asked(target)(path)
    rows: list[Json] = answer[name] if isinstance(answer, dict) else answer
    return rows


async def _get(target: Target, path: str) -> Any:
    async with target.client("operator") as client:
        return await client.call("GET", target.urls.gateway + path)
