"""`geodag webhooks` and `platforms`: how partners are told, with what secret, and how much they may ask for."""

from typing import Annotated

import typer

from cli.commands.review import call
from cli.commands.submit import WrongCommandLine
from cli.operator import ReasonOption, operate, query_of, segment
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, row_table, show
from cli.target import Target

app = typer.Typer(
    no_args_is_help=True,
    help="How partners are told of their requests; deliveries, addresses, secrets.",
)
platforms = typer.Typer(no_args_is_help=True, help="The registry of partners' platforms, as an operator.")

DELIVERY_COLUMNS = ("delivery_id", "platform_id", "state", "attempts", "last_status", "last_error", "created_at")
PLATFORM_COLUMNS = (
    "platform_id", "display_name", "is_active", "review_days", "requests_per_minute", "request_burst",
    "max_open_requests",
)  # fmt: skip
CountOption = Annotated[int | None, typer.Option(min=1, max=1_000_000)]


@app.command("list")
def list_deliveries(
    platform: Annotated[str | None, typer.Option(help="Only to this platform.")] = None,
    state: Annotated[str | None, typer.Option(help="Only pending, delivered or expired ones.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the newest deliveries and how they went."""
    query = {"platform_id": platform, "state": state, "limit": limit}
    path = "webhooks/deliveries?" + query_of(query)
    rows = operate(home, "GET", path)["deliveries"]
    show(rows, row_table("Deliveries", DELIVERY_COLUMNS, rows), as_json=as_json)


@app.command()
def replay(
    delivery: Annotated[str, typer.Argument(help="Its id in the list.")],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Send a delivery again under its own id, so that the partner knows it from a new one."""
    answer = operate(home, "POST", f"webhooks/deliveries/{segment(delivery)}/replay", {})
    show(answer, key_value_table("Sent again", answer), as_json=as_json)


@app.command()
def rotate(
    platform: Annotated[str, typer.Argument(help="Its id.")],
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Make a platform's signing secret, as the admin: shown this once, the one before stays valid for a day."""
    said = {} if reason is None else {"reason": reason}
    answer = call(Target.of(home), "admin", "POST", f"/api/platform/webhooks/{segment(platform)}/secrets", said)
    show(answer, key_value_table("Secret", answer), as_json=as_json)


@app.command()
def address(
    platform: Annotated[str, typer.Argument(help="Its id.")],
    url: Annotated[str | None, typer.Argument(help="Where it is told by default; without it nowhere.")] = None,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Say where a platform is told when its submits name no callback, as the admin."""
    said = {"url": url} | ({} if reason is None else {"reason": reason})
    answer = call(Target.of(home), "admin", "PUT", f"/api/platform/webhooks/{segment(platform)}", said)
    show(answer, key_value_table("Address", answer), as_json=as_json)


@platforms.command("list")
def list_platforms(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """List every platform with what it may ask for."""
    rows = operate(home, "GET", "platforms")["platforms"]
    show(rows, row_table("Platforms", PLATFORM_COLUMNS, rows), as_json=as_json)


@platforms.command("set")
def change(
    platform: Annotated[str, typer.Argument(help="Its id.")],
    active: Annotated[bool | None, typer.Option("--on/--off", help="Let it submit, or not.")] = None,
    review_days: Annotated[int | None, typer.Option(min=1, max=3650, help="Until a review is overdue.")] = None,
    requests_per_minute: CountOption = None,
    request_burst: CountOption = None,
    max_open_requests: CountOption = None,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Change how much a platform may ask for; what is not named stays."""
    wanted = {
        "is_active": active, "review_days": review_days, "requests_per_minute": requests_per_minute,
        "request_burst": request_burst, "max_open_requests": max_open_requests,
    }  # fmt: skip
    if all(value is None for value in wanted.values()):
        raise WrongCommandLine("say what to change")
    answer = operate(home, "PATCH", f"platforms/{segment(platform)}", {**wanted, "reason": reason})
    show(answer, row_table("Changed", PLATFORM_COLUMNS, [answer]), as_json=as_json)
