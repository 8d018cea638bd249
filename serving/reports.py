"""The page of a validation report: who sees a version's status sees what was said, who sees its pixels the pictures."""

from collections.abc import Iterator
from typing import Annotated, Final

import rasterio
from fastapi import APIRouter, Depends, Request, Response
from rio_tiler.io import Reader

from core.access import Door
from core.report_view import report_view
from core.status_view import partner_error
from repositories.database import SyncPool, read
from repositories.routes import Route, VersionReport, find_report
from serving.errors import hidden
from serving.files import VersionFiles
from serving.rendering import Rendering
from serving.routing import Admitted, Gate
from serving.tiles import gdal_environment
from ui.report import CONTENT_SECURITY_POLICY, Picture, ReportPage, report_html

WHOLE_SIZE: Final = 480
BAND_SIZE: Final = 160
MAX_BANDS: Final = 8
"""Bands that get a picture of their own."""
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Reports:
    """Reads reports and draws what stands beside them."""

    def __init__(self, pool: SyncPool, files: VersionFiles) -> None:
        self._pool = pool
        self._files = files

    def html(self, route: Route, *, with_pictures: bool) -> str:
        """Return the page of a version.

        Raises:
            NotFound: it was deleted meanwhile.
        """
        with read(self._pool) as conn:
            found = find_report(conn, route.asset_id, route.version_ordinal)
        if found is None:
            raise hidden()
        error = None if found.error is None else partner_error(found.error).model_dump(mode="json")
        view = report_view(found.report, error, found.processing_state)
        pictures = self._files.patiently(lambda: tuple(self._pictures(route))) if with_pictures else ()
        return report_html(ReportPage(route.title, _facts(route, found), pictures), view)

    def _pictures(self, route: Route) -> Iterator[Picture]:
        """Yield the whole as it is rendered, and each band by itself when there are several."""
        with (
            rasterio.Env(**gdal_environment()),
            self._files.reading(self._files.cog(route)) as path,
            Reader(path) as src,
        ):
            rendering = Rendering.of(route.render)
            yield _draw(src, rendering, "as it is shown", WHOLE_SIZE)
            count = src.dataset.count
            if count == 1:
                return
            for band in range(1, min(count, MAX_BANDS) + 1):
                name = src.dataset.descriptions[band - 1]
                caption = f"band {band}" + (f": {name[:60]}" if name else "")
                alone = Rendering(bidx=(band,), resampling=rendering.resampling)
                yield _draw(src, alone, caption, BAND_SIZE)


def reports_router(gate: Gate, reports: Reports) -> APIRouter:
    """Return the door to reports."""
    router = APIRouter()

    @router.api_route("/report/{asset_id}", methods=["GET", "HEAD"], response_class=Response)
    def report(request: Request, admitted: Annotated[Admitted, Depends(gate.at(Door.STATUS))]) -> Response:
        """Return the validation report of a version as a page."""
        route = admitted.route
        seen = any(gate.seen(gate.caller(request.headers), [route], Door.PREVIEW))
        content = reports.html(route, with_pictures=seen and route.data_type == "raster")
        headers = {**admitted.headers("report"), **_HEADERS}
        return Response(content, headers=headers, media_type="text/html; charset=utf-8")

    return router


def _draw(src: Reader, rendering: Rendering, caption: str, size: int) -> Picture:
    image = src.preview(max_size=size, **rendering.read_options(src))
    return Picture(caption, rendering.draw(image, src), image.width, image.height)


def _facts(route: Route, found: VersionReport) -> list[tuple[str, str]]:
    return [
        ("asset", route.asset_id),
        ("version", f"{route.version_ordinal} ({found.version_label})"),
        ("revision", str(route.revision)),
        ("review", str(route.approval_state).replace("_", " ")),
        ("submitted", f"{found.created_at:%Y-%m-%d %H:%M} UTC"),
    ]
