"""`geodag db`: the schema of the local database."""

from typing import Any

import typer

from cli.errors import Unreachable
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, show
from cli.stack.cluster import Cluster
from cli.stack.credentials import ensure_credentials

app = typer.Typer(no_args_is_help=True, help="The schema of the local database.")


@app.callback()
def database() -> None:
    """Keep `deploy` a subcommand while it is the only one."""


@app.command()
def deploy(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Bring the database of the local stack to the schema of this build; nothing to do is fine."""
    cluster = Cluster(home.resolve())
    if not cluster.is_running():
        raise Unreachable(f"the database of {home} does not run; `geodag up` starts and deploys it")
    deployed = cluster.deploy(ensure_credentials(home.resolve()).passwords)
    rows: dict[str, Any] = {
        "database_created": deployed.created_database,
        "migrations": list(deployed.migrations),
        "pgstac": deployed.pgstac,
    }
    show(rows, key_value_table("Deployed", rows), as_json=as_json)
