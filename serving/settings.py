"""Settings of serving."""

from pydantic import Field, field_validator

from edge.settings import IdentitySettings
from repositories.blobs import BlobSettings


class ServingSettings(IdentitySettings, BlobSettings):
    """What serving reads from its environment; the database role is geodag_serving, which only reads."""

    serving_host: str = Field("127.0.0.1", description="Address to listen on.")
    serving_port: int = Field(ge=1, le=65535, description="Port to listen on.")
    public_serving_url: str = Field(description="Where readers reach serving; TileJSON documents name it.")

    @field_validator("public_serving_url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")
