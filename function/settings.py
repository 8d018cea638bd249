"""Settings of the gateway."""

from pydantic import Field, SecretStr, field_validator

from edge.settings import IdentitySettings


class GatewaySettings(IdentitySettings):
    """What the gateway reads from its environment; the database role is geodag_gateway, which only reads views."""

    gateway_host: str = Field("127.0.0.1", description="Address of the local Functions host; Azure ignores it.")
    gateway_port: int = Field(7071, ge=1, le=65535, description="Port of the local Functions host; Azure ignores it.")
    orchestrator_url: str = Field(description="Base URLs of orchestrators, separated by commas.")
    gateway_service_key: SecretStr = Field(description="The gateway's own credential, beside the caller's.")
    public_gateway_url: str = Field(description="Where partners reach the gateway.")
    public_serving_url: str = Field(description="Where readers reach tiles, previews and downloads.")

    @field_validator("public_gateway_url", "public_serving_url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")

    def orchestrator_urls(self) -> tuple[str, ...]:
        """Return the base URLs in order."""
        return tuple(url.strip().rstrip("/") for url in self.orchestrator_url.split(",") if url.strip())
