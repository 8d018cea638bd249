"""What every `BlobRepository` does. A test class inherits this and gives a fixture `blobs`, empty for each test."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.errors import Conflict, DataError, ParameterInvalid
from core.ports import BlobRef, BlobRepository

REF = BlobRef("bronze", "in/a.tif")
STRANGE = BlobRef("silver", "Größe & Maß/a+b %41 #1?x=1 'q'/ü.tif")
"""Every character that something on the way could take for its own."""


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    """Yield parts as a stream."""
    for part in parts:
        yield part


class BlobContract:
    """The promises of the port."""

    large_bytes = 3_000_001
    """More than one part of the adapter's."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        """Return a local file of ten bytes."""
        path = tmp_path / "source.bin"
        path.write_bytes(b"0123456789")
        return path

    def _large(self) -> bytes:
        return hashlib.shake_128(b"large").digest(self.large_bytes)

    async def test_an_uploaded_blob_is_a_copy(self, blobs: BlobRepository, source: Path, scratch: Path) -> None:
        info = await blobs.upload(source, REF)
        await asyncio.to_thread(source.write_bytes, b"changed")
        assert info.size_bytes == 10
        assert await blobs.stat(REF) == info
        assert (await blobs.stage(REF, scratch)).read_bytes() == b"0123456789"

    async def test_large_blobs_come_back_as_they_went(
        self, blobs: BlobRepository, tmp_path: Path, scratch: Path
    ) -> None:
        content, path = self._large(), tmp_path / "large.bin"
        await asyncio.to_thread(path.write_bytes, content)
        assert (await blobs.upload(path, REF)).size_bytes == len(content)
        assert (await blobs.stage(REF, scratch)).read_bytes() == content
        assert await blobs.read(REF, len(content) - 5) == content[:-5]
        parts = [part async for part in blobs.stream(REF)]
        assert len(parts) > 1
        assert b"".join(parts) == content
        middle = [part async for part in blobs.stream(REF, 1000, self.large_bytes // 2)]
        assert b"".join(middle) == content[1000 : 1000 + self.large_bytes // 2]
        pieces = [content[start : start + 700_001] for start in range(0, len(content), 700_001)]
        sent = await blobs.write_stream(BlobRef("silver", "streamed"), chunks(*pieces), len(content))
        assert sent.size_bytes == len(content)
        assert await blobs.read(sent.ref, len(content) + 1) == content

    async def test_names_pass_unchanged_and_neighbours_stay_together(
        self, blobs: BlobRepository, source: Path, scratch: Path
    ) -> None:
        beside = BlobRef(STRANGE.container, STRANGE.name.replace("ü.tif", "ü.tfw"))
        await blobs.upload(source, STRANGE)
        await blobs.create(beside, b"beside")
        first, second = await blobs.stage(STRANGE, scratch), await blobs.stage(beside, scratch)
        assert (first.name, second.name, first.parent) == ("ü.tif", "ü.tfw", second.parent)
        assert (await blobs.stat(STRANGE)).ref == STRANGE
        assert await blobs.delete_prefix(STRANGE.container, "Größe & Maß/") == 2

    async def test_a_blob_is_never_overwritten(self, blobs: BlobRepository, source: Path) -> None:
        await blobs.upload(source, REF)
        for attempt in (
            blobs.upload(source, REF),
            blobs.create(REF, b"x"),
            blobs.write_stream(REF, _never_read(), 10),
            blobs.copy(REF, REF),
        ):
            with pytest.raises(Conflict) as caught:
                await attempt
            assert caught.value.detail.code == "BLOB_EXISTS"
        assert await blobs.read(REF, 100) == b"0123456789"

    async def test_of_many_writers_of_one_name_exactly_one_wins(self, blobs: BlobRepository) -> None:
        results = await asyncio.gather(
            *(blobs.create(REF, bytes([n]) * 9) for n in range(4)),
            *(blobs.write_stream(REF, chunks(bytes([n]) * 9), 9) for n in range(4, 8)),
            return_exceptions=True,
        )
        assert [type(result) for result in results].count(Conflict) == 7, results
        assert len(set(await blobs.read(REF, 100))) == 1

    async def test_of_many_writers_of_large_blobs_exactly_one_wins(self, blobs: BlobRepository) -> None:
        content = self._large()
        results = await asyncio.gather(
            *(blobs.write_stream(REF, chunks(bytes([n]) + content), 1 << 30) for n in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results].count(Conflict) == 2, results
        assert (await blobs.read(REF, len(content) + 2))[1:] == content

    async def test_a_stream_above_the_limit_leaves_nothing(self, blobs: BlobRepository) -> None:
        content = self._large()
        for parts, limit in (((b"12345", b"678901"), 10), ((content, content), len(content) + 1)):
            with pytest.raises(ParameterInvalid) as caught:
                await blobs.write_stream(REF, chunks(*parts), limit)
            assert caught.value.detail.field == "size"
        await self._is_free(blobs)

    async def test_a_stream_that_breaks_leaves_nothing(self, blobs: BlobRepository) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield self._large()
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await blobs.write_stream(REF, broken(), 1 << 30)
        await self._is_free(blobs)

    @pytest.mark.parametrize("name", ["missing.tif", "in", "in/a.tif/below"])
    async def test_no_blob_is_file_not_found(
        self, blobs: BlobRepository, source: Path, scratch: Path, name: str
    ) -> None:
        await blobs.upload(source, REF)
        ref = BlobRef("bronze", name)
        for call in (
            blobs.stat(ref),
            blobs.stage(ref, scratch),
            blobs.read(ref, 1),
            anext(aiter(blobs.stream(ref))),
            blobs.copy(ref, BlobRef("silver", "copy")),
        ):
            with pytest.raises(DataError) as caught:
                await call
            assert caught.value.detail.code == "FILE_NOT_FOUND"

    async def test_names_that_no_blob_has_are_refused_everywhere(self, blobs: BlobRepository, scratch: Path) -> None:
        for ref in (
            BlobRef("copper", "a"),
            BlobRef("bronze", "../a"),
            BlobRef("bronze", "a//b"),
            BlobRef("bronze", ""),
        ):
            for call in (
                blobs.stat(ref),
                blobs.create(ref, b"x"),
                blobs.stage(ref, scratch),
                blobs.gdal_source(ref),
                blobs.delete_prefix(ref.container, ref.name),
            ):
                with pytest.raises(ParameterInvalid):
                    await call

    async def test_deleting_a_prefix_spares_the_neighbours(self, blobs: BlobRepository) -> None:
        for name in ("a/1/x", "a/1/y/z", "a/10/x", "a/1x"):
            await blobs.create(BlobRef("silver", name), b"x")
        assert await blobs.delete_prefix("silver", "a/1/") == 2
        assert await blobs.delete_prefix("silver", "a/1") == 0
        assert await blobs.delete_prefix("silver", "a/1x") == 1
        assert await blobs.read(BlobRef("silver", "a/10/x"), 1) == b"x"

    async def test_small_and_empty_blobs(self, blobs: BlobRepository, scratch: Path) -> None:
        assert (await blobs.create(REF, b"")).size_bytes == 0
        assert await blobs.read(REF, 100) == b""
        assert [part async for part in blobs.stream(REF)] == []
        assert (await blobs.stage(REF, scratch)).read_bytes() == b""
        await blobs.create(BlobRef("bronze", "b"), b"123")
        assert await blobs.read(BlobRef("bronze", "b"), 2) == b"12"

    async def test_folders_are_those_directly_below(self, blobs: BlobRepository) -> None:
        for name in ("p/a/1", "p/a/b/2", "p/c/3", "p/file"):
            await blobs.create(BlobRef("silver", name), b"x")
        assert [folder.prefix for folder in await blobs.folders("silver", "p/")] == ["p/a/", "p/c/"]
        assert await blobs.folders("silver", "none/") == []

    async def test_a_zone_tells_of_its_blobs_folder_by_folder(self, blobs: BlobRepository) -> None:
        names = ("p/a/1", "p/a.b/2", "p/a/b/3", "q", STRANGE.name)
        for name in names:
            await blobs.create(BlobRef("silver", name), b"xy")
        found = [entry async for entry in blobs.entries("silver")]
        assert {entry.name for entry in found} == set(names)
        assert {entry.size_bytes for entry in found} == {2}
        assert all(entry.modified_at.tzinfo is not None for entry in found)
        under = [entry.name.startswith("p/a/") for entry in found]
        assert under.index(True) + under.count(True) == len(under) - under[::-1].index(True)
        assert [entry async for entry in blobs.entries("external")] == []

    async def test_copies_go_from_zone_to_zone(self, blobs: BlobRepository) -> None:
        content, target = self._large(), BlobRef("external", "out/ü+1.tif")
        await blobs.create(STRANGE, content)
        assert (await blobs.copy(STRANGE, target)).size_bytes == len(content)
        assert await blobs.read(target, len(content) + 1) == content

    async def test_paths_name_blobs_and_nothing_else(self, blobs: BlobRepository) -> None:
        assert blobs.locate("bronze/in/a.tif") == REF
        for path in (
            "/etc/passwd",
            "/vsicurl/https://x.example/a",
            "https://x.example/bronze/a?sig=1",
            "zone/a",
            "bronze",
        ):
            with pytest.raises(ParameterInvalid) as refused:
                blobs.locate(path)
            assert "sig=1" not in str(refused.value)
        await blobs.probe()

    async def _is_free(self, blobs: BlobRepository) -> None:
        with pytest.raises(DataError):
            await blobs.stat(REF)
        await blobs.create(REF, b"free")


async def _never_read() -> AsyncIterator[bytes]:
    raise AssertionError("the stream was read although the name is taken")
    yield b""
