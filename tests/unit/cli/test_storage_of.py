"""Which storage belongs to a home: what the platform was started with last."""

import json
from pathlib import Path

from cli.stack.certificates import self_signed
from cli.stack.storage import storage_of
from core.ports import BlobRef


async def test_a_home_has_folders_or_the_azurite_that_was_started_with_it(tmp_path: Path) -> None:
    folders = storage_of(tmp_path)
    assert folders.local_path(BlobRef("silver", "a")) == tmp_path / "blobs/silver/a"
    (tmp_path / "stack.json").write_text(json.dumps({"ports": {"azurite": 10000}}))
    azurite = storage_of(tmp_path)
    assert azurite.local_path(BlobRef("silver", "a")) is None
    assert azurite.locate("http://127.0.0.1:10000/geodaglocal/silver/a") == BlobRef("silver", "a")
    await azurite.close()
    self_signed(tmp_path / "tls")
    (tmp_path / "stack.json").write_text(json.dumps({"ports": {"azurite": 10000, "identity": 10001}}))
    behind_tls = storage_of(tmp_path)
    assert behind_tls.locate("https://127.0.0.1:10000/geodaglocal/silver/a") == BlobRef("silver", "a")
    await behind_tls.close()
