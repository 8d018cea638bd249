"""Serving over real HTTP, with real rows, a real catalogue and real COGs, filled by plain SQL."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import uvicorn
from numpy.typing import NDArray
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from rasterio import Affine

from core.models.business import ApprovalState, Clearance, Exposure, ProcessingState
from repositories import pgstac, roles
from serving.app import create_app
from serving.settings import ServingSettings
from tests.support.business import key_file
from tests.support.databases import Database
from tests.support.rasters import write_cog
from tests.support.storage import Storage
from tests.support.waiting import wait_until

COLLECTION = "ddh-elevation"
PUBLIC_URL = "https://tiles.example"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class VersionSeed:
    """One version to write; the defaults are an approved and completed one."""

    approval: ApprovalState = ApprovalState.APPROVED
    processing: ProcessingState = ProcessingState.COMPLETED
    blob_path: str | None = None
    render: dict[str, Any] | None = None
    deleted: bool = False
    tiles_path: str | None = None


@dataclass
class ServingWorld:
    """One database, one blob root, one running server."""

    database: Database
    root: Path
    storage: Storage
    port: int = 0

    def settings(self) -> ServingSettings:
        """Return settings of a process of this world."""
        keys = self.root / "api-keys.json"
        keys.write_text(key_file().model_dump_json())
        reached: dict[str, Any] = self.storage.environment(self.database, roles.SERVING)
        return ServingSettings(
            **{name.lower(): value for name, value in reached.items()},
            serving_port=self.port or 1,
            api_keys_file=keys,
            public_serving_url=PUBLIC_URL,
        )

    def put(self, name: str, content: bytes) -> None:
        """Put a blob into the zone silver."""
        self.storage.put(f"silver/{name}", content)

    def put_cog(self, name: str, bands: NDArray[Any], crs: str, transform: Affine, nodata: float | None = None) -> None:
        """Put a COG into the zone silver."""
        file = self.root / name
        write_cog(file, bands, crs, transform, nodata)
        self.put(name, file.read_bytes())

    def stored(self, name: str) -> bytes:
        """Return what a blob of the zone silver holds."""
        content = self.storage.read(f"silver/{name}")
        assert content is not None, name
        return content

    def add_asset(
        self,
        asset_id: str,
        versions: Mapping[int, VersionSeed],
        *,
        clearance: Clearance = Clearance.PUBLIC,
        exposure: Exposure = Exposure.LATEST_ONLY,
        platform: str = "ddh",
        data_type: str = "raster",
    ) -> None:
        """Write an asset with its versions, and the catalogue's items of the approved ones."""
        approved = [n for n, seed in versions.items() if seed.approval is ApprovalState.APPROVED and not seed.deleted]
        with psycopg.connect(self.database.conninfo(roles.ORCHESTRATOR)) as conn:
            conn.execute(
                "INSERT INTO dagapp.geospatial_assets (asset_id, platform_id, platform_refs, data_type,"
                " clearance_state, exposure, latest_approved_version_ordinal) VALUES (%s, %s, '{}', %s, %s, %s, %s)",
                (asset_id, platform, data_type, clearance, exposure, max(approved, default=None)),
            )
            for ordinal, seed in versions.items():
                self._add_version(conn, asset_id, ordinal, seed)
        asyncio.run(self._publish([item(asset_id, ordinal) for ordinal in approved]))

    def execute(self, statement: str, *values: Any) -> None:
        """Run one statement as geodag_orchestrator and commit."""
        with psycopg.connect(self.database.conninfo(roles.ORCHESTRATOR)) as conn:
            conn.execute(statement.encode(), values)

    def get(self, path: str, key: str | None = None, method: str = "GET", **headers: str) -> Answer:
        """Return the answer to one request; header names use underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["X-API-Key"] = key
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers=sent)
            response = connection.getresponse()
            lowered = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, lowered, response.read())
        finally:
            connection.close()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the real application under uvicorn on a free loopback port."""
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.port = listening.getsockname()[1]
            config = uvicorn.Config(create_app(self.settings()), http="httptools", log_config=None)
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            wait_until(lambda: server.started, "serving starts")
            try:
                yield
            finally:
                server.should_exit = True
                thread.join(timeout=10)

    def _add_version(self, conn: "psycopg.Connection[Any]", asset_id: str, ordinal: int, seed: VersionSeed) -> None:
        conn.execute(
            "INSERT INTO dagapp.asset_versions (asset_id, version_ordinal, version_label, title, access_level,"
            " submitted_by, source, approval_state, processing_state, blob_path, tiles_path, blob_sha256, render,"
            " stac_item_id, stac_collection_id, stac_item, deleted_at)"
            " VALUES (%s, %s, %s, %s, 'public', 'sue', '{}', %s, %s, %s, %s, %s, %s, %s, %s, %s,"
            " CASE WHEN %s THEN dagapp.clock() END)",
            (
                asset_id, ordinal, f"V{ordinal}", f"Version {ordinal}", seed.approval, seed.processing,
                seed.blob_path, seed.tiles_path, "0" * 64, None if seed.render is None else Jsonb(seed.render),
                f"{asset_id}-v{ordinal}", COLLECTION, Jsonb(item(asset_id, ordinal)), seed.deleted,
            ),
        )  # fmt: skip

    async def _publish(self, items: list[dict[str, Any]]) -> None:
        dsn = self.database.conninfo(roles.ORCHESTRATOR)
        async with await AsyncConnection.connect(dsn) as conn:
            await pgstac.ensure_collection(conn, collection())
            for document in items:
                await pgstac.write_item(conn, document)


def collection() -> dict[str, Any]:
    """Return a STAC collection."""
    return {
        "type": "Collection",
        "id": COLLECTION,
        "stac_version": "1.1.0",
        "description": "Elevation",
        "license": "other",
        "extent": {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}},
        "links": [],
    }


def item(asset_id: str, ordinal: int) -> dict[str, Any]:
    """Return the STAC item of a version."""
    return {
        "type": "Feature",
        "id": f"{asset_id}-v{ordinal}",
        "collection": COLLECTION,
        "stac_version": "1.1.0",
        "stac_extensions": [],
        "geometry": {"type": "Polygon", "coordinates": [[[15, 50], [16, 50], [16, 51], [15, 51], [15, 50]]]},
        "bbox": [15, 50, 16, 51],
        "properties": {"datetime": "2026-03-01T00:00:00Z", "title": f"Version {ordinal}"},
        "links": [],
        "assets": {"data": {"href": f"{PUBLIC_URL}/download/{asset_id}?version={ordinal}", "roles": ["data"]}},
    }
