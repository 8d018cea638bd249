"""`geodag status`, `approve`, `reject` and `stac`: what becomes of a request and of a version."""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from cli.commands.submit import parse_refs
from cli.errors import error_table
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, print_json, print_table, row_table, show, styled
from cli.target import Target

Json = dict[str, Any]
VERSION_COLUMNS = ("version_ordinal", "version_label", "revision", "title", "processing_state", "approval_state")
PAST_COLUMNS = ("decided_at", "revision", "decision", "role", "decided_by", "reason")
ASSET_COLUMNS = ("asset_id", "platform_refs", "data_type", "clearance_state", "version_ordinals", "created_at")
AssetArgument = Annotated[str, typer.Argument(help="The asset's id.")]
VersionArgument = Annotated[int, typer.Argument(min=0, help="The version's ordinal.")]


class ClearanceLevel(StrEnum):
    """Who may see an approved asset."""

    PUBLIC = "public"
    OUO = "ouo"


def status(
    request_id: Annotated[str, typer.Argument(help="What `geodag submit` printed.")],
    platform: Annotated[str, typer.Option(help="The platform that submitted.")] = "ddh",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show where a request stands, with its errors, warnings and next actions."""
    target = Target.of(home)
    answer = call(target, f"submitter-{platform}", "GET", f"/api/platform/status/{request_id}")
    if as_json:
        print_json(answer)
        return
    rows = {key: value for key, value in answer.items() if key != "errors" and value not in (None, [], {})}
    for key in ("state", "review"):
        if key in rows:
            rows[key] = styled(rows[key])
    print_table(key_value_table("Request", rows))
    for error in answer.get("errors") or []:
        print_table(error_table("Error", error))


def approve(
    asset_id: AssetArgument,
    version: VersionArgument,
    clearance: Annotated[ClearanceLevel | None, typer.Option(help="Needed while the asset is uncleared.")] = None,
    reason: Annotated[str | None, typer.Option(help="Kept in the audit.")] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Approve a processed version as the reviewer: from now on its doors are open."""
    body = {"clearance_level": clearance.value if clearance else None, "reason": reason}
    _decide(home, asset_id, version, "approve", {k: v for k, v in body.items() if v is not None}, as_json)


def reject(
    asset_id: AssetArgument,
    version: VersionArgument,
    reason: Annotated[str, typer.Option(help="What the submitter has to mend.")],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Reject a version as the reviewer, with a reason."""
    _decide(home, asset_id, version, "reject", {"reason": reason}, as_json)


def versions(
    asset_id: AssetArgument,
    platform: Annotated[str, typer.Option(help="The platform that owns the asset.")] = "ddh",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the versions of an asset."""
    answer: Any = call(Target.of(home), f"submitter-{platform}", "GET", f"/api/assets/{asset_id}/versions")
    rows: list[Json] = answer["versions"] if isinstance(answer, dict) else answer
    show(rows, row_table(f"Versions of {asset_id}", VERSION_COLUMNS, rows), as_json=as_json)


def version(
    asset_id: AssetArgument,
    ordinal: VersionArgument,
    subject: Annotated[str, typer.Option("--as", help="Whose key: reviewer, admin, submitter-ddh, …")] = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show a version: its states, its findings, and what was decided about each revision."""
    answer = call(Target.of(home), subject, "GET", f"/api/assets/{asset_id}/versions/{ordinal}")
    if as_json:
        print_json(answer)
        return
    facts = {k: v for k, v in answer.items() if k not in ("report", "decisions") and v not in (None, [], {})}
    print_table(key_value_table(f"Version {ordinal} of {asset_id}", facts))
    print_table(row_table("Decisions", PAST_COLUMNS, answer["decisions"]))


def assets(
    platform: Annotated[str, typer.Option(help="The platform whose assets are listed.")] = "ddh",
    ref: Annotated[list[str] | None, typer.Option(help="NAME=VALUE: only with this ref; any number of them.")] = None,
    published: Annotated[bool, typer.Option("--published", help="Only with an approved, cleared version.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List a platform's assets, the newest first."""
    refs = {f"ref.{name}": value for name, value in parse_refs(ref or []).items()}
    query = {"platform_id": platform, "limit": limit, **refs} | ({"published": "true"} if published else {})
    answer: Any = call(Target.of(home), f"submitter-{platform}", "GET", f"/api/assets?{urlencode(query)}")
    show(answer["assets"], row_table("Assets", ASSET_COLUMNS, answer["assets"]), as_json=as_json)


def stac(
    asset_id: AssetArgument,
    version: Annotated[str, typer.Option(help="latest, or an ordinal.")] = "latest",
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Print the STAC item of a version, as the reviewer may see it."""
    target = Target.of(home)
    url = f"{target.urls.serving}/stac/{asset_id}?version={version}"
    print_json(asyncio.run(_request(target, "reviewer", "GET", url)))


def _decide(home: Path, asset_id: str, version: int, decision: str, body: Json, as_json: bool) -> None:
    path = f"/api/assets/{asset_id}/versions/{version}/{decision}"
    answer = call(Target.of(home), "reviewer", "POST", path, body)
    rows = {key: value for key, value in answer.items() if value is not None}
    show(answer, key_value_table(f"{decision.capitalize()} recorded", rows), as_json=as_json)


def call(
    target: Target,
    subject: str,
    method: str,
    path: str,
    body: Json | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Json:
    """Return the gateway's answer to one call in the name of a subject of the local key file."""
    answer: Json = asyncio.run(_request(target, subject, method, target.urls.gateway + path, body, headers))
    return answer


async def _request(
    target: Target,
    subject: str,
    method: str,
    url: str,
    body: Json | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    async with target.client(subject) as client:
        return await client.call(method, url, body, headers=headers)
