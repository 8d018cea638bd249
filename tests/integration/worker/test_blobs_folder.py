import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.errors import Conflict, ParameterInvalid, StorageUnavailable
from core.ports import BlobRef, BlobRepository
from repositories.blobs_folder import FolderBlobRepository
from tests.support.blob_contract import REF, BlobContract, chunks


class TestFolders(BlobContract):
    """Folders keep the contract."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root: Path) -> BlobRepository:
    root.mkdir()
    return FolderBlobRepository(root)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"0123456789")
    return path


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_of_many_concurrent_uploads_of_one_name_exactly_one_wins(blobs: BlobRepository, root: Path) -> None:
    results = await asyncio.gather(
        *(blobs.write_stream(REF, chunks(bytes([n]) * 1000), 1000) for n in range(8)), return_exceptions=True
    )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert len(set((root / "bronze/in/a.tif").read_bytes())) == 1
    assert files(root) == ["bronze/in/a.tif"]


async def test_a_stream_above_the_limit_leaves_nothing(blobs: BlobRepository, root: Path) -> None:
    with pytest.raises(ParameterInvalid) as caught:
        await blobs.write_stream(REF, chunks(b"12345", b"678901"), 10)
    assert caught.value.detail.field == "size"
    assert files(root) == []


async def test_a_stream_that_breaks_leaves_nothing(blobs: BlobRepository, root: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"123"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await blobs.write_stream(REF, broken(), 10)
    assert files(root) == []


async def test_the_etag_changes_with_the_content(blobs: BlobRepository, source: Path, root: Path) -> None:
    first = await blobs.upload(source, REF)
    assert (await blobs.stat(REF)).etag == first.etag
    (root / "bronze/in/a.tif").write_bytes(b"other")
    assert (await blobs.stat(REF)).etag != first.etag


async def test_links_are_refused_wherever_they_stand(blobs: BlobRepository, root: Path, tmp_path: Path) -> None:
    (root / "bronze").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("k")
    os.symlink(secret / "key", root / "bronze/file")
    os.symlink(secret, root / "bronze/folder")
    for name in ("file", "folder/key"):
        with pytest.raises(ParameterInvalid):
            await blobs.stat(BlobRef("bronze", name))
        with pytest.raises(ParameterInvalid):
            await blobs.write_stream(BlobRef("bronze", name), chunks(b"x"), 10)
    assert (secret / "key").read_text() == "k"


async def test_a_segment_too_long_for_the_disk_is_the_callers_error(blobs: BlobRepository) -> None:
    with pytest.raises(ParameterInvalid):
        await blobs.write_stream(BlobRef("bronze", "x" * 300), chunks(b"x"), 10)


async def test_of_many_creations_of_one_name_exactly_one_wins(blobs: BlobRepository, root: Path) -> None:
    results = await asyncio.gather(*(blobs.create(REF, bytes([n]) * 9) for n in range(8)), return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7
    assert files(root) == ["bronze/in/a.tif"]


async def test_without_its_folder_the_storage_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        await FolderBlobRepository(tmp_path / "none").probe()
