"""The `geodag` command: the sides of the local platform, of partners, reviewers, operators and authors."""

import sys

import typer

from cli.commands import (
    database,
    dead_letters,
    job,
    looking,
    operate,
    pausing,
    report,
    retention,
    review,
    starting,
    steward,
    submit,
    up,
    webhooks,
    workflow,
)
from cli.errors import CliError, NotDone, show_error
from core.errors import GeodagError

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
app.command()(review.version)
app.command()(review.stac)
app.command()(report.report)
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
app.command()(pausing.pause)
app.command()(pausing.resume)
app.command()(pausing.pauses)
job.app.command("run")(starting.run)
job.app.command("list")(looking.list_jobs)
job.app.command("show")(looking.show_job)
job.app.command("node")(looking.show_node)
job.app.command("children")(looking.list_children)
app.add_typer(job.app, name="job")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(webhooks.platforms, name="platforms")
app.command()(operate.limits)
app.command()(retention.gc)
app.command("storage")(retention.storage_of_platforms)
app.add_typer(database.app, name="db")
workflow.app.command("list")(operate.workflows)
app.add_typer(workflow.app, name="workflow")


def main() -> None:
    """Run the command; its own errors become readable text (or JSON with --json) and an exit code."""
    try:
        app()
    except CliError as error:
        sys.exit(show_error(error, as_json="--json" in sys.argv))
    except GeodagError as error:
        sys.exit(show_error(NotDone(error), as_json="--json" in sys.argv))


if __name__ == "__main__":
    main()
