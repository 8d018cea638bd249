import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.errors import Conflict, DataError, ParameterInvalid
from core.ports import BlobRef, BlobRepository
from repositories.blobs_folder import FolderBlobRepository

REF = BlobRef("bronze", "in/a.tif")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root: Path) -> BlobRepository:
    return FolderBlobRepository(root)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"0123456789")
    return path


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_an_uploaded_blob_is_a_copy(blobs: BlobRepository, source: Path, tmp_path: Path) -> None:
    info = await blobs.upload(source, REF)
    put(source, b"changed")
    assert info.size_bytes == 10
    assert (await blobs.stage(REF, tmp_path)).read_bytes() == b"0123456789"


async def test_a_blob_is_never_overwritten(blobs: BlobRepository, source: Path, root: Path) -> None:
    await blobs.upload(source, REF)
    with pytest.raises(Conflict) as caught:
        await blobs.upload(source, REF)
    with pytest.raises(Conflict):
        await blobs.write_stream(REF, chunks(b"x"), 10)
    assert caught.value.detail.code == "BLOB_EXISTS"
    assert files(root) == ["bronze/in/a.tif"]


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


@pytest.mark.parametrize("name", ["missing.tif", "in", "in/a.tif/below"])
async def test_no_blob_is_file_not_found(blobs: BlobRepository, source: Path, tmp_path: Path, name: str) -> None:
    await blobs.upload(source, REF)
    for call in (blobs.stat(BlobRef("bronze", name)), blobs.stage(BlobRef("bronze", name), tmp_path)):
        with pytest.raises(DataError) as caught:
            await call
        assert caught.value.detail.code == "FILE_NOT_FOUND"


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


async def test_deleting_a_prefix_spares_the_neighbours(blobs: BlobRepository, source: Path, root: Path) -> None:
    for name in ("a/1/x", "a/1/y/z", "a/10/x"):
        await blobs.upload(source, BlobRef("silver", name))
    assert await blobs.delete_prefix("silver", "a/1/") == 2
    assert files(root) == ["silver/a/10/x"]
    assert await blobs.delete_prefix("silver", "a/1") == 0


async def test_bytes_come_back_whole_in_part_and_as_a_stream(blobs: BlobRepository) -> None:
    content = bytes(range(256)) * 3000
    assert (await blobs.create(REF, content)).size_bytes == len(content)
    assert await blobs.read(REF, len(content) + 1) == content
    assert await blobs.read(REF, 3) == content[:3]
    parts = [part async for part in blobs.stream(REF)]
    assert b"".join(parts) == content
    assert len(parts) > 1


async def test_of_many_creations_of_one_name_exactly_one_wins(blobs: BlobRepository, root: Path) -> None:
    results = await asyncio.gather(*(blobs.create(REF, bytes([n]) * 9) for n in range(8)), return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 7
    assert files(root) == ["bronze/in/a.tif"]


async def test_reading_what_is_not_there_is_file_not_found(blobs: BlobRepository) -> None:
    with pytest.raises(DataError):
        await blobs.read(REF, 1)
    with pytest.raises(DataError):
        await anext(aiter(blobs.stream(REF)))


async def test_folders_are_those_directly_below(blobs: BlobRepository) -> None:
    for name in ("p/a/1", "p/a/b/2", "p/c/3", "p/file"):
        await blobs.create(BlobRef("silver", name), b"x")
    assert [folder.prefix for folder in await blobs.folders("silver", "p/")] == ["p/a/", "p/c/"]
    assert await blobs.folders("silver", "none/") == []
