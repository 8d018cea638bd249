"""The validation report that is stored with a version: what came, what was noticed and done, what it became."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from handlers.raster.facts import RasterFacts
from handlers.raster.findings import verdict_of

Json = dict[str, Any]

COMPARED: Final = ("width", "height", "count", "dtype", "crs_code", "transform", "bounds", "nodata")
"""Facts that a raster has before and after."""


def final_report(facts: RasterFacts, cog: Mapping[str, Any], steps: Sequence[str]) -> Json:
    """Return the report as JSON.

    Args:
        facts: what validation found.
        cog: facts of the finished COG, with the findings of all steps.
        steps: what was done, in words.
    """
    before = facts.model_dump(mode="json", exclude={"findings"})
    height, width = cog["shape"]
    after = {**cog, "height": height, "width": width}
    findings = list(cog["findings"])
    return {
        "verdict": verdict_of([], [finding["level"] for finding in findings]),
        "errors": [],
        "findings": findings,
        "type": {"detected": str(facts.raster_type), "evidence": facts.type_evidence},
        "steps": list(steps),
        "raster": before,
        "compared": [{"name": name, "before": before[name], "after": after[name]} for name in COMPARED],
        "cog": {name: after[name] for name in ("compression", "overviews")},
    }
