"""`geodag gc` as tests run it: in this process, or in one that kills itself at a step of its work.

`python -m tests.support.gc_runs DSN ROOT` reads numbers; for each it forks a run that gets SIGKILL right before that
step, and says how the run ended: `killed` or `done`. A step is a statement or a call of the storage.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from core.ports import BlobEntry, BlobInfo, BlobRef
from repositories import roles
from repositories.blobs_folder import FolderBlobRepository
from repositories.retention import RetentionSettings, Swept
from services.retention import sweep
from tests.support.databases import Database

EVERYTHING = RetentionSettings()


async def collect(
    database: Database, root: Path, *, dry_run: bool = False, policy: RetentionSettings = EVERYTHING
) -> dict[str, tuple[int, int]]:
    """Run it as the deploy role; return rows and bytes by kind, of what went or would."""
    async with await AsyncConnection.connect(database.conninfo(roles.DEPLOY), autocommit=True) as conn:
        swept = await sweep(conn, policy, FolderBlobRepository(root), dry_run=dry_run)
    return {one.kind: (one.rows, one.size_bytes) for one in swept}


def policy(**days: int | bool) -> RetentionSettings:
    """Return the usual policy with other days; names without their prefix."""
    return EVERYTHING.model_copy(update={f"retention_{name}": value for name, value in days.items()})


class _Steps:
    left = 0

    @classmethod
    def step(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class _Connection(AsyncConnection[Any]):
    async def execute(self, *args: Any, **options: Any) -> Any:
        _Steps.step()
        return await super().execute(*args, **options)


class _Blobs(FolderBlobRepository):
    async def upload(self, source: Path, ref: BlobRef) -> BlobInfo:
        _Steps.step()
        info = await super().upload(source, ref)
        _Steps.step()
        return info

    async def entries(self, container: str) -> AsyncIterator[BlobEntry]:
        _Steps.step()
        async for entry in super().entries(container):
            yield entry

    async def delete_prefix(self, container: str, prefix: str) -> int:
        _Steps.step()
        folder = self.local_path(BlobRef(container, prefix.rstrip("/")))
        for path in sorted(folder.rglob("*") if folder else ()):
            if path.is_file():
                path.unlink()
                _Steps.step()
        return await super().delete_prefix(container, prefix)


async def _run(dsn: str, root: Path) -> list[Swept]:
    async with await _Connection.connect(dsn, autocommit=True) as conn:
        return await sweep(conn, EVERYTHING, _Blobs(root), dry_run=False)


def main() -> None:
    """Run as often as it is told."""
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            _Steps.left = int(line)
            asyncio.run(_run(sys.argv[1], Path(sys.argv[2])))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print({-signal.SIGKILL: "killed", 0: "done"}.get(status, f"failed with {status}"), flush=True)


if __name__ == "__main__":
    main()
