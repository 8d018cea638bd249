"""`raster.validate`: one verdict on a raster, from its header where that can tell, then from every block.

Nothing is opened by GDAL before its first bytes, its directories and its declared sizes were checked here.
"""

import hashlib
from pathlib import Path
from typing import Any, Final

from rasterio.errors import RasterioError, RasterioIOError
from rasterio.io import DatasetReader

from core.handlers_catalog import RasterInspectParams, RasterValidateParams
from handlers.archives import is_archive
from handlers.context import Outcome, ProcessContext
from handlers.raster import gdal
from handlers.raster.delivery import Delivered, chosen_part, completed, note_delivery, received
from handlers.raster.estimate import Estimate, estimate
from handlers.raster.facts import RasterFacts
from handlers.raster.findings import Findings
from handlers.raster.foresight import foresee
from handlers.raster.header import Header, read_header
from handlers.raster.limits import LIMITS, RasterLimits
from handlers.raster.nodata import in_dtype
from handlers.raster.options import Options, check_options
from handlers.raster.pixels import PixelFacts, judge_pixels
from handlers.raster.plan import make_plan
from handlers.raster.profiles import profile_of
from handlers.raster.scan import BlockUnreadable, Scan, ScanRules, scan
from handlers.raster.sniff import HEAD_BYTES, Kind, sniff
from handlers.raster.tiff import Directory, HeaderError, read_directories

HASH_CHUNK_BYTES: Final = 8 * gdal.MEBIBYTE


def validate(ctx: ProcessContext, params: RasterValidateParams) -> Outcome:
    """Check a raster and return what COG creation needs, with a report of everything noticed.

    Raises:
        Rejected: the raster is refused; the error is the first one found, its message names all of them.
    """
    findings = Findings()
    source = Path(params.source)
    size_bytes, head = _check_file(source, params.expected_size_bytes, findings)
    options = check_options(params.options, findings)
    with received(ctx, source, head, chosen_part(head, params.options), findings) as delivered:
        content_hash, facts, needs = _examine(ctx, params, delivered, options, findings)
    findings.raise_if_rejected()
    raster = facts.model_dump(mode="json")
    findings.add_facts({key: value for key, value in raster.items() if key != "findings"})
    output = {
        "source": source.name,
        "content_hash": content_hash,
        "file_size_bytes": size_bytes,
        "file_size_mb": round(size_bytes / 1e6, 3),
        "raster": raster,
        "report": findings.document()
        | {"estimate": needs.as_json(), "read": "header" if params.header_only else "file"},
        "estimate": needs.as_json(),
    }
    return Outcome(output, findings=tuple(findings.findings))


def inspect(ctx: ProcessContext, params: RasterInspectParams) -> Outcome:
    """Check a raster of which the worker copied the header, or all; as `validate` otherwise."""
    return validate(ctx, RasterValidateParams(source=params.url, options=params.options, header_only=not params.whole))


def _examine(
    ctx: ProcessContext, params: RasterValidateParams, delivered: Delivered, options: Options, findings: Findings
) -> tuple[str | None, RasterFacts, Estimate]:
    """Return the digest of the source, the facts of its raster after all rules, and what it will need."""
    page, chosen = _check_tiff(delivered.path, None if delivered.cube else params.options.subdataset, LIMITS, findings)
    path, said = completed(ctx, delivered, page, findings)
    with gdal.environment(sidecars=said is not None), _open(path, chosen, findings) as src:
        note_delivery(delivered, said, src, page.nodata_text, findings)
        nodata = said.nodata if said and said.nodata and page.nodata_text is None else (page.nodata_text,)
        header = read_header(src, page, nodata, options, params.options, findings)
        findings.raise_if_rejected()
        assert header is not None
        content_hash, scanned = None, None
        if not params.header_only:
            content_hash = _sha256(ctx, Path(params.source))
            scanned = _read_all(ctx, src, page, header, findings)
        pixels = judge_pixels(src, header, scanned, options, params.options, delivered.name, findings)
        facts = _facts(src, chosen, delivered, header, pixels, findings)
        profile = profile_of(facts.raster_type, options.compression)
        plan = make_plan(facts, options.target_crs, profile)
        packed = delivered.path.stat().st_size if delivered.member else 0
        needs = estimate(facts, plan, profile, block_bytes=page.blocks.decoded_bytes(page), packed_bytes=packed)
        foresee(ctx, src, facts, scanned, plan, profile, needs.route, findings)
        return content_hash, facts, needs


def _check_file(source: Path, expected_bytes: int | None, findings: Findings) -> tuple[int, bytes]:
    """Return size and first bytes of the file; what is neither TIFF nor archive is refused by those."""
    try:
        size_bytes = source.stat().st_size
        with source.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        findings.stop("FILE_NOT_FOUND", "file", "the source file does not exist")
    if size_bytes == 0:
        findings.stop("FILE_EMPTY", "file", "the file has 0 bytes", remediation="Send the file again, completely.")
    if expected_bytes is not None and size_bytes != expected_bytes:
        findings.stop(
            "SOURCE_CHANGED",
            "source",
            f"the file has {size_bytes} bytes, {expected_bytes} were recorded at submit",
            remediation="Submit again once the file no longer changes.",
        )
    if not is_archive(head):
        _check_kind(head, findings)
    return size_bytes, head


