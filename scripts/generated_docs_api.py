"""The page of the operators' HTTP API, docs/operator-api.md, as the routers and their models say.

Which routes there are comes from `ROUTERS` and the proxy's allow-list; a route that `TOLD` does not have is an error,
so the page has every one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi.routing import APIRoute

from core.b2b_platforms import PlatformChange, PlatformList, PlatformView
from core.dag.orders import GateArguments, PriorityArguments, RerunArguments, WindowArguments
from core.model_guide import Guide, guides_of
from core.models.engine import DeadLetter
from core.proxying import ALLOWED
from orchestrator.app import ROUTERS
from orchestrator.routes.audit import AuditList
from orchestrator.routes.commands import CommandAnswer, CommandMany, CommandManyAnswer
from orchestrator.routes.dead_letters import DeadLetters, Why
from orchestrator.routes.job_batches import CreateJobs, JobsCreated
from orchestrator.routes.jobs import CreateJob, EventList, JobCreated, JobList, JobView
from orchestrator.routes.limits import Limit, LimitOfKey, Limits, SetLimit, UnsetLimit
from orchestrator.routes.nodes import ChildList, NodeList, NodeView
from orchestrator.routes.pauses import Switches, Turn, Turned
from scripts.generated_docs_handlers import table

HEAD: Final = """\
# The operators' HTTP API

What `geodag job`, `pause`, `limits`, `dead-letters`, … call. `python -m scripts.generated_docs` writes this page from
the routes and their models.

