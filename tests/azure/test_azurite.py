"""The storage that the other tests of this folder rely on is the one they think it is."""

import secrets

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError
from azure.storage.blob.aio import BlobServiceClient

from cli.stack.azurite import Azurite


async def test_blobs_are_kept_compared_and_guarded_by_the_key(azurite: Azurite) -> None:
    content, name = secrets.token_bytes(9 << 20), f"harness{secrets.token_hex(4)}"
    blocks = {"max_single_put_size": 1 << 20, "max_block_size": 1 << 20}
    async with BlobServiceClient.from_connection_string(azurite.connection_string, **blocks) as service:
        container = await service.create_container(name)
        blob = container.get_blob_client("a/ü b+c.tif")
        first = await blob.upload_blob(content, max_concurrency=4)
        assert await (await blob.download_blob(max_concurrency=4)).readall() == content
        with pytest.raises(ResourceExistsError):
            await blob.upload_blob(b"another", overwrite=False)
        await blob.upload_blob(b"newer", overwrite=True)
        with pytest.raises(ResourceModifiedError):
            await blob.delete_blob(etag=first["etag"], match_condition=MatchConditions.IfNotModified)
    stranger = azurite.connection_string.replace(azurite.encoded_key, "c3RyYW5nZXI=")
    async with BlobServiceClient.from_connection_string(stranger, retry_total=0) as service:
        with pytest.raises(HttpResponseError) as refused:
            await service.get_blob_client(name, "a/ü b+c.tif").get_blob_properties()
    assert refused.value.status_code == 403
