"""Azurite, the blob storage that a local stack and the Azure tests run in place of a storage account."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli.stack.ports import HOST

MAIN = Path(__file__).resolve().parents[2] / ".azurite/node_modules/azurite/dist/src/blob/main.js"
"""Where `scripts/azurite/install` puts it."""
MEMORY_MEGABYTES = 512
"""Of a server without a folder; by itself it would take half of the machine's."""


class AzuriteMissing(Exception):
    """Azurite is not installed; the message says how to get it."""


def check_installed() -> None:
    """Check that there is one to start.

    Raises:
        AzuriteMissing: It is not installed.
    """
    if not MAIN.is_file():
        raise AzuriteMissing("Azurite is not installed; run ./scripts/azurite/install (needs Node.js with npm)")


@dataclass(frozen=True, slots=True)
class Azurite:
    """One server: its account and where it listens and keeps its blobs."""

    account: str
    key: bytes = field(repr=False)
    port: int
    folder: Path | None = None
    """None keeps everything in memory."""
    certificate: Path | None = None
    """With `private_key`: TLS, and tokens of an identity beside the account's key."""
    private_key: Path | None = None
    more: tuple[str, ...] = ()
    """Other accounts of the same server, with the same key."""

    @property
    def url(self) -> str:
        """Return the address of the account."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{HOST}:{self.port}/{self.account}"

    @property
    def encoded_key(self) -> str:
        """Return the account's key as Azure writes it."""
        return base64.b64encode(self.key).decode()

    @property
    def connection_string(self) -> str:
        """Return what a client needs that may do everything."""
        scheme = self.url.partition(":")[0]
        return (
            f"DefaultEndpointsProtocol={scheme};AccountName={self.account};AccountKey={self.encoded_key}"
            f";BlobEndpoint={self.url};"
        )

    def settings(self) -> dict[str, str]:
        """Return the settings of a process: with TLS it enters with its identity, without with the account's key."""
        if self.certificate is None:
            return {"BLOB_CONNECTION_STRING": self.connection_string}
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "BLOB_URL": self.url,
            "BLOB_CA_FILE": str(self.certificate),
        }

    def argv(self) -> list[str]:
        """Return how it is started, once `check_installed` found it."""
        argv = ["node", str(MAIN), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        argv += ["--blobHost", HOST, "--blobPort", str(self.port)]
        if self.folder is None:
            argv += ["--inMemoryPersistence", "--extentMemoryLimit", str(MEMORY_MEGABYTES)]
        else:
            argv += ["--location", str(self.folder)]
        if self.certificate is not None:
            argv += ["--oauth", "basic", "--cert", str(self.certificate), "--key", str(self.private_key)]
        return argv

    def environment(self) -> Mapping[str, str]:
        """Return what its process has to know beside its arguments."""
        accounts = ";".join(f"{name}:{self.encoded_key}" for name in (self.account, *self.more))
        environment = {"AZURITE_ACCOUNTS": accounts}
        if self.certificate is not None:
            environment["NODE_EXTRA_CA_CERTS"] = str(self.certificate)  # it copies blobs by its own address
        return environment