def _check_kind(head: bytes, findings: Findings) -> None:
    found = sniff(head)
    expected = "Send a GeoTIFF or Cloud Optimized GeoTIFF."
    match found.kind:
        case Kind.TIFF | Kind.CUBE:
            return
        case Kind.PICTURE:
            message = f"the file is a {found.name}, which has no place on the ground"
            findings.stop("GEOREFERENCING_MISSING", "file", message, remediation=expected)
        case Kind.NOT_ALLOWED:
            message = f"the file is a {found.name}; expected a GeoTIFF"
            findings.stop("FORMAT_NOT_ALLOWED", "format", message, value=found.name, remediation=expected)
        case Kind.UNKNOWN:
            message = f"the file is no raster, it looks like {found.name}"
            findings.stop("RASTER_UNREADABLE", "file", message, remediation=expected)


def _check_tiff(
    source: Path, subdataset: str | None, limits: RasterLimits, findings: Findings
) -> tuple[Directory, int | None]:
    """Return the directory to read and its number when there are several, having checked header and sizes."""
    try:
        directories = read_directories(source)
        images = [directory for directory in directories if directory.is_main]
        page = _choose_page(images, subdataset, findings)
        _check_size(page, limits, findings)
        table = page.blocks
        decoded = table.decoded_bytes(page)
        if page.compression != 1 and decoded > limits.block_bytes:
            _too_large(f"one block holds {decoded} bytes, the limit is {limits.block_bytes}", findings)
        table.check_extent(page)
        if any(directory.refers_to_other_files for directory in directories):
            findings.stop("FORMAT_NOT_ALLOWED", "format", "metadata of the file point at another file")
    except HeaderError as exc:
        _unreadable(str(exc), findings)
    return page, page.index if len(images) > 1 else None


def _choose_page(images: list[Directory], wanted: str | None, findings: Findings) -> Directory:
    if not images:
        raise HeaderError("the file has overviews or masks but no image")
    listed = [f"{n}: {d.width}x{d.height}, {d.samples} band(s) of {d.bits} bits" for n, d in enumerate(images[:50], 1)]
    if wanted is not None:
        names = {str(number): directory for number, directory in enumerate(images, 1)}
        if wanted in names:
            return names[wanted]
        message = f"there is no subdataset {wanted[:40]!r}; found {'; '.join(listed)}"
        findings.stop("PARAMETER_INVALID", "subdataset", message, value=wanted[:100])
    if len(images) > 1:
        findings.stop(
            "SUBDATASET_REQUIRED",
            "subdataset",
            f"the file has {len(images)} pages: {'; '.join(listed)}",
            remediation="Name one of them in options.subdataset, for example 1.",
        )
    return images[0]


def _check_size(page: Directory, limits: RasterLimits, findings: Findings) -> None:
    pixels = page.width * page.height
    decoded = int(pixels * page.pixel_bytes)
    claimed = f"the header declares {page.width} x {page.height} pixels, {page.samples} band(s) of {page.bits} bits"
    if max(page.width, page.height) > limits.side_pixels:
        _too_large(f"{claimed}; a side may have {limits.side_pixels} pixels", findings)
    if page.samples > limits.bands:
        _too_large(f"{claimed}; {limits.bands} bands are allowed", findings)
    if pixels > limits.pixels or decoded > limits.decoded_bytes:
        _too_large(f"{claimed}: {decoded} bytes; the limit is {limits.decoded_bytes}", findings)


def _too_large(message: str, findings: Findings) -> None:
    findings.stop("RASTER_TOO_LARGE", "file", message, remediation="Send it in several smaller files.")


def _unreadable(message: str, findings: Findings) -> None:
    findings.stop("RASTER_UNREADABLE", "file", message, remediation="Check the file and send it again, completely.")


def _open(source: Path, page: int | None, findings: Findings) -> DatasetReader:
    try:
        return gdal.open_geotiff(source, page)
    except RasterioError:
        _unreadable("the file begins like a TIFF but GDAL cannot open it", findings)
        raise


def _sha256(ctx: ProcessContext, source: Path) -> str:
    digest, size_bytes = hashlib.sha256(), source.stat().st_size
    with source.open("rb") as file:
        while chunk := file.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
            ctx.raise_if_cancelled()
            ctx.progress(file.tell(), size_bytes, "hashing the source")
    return digest.hexdigest()


def _read_all(ctx: ProcessContext, src: DatasetReader, page: Directory, header: Header, findings: Findings) -> Scan:
    own = () if header.has_mask else tuple(in_dtype(value, src.dtypes[0]) for value in header.nodata.of_bands)
    rules = ScanRules(header.nodata_scalar, header.has_mask, header.alpha_band, own)
    try:
        return scan(src, page.blocks, rules, ctx.follow("reading every block"))
    except (BlockUnreadable, RasterioIOError) as exc:
        message = str(exc) if isinstance(exc, BlockUnreadable) else "its mask cannot be decoded"
        _unreadable(message, findings)
        raise


def _facts(
    src: DatasetReader,
    page: int | None,
    delivered: Delivered,
    header: Header,
    pixels: PixelFacts,
    findings: Findings,
) -> RasterFacts:
    place = header.place
    shared: dict[str, Any] = pixels.as_dict()
    return RasterFacts(
        page=page,
        member=delivered.member,
        sidecars=delivered.sidecars.used,
        width=src.width,
        height=src.height,
        count=src.count,
        dtype=src.dtypes[0],
        crs_wkt=header.crs_wkt,
        crs_code=header.crs_code,
        crs_source=place.crs_source,
        transform=tuple(place.transform[:6]),
        bounds=place.bounds,
        orientation=place.orientation,
        has_gcps=place.has_gcps,
        longitude_shift=place.longitude_shift,
        roll_columns=place.roll_columns,
        file_nodata=header.nodata.in_file,
        nodata_tag=header.nodata.tag,
        palette=header.has_palette,
        stale_statistics=header.stale_statistics,
        findings=tuple(f.model_dump(mode="json", by_alias=True) for f in findings.findings),
        **shared,
    )
