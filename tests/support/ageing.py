"""Makes files and rows of tests as old as they have to be."""

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection

from core.b2b import SubmitAccepted
from core.ports import BlobRef
from repositories import roles
from repositories.blobs_folder import FolderBlobRepository
from repositories.expiry import Expiry
from repositories.verification import missing
from services.leftovers import Leftovers
from tests.support.business import Business, fresh_refs
from tests.support.databases import Database

DAY = 86_400


def leave(root: Path, name: str, days: int = 0, content: bytes = b"left") -> Path:
    """Put a blob, `container/name`, that was written so many days ago."""
    ref = BlobRef.parse(name)
    path = root / ref.container / ref.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return age(path, days)


def age(path: Path, days: int) -> Path:
    """Let a file have been written so many days ago."""
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))
    return path


def names(root: Path) -> set[str]:
    """Return `container/name` of all blobs."""
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def storage(root: Path) -> FolderBlobRepository:
    """Return the storage of a folder, with its zones."""
    for zone in ("bronze", "silver", "external"):
        (root / zone).mkdir(parents=True, exist_ok=True)
    return FolderBlobRepository(root)


class World:
    """Versions in every situation, with their files, all of them as old as can be."""

    def __init__(self, business: Business, database: Database, root: Path) -> None:
        storage(root)
        self.business, self.database, self.root = business, database, root

    async def files(self, accepted: SubmitAccepted) -> Path:
        """Write the file that a version names; return its path."""
        row = await self.business.row(accepted)
        return leave(self.root, row["blob_path"], 200, b"x" * row["blob_size_bytes"])

    async def lost(self, accepted: SubmitAccepted, days: int = 200) -> str:
        """Leave what a lost attempt wrote; return its name."""
        job_id = await self.business.job_of(accepted)
        name = f"silver/{accepted.asset_id}/{accepted.version_ordinal}/r1/{job_id}_create_cog_77/cog.tif"
        leave(self.root, name, days)
        return name

    def admin(self, *statements: str) -> None:
        """Say something as the administrator."""
        with psycopg.connect(self.database.admin) as admin:
            for statement in statements:
                admin.execute(statement)  # type: ignore[arg-type]

    def age_all(self) -> None:
        """Let everything that ended or was deleted have been so for 200 days."""
        self.admin(
            "UPDATE dagapp.dag_jobs SET completed_at = completed_at - interval '200 days'",
            "UPDATE dagapp.asset_versions SET deleted_at = deleted_at - interval '200 days'",
            "UPDATE dagapp.geospatial_assets SET deleted_at = deleted_at - interval '200 days'",
        )

    async def processed(self, **changes: Any) -> SubmitAccepted:
        """Process a version of an asset of its own, and write its file."""
        accepted = await self.business.processed(platform_refs=fresh_refs(), **changes)
        await self.files(accepted)
        return accepted

    async def missing(self) -> list[object]:
        """Return what the database names and is not there, also of versions that were deleted."""
        async with await AsyncConnection.connect(self.database.admin, autocommit=True) as conn:
            found: list[object] = list(await missing(conn, FolderBlobRepository(self.root)))
            cursor = await conn.execute("SELECT blob_path FROM dagapp.asset_versions WHERE blob_path IS NOT NULL")
            return found + [path for (path,) in await cursor.fetchall() if not (self.root / path).is_file()]

    async def with_expiry(self, work: Callable[[Expiry, Leftovers], Awaitable[Any]]) -> Any:
        """Work as a run does."""
        async with await AsyncConnection.connect(self.database.conninfo(roles.DEPLOY), autocommit=True) as conn:
            expiry = Expiry(conn)
            return await work(expiry, Leftovers(expiry, FolderBlobRepository(self.root), files_days=7, uploads_days=30))