Every path here lies behind the gateway at `/api/proxy/orchestrator` and, unless a route says otherwise, needs the role
**operator**: on one machine the key of `operator` in `.geodag/credentials.json`, in Azure a token
([operations.md](operations.md#runbook)).

```bash
ask() { curl -sS -H "X-API-Key: $GEODAG_API_KEY" "$GEODAG_GATEWAY_URL/api/proxy/orchestrator$@"; echo; }
ask /api/v1/jobs?limit=5
ask /api/v1/jobs -H 'Content-Type: application/json' -d '{"workflow_id": "hello_world", "inputs": {"name": "Ada"}}'
ask /api/v1/jobs/JOB?wait=20
ask /api/v1/commands/retry -H 'Content-Type: application/json' \\
  -d '{"filter": {"workflow_id": "hello_world", "error_code": "WORKER_LOST"}, "dry_run": true}'
```

Bodies are JSON objects of at most 1 MiB (1,048,576 bytes) through the gateway. Unknown fields and query parameters, one
given twice, and values of another type are refused; nothing is coerced: in queries and paths a whole number is
digits, `-` before them at most, and a boolean is `true` or `false`. Times are RFC 3339 in UTC. Values over 64 KiB
are not in a job or node but behind `…_refs` and `…_ref`; the routes of values stream them. An answer comes within
150 s through the gateway, so `wait` less than that.

## Errors

Every refusal is a problem document (RFC 9457, `application/problem+json`): `status`, `detail` (what was found and what
was expected), a stable `code`, an `error_id`, which finds the log line, and where they are known `field`, `value` and
`remediation`.

| status | code | when |
|---|---|---|
| 401 | `UNAUTHENTICATED` | no key or token, or one that nobody knows |
| 403 | `FORBIDDEN` | it lacks the role, and the orchestrator was asked past the gateway |
| 404 | `NOT_FOUND` | no such job, node, workflow, queue, letter, key or route; and, at the gateway, \
anything that is asked with a key or token that lacks the role, for which these routes do not exist |
| 405 | `METHOD_NOT_ALLOWED` | the path is there for other methods, which `Allow` names |
| 409 | see the routes | the state does not allow it; `value` is the state that won |
| 410 | `PAYLOAD_MISSING`, `PAYLOAD_CORRUPT` | a stored value is gone or damaged |
| 413 | `PAYLOAD_TOO_LARGE` | the body is too long |
| 422 | `PARAMETER_MISSING`, `PARAMETER_INVALID` | `field` names what does not fit; the message the others |
| 422 | `WORKFLOW_INVALID` | the definition of the job cannot be read any more |
| 500 | `INTERNAL` | our fault; quote the `error_id` |
| 503 | `DATABASE_UNAVAILABLE`, `STORAGE_UNAVAILABLE`, `IDENTITY_UNAVAILABLE`, `ORCHESTRATOR_UNAVAILABLE` \
| try again after `Retry-After`; an order may have been obeyed |
"""

REOPEN: Final = "`CHILD_JOB`: order it for the parent; and what protects approved versions"
_ORDERS_HEAD: Final = (
    "For one job: `POST /api/v1/jobs/{job_id}/KIND`, for one of its nodes `POST …/nodes/{node_id}/KIND`. The body may",
    "be left out; it has `reason` (at most 1,000 characters), `dry_run` (true: say `would_apply`, change nothing) and",
    "the arguments of the order, beside each other. Of many jobs these stand in `args`. The answer is 202 `pending`",
    "when somebody holds the job; it obeys soon, and what it refuses then is an event of the job: `command_refused`",
    "with `kind`, `code`, `message`, `actor` and `reason`.",
)
ORDERS: Final[Mapping[str, tuple[str, Any, str]]] = {
    "cancel": ("Cancel a job at once, with its child jobs; workers stop what they are at.", None, "`JOB_FINAL`"),
    "pause": ("Let a job start nothing new; what runs finishes.", None, "`JOB_FINAL`"),
    "resume": ("Let a paused job go on; one that was not paused stays as it is.", None, "`JOB_FINAL`"),
    "priority": ("Change how urgent a job is.", PriorityArguments, "`JOB_FINAL`"),
    "retry": (
        "Start every failed and cancelled node anew, with all that follows; a fan-out runs all its items again.",
        None,
        f"`NOTHING_FAILED`; {REOPEN}",
    ),
    "rerun": (
        "Run a job again from a node on, or from its start.",
        RerunArguments,
        f"`NODE_NOT_STARTED`, `JOB_CHANGED`, `JOB_NOT_FAILED`, {REOPEN}",
    ),
    "skip": ("Pass a node over; what follows it goes on.", None, "`JOB_FINAL`, `NODE_FINAL`"),
    "gate": (
        "Decide a gate; the first decision wins.",
        GateArguments,
        "`GATE_NOT_OPEN`, `GATE_DECIDED`, `GATE_EXPIRED`, `NODE_FINAL`, `JOB_FINAL`",
    ),
    "window": (
        "Change the window of a fan-out, until a rerun makes it anew.",
        WindowArguments,
        "`NODE_NOT_STARTED`, `NODE_FINAL`, `JOB_FINAL`",
    ),
}
"""Kind -> what it does, its arguments, its conflicts."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the code of a route does not say by itself."""

    body: Any = None
    answer: Any = None
    """A model, or words."""
    errors: str = ""
    summary: str = ""
    note: str = ""
    role: str = "operator"


_JOBS: Final = "/api/v1/jobs"
_PAUSES: Final = "/api/v1/settings/pauses"
_LIMITS: Final = "/api/v1/settings/limits"
_BY_KEY: Final = (
    "As with the key in the path; for one that no path can hold: with `..`, `//`, `%`, `?`, `#` or a backslash in it."
)
_LETTERS: Final = "/api/v1/dead-letters"
_VALUE: Final = "the value as JSON, streamed when it is large"
_DAMAGED: Final = "404 there is none; 410 `PAYLOAD_MISSING`, `PAYLOAD_CORRUPT`"
TOLD: Final[Mapping[tuple[str, str], Told]] = {
    ("POST", _JOBS): Told(
        CreateJob,
        JobCreated,
        "404 no such workflow or version, or its file is broken; 409 `IDEMPOTENCY_CONFLICT`; "
        "422 inputs that do not fit",
        note="202; 200 with `existing: true` when the job was there: the workflow deduplicates, or the key was used. "
        "Under an `Idempotency-Key` a call whose answer got lost, or was 503, may be sent again: the same body of the "
        "same caller gets the job as it is by now, another body 409. A key counts as long as its job is kept "
        "([retention](operations.md#retention)). It is refused (422) with `rerun` and for a workflow that "
        "deduplicates, where equal inputs are one job anyway.",
    ),
    ("POST", f"{_JOBS}/batch"): Told(
        CreateJobs,
        JobsCreated,
        note="Each item of `jobs` is a `CreateJob`. Up to 32 MiB where no gateway stands before. There is no "
        "`Idempotency-Key` for all of them (422).",
    ),
    ("GET", _JOBS): Told(answer=JobList, errors="404 no such workflow"),
    ("GET", f"{_JOBS}/{{job_id}}"): Told(answer=JobView),
    ("GET", f"{_JOBS}/{{job_id}}/nodes"): Told(answer=NodeList),
    ("GET", f"{_JOBS}/{{job_id}}/nodes/{{node_id}}"): Told(answer=NodeView),
    ("GET", f"{_JOBS}/{{job_id}}/nodes/{{node_id}}/children"): Told(
        answer=ChildList,
        note="The error of a fan-out, and of the job that failed of it, has no `attempts`: each child has its own.",
    ),
    ("GET", f"{_JOBS}/{{job_id}}/events"): Told(answer=EventList),
    ("GET", f"{_JOBS}/{{job_id}}/outputs"): Told(answer=_VALUE, errors=_DAMAGED),
    ("GET", f"{_JOBS}/{{job_id}}/inputs/{{name}}"): Told(answer=_VALUE, errors=_DAMAGED),
    ("GET", f"{_JOBS}/{{job_id}}/nodes/{{node_id}}/output"): Told(answer=_VALUE, errors=_DAMAGED),
    ("GET", f"{_JOBS}/{{job_id}}/nodes/{{node_id}}/input"): Told(answer=_VALUE, errors=_DAMAGED),
    ("POST", "/api/v1/commands/{kind}"): Told(
        CommandMany,
        CommandManyAnswer,
        "404 `kind` is none of cancel, pause, resume, priority, retry, rerun, or `filter.workflow_id` no workflow; "
        "422 a filter that says nothing",
        note="All that the filter says must hold. Without `status` it means jobs that have not ended, for retry those "
        "that failed or were cancelled, for rerun those that ended, with `only_unsuccessful` as for retry. Neither "
        "means child jobs, which start anew through their parents. `args` has the arguments of the order. "
        "`outcome` is applied, pending (a job that somebody held for longer than a second), refused (with `code`) or "
        "failed; in a dry run would_apply or refused.",
    ),
    ("GET", _PAUSES): Told(answer=Switches),
    ("PUT", f"{_PAUSES}/{{switch}}"): Told(Turn, Turned, "404 no such workflow or queue; 422 it is no switch"),
    ("DELETE", f"{_PAUSES}/{{switch}}"): Told(
        Turn,
        Turned,
        "404 no such workflow or queue; 422 it is no switch",
        note="Lifting what is not set is no error: `changed` is false.",
    ),
    ("GET", _LIMITS): Told(answer=Limits),
    ("GET", f"{_LIMITS}/{{key}}"): Told(
        answer=LimitOfKey, errors="404 nobody has asked for a slot of the key yet, and nobody has set it"
    ),
    ("GET", f"{_LIMITS}/by-key"): Told(answer=LimitOfKey, note=_BY_KEY),
    ("PUT", f"{_LIMITS}/by-key"): Told(SetLimit, Limit, note=_BY_KEY),
    ("DELETE", f"{_LIMITS}/by-key"): Told(UnsetLimit, Limit, note=_BY_KEY),
    ("PUT", f"{_LIMITS}/{{key}}"): Told(
        SetLimit,
        Limit,
        "422 a number that cannot be, or a key that no job could ask for",
        note="A key is `global:TEXT` or `WORKFLOW:TEXT`, as `concurrency.key` of a workflow makes it. It may be set "
        "before anybody asks for a slot of it; `asked` is null until then. A change is in the audit.",
    ),
    ("DELETE", f"{_LIMITS}/{{key}}"): Told(
        UnsetLimit, Limit, "404 nobody has asked for a slot of the key yet", note="A change is in the audit."
    ),
    ("GET", _LETTERS): Told(answer=DeadLetters),
    ("POST", f"{_LETTERS}/{{dead_letter_id}}/replay"): Told(Why, DeadLetter, "409 `DEAD_LETTER_RESOLVED`"),
    ("POST", f"{_LETTERS}/{{dead_letter_id}}/discard"): Told(Why, DeadLetter, "409 `DEAD_LETTER_RESOLVED`"),
    ("GET", "/api/v1/scale/{queue}"): Told(
        answer="`queue`, `unclaimed`, `leased`, `tasks` (both together), `held` (by pauses), `oldest_unclaimed_seconds`"
    ),
    ("GET", "/api/v1/workflows"): Told(
        answer="`workflows` (workflow_id, version, name, description, definition_hash, reversed_by), "
        "`broken` (file, error)"
    ),
    ("GET", "/api/v1/workflows/{workflow_id}"): Told(
        answer="the same of one, and its `definition` in canonical form", errors="404 says whether its file is broken"
    ),
    ("GET", "/api/v1/operations"): Told(answer="`operations` (JSON of their files), `broken` (file, error)"),
    ("GET", "/api/v1/stats"): Told(
        answer="`hours`, and counts by name and state: `jobs`, `tasks`, `requests`, `reviews`"
    ),
    ("GET", "/api/v1/storage"): Told(answer="`platforms`, with versions and bytes by what became of them"),
    ("GET", "/api/v1/events"): Told(answer="`events` as of one job, `next_after`"),
    ("GET", "/api/v1/lookup"): Told(answer="`jobs`, each with the request, asset and version that it works for"),
    ("GET", "/api/v1/audit"): Told(answer=AuditList),
    ("GET", "/api/v1/platforms"): Told(answer=PlatformList, role="operator or admin"),
    ("PATCH", "/api/v1/platforms/{platform_id}"): Told(PlatformChange, PlatformView, role="operator or admin"),
    ("GET", "/api/v1/webhooks/deliveries"): Told(answer="`deliveries`, the newest first", role="operator or admin"),
    ("POST", "/api/v1/webhooks/deliveries/{delivery_id}/replay"): Told(
        answer="202 and the delivery", role="operator or admin"
    ),
    ("GET", "/livez"): Told(answer="`status`", role="none behind the gateway"),
    ("GET", "/readyz"): Told(
        answer="`status`: ok, degraded (a workflow file is broken), or 503 and why not", role="none behind the gateway"
    ),
    ("GET", "/health"): Told(answer="`status`, `broken_workflows`, orchestrators, workers, queue, pool, …"),
}
SECTIONS: Final[Mapping[str, str]] = {
    "jobs": "Jobs",
    "commands": "Orders",
    "pauses": "Pause switches",
    "limits": "Limits of slots",
    "dead letters": "Dead letters",
    "workflows": "Workflows",
    "scale": "Scale",
    "insight": "Insight",
    "audit": "Audit",
    "platforms": "Platforms",
    "webhooks": "Webhooks",
    "health": "Health",
}


def routes() -> Iterator[tuple[str, str, APIRoute]]:
    """Yield method, path and route of all that operators reach through the gateway."""
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield from (
                    (one, _path(route), route) for one in sorted(route.methods or ()) if _is_reached(one, route)
                )


def _path(route: APIRoute) -> str:
    return route.path.replace(":path}", "}")


def _is_reached(method: str, route: APIRoute) -> bool:
    return any(
        door.method == method and f"{route.path}/".startswith(f"/{door.prefix}/") for door in ALLOWED["orchestrator"]
    )


def operator_page() -> str:
    """Return the whole page."""
    by_tag: dict[str, list[str]] = {}
    objects: dict[str, Guide] = {}
    for method, path, route in routes():
        by_tag.setdefault(str(route.tags[0]), []).extend(["", *_section(method, path, route, objects)])
    if unknown := by_tag.keys() - SECTIONS.keys():
        raise ValueError(f"routes under {', '.join(sorted(unknown))} have no section")
    lines = [HEAD]
    for tag, title in SECTIONS.items():
        lines += [f"## {title}", *(["", *_orders()] if tag == "commands" else []), *by_tag[tag], ""]
    lines.append("## Objects")
    for name, guide in sorted(objects.items()):
        lines += ["", f"### {name}", "", *([guide.summary, ""] if guide.summary else []), *table(guide.fields)]
    return "\n".join(lines) + "\n"


def _orders() -> list[str]:
    lines = [
        *_ORDERS_HEAD,
        "",
        "| order | does | arguments | 409 |",
        "|---|---|---|---|",
    ]
    for kind, (does, model, conflicts) in ORDERS.items():
        fields = [one for one in guides_of(model)[0].fields if one.name != "node_id"] if model is not None else []
        words = "; ".join(
            f"`{one.name}` ({one.type}{', required' if one.default == 'required' else ''})" for one in fields
        )
        lines.append(f"| `{kind}` | {does} | {words or '–'} | {conflicts} |")
    lines += ["", "| order | argument | meaning |", "|---|---|---|"]
    for kind, (_, model, _) in ORDERS.items():
        told = [one for one in guides_of(model)[0].fields if one.meaning] if model is not None else []
        lines += [f"| `{kind}` | `{one.name}` | {one.meaning} |" for one in told]
    return lines


def _section(method: str, path: str, route: APIRoute, objects: dict[str, Guide]) -> Iterator[str]:
    told = _order_told(path) if str(route.tags[0]) == "commands" and "{kind}" not in path else TOLD[method, path]
    yield from (f"### {method} {path}", "", told.summary or _first_line(route))
    if told.note:
        yield from ("", told.note)
    yield ""
    if headers := list(_named(route, "header")):
        yield f"- **Header**: {'; '.join(headers)}"
    if queries := list(_queries(route)):
        yield f"- **Query**: {'; '.join(queries)}"
    if told.body is not None:
        yield f"- **Body**: {_linked(told.body, 'validation', objects)}"
    yield f"- **Answer**: {_linked(told.answer, 'serialization', objects)}"
    if told.errors:
        yield f"- **Errors**: {told.errors}"
    if told.role != "operator":
        yield f"- **Role**: {told.role}"


def _order_told(path: str) -> Told:
    kind = path.rpartition("/")[2]
    does, _, conflicts = ORDERS[kind]
    where = "404 no such job or node; 409 " if "/nodes/" in path else "404 no such job; 409 "
    return Told("see [Orders](#orders)", CommandAnswer, where + conflicts, does)


def _first_line(route: APIRoute) -> str:
    return (route.endpoint.__doc__ or "").strip().partition("\n")[0]


def _named(route: APIRoute, place: str) -> Iterator[str]:
    for one in (route.openapi_extra or {}).get("parameters", ()):
        if one["in"] == place:
            yield f"`{one['name']}` ({one['schema']['type']}): {one['description']}"


def _queries(route: APIRoute) -> Iterator[str]:
    yield from _named(route, "query")
    for field in route.dependant.query_params:
        meaning = f": {field.field_info.description}" if field.field_info.description else ""
        default = "" if field.default is None else f", default {field.default}"
        yield f"`{field.alias}`{f' ({default[2:]})' if default else ''}{meaning}"


def _linked(model: Any, mode: Any, objects: dict[str, Guide]) -> str:
    """Return a link to an object, after noting it with all that it names; words stay words."""
    if isinstance(model, str):
        return model
    guides = guides_of(model, mode)
    objects |= {guide.name: guide for guide in guides}
    return f"[{guides[0].name}](#{guides[0].name.lower()})"
