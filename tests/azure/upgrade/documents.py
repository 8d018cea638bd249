"""Runs tasks of one build for a test of another: a task a line on stdin, what came of it a line on stdout.

    python -c "$(cat documents.py)" FOLDER     reads {"handler": …, "params": …}, answers {"output": …} or {"error": …}

Checks params and output as a worker does. Interpreter and current folder say which build it is.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import GeodagError
from core.handlers_catalog import CATALOG
from handlers.registry import IMPLEMENTATIONS, resolve
from tests.support.raster_path import RasterPath

Json = dict[str, Any]


def run(raster: RasterPath, handler: str, params: Json) -> Json:
    """Run one task and return what the next ones get of it; files are named by their local paths."""
    spec, context = CATALOG[handler], raster.context()
    outcome = resolve(IMPLEMENTATIONS[handler])(context, spec.params.model_validate_json(json.dumps(params)))
    files = {name: str(context.out_dir / file) for name, file in outcome.files.items()}
    return spec.output.model_validate(outcome.output | files).model_dump(mode="json", by_alias=True)


def main() -> None:
    """Serve until stdin ends."""
    raster = RasterPath(Path(sys.argv[1]))
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            answer = {"output": run(raster, wanted["handler"], wanted["params"])}
        except (GeodagError, ValidationError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
