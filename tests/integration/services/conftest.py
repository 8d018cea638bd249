"""Fixtures of the engine's services."""

import pytest

from repositories.database import AsyncPool
from tests.support.engine import Engine, HandWorker


@pytest.fixture
def engine(pool: AsyncPool) -> Engine:
    """Return the engine's services over a fresh database."""
    return Engine(pool)


@pytest.fixture
def worker(engine: Engine) -> HandWorker:
    """Return a worker driven by hand."""
    return HandWorker(engine)
