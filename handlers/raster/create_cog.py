"""`raster.create_cog`: writes the Cloud Optimized GeoTIFF of a validated raster, checks it and measures it."""

import hashlib
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio.shutil
from pyproj import CRS
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader

from core.errors import Finding, GeodagError, ParameterInvalid
from core.handlers_catalog import CreateCogParams
from handlers.context import Outcome, ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.cog_facts import describe_cog
from handlers.raster.delivery import completed, received
from handlers.raster.facts import Orientation, RasterFacts, Validity
from handlers.raster.findings import Findings
from handlers.raster.keep import has_profile, is_strict_cog, overviews_are_fresh
from handlers.raster.options import check_options
from handlers.raster.plan import Plan, make_plan
from handlers.raster.profiles import CogProfile, profile_of
from handlers.raster.report import final_report
from handlers.raster.resample import resample
from handlers.raster.rewrite import rewrite
from handlers.raster.sniff import HEAD_BYTES
from handlers.raster.tiff import read_directories

FILE_NAME: Final = "cog.tif"


def create_cog(ctx: ProcessContext, params: CreateCogParams) -> Outcome:
    """Write `cog.tif` into the task's output folder and return its facts, digest and default rendering.

    Pixels are those of the source, bit by bit, unless the raster had to be resampled, non-finite values became
    nodata, or a lossy profile was asked for. Running it again gives the same pixels.

    Raises:
        DataError: the raster cannot be resampled or a 64-bit nodata value cannot be kept.
    """
    findings = Findings()
    options = check_options(params.options, findings)
    if findings.errors:
        raise ParameterInvalid(findings.errors[0].message, field=findings.errors[0].field)
    facts = RasterFacts.of(params.raster)
    profile = profile_of(facts.raster_type, options.compression)
    plan = make_plan(facts, options.target_crs, profile)
    target = ctx.out_dir / FILE_NAME
    source = Path(params.source)
    with source.open("rb") as file:
        head = file.read(HEAD_BYTES)
    with received(ctx, source, head, facts.member, findings) as delivered:
        path = delivered.path
        if facts.sidecars:
            path, _ = completed(ctx, delivered, read_directories(path)[(facts.page or 1) - 1], findings)
        steps = _write(ctx, path, target, facts, plan, profile, findings)
    ctx.raise_if_cancelled()
    _check(target, plan)
    with gdal.environment():
        described, render = describe_cog(ctx, target, facts, profile.compression)
    described |= {"steps": steps, "findings": [*facts.findings, *_dumped(findings.findings)]}
    report = final_report(facts, described, steps)
    output = {
        "sha256": _sha256(target),
        "size_bytes": target.stat().st_size,
        "raster": described,
        "render": render,
        "report": report,
    }
    return Outcome(output, files={"blob_path": FILE_NAME}, findings=tuple(findings.findings))


def _write(
    ctx: ProcessContext,
    source: Path,
    target: Path,
    facts: RasterFacts,
    plan: Plan,
    profile: CogProfile,
    findings: Findings,
) -> list[str]:
    """Write the COG and return what was done, step by step."""
    if not plan.rewrite and not plan.warp_to and _may_keep(ctx, source, facts, profile, findings):
        shutil.copyfile(source, target)
        findings.info("COG_KEPT", "the file already is the COG that would be made; it was copied")
        return ["copied, not recompressed"]
    steps: list[str] = []
    plain = ctx.scratch / "plain.tif"
    warped = ctx.scratch / "warped.tif"
    current, page = source, facts.page
    validity = facts.validity
    if plan.rewrite:
        environment = gdal.environment(gdal.WARP_CACHE_BYTES, sidecars=bool(facts.sidecars))
        with environment, gdal.open_geotiff(source, page) as src:
            rewrite(src, plain, facts, plan, ctx.follow("copying pixels"))
        current, page = plain, None
        validity = Validity.MASK if plan.nodata_to_mask else validity
        steps.append(f"copied pixel by pixel: {', '.join(plan.rewrite)}")
    if plan.warp_to:
        resample(ctx, current, page, warped, facts, plan, profile, validity, cache_bytes=gdal.WARP_CACHE_BYTES)
        plain.unlink(missing_ok=True)
        current, page = warped, None
        why = "to be north-up" if facts.orientation is Orientation.ROTATED else "into the target CRS"
        steps.append(f"resampled ({profile.warp.name}) {why}")
    ctx.raise_if_cancelled()
    ctx.progress(0, None, "writing the COG")
    with gdal.environment(gdal.COG_CACHE_BYTES), gdal.open_geotiff(current, page) as src:
        rasterio.shutil.copy(src, target, driver="COG", **_creation_options(src, profile))
    for temporary in (plain, warped):
        temporary.unlink(missing_ok=True)
    return [*steps, f"COG written with {profile.compression}, overviews {profile.overviews.lower()}"]


def _may_keep(ctx: ProcessContext, source: Path, facts: RasterFacts, profile: CogProfile, findings: Findings) -> bool:
    """Return whether the source can be copied; a COG with overviews that are not its own is rebuilt, with a warning."""
    if facts.page is not None or not is_strict_cog(source):
        return False
    with gdal.environment():
        with gdal.open_geotiff(source) as src:
            levels, count, fits = len(src.overviews(1)), src.count, has_profile(src, profile)
        if not fits:
            return False
        ctx.progress(0, None, "comparing overviews with pixels")
        if overviews_are_fresh(source, None, count, levels):
            return True
    findings.warn(
        "OVERVIEWS_REBUILT", "overviews of the file do not show its pixels; they were made again", field="file"
    )
    return False


def _creation_options(src: DatasetReader, profile: CogProfile) -> dict[str, str]:
    options = profile.creation_options(gdal.cores())
    if "NBITS" in src.tags(1, ns="IMAGE_STRUCTURE"):
        options["NBITS"] = str(8 * np.dtype(src.dtypes[0]).itemsize)
    return options


def _check(target: Path, plan: Plan) -> None:
    """Prove that what was written is a strict COG where it should be.

    Raises:
        GeodagError: it is not; a defect of ours, never of the file.
    """
    try:
        valid = is_strict_cog(target)
        with gdal.environment(), gdal.open_geotiff(target) as cog:
            found = crs_rules.from_rasterio(cog.crs)
            transform = cog.transform
    except RasterioError as exc:
        raise GeodagError("the COG that was written cannot be read") from exc
    if not valid:
        raise GeodagError("the file that was written is no strict COG")
    if found is None or not crs_rules.equal(found, CRS.from_wkt(plan.final_crs)):
        raise GeodagError("the COG that was written lost its CRS")
    if not transform.is_rectilinear or transform.a <= 0 or transform.e >= 0:
        raise GeodagError("the COG that was written is not north-up")


def _dumped(findings: list[Finding]) -> list[dict[str, Any]]:
    return [finding.model_dump(mode="json", by_alias=True) for finding in findings]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
