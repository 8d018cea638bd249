"""Which storage holds the blobs: settings choose, and nothing falls back from one to another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from pydantic import Field, SecretStr, model_validator

from core.ports import BlobRepository
from repositories.blob_names import CONTAINERS
from repositories.blobs_folder import FolderBlobRepository
from repositories.managed_identity import ManagedIdentity
from repositories.settings import DatabaseSettings, SettingsError

DEFAULT_URL: Final = "https://{account}.blob.core.windows.net"


class BlobSettings(DatabaseSettings):
    """Where the zones bronze, silver and external lie: exactly one of three."""

    blob_root: Path | None = Field(None, description="Folder of the zones bronze, silver and external.")
    azure_storage_account_name: str | None = Field(
        None,
        pattern=r"^[a-z0-9]*(\{zone\})?[a-z0-9]*$",
        description="Or the storage account with these containers, entered by the managed identity; with {zone} in its "
        "name, each zone has its own.",
    )
    blob_connection_string: SecretStr | None = Field(
        None, description="Or the same by its key; for emulators. Under no name that GDAL reads by itself."
    )
    blob_url: str | None = Field(None, description=f"Address of an account; default: {DEFAULT_URL}.")
    blob_ca_file: Path | None = Field(
        None, description="Certificates to trust for that address; default: those of the system."
    )
    blob_signature_seconds: float = Field(
        3600,
        ge=1,
        le=86400,
        description="Life of a signature that opens one blob for GDAL; half is left when it is used.",
    )

    @model_validator(mode="after")
    def _one_storage(self) -> Self:
        """Refuse none and several."""
        named = ("blob_root", "azure_storage_account_name", "blob_connection_string")
        if sum(getattr(self, name) is not None for name in named) != 1:
            raise ValueError(f"expected exactly one of {', '.join(map(str.upper, named))}")
        if self.azure_storage_account_name is not None and not self.use_managed_identity:
            raise ValueError("AZURE_STORAGE_ACCOUNT_NAME needs USE_MANAGED_IDENTITY")
        if self.blob_connection_string is not None and self.use_managed_identity:
            raise ValueError("USE_MANAGED_IDENTITY and BLOB_CONNECTION_STRING exclude each other")
        if self.azure_storage_account_name is None and self.blob_url is not None:
            raise ValueError("BLOB_URL belongs to AZURE_STORAGE_ACCOUNT_NAME")
        return self


async def make_zones(connection_string: str, ca_file: Path | None = None) -> None:
    """Create the containers of an emulator; in Azure the deployment does."""
    from repositories.blobs_azure import connect

    blobs = connect(connection_string, signature_seconds=1, ca_file=ca_file)
    try:
        await blobs.make_zones()
    finally:
        await blobs.close()


def open_blobs(settings: BlobSettings, *, is_waited_for: bool = False) -> BlobRepository:
    """Return the storage that the settings name; it connects when it is first used, in the event loop of its user.

    Where somebody waits for the answer, a storage that is away is told within seconds, not after twenty.
    """
    if settings.blob_root is not None:
        return FolderBlobRepository(settings.blob_root)
    from repositories.blobs_azure import RETRIES, connect  # whoever has folders never loads the SDK

    access: str | tuple[Mapping[str, str], ManagedIdentity]
    if settings.blob_connection_string is not None:
        access = settings.blob_connection_string.get_secret_value()
    elif settings.identity is not None:
        access = (_urls(settings), settings.identity)
    else:
        raise SettingsError("AZURE_STORAGE_ACCOUNT_NAME needs USE_MANAGED_IDENTITY")
    retries = 1 if is_waited_for else RETRIES
    seconds, ca_file = settings.blob_signature_seconds, settings.blob_ca_file
    return connect(access, signature_seconds=seconds, ca_file=ca_file, retries=retries)


def _urls(settings: BlobSettings) -> Mapping[str, str]:
    """Return the address of each zone's account."""
    name, url = str(settings.azure_storage_account_name), (settings.blob_url or DEFAULT_URL).rstrip("/")
    return {zone: url.replace("{account}", name.replace("{zone}", zone)) for zone in CONTAINERS}
