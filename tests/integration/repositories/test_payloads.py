"""Values behind references: stored once, verified whenever they are read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.errors import Conflict, ParameterInvalid
from core.payloads import PayloadLost, PayloadRef, decode, encode, ref_to, value_prefix
from core.ports import BlobRepository
from repositories.payloads import PayloadStore
from tests.support.storage import Storage

VALUE = {"rows": ["ä" * 10, 2**70, 0.1, None] * 20_000}
DATA = encode(VALUE, "value")
PREFIX = value_prefix("job1")


@pytest.fixture
def store(blobs: BlobRepository) -> PayloadStore:
    return PayloadStore(blobs)


async def parts_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_stored_value_comes_back_exactly(store: PayloadStore, tmp_path: Path) -> None:
    ref = await store.put(PREFIX, DATA)
    assert decode(ref, await store.get(ref)) == VALUE
    assert b"".join([part async for part in store.stream(ref)]) == DATA
    assert (await store.stage(ref, tmp_path)).read_bytes() == DATA


async def test_the_same_value_is_stored_once(store: PayloadStore, storage: Storage, tmp_path: Path) -> None:
    assert await store.put(PREFIX, DATA) == await store.put(PREFIX, DATA)
    source = tmp_path / "copy"
    source.write_bytes(DATA)
    assert await store.put_file(ref_to(PREFIX, DATA), source) == await store.put(PREFIX, DATA)
    assert len(storage.paths(f"silver/{PREFIX}")) == 1


async def test_something_else_under_the_name_is_found_when_storing(store: PayloadStore, storage: Storage) -> None:
    ref = await store.put(PREFIX, DATA)
    storage.put(f"silver/{ref.blob}", b"{}")
    with pytest.raises(PayloadLost) as caught:
        await store.put(PREFIX, DATA)
    assert caught.value.detail.code == "PAYLOAD_CORRUPT"


@pytest.mark.parametrize("damage", [DATA[:-1], DATA + b" ", DATA.replace(b"0.1", b"0.2")])
async def test_a_damaged_value_is_found_by_every_reader(store: PayloadStore, storage: Storage, damage: bytes) -> None:
    ref = await store.put(PREFIX, DATA)
    storage.put(f"silver/{ref.blob}", damage)
    for read in (store.get(ref), store.check(ref)):
        with pytest.raises(PayloadLost) as caught:
            await read
        assert (caught.value.detail.code, caught.value.detail.field) == ("PAYLOAD_CORRUPT", ref.blob)
    with pytest.raises(PayloadLost):
        decode(ref, damage)


async def test_a_missing_value_is_found_by_every_reader(store: PayloadStore, storage: Storage, tmp_path: Path) -> None:
    ref = await store.put(PREFIX, DATA)
    storage.remove(f"silver/{ref.blob}")
    for read in (store.get(ref), store.check(ref), store.stage(ref, tmp_path)):
        with pytest.raises(PayloadLost) as caught:
            await read
        assert caught.value.detail.code == "PAYLOAD_MISSING"


async def test_a_stream_is_stored_under_its_own_name(store: PayloadStore) -> None:
    name = "payloads/job1/merge/one.json"
    ref = await store.put_stream(name, parts_of(b"[1,", b"2]"))
    assert (ref.blob, decode(ref, await store.get(ref))) == (name, [1, 2])
    with pytest.raises(Conflict):
        await store.put_stream(name, parts_of(b"[]"))
    with pytest.raises(ParameterInvalid):
        await store.put_stream("payloads/job1/merge/two.json", parts_of(b"12345"), max_bytes=4)


async def test_lines_come_one_by_one_however_the_parts_fall(store: PayloadStore) -> None:
    lines = [b"x" * length for length in (0, 1, 300_000, 5)]
    ref = await store.put(PREFIX, b"\n".join(lines))
    assert [line async for line in store.lines(ref)] == lines
    ended = await store.put(PREFIX, b"a\nb\n")
    assert [line async for line in store.lines(ended)] == [b"a", b"b"]


async def test_all_values_of_a_job_go_together(store: PayloadStore, storage: Storage) -> None:
    await store.put(PREFIX, DATA)
    await store.put("payloads/job1/job1_a_0/", b"{}")
    kept = await store.put(value_prefix("job10"), DATA)
    assert set(await store.jobs()) == {"job1", "job10"}
    assert await store.remove("job1") == 2
    await store.check(kept)
    assert all(path.startswith("silver/payloads/job10/") for path in storage.paths())


def test_a_reference_names_only_stored_values() -> None:
    with pytest.raises(ValueError):
        PayloadRef(blob="asset/0/r1/x.tif", size_bytes=1, sha256="0" * 64)
