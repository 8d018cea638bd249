"""The composition root of serving."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import from_thread
from fastapi import APIRouter, FastAPI, Response

from core.ports import BlobRepository
from edge.identity import PrepareIdentity, build_identity
from repositories.blobs import open_blobs
from repositories.database import SyncPool, read, sync_pool
from repositories.routes import probe
from serving import errors
from serving.documents import Catalogue, documents_router, downloads_router
from serving.files import VersionFiles
from serving.reports import Reports, reports_router
from serving.routing import Gate
from serving.settings import ServingSettings
from serving.tiles import VersionTiler

MAX_CONNECTIONS = 8


def create_app(settings: ServingSettings) -> FastAPI:
    """Return the application with everything it needs; its lifespan opens and closes the database pool."""
    pool = sync_pool(settings.conninfo, name="geodag-serving", max_size=MAX_CONNECTIONS)
    identity = build_identity(settings)
    gate = Gate(pool, identity)
    blobs = open_blobs(settings, is_waited_for=True)
    files = VersionFiles(blobs)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pool.open(wait=False)
        try:
            yield
        finally:
            pool.close()
            await blobs.close()

    app = FastAPI(title="geodag serving", version=settings.build_id, lifespan=lifespan, docs_url=None, redoc_url=None)
    errors.install(app)
    app.add_middleware(PrepareIdentity, identity=identity)
    app.include_router(VersionTiler(gate=gate, files=files, public_url=settings.public_serving_url).router)
    app.include_router(documents_router(gate, Catalogue(pool), files))
    app.include_router(downloads_router(gate, files))
    app.include_router(reports_router(gate, Reports(pool, files)))
    app.include_router(_health_router(pool, blobs, settings.build_id))
    return app


def _health_router(pool: SyncPool, blobs: BlobRepository, build_id: str) -> APIRouter:
    router = APIRouter()

    @router.get("/livez", response_class=Response)
    async def livez() -> Response:
        """Answer while the process lives."""
        return Response("ok\n", media_type="text/plain")

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Say which build answers; a deployment compares it with what it deployed."""
        return {"status": "ok", "build_id": build_id}

    @router.get("/readyz", response_class=Response)
    def readyz() -> Response:
        """Answer 200 when versions can be looked up and files be read, else 503."""
        from_thread.run(blobs.probe)
        with read(pool, timeout_seconds=2.0) as conn:
            probe(conn)
        return Response("ready\n", media_type="text/plain")

    return router
