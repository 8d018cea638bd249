"""Judges what the scan of all pixels found: emptiness, alpha, NaN, and the type of the raster."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from rasterio.io import DatasetReader

from core.handler_models import RasterOptions
from handlers.raster.facts import NodataValue, RasterType, Validity
from handlers.raster.findings import Findings
from handlers.raster.header import Header
from handlers.raster.nodata import spelled
from handlers.raster.options import LOSSY, Options
from handlers.raster.scan import Scan
from handlers.raster.types import Evidence, contradiction, detect_type, is_spectral

MOSTLY_EMPTY_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class PixelFacts:
    """Fields of `RasterFacts` that only the pixels can tell."""

    nodata: NodataValue
    nodata_of_bands: tuple[NodataValue, ...]
    validity: Validity
    alpha_is_data: bool
    alpha_to_mask: int | None
    masked_alpha: int | None
    nonfinite_pixels: int
    raster_type: RasterType
    type_evidence: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def judge_pixels(
    src: DatasetReader,
    header: Header,
    scanned: Scan | None,
    options: Options,
    raw: RasterOptions,
    name: str,
    findings: Findings,
) -> PixelFacts:
    """Apply the rules about pixels; without a scan (header only) what only pixels can tell is left open."""
    alpha_is_data = _alpha_is_data(src, header, scanned, findings)
    has_alpha = header.alpha_band is not None and not alpha_is_data
    if scanned is not None:
        _check_emptiness(scanned, raw, findings, alpha_is_data=alpha_is_data)
    validity = _validity(header, has_alpha=has_alpha)
    alpha_to_mask = header.alpha_band if validity is Validity.ALPHA and not header.alpha_is_seen else None
    if alpha_to_mask is not None:
        findings.info(
            "ALPHA_TO_MASK",
            f"band {alpha_to_mask} of {src.count} of {src.dtypes[0]} is alpha where readers do not look for it; "
            "its values are kept, and a mask says the same",
            field="bands",
        )
        validity = Validity.MASK
    nodata, of_bands = header.nodata.value, header.nodata.of_bands
    if validity in (Validity.MASK, Validity.ALPHA) and nodata is not None:
        findings.warn(
            "NODATA_IGNORED",
            f"the file has a mask and nodata {spelled(of_bands or (nodata,))}; the mask wins",
            field="nodata",
            was=list(of_bands) or nodata,
        )
        nodata, of_bands = None, ()
    lossy = options.compression in LOSSY
    if of_bands and not lossy:
        _note_unified(of_bands, nodata, scanned, findings)
    nonfinite = _nonfinite(scanned, alpha_is_data=alpha_is_data)
    if nonfinite and validity in (Validity.ALL, Validity.NODATA):
        nodata, validity = _nodata_for_nonfinite(nodata, nonfinite, findings), Validity.NODATA
    if nonfinite and validity is Validity.MASK:
        findings.warn(
            "NONFINITE_MASKED",
            f"{nonfinite} NaN or infinite values were masked",
            field="nodata",
        )
    if lossy and validity is Validity.NODATA:
        findings.warn(
            "NODATA_TO_MASK",
            f"{options.compression} cannot keep nodata {spelled(of_bands or (nodata,))} exactly; a mask is used",
            field="nodata",
        )
    raster_type, evidence = _type(src, header, scanned, options, name, findings, has_alpha=has_alpha)
    masked_alpha = header.alpha_band if validity is Validity.MASK and has_alpha else None
    return PixelFacts(
        nodata, of_bands, validity, alpha_is_data, alpha_to_mask, masked_alpha, nonfinite, raster_type, evidence
    )


def _alpha_is_data(src: DatasetReader, header: Header, scanned: Scan | None, findings: Findings) -> bool:
    band = header.alpha_band
    if band is None:
        return False
    spectral = is_spectral(src.descriptions[band - 1])
    if not spectral and (scanned is None or scanned.alpha.is_mask_like):
        return False
    why = "its name is spectral" if spectral else "its values are no mask"
    findings.warn(
        "ALPHA_IS_DATA", f"band {band} is marked alpha but {why}; it is kept as data", field="bands", was="alpha"
    )
    return True


def _nonfinite(scanned: Scan | None, *, alpha_is_data: bool) -> int:
    if scanned is None:
        return 0
    return scanned.nonfinite_without_alpha if alpha_is_data else scanned.nonfinite_pixels


def _check_emptiness(scanned: Scan, raw: RasterOptions, findings: Findings, *, alpha_is_data: bool) -> None:
    valid = scanned.valid_without_alpha if alpha_is_data else scanned.valid_pixels
    if valid == 0 and not raw.allow_empty:
        findings.reject(
            "RASTER_EMPTY",
            "file",
            f"none of its {scanned.total_pixels} pixels holds data",
            remediation="Send a raster with data, or set options.allow_empty.",
        )
    elif valid < MOSTLY_EMPTY_SHARE * scanned.total_pixels:
        findings.warn("RASTER_MOSTLY_EMPTY", f"only {valid} of {scanned.total_pixels} pixels hold data", field="file")


def _validity(header: Header, *, has_alpha: bool) -> Validity:
    if header.has_mask:
        return Validity.MASK
    if has_alpha:
        return Validity.ALPHA
    return Validity.ALL if header.nodata.value is None else Validity.NODATA


def _note_unified(
    of_bands: tuple[NodataValue, ...], nodata: NodataValue, scanned: Scan | None, findings: Findings
) -> None:
    """Say that bands share one nodata value from now on; refuse what would lose data by it."""
    differ = f"the sidecar has nodata {spelled(of_bands)} for different bands"
    if scanned is not None and scanned.nodata_clashes:
        findings.reject(
            "SIDECAR_INVALID",
            "sidecar",
            f"{differ}; all would have to take {nodata}, which {scanned.nodata_clashes} pixels hold as data",
            value=nodata,
            remediation="Send bands with one nodata value that no data has, or state it in options.nodata.",
        )
        return
    findings.warn(
        "NODATA_UNIFIED", f"{differ}; those pixels became {nodata}", field="nodata", was=list(of_bands), now=nodata
    )


def _nodata_for_nonfinite(nodata: NodataValue, count: int, findings: Findings) -> NodataValue:
    if nodata is None:
        findings.warn(
            "NODATA_SET_TO_NAN", f"{count} values are NaN or infinite; nodata was set to NaN", field="nodata", now="nan"
        )
        return "nan"
    findings.warn(
        "NONFINITE_REPLACED", f"{count} NaN or infinite values became nodata {nodata}", field="nodata", now=nodata
    )
    return nodata


def _type(
    src: DatasetReader,
    header: Header,
    scanned: Scan | None,
    options: Options,
    name: str,
    findings: Findings,
    *,
    has_alpha: bool,
) -> tuple[RasterType, str]:
    classes = scanned.distinct.values if scanned and scanned.valid_pixels else None
    seen = Evidence(
        dtype=src.dtypes[0],
        colors=tuple(color.name for color in src.colorinterp),
        descriptions=tuple(text or "" for text in src.descriptions),
        name=name,
        has_palette=header.has_palette,
        has_alpha=has_alpha,
        has_heights=header.has_heights,
        distinct=None if classes is None else len(classes),
        minimum=scanned.minimum if scanned else None,
        maximum=scanned.maximum if scanned else None,
    )
    if options.raster_type is None:
        return detect_type(seen)
    reason = contradiction(options.raster_type, seen)
    if reason:
        findings.reject("PARAMETER_INVALID", "raster_type", reason, value=str(options.raster_type))
    return options.raster_type, "stated by the submit"
