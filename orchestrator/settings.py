"""Every setting of the orchestrator."""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator

from edge.settings import IdentitySettings
from messaging.settings import QueueSettings
from repositories.blobs import BlobSettings


class OrchestratorSettings(IdentitySettings, QueueSettings, BlobSettings):
    """Names are the environment's, in lower case."""

    orchestrator_host: str = Field("127.0.0.1", description="Address to listen on.")
    orchestrator_port: int = Field(ge=0, le=65535, description="Port to listen on.")
    orchestrator_poll_interval: float = Field(1.0, gt=0, le=60, description="Seconds; the loop's safety net.")
    orchestrator_heartbeat_seconds: float = Field(5.0, gt=0, description="Between two signs of life.")
    orchestrator_threshold_seconds: float = Field(15.0, gt=0, description="Silence after which an owner is dead.")
    lease_seconds: float = Field(20.0, gt=0, description="How long a worker may be silent about a task.")
    workflows_dir: Path = Field(description="Folder of the workflow definitions.")
    upload_key: SecretStr = Field(description="HMAC key of upload addresses.")
    secrets_key: SecretStr = Field(
        description="One or two base64 keys of 32 bytes, separated by a comma; the first seals, both open."
    )
    webhook_allow_loopback: bool = Field(
        False, description="Lets webhooks go to 127.0.0.1 over http; for a stack on one machine."
    )
    source_allow_loopback: bool = Field(
        False, description="Lets sources lie at 127.0.0.1 over http; for a stack on one machine."
    )
    upload_max_bytes: int = Field(50 * 1024**3, gt=0, description="Largest file that an upload address takes.")
    public_orchestrator_url: str = Field(description="Where partners reach upload addresses.")
    public_serving_url: str = Field(description="Where partners reach tiles, STAC and downloads.")
    public_gateway_url: str = Field(description="Where partners submit and poll.")
    public_external_url: str = Field("", description="Where everybody reads the external zone; empty: nowhere.")
    external_export: bool = Field(
        False, description="Copies versions that become public to the external zone, and takes them back."
    )
    scale_metrics_url: str | None = Field(
        None,
        pattern=r"^(https://[a-z0-9.-]+/subscriptions/[^?#]+/metrics$|http://127\.0\.0\.1[:/])",
        description="Where the number of each queue's tasks is written once a minute, as a custom metric about one "
        "resource: https://<region>.monitoring.azure.com<resource id>/metrics. Default: nowhere.",
    )
    allow_rebuild: bool = Field(False, description="Lets bootstrap drop everything; with ENVIRONMENT=development only.")
    service_bus_jobs_queue: str = Field(
        "orchestrator-jobs", description="Queue of submits with their callers' tokens, where there is a Service Bus."
    )
    service_bus_max_unclaimed: int = Field(
        1000, ge=10, le=100_000, description="Tasks of a queue that are left to the broker at a time, unclaimed."
    )

    @model_validator(mode="after")
    def _metrics_by_identity(self) -> Self:
        if self.scale_metrics_url is not None and not self.use_managed_identity:
            raise ValueError("SCALE_METRICS_URL needs USE_MANAGED_IDENTITY")
        return self
