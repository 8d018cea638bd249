"""Makes one local TIFF of what was delivered: a plain file, a file with sidecars, or a member of an archive."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from rasterio.io import DatasetReader

from core.handler_models import RasterOptions
from handlers import archives
from handlers.context import ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster.findings import Findings
from handlers.raster.nodata import meant
from handlers.raster.sidecar_names import role_of
from handlers.raster.sidecars import Beside, Said, assemble, beside
from handlers.raster.sniff import Kind, sniff
from handlers.raster.tiff import Directory
from handlers.raster.unpacked import Unpacked

FOLDER: Final = "delivery"
LISTED: Final = 50


@dataclass(frozen=True, slots=True)
class Delivered:
    """The file to read and what lies beside it."""

    path: Path
    name: str
    """As the sender calls it, without folders."""
    sidecars: Beside
    member: str | None = None
    """What of an archive, or which variable and step of a cube, it is."""
    cube: Unpacked | None = None
    """What was taken from a cube."""


@contextmanager
def received(
    ctx: ProcessContext, source: Path, head: bytes, member: str | None, findings: Findings
) -> Iterator[Delivered]:
    """Yield the raster of a source; what had to be unpacked is removed at the end.

    Raises:
        Rejected: the archive is unsafe, too large, broken, or does not say which raster is meant.
    """
    folder = ctx.scratch / FOLDER
    try:
        if is_cube(head):
            yield _from_cube(ctx, source, folder, member, findings)
            return
        if archives.is_archive(head):
            yield _unpacked(ctx, source, folder, member, findings)
            return
        if member is not None:
            findings.stop(
                "PARAMETER_INVALID", "member", "the file is no archive, it has no members", value=member[:100]
            )
        yield Delivered(source, source.name, beside(source))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_cube(head: bytes) -> bool:
    """Return whether a file holds variables rather than pages."""
    return sniff(head).kind is Kind.CUBE


def chosen_part(head: bytes, options: RasterOptions) -> str | None:
    """Return what a submit says of which part of a file it means."""
    return options.subdataset if is_cube(head) else options.member


def _from_cube(ctx: ProcessContext, source: Path, folder: Path, wanted: str | None, findings: Findings) -> Delivered:
    from handlers.raster.cube import unpack  # HDF5 is loaded where there is some

    folder.mkdir()
    found = unpack(source, wanted, folder / "source.tif", findings, ctx.follow("reading the variable"))
    return Delivered(folder / "source.tif", source.name, Beside({}), found.chosen, found)


def completed(
    ctx: ProcessContext, delivered: Delivered, page: Directory, findings: Findings
) -> tuple[Path, Said | None]:
    """Return the path to open with GDAL, and what sidecars say when there are any.

    Raises:
        Rejected: a sidecar is broken or hostile.
    """
    if not delivered.sidecars.used:
        return delivered.path, None
    return assemble(delivered.path, page, delivered.sidecars, ctx.scratch / FOLDER, findings)


def _unpacked(ctx: ProcessContext, source: Path, folder: Path, wanted: str | None, findings: Findings) -> Delivered:
    try:
        members = archives.list_members(source)
        chosen = _choose(members, wanted, findings)
        folder.mkdir()
        near = [m for m in members if _folder(m) == _folder(chosen)]
        targets = {chosen.name: folder / "source.tif"}
        for other in near:
            role = role_of(other.base, chosen.base)
            if role and role != "overviews":
                targets[other.name] = folder / f"delivered-{role}{PurePosixPath(other.base).suffix}"
        total = sum(m.size_bytes for m in members if m.name in targets)
        archives.extract(source, targets, _counter(ctx, total))
    except archives.ArchiveUnsafe as exc:
        findings.stop("ARCHIVE_UNSAFE", "file", f"the archive is refused: {exc}", remediation="Pack plain files only.")
    except archives.ArchiveTooLarge as exc:
        findings.stop("ARCHIVE_TOO_LARGE", "file", f"the archive is refused: {exc}", remediation="Send it in parts.")
    except archives.ArchiveError as exc:
        findings.stop("RASTER_UNREADABLE", "file", f"the archive cannot be read: {exc}", remediation="Pack it again.")
    roles = {path.stem.removeprefix("delivered-"): path for name, path in targets.items() if name != chosen.name}
    return Delivered(folder / "source.tif", chosen.base, Beside(roles), chosen.name)


def _choose(members: list[archives.Member], wanted: str | None, findings: Findings) -> archives.Member:
    """Return the one raster of an archive, or the one that the submit names."""
    rasters = [m for m in members if m.head and sniff(m.head).kind is Kind.TIFF and not _is_sidecar(m, members)]
    names = "; ".join(m.name[:100] for m in rasters[:LISTED])
    if wanted is not None:
        named = [m for m in rasters if m.name == wanted]
        if named:
            return named[0]
        message = f"the archive has no raster {wanted[:100]!r}; found {names or 'none'}"
        findings.stop("PARAMETER_INVALID", "member", message, value=wanted[:100])
    if len(rasters) > 1:
        findings.stop(
            "MEMBER_REQUIRED",
            "member",
            f"the archive has {len(rasters)} rasters: {names}",
            remediation="Name one of them in options.member.",
        )
    if not rasters:
        found = "; ".join(f"{m.name[:60]}: {sniff(m.head).name}" for m in members[:LISTED] if m.head)
        findings.stop(
            "FORMAT_NOT_ALLOWED",
            "format",
            f"the archive holds no GeoTIFF; found {found or 'nothing'}",
            remediation="Send a GeoTIFF, or an archive with one.",
        )
    return rasters[0]


def _is_sidecar(member: archives.Member, members: list[archives.Member]) -> bool:
    near = (m for m in members if m is not member and _folder(m) == _folder(member))
    return any(role_of(member.base, other.base) for other in near)


def _folder(member: archives.Member) -> PurePosixPath:
    return PurePosixPath(member.name).parent


def _counter(ctx: ProcessContext, total: int) -> Callable[[int], None]:
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        ctx.raise_if_cancelled()
        ctx.progress(done, total, "unpacking")

    return on_bytes


def note_delivery(
    delivered: Delivered, said: Said | None, src: DatasetReader, nodata_text: str | None, findings: Findings
) -> None:
    """Say what was read beside the file, and what of it does not count because the file says otherwise.

    `nodata_text` is nodata as the file itself has it.
    """
    if delivered.cube:
        delivered.cube.note(findings)
    elif delivered.member is not None:
        findings.info("MEMBER_USED", "the raster was taken from the archive", field="member", now=delivered.member)
    if said is None:
        return
    used = ", ".join(delivered.sidecars.used)
    findings.info("SIDECAR_USED", f"read with the file: {used}", field="sidecar", now=used)
    if said.transform is not None and not np.allclose(src.transform.to_gdal(), said.transform, rtol=1e-9, atol=1e-9):
        findings.warn(
            "SIDECAR_IGNORED", "the file has a geotransform of its own, it wins over the sidecar", field="sidecar",
            was=list(said.transform), now=list(src.transform.to_gdal()),
        )  # fmt: skip
    own = crs_rules.from_rasterio(src.crs) if said.crs is not None else None
    if own is not None and said.crs is not None and not crs_rules.equal(own, said.crs):
        findings.warn(
            "SIDECAR_IGNORED", "the file has a CRS of its own, it wins over the sidecar", field="sidecar",
            was=crs_rules.describe(said.crs), now=crs_rules.describe(own),
        )  # fmt: skip
    told = [text for text in said.nodata if text is not None]
    if nodata_text is not None and any(
        meant(text, src.dtypes[0]) != meant(nodata_text, src.dtypes[0]) for text in told
    ):
        findings.warn(
            "SIDECAR_IGNORED", "the file has a nodata value of its own, it wins over the sidecar", field="sidecar",
            was=" and ".join(dict.fromkeys(told))[:40], now=nodata_text[:40],
        )  # fmt: skip
