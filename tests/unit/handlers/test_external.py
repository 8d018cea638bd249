"""Copies to the external zone by the handlers, made by ourselves and by a Data Factory on loopback."""

import hashlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import DataError, GeodagError, TransientError
from core.external_params import ExportParams, WithdrawParams
from core.ports import BlobRef, ExternalExport
from handlers import external
from handlers.context import Checkpoint, InlineContext, TaskCancelled, TaskInfo, no_fetch
from repositories.blobs_folder import FolderBlobRepository
from repositories.data_factory import DataFactoryExport
from repositories.external_zone import CopyExport
from tests.support.data_factory import FACTORY, TOKEN, DataFactory, data_factory

CONTENT = b"pixels" * 1000
FOLDER = hashlib.sha256(b"job_export_0").hexdigest()[:16]
PARAMS = ExportParams(blob_path="silver/a/0/r1/t/cog.tif", size_bytes=len(CONTENT), output_prefix="external/a/0/r1-e")


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobRepository:
    path = tmp_path / "silver/a/0/r1/t/cog.tif"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return FolderBlobRepository(tmp_path)


@pytest.fixture
async def peer(blobs: FolderBlobRepository, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DataFactory]:
    monkeypatch.setattr(external, "POLL_SECONDS", 0.01)
    async with data_factory(blobs) as running:
        yield running


def factory(peer: DataFactory, blobs: FolderBlobRepository, token: str = TOKEN) -> DataFactoryExport:
    async def fetched() -> str:
        return token

    return DataFactoryExport(blobs, FACTORY, "copy blob", fetched, peer.url)


class Saved:
    """Checkpoints of a task, as the orchestrators keep them."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None

    def context(self, exporter: ExternalExport, task_id: str = "job_export_0") -> InlineContext:
        return InlineContext(
            task=TaskInfo(task_id, "job", "export", 0),
            params={},
            logger=logging.LoggerAdapter(logging.getLogger("test")),
            checkpoint=Checkpoint(self.kept, lambda saved: setattr(self, "kept", saved)),
            report=lambda progress: None,
            open_transaction=None,  # type: ignore[arg-type]
            write_journal=lambda line: None,
            fetch=no_fetch,
            external=exporter,
        )


async def test_a_file_is_copied_under_the_attempts_name_and_withdrawn_with_its_folder(
    blobs: FolderBlobRepository,
) -> None:
    exporter = CopyExport(blobs)
    done = await external.export(Saved().context(exporter), PARAMS)
    path = "external/a/0/r1-e/" + FOLDER + "/cog.tif"
    assert done.output.model_dump() == {  # type: ignore[union-attr]
        "external_blob_path": path,
        "run_id": "copy-job_export_0",
        "size_bytes": len(CONTENT),
    }
    assert await blobs.read(BlobRef.parse(path), 1 << 20) == CONTENT
    for removed in (1, 0):
        gone = await external.withdraw(Saved().context(exporter), WithdrawParams(folder="external/a/0/r1-e"))
        assert gone.output.model_dump() == {"removed": removed}  # type: ignore[union-attr]
    with pytest.raises(DataError) as failure:
        await exporter.size_bytes(BlobRef.parse(path))
    assert failure.value.detail.code == "FILE_NOT_FOUND"


async def test_a_pipeline_run_copies_and_its_id_is_kept(peer: DataFactory, blobs: FolderBlobRepository) -> None:
    saved = Saved()
    done = await external.export(saved.context(factory(peer, blobs)), PARAMS)
    assert done.output.model_dump()["run_id"] == "run-1"  # type: ignore[union-attr]
    assert peer.runs["run-1"].parameters == {
        "sourceContainer": "silver",
        "sourceName": "a/0/r1/t/cog.tif",
        "targetContainer": "external",
        "targetName": "a/0/r1-e/" + FOLDER + "/cog.tif",
        "reference": "job_export_0",
    }
    assert peer.runs["run-1"].looked == 2


async def test_the_next_attempt_follows_the_run_that_the_last_one_began(
    peer: DataFactory, blobs: FolderBlobRepository
) -> None:
    saved, exporter = Saved(), factory(peer, blobs)
    peer.looks, lost = 10**6, saved.context(exporter)
    lost.stop.set()
    with pytest.raises(TaskCancelled):
        await external.export(lost, PARAMS)
    peer.looks = 0
    done = await external.export(saved.context(exporter, "job_export_1"), PARAMS)
    assert len(peer.runs) == 1
    assert done.output.model_dump()["external_blob_path"] == "external/a/0/r1-e/" + FOLDER + "/cog.tif"  # type: ignore[union-attr]


async def test_a_failed_run_is_told_and_the_next_attempt_begins_another(
    peer: DataFactory, blobs: FolderBlobRepository
) -> None:
    saved, exporter = Saved(), factory(peer, blobs)
    peer.fail = "no route to the sink"
    with pytest.raises(TransientError, match="run-1 failed: no route") as failure:
        await external.export(saved.context(exporter), PARAMS)
    assert failure.value.detail.code == "EXPORT_FAILED"
    peer.fail = None
    done = await external.export(saved.context(exporter, "job_export_1"), PARAMS)
    assert done.output.model_dump()["run_id"] == "run-2"  # type: ignore[union-attr]


async def test_a_copy_of_another_size_is_refused(blobs: FolderBlobRepository) -> None:
    other = PARAMS.model_copy(update={"size_bytes": 1})
    with pytest.raises(DataError) as failure:
        await external.export(Saved().context(CopyExport(blobs)), other)
    assert failure.value.detail.code == "EXPORT_INCOMPLETE"


@pytest.mark.parametrize("refusal", [(401, "x"), (403, "AuthorizationFailed"), (429, "TooMany"), (500, "Internal")])
async def test_a_refusal_is_transient_and_repeats_no_message(
    peer: DataFactory, blobs: FolderBlobRepository, refusal: tuple[int, str]
) -> None:
    peer.refuse = refusal
    with pytest.raises(TransientError) as failure:
        await factory(peer, blobs).start(BlobRef("silver", "a"), BlobRef("external", "b/c"), "r")
    assert failure.value.detail.code == "EXPORT_UNAVAILABLE"
    assert f"HTTP {refusal[0]} {refusal[1]}" in str(failure.value)
    assert "names of things" not in str(failure.value)


async def test_wrong_tokens_unknown_runs_and_a_dead_endpoint_are_transient(
    peer: DataFactory, blobs: FolderBlobRepository
) -> None:
    with pytest.raises(TransientError, match="401 AuthenticationFailed"):
        await factory(peer, blobs, "stale").look("run-1")
    with pytest.raises(TransientError, match="404 PipelineRunNotFound"):
        await factory(peer, blobs).look("run-9")
    peer.url = "http://127.0.0.1:9"
    with pytest.raises(TransientError, match="ClientConnectorError"):
        await factory(peer, blobs).look("run-1")


async def test_what_cannot_be_exported_is_said_by_a_worker_without_a_zone() -> None:
    with pytest.raises(GeodagError, match="external"):
        await external.export(
            InlineContext(
                task=TaskInfo("t", "j", "n", 0),
                params={},
                logger=logging.LoggerAdapter(logging.getLogger("test")),
                checkpoint=Checkpoint(None, lambda saved: None),
                report=lambda progress: None,
                open_transaction=None,  # type: ignore[arg-type]
                write_journal=lambda line: None,
            ),
            PARAMS,
        )
