"""The `geodag` command: the sides of the local platform, of partners, reviewers, operators and authors."""

import sys

import typer

from cli.commands import database, operate, review, steward, submit, up, workflow
from cli.errors import CliError, show_error

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Turns rasters into published, versioned, access-controlled datasets.",
)
app.command()(up.up)
app.command()(up.down)
app.command()(submit.submit)
app.command()(review.status)
app.command()(review.approve)
app.command()(review.reject)
app.command()(review.assets)
app.command()(review.versions)
app.command()(review.stac)
for command in (
    steward.reviews,
    steward.decide,
    steward.comment,
    steward.comments,
    steward.revoke,
    steward.supersede,
    steward.delete,
    steward.restore,
    steward.clearance,
    steward.expose,
    steward.unpublish,
):
    app.command()(command)
app.command()(operate.jobs)
app.command()(operate.events)
app.command()(operate.audit)
app.add_typer(database.app, name="db")
app.add_typer(workflow.app, name="workflow")


def main() -> None:
    """Run the command; its own errors become readable text (or JSON with --json) and an exit code."""
    try:
        app()
    except CliError as error:
        sys.exit(show_error(error, as_json="--json" in sys.argv))


if __name__ == "__main__":
    main()
