"""The storage of a local stack, as commands see it that work beside the platform."""

import base64
from pathlib import Path
from typing import Final

from cli.stack.azurite import Azurite
from cli.stack.credentials import ensure_credentials
from cli.stack.files import read_json
from cli.stack.layout import ACCOUNT, Home
from core.ports import BlobRepository
from repositories.blobs_folder import FolderBlobRepository

SIGNATURE_SECONDS: Final = 3600


def storage_of(root: Path) -> BlobRepository:
    """Return what holds the files of a home: its folders, or the Azurite that was started with it last."""
    home = Home(root)
    ports = (read_json(home.state_file) or {}).get("ports", {})
    if (port := ports.get("azurite")) is None:
        return FolderBlobRepository(home.blobs)
    from repositories.blobs_azure import connect  # whoever has folders never loads the SDK

    key = base64.b64decode(ensure_credentials(root).storage_key)
    certificate = home.certificate if "identity" in ports else None
    azurite = Azurite(ACCOUNT, key, port, certificate=certificate)
    return connect(azurite.connection_string, signature_seconds=SIGNATURE_SECONDS, ca_file=certificate)
