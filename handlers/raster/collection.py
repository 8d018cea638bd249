"""`raster.check_collection` and `raster.process_file`: several files of one kind become one version.

Files are alike when bands, type of values, nodata, CRS, size of pixels and type of raster are. Each stays a file of
its own, exactly as if it had come alone; together they lie in one grid, like tiles, from which maps are drawn.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from core.errors import DataError
from core.handlers_catalog import CreateCogParams
from core.tile_params import CheckCollectionParams, ProcessFileParams
from handlers.context import Outcome, ProcessContext
from handlers.raster import gdal, tallies
from handlers.raster.cog_facts import nodata_of
from handlers.raster.create_cog import create_cog
from handlers.raster.facts import Orientation, RasterFacts
from handlers.raster.findings import ACCEPT, REJECT, Findings
from handlers.raster.grid import Grid, Tile, reduction_of
from handlers.raster.limits import LIMITS
from handlers.raster.plan import final_transform
from handlers.raster.profiles import profile_of
from handlers.raster.statistics import tallies as tallies_of
from handlers.raster.tiling import COARSE, TALLIES, reduced, write_coarse

Json = dict[str, Any]
ALIKE: Final = ("bands", "dtype", "nodata", "crs", "raster_type")
"""Fields that files share, beside the size of pixels."""


@dataclass(slots=True)
class _File:
    """One file and what is wrong with it."""

    name: str
    source: str
    found: Mapping[str, Any] | None
    """Output of raster.validate; None when that refused the file."""
    errors: list[Json]

    @property
    def facts(self) -> RasterFacts:
        assert self.found is not None
        return RasterFacts.of(self.found["raster"])

    def verdict(self) -> Json:
        """Return what is said of the file."""
        report = {} if self.found is None else self.found["report"]
        said = REJECT if self.errors else report.get("verdict", ACCEPT)
        return {"file": self.name, "verdict": said, "errors": self.errors, "findings": report.get("findings", [])}


def check_collection(ctx: ProcessContext, params: CheckCollectionParams) -> Outcome:
    """Return the files that are alike with their places in one grid, and a verdict on every file.

    Raises:
        Rejected: more files are refused, or unlike the others, than are tolerated; each error names its file.
    """
    findings = Findings()
    files = _files(params)
    good = [file for file in files if file.found is not None]
    if good:
        _compare(good, params.resolution_tolerance)
    bad = [file for file in files if file.errors]
    alike = [file for file in files if not file.errors]
    if not alike or len(bad) > params.tolerate_files:
        _refuse(files, bad, params.tolerate_files, findings)
    for file in bad:
        message = f"{file.name} was left out: {file.errors[0]['message']}"
        findings.warn("FILE_LEFT_OUT", message, field=file.errors[0].get("field"))
    grid, tiles = _grid([file.facts for file in alike], findings)
    findings.raise_if_rejected()
    listed = [
        {
            "name": file.name,
            "source": file.source,
            "content_hash": (file.found or {})["content_hash"],
            "raster": (file.found or {})["raster"],
            "tile": tile.model_dump(mode="json"),
        }
        for file, tile in zip(alike, tiles, strict=True)
    ]
    notes = [note | {"message": f"{one.name}: {note['message']}"} for one in alike for note in one.facts.findings]
    own = [finding.model_dump(mode="json", by_alias=True) for finding in findings.findings]
    output = {
        "files": listed,
        "grid": grid.model_dump(mode="json"),
        "verdicts": [file.verdict() for file in files],
        "findings": [*notes, *own],
    }
    return Outcome(output, findings=tuple(findings.findings))


def process_file(ctx: ProcessContext, params: ProcessFileParams) -> Outcome:
    """Make the COG of one file of a collection, its share of the overview, and what its pixels count."""
    grid, tile = Grid.of(params.grid), Tile.of(params.file["tile"])
    facts = RasterFacts.of(params.file["raster"])
    made = create_cog(
        ctx,
        CreateCogParams(
            source=params.source,
            raster=params.file["raster"],
            options=params.options,
            output_prefix=params.output_prefix,
        ),
    )
    assert isinstance(made.output, dict)
    cog = ctx.out_dir / made.files["blob_path"]
    profile = profile_of(facts.raster_type, params.options.compression)
    copy = ctx.scratch / "copy.tif"
    with gdal.environment():
        with gdal.open_geotiff(cog) as src:
            tallies.save(ctx.out_dir / TALLIES, tallies_of(src, nodata_of(src), lambda _done, _all: None))
        with reduced(cog, copy, grid.reduction, profile) as coarse:
            write_coarse(coarse, ctx.out_dir / COARSE, grid, tile)
    output = {
        "tile": tile.model_dump(mode="json"),
        "sha256": made.output["sha256"],
        "size_bytes": made.output["size_bytes"],
        "title": params.file["name"],
        "transform": made.output["raster"]["transform"],
    }
    return Outcome(output, {**made.files, "coarse_path": COARSE, "tallies_path": TALLIES}, made.findings)


def _files(params: CheckCollectionParams) -> list[_File]:
    """Return the files in their order, with what validation said of each."""
    failed = {one["index"]: one["error"] for one in params.checked["failures"]}
    outputs = iter(params.checked["results"])
    files = []
    for index, source in enumerate(params.sources):
        name = PurePosixPath(source).name
        if index in failed:
            error = {key: failed[index].get(key) for key in ("code", "field", "message", "value", "remediation")}
            files.append(_File(name, source, None, [error]))
        else:
            files.append(_File(name, source, next(outputs), []))
    return files


def _compare(files: Sequence[_File], tolerance: float) -> None:
    """Note at each file how it differs from most of them."""
    kinds = [_kind(file.facts) for file in files]
    common = Counter(kinds).most_common(1)[0][0]
    model = files[kinds.index(common)]
    size = _pixel(model.facts)
    for file, kind in zip(files, kinds, strict=True):
        for name, ours, theirs in zip(ALIKE, kind, common, strict=True):
            if ours != theirs:
                file.errors.append(_unlike(file, model, name, ours, theirs))
        if file.facts.orientation is Orientation.ROTATED:
            file.errors.append(_unlike(file, model, "georeferencing", "rotated, or placed by GCPs", "north-up"))
        elif any(abs(a - b) > tolerance * b for a, b in zip(_pixel(file.facts), size, strict=True)):
            file.errors.append(_unlike(file, model, "resolution", list(_pixel(file.facts)), list(size)))


def _kind(facts: RasterFacts) -> tuple[str, ...]:
    """Return what stands behind `ALIKE`, as text."""
    crs = facts.crs_code or facts.crs_wkt
    return (str(facts.count), facts.dtype, str(facts.nodata), crs, str(facts.raster_type))


def _pixel(facts: RasterFacts) -> tuple[float, float]:
    transform = final_transform(facts)
    return abs(transform.a), abs(transform.e)


def _unlike(file: _File, model: _File, field: str, ours: Any, theirs: Any) -> Json:
    message = f"{file.name}: {field} is {ours}, that of {model.name} and most others is {theirs}"
    return {"code": "COLLECTION_MISMATCH", "field": field, "message": message, "value": ours, "remediation": None}


def _refuse(files: Sequence[_File], bad: Sequence[_File], tolerated: int, findings: Findings) -> None:
    """Record every error of every file.

    Raises:
        Rejected: always.
    """
    findings.add_facts({"files": [file.verdict() for file in files], "tolerated": tolerated})
    for file in bad:
        for error in file.errors:
            if error["code"] == "COLLECTION_MISMATCH":
                findings.reject(
                    "COLLECTION_MISMATCH", error["field"], error["message"], value=error["value"],
                    remediation="Send files of one kind, or each kind by itself.",
                )  # fmt: skip
            else:
                findings.errors.append(_of_file(file, error).detail)
    findings.raise_if_rejected()


def _of_file(file: _File, error: Json) -> DataError:
    said = f"{file.name}: {error['message']}"
    return DataError(said, code=error["code"], field=error["field"], remediation=error["remediation"])


def _grid(facts: Sequence[RasterFacts], findings: Findings) -> tuple[Grid, list[Tile]]:
    """Return the grid of the first file, grown over all, and the place of each in it, to the nearest pixel."""
    transforms = [final_transform(one) for one in facts]
    a, e = transforms[0].a, transforms[0].e
    west, north = min(one.c for one in transforms), max(one.f for one in transforms)
    places = [(round((one.c - west) / a), round((one.f - north) / e)) for one in transforms]
    width = max(left + one.width for (left, _), one in zip(places, facts, strict=True))
    height = max(top + one.height for (_, top), one in zip(places, facts, strict=True))
    if max(width, height) > LIMITS.side_pixels:
        findings.reject(
            "COLLECTION_MISMATCH", "extent", f"together the files span {width} x {height} pixels",
            remediation="Send files that lie together.",
        )  # fmt: skip
    grid = Grid(
        crs_wkt=facts[0].crs_wkt,
        transform=(a, 0.0, west, 0.0, e, north),
        width=width,
        height=height,
        tile_pixels=max(max(one.width, one.height) for one in facts),
        reduction=reduction_of(max(width, height)),
        files=len(facts),
    )
    tiles = [
        Tile(row=0, column=number, window=(left, top, one.width, one.height))
        for number, ((left, top), one) in enumerate(zip(places, facts, strict=True))
    ]
    return grid, tiles
