"""`geodag reviews`, `decide`, `comment` and what takes versions and assets down or brings them back."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from cli.commands.review import AssetArgument, ClearanceLevel, VersionArgument, call
from cli.commands.submit import WrongCommandLine
from cli.errors import CliError, ExitCode
from cli.operator import query_of
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, row_table, show
from cli.target import Target

Json = dict[str, Any]
REVIEW_COLUMNS = (
    "asset_id", "version_ordinal", "version_label", "revision", "platform_id", "title", "submitted_by", "age",
    "overdue", "verdict", "finding_count", "comment_count", "before",
)  # fmt: skip
COMMENT_COLUMNS = ("created_at", "revision", "author_role", "author", "text")
DECISION_COLUMNS = ("asset_id", "version_ordinal", "result", "detail")

AsOption = Annotated[str, typer.Option("--as", help="Whose key of the local stack: reviewer, admin, submitter-ddh, …")]
ReasonOption = Annotated[str, typer.Option(help="Kept in the audit.")]
OptionalReason = Annotated[str | None, typer.Option(help="Kept in the audit.")]


class SomeRefused(CliError):
    """Not every one of many decisions was taken."""

    exit_code = ExitCode.REFUSED


class DecisionKind(StrEnum):
    """What may be decided about many versions."""

    APPROVE = "approve"
    REJECT = "reject"
    REVOKE = "revoke"


class Level(StrEnum):
    """Clearance of an asset."""

    UNCLEARED = "uncleared"
    OUO = "ouo"
    PUBLIC = "public"


class ExposureMode(StrEnum):
    """Which approved versions have live URLs."""

    LATEST_ONLY = "latest_only"
    ALL_VERSIONS = "all_versions"


def reviews(
    state: Annotated[str, typer.Option(help="pending_review, approved, rejected or revoked.")] = "pending_review",
    platform: Annotated[str | None, typer.Option(help="Only of this platform.")] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="Only what waits too long.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List what waits for a review, the oldest first."""
    query = {"state": state, "platform_id": platform, "overdue": "true" if overdue else None, "limit": limit}
    path = "/api/assets/reviews?" + query_of(query)
    answer = call(Target.of(home), "reviewer", "GET", path)
    rows = [
        item | {"age": _age(item["age_seconds"]), "before": _last_decision(item["decisions"])}
        for item in answer["reviews"]
    ]
    show(answer, row_table("Reviews", REVIEW_COLUMNS, rows), as_json=as_json)


