"""Runs a case through the handlers of the raster path in this process."""

import json
import time
from typing import Any

from handlers.raster.findings import Rejected
from tests.support.raster_cases.case import Case
from tests.support.raster_cases.seen import Seen
from tests.support.raster_path import RasterPath

DATED = {"datetime": "2024-05-01T10:00:00Z"}


def run(raster: RasterPath, case: Case, **more: Any) -> Seen:
    """Return what the handlers make of a case; `more` are options beside those of the case."""
    options = {**DATED, **case.submit, **more}
    before, started = raster.runs, time.monotonic()
    try:
        made = raster.make(case.source, **options)
    except Rejected as refusal:
        left = [
            str(path)
            for run in range(before + 1, raster.runs + 1)
            for path in (raster.folder / f"run-{run}").rglob("*")
        ]
        error = refusal.detail.model_dump(mode="json")
        seconds = time.monotonic() - started
        return Seen(
            case, error=error, seconds=seconds, left_behind=tuple(path for path in left if not path.endswith("out"))
        )
    item = raster.register(made, title=case.source.name, **options).output["stac_item"]  # type: ignore[index,call-overload]
    findings = tuple(made.output["raster"]["findings"])
    seconds = time.monotonic() - started
    return Seen(
        case, seconds=seconds, findings=findings, cog=made.path, item=json.loads(json.dumps(item, allow_nan=False))
    )
