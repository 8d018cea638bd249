"""Fixtures of the engine's services."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from repositories.database import AsyncPool
from tests.support.engine import Engine, HandWorker


@pytest.fixture
async def engine(pool: AsyncPool, tmp_path: Path) -> AsyncIterator[Engine]:
    """Return the engine's services over a fresh database."""
    engine = Engine(pool, blob_root=tmp_path / "blobs")
    yield engine
    await engine.desk.close()


@pytest.fixture
def worker(engine: Engine) -> HandWorker:
    """Return a worker driven by hand."""
    return HandWorker(engine)
