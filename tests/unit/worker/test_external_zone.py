"""Which external zone a worker gets: what its settings say, and nothing else."""

from pathlib import Path

import pytest

from core.errors import TransientError
from repositories.blobs_folder import FolderBlobRepository
from repositories.data_factory import DataFactoryExport
from repositories.external_zone import CopyExport
from repositories.settings import SettingsError
from tests.peers.identity.server import running as identity_peer
from tests.support.data_factory import data_factory
from worker.main import external_zone
from worker.settings import WorkerSettings

FACTORY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.DataFactory/factories/f"
WORKER = {
    "POSTGRES_HOST": "/tmp",
    "POSTGRES_DB": "x",
    "POSTGRES_USER": "x",
    "WORKER_QUEUE": "functionapp-tasks",
    "WORKER_TYPE": "light",
    "WORKER_STATE_DIR": "/tmp/state",
    "WORKER_SCRATCH_DIR": "/tmp/scratch",
    "WORKER_HEALTH_PORT": "0",
    "WORKER_SERVICE_KEY": "k",
    "DAG_CALLBACK_URL": "http://127.0.0.1:9/api/v1/callbacks",
    "BLOB_ROOT": "/tmp/blobs",
}
BLOBS = FolderBlobRepository(Path(WORKER["BLOB_ROOT"]))
IDENTITY = {
    "USE_MANAGED_IDENTITY": "true",
    "IDENTITY_ENDPOINT": "http://127.0.0.1:9",
    "IDENTITY_HEADER": "h",
    "IDENTITY_PATIENCE_SECONDS": "0",
}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_without_a_factory_the_worker_copies_by_itself(settings: pytest.MonkeyPatch) -> None:
    assert isinstance(external_zone(WorkerSettings.load(), BLOBS), CopyExport)


def test_a_factory_that_is_named_is_the_zone(settings: pytest.MonkeyPatch) -> None:
    for name, value in {**IDENTITY, "ADF_FACTORY_ID": FACTORY}.items():
        settings.setenv(name, value)
    assert isinstance(external_zone(WorkerSettings(), BLOBS), DataFactoryExport)  # type: ignore[call-arg]


async def test_the_factory_is_asked_with_a_token_of_the_identity_for_the_management(
    settings: pytest.MonkeyPatch,
) -> None:
    with identity_peer() as identity:
        async with data_factory(BLOBS) as factory:
            for name, value in {
                **identity.environment(),
                "ADF_FACTORY_ID": FACTORY,
                "ADF_ENDPOINT": factory.url,
            }.items():
                settings.setenv(name, value)
            zone = external_zone(WorkerSettings.load(), BLOBS)
            with pytest.raises(TransientError, match="404"):
                await zone.look("run-1")
    assert identity.queries[-1]["resource"] == "https://management.azure.com"


@pytest.mark.parametrize("factory", [FACTORY, "my-factory"], ids=["no-identity", "no-resource-id"])
def test_a_factory_that_cannot_be_entered_stops_the_start(settings: pytest.MonkeyPatch, factory: str) -> None:
    settings.setenv("ADF_FACTORY_ID", factory)
    with pytest.raises(SettingsError, match="ADF_FACTORY_ID"):
        WorkerSettings.load()


def test_a_misspelt_name_stops_the_start(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("ADF_FACTORYID", FACTORY)
    with pytest.raises(SettingsError, match="ADF_FACTORYID: unknown variable"):
        WorkerSettings.load()
