"""Settings of everybody who sends or receives tasks: no Service Bus is named, then the queue is the database's own."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator

from repositories.settings import DatabaseSettings


class QueueSettings(DatabaseSettings):
    """Which queue; nothing falls back from a managed identity to a connection string, or from a broker to none."""

    service_bus_fqdn: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9.-]+(:[0-9]+)?$",
        description="Host of the Service Bus namespace, reached with the managed identity. Default: the queue is in "
        "PostgreSQL.",
    )
    service_bus_connection_string: SecretStr | None = Field(
        None, description="Of the namespace, instead of SERVICE_BUS_FQDN where there is no managed identity."
    )
    service_bus_custom_endpoint: str | None = Field(
        None, pattern=r"^sb://[^/]+$", description="sb://host:port behind which SERVICE_BUS_FQDN is reached."
    )
    service_bus_ca_file: Path | None = Field(None, description="Certificates that are believed there.")

    @model_validator(mode="after")
    def _one_way_to_the_broker(self) -> Self:
        if self.service_bus_fqdn is not None and self.service_bus_connection_string is not None:
            raise ValueError("SERVICE_BUS_FQDN and SERVICE_BUS_CONNECTION_STRING exclude each other")
        if self.service_bus_fqdn is not None and not self.use_managed_identity:
            raise ValueError("SERVICE_BUS_FQDN needs USE_MANAGED_IDENTITY; without one, SERVICE_BUS_CONNECTION_STRING")
        if self.service_bus_connection_string is not None and self.use_managed_identity:
            raise ValueError("USE_MANAGED_IDENTITY and SERVICE_BUS_CONNECTION_STRING exclude each other")
        if self.service_bus_custom_endpoint is not None and self.service_bus_fqdn is None:
            raise ValueError("SERVICE_BUS_CUSTOM_ENDPOINT needs SERVICE_BUS_FQDN")
        return self

    @property
    def uses_service_bus(self) -> bool:
        """Return whether tasks travel through Service Bus."""
        return self.service_bus_fqdn is not None or self.service_bus_connection_string is not None
