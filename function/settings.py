"""Settings of the gateway."""

from pydantic import Field, SecretStr, field_validator

from edge.settings import IdentitySettings


class GatewaySettings(IdentitySettings):
    """What the gateway reads from its environment; the database role is geodag_gateway, which only reads views."""

    gateway_host: str = Field("127.0.0.1", description="Address of the local Functions host; Azure ignores it.")
    gateway_port: int = Field(7071, ge=1, le=65535, description="Port of the local Functions host; Azure ignores it.")
    orchestrator_url: str = Field(description="Base URLs of orchestrators, separated by commas.")
    gateway_service_key: SecretStr = Field(description="The gateway's own credential, beside the caller's.")
    gateway_worker_urls: str = Field("", description="Where workers show their health, for the proxy; commas between.")
    gateway_serving_urls: str = Field("", description="Where serving shows its health, for the proxy; commas between.")
    public_gateway_url: str = Field(description="Where partners reach the gateway.")
    public_serving_url: str = Field(description="Where readers reach tiles, previews and downloads.")
    public_external_url: str = Field("", description="Where everybody reads the external zone; empty: nowhere.")

    @field_validator("public_gateway_url", "public_serving_url", "public_external_url")
    @classmethod
    def _without_slash(cls, url: str) -> str:
        return url.rstrip("/")

    def orchestrator_urls(self) -> tuple[str, ...]:
        """Return the base URLs in order."""
        return _urls(self.orchestrator_url)

    def proxy_urls(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses of what the proxy reaches beside the orchestrators."""
        return {"worker": _urls(self.gateway_worker_urls), "serving": _urls(self.gateway_serving_urls)}


def _urls(text: str) -> tuple[str, ...]:
    return tuple(url.strip().rstrip("/") for url in text.split(",") if url.strip())
