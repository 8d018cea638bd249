"""Fixtures of the engine's services."""

from collections.abc import AsyncIterator

import pytest

from core.ports import BlobRepository
from repositories.database import AsyncPool
from tests.support.engine import Engine, HandWorker


@pytest.fixture
async def engine(pool: AsyncPool, blobs: BlobRepository) -> AsyncIterator[Engine]:
    """Return the engine's services over a fresh database."""
    engine = Engine(pool, blobs=blobs)
    yield engine
    await engine.desk.close()


@pytest.fixture
def worker(engine: Engine) -> HandWorker:
    """Return a worker driven by hand."""
    return HandWorker(engine)