def decide(
    decision: Annotated[DecisionKind, typer.Argument()],
    versions: Annotated[list[str], typer.Argument(help="ASSET_ID:ORDINAL, up to 100 of them.")],
    clearance: Annotated[ClearanceLevel | None, typer.Option(help="For approvals of uncleared assets.")] = None,
    reason: OptionalReason = None,
    subject: AsOption = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Decide about many versions; each is taken or refused on its own."""
    said = {"decision": decision.value, "clearance_level": clearance.value if clearance else None, "reason": reason}
    said = {key: value for key, value in said.items() if value is not None}
    body: Json = {"decisions": [_address(version) | said for version in versions]}
    answer = call(Target.of(home), subject, "POST", "/api/assets/reviews/decisions", body)
    rows = [
        {
            **{key: result[key] for key in ("asset_id", "version_ordinal")},
            "result": result["error"]["code"] if result["error"] else result["answer"]["approval_state"],
            "detail": result["error"]["message"] if result["error"] else None,
        }
        for result in answer["results"]
    ]
    show(answer, row_table("Decisions", DECISION_COLUMNS, rows), as_json=as_json)
    refused = sum(1 for result in answer["results"] if result["error"])
    if refused:
        raise SomeRefused(f"{refused} of {len(rows)} decisions were refused")


def comment(
    asset_id: AssetArgument,
    version: VersionArgument,
    text: Annotated[str, typer.Argument(help="What to say.")],
    subject: AsOption = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Say something about a version, to its platform and its reviewers."""
    path = f"/api/assets/{asset_id}/versions/{version}/comments"
    answer = call(Target.of(home), subject, "POST", path, {"text": text})
    show(answer, row_table("Comment", COMMENT_COLUMNS, [answer]), as_json=as_json)


def comments(
    asset_id: AssetArgument,
    version: VersionArgument,
    subject: AsOption = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show what was said about a version."""
    path = f"/api/assets/{asset_id}/versions/{version}/comments"
    answer = call(Target.of(home), subject, "GET", path)
    show(answer, row_table("Comments", COMMENT_COLUMNS, answer["comments"]), as_json=as_json)


def revoke(
    asset_id: AssetArgument,
    version: VersionArgument,
    reason: ReasonOption,
    subject: AsOption = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Take an approval back: every door of the version is closed."""
    _order(home, subject, "POST", f"/{asset_id}/versions/{version}/revoke", {"reason": reason}, as_json)


def supersede(
    asset_id: AssetArgument,
    version: VersionArgument,
    reason: OptionalReason = None,
    subject: AsOption = "submitter-ddh",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Give an unresolved version up, so that the next one may come."""
    _order(home, subject, "POST", f"/{asset_id}/versions/{version}/supersede", {"reason": reason}, as_json)


def delete(
    asset_id: AssetArgument,
    version: Annotated[int | None, typer.Argument(min=0, help="Without it the whole asset, as the admin.")] = None,
    reason: OptionalReason = None,
    subject: Annotated[str | None, typer.Option("--as", help="Default: submitter-ddh, for an asset admin.")] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Delete a version that is not approved, or an asset; softly, an admin can restore it."""
    what = f"/{asset_id}" if version is None else f"/{asset_id}/versions/{version}"
    query = f"?{urlencode({'reason': reason})}" if reason else ""
    who = subject or ("admin" if version is None else "submitter-ddh")
    _order(home, who, "DELETE", what + query, None, as_json)


def restore(
    asset_id: AssetArgument,
    version: Annotated[int | None, typer.Argument(min=0, help="Without it the whole asset.")] = None,
    reason: OptionalReason = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Bring a deleted version or asset back, as the admin."""
    what = f"/{asset_id}" if version is None else f"/{asset_id}/versions/{version}"
    _order(home, "admin", "POST", f"{what}/restore", {"reason": reason}, as_json)


def clearance(
    asset_id: AssetArgument,
    level: Annotated[Level, typer.Argument()],
    reason: OptionalReason = None,
    subject: AsOption = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Raise the clearance of an asset, or lower it with --as admin and a reason."""
    body = {"clearance_level": level.value, "reason": reason}
    _order(home, subject, "POST", f"/{asset_id}/clearance", body, as_json)


def expose(
    asset_id: AssetArgument,
    mode: Annotated[ExposureMode, typer.Argument()],
    reason: OptionalReason = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Say which approved versions have live URLs."""
    _order(home, "reviewer", "PATCH", f"/{asset_id}", {"exposure": mode.value, "reason": reason}, as_json)


def unpublish(
    asset_id: AssetArgument,
    version: Annotated[int | None, typer.Option(min=0, help="Only this version.")] = None,
    reason: OptionalReason = None,
    really: Annotated[bool, typer.Option("--really", help="Do it; without it only tell what would happen.")] = False,
    subject: AsOption = "reviewer",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Take approved versions down; a dry run unless --really is given."""
    body = {"version_ordinal": version, "reason": reason, "dry_run": not really}
    _order(home, subject, "POST", f"/{asset_id}/unpublish", body, as_json)


def _order(home: Path, subject: str, method: str, what: str, body: Json | None, as_json: bool) -> None:
    sent = None if body is None else {key: value for key, value in body.items() if value is not None}
    answer = call(Target.of(home), subject, method, f"/api/assets{what}", sent)
    rows = {key: value for key, value in answer.items() if value is not None}
    show(answer, key_value_table("Recorded", rows), as_json=as_json)


def _address(version: str) -> Json:
    asset_id, separator, ordinal = version.rpartition(":")
    if not separator or not ordinal.isdecimal():
        raise WrongCommandLine(f"expected ASSET_ID:ORDINAL, found {version!r}")
    return {"asset_id": asset_id, "version_ordinal": int(ordinal)}


def _last_decision(decisions: list[Json]) -> str | None:
    """Return the newest decision about a version in a few words."""
    if not decisions:
        return None
    last = decisions[-1]
    return f"r{last['revision']} {last['decision']}" + (f": {last['reason']}" if last["reason"] else "")


def _age(seconds: int) -> str:
    """Return an age in its two largest units."""
    days, rest = divmod(seconds, 86_400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"
