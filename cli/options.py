"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path, typer.Option("--home", envvar="GEODAG_HOME", help="Folder of the local stack.", show_default=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
DEFAULT_HOME = Path(".geodag")
