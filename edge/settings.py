"""Settings of everybody who verifies callers."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from repositories.settings import DatabaseSettings


class IdentitySettings(DatabaseSettings):
    """How callers are known; no mode falls back to another."""

    identity_mode: Literal["keys", "entra", "easyauth"] = Field(
        "keys", description="keys: the local key file; entra: tokens too; easyauth: also App Service's principal."
    )
    api_keys_file: Path | None = Field(
        None, description="Digests of the keys of callers and services; required with IDENTITY_MODE=keys."
    )
    entra_issuer: str | None = Field(None, description="Exact `iss` of tokens; required with entra and easyauth.")
    entra_audience: str | None = Field(None, description="Exact `aud` of tokens; required with entra and easyauth.")
    entra_jwks_url: str | None = Field(
        None, pattern=r"^(https://|http://127\.0\.0\.1[:/])", description="Where the signing keys are published."
    )
    entra_platforms_file: Path | None = Field(
        None, description="JSON {application or object id: platform_id}; who is not named has no platform role."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.identity_mode == "keys":
            if self.api_keys_file is None:
                raise ValueError("API_KEYS_FILE is required with IDENTITY_MODE=keys")
            return self
        missing = [name for name in ("entra_issuer", "entra_audience", "entra_jwks_url") if getattr(self, name) is None]
        if missing:
            names = ", ".join(name.upper() for name in missing)
            raise ValueError(f"{names} required with IDENTITY_MODE={self.identity_mode}")
        return self
