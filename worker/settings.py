"""Settings of a worker process."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from core.handlers_catalog import KNOWN_QUEUES, RunMode
from messaging.settings import QueueSettings
from repositories.blobs import BlobSettings


class WorkerSettings(QueueSettings, BlobSettings):
    """What `python -m worker.main` reads; POSTGRES_* are those of role `geodag_worker`."""

    worker_queue: str = Field(description="The queue this worker receives from.")
    worker_type: Literal["light", "heavy"] = Field(
        description="light: most tasks run inline, so it receives while an inline slot is free. heavy: most tasks "
        "need a subprocess, so it receives only while one of those is free."
    )
    worker_id: str | None = Field(None, description="Default: host name and a random part, new at every start.")
    worker_slots_inline: int = Field(64, ge=1, le=1000, description="Tasks at a time in the event loop.")
    worker_credit: int = Field(
        2048, ge=0, le=10_000, description="Small inline tasks at a time that came with answers, beside those slots."
    )
    worker_slots_process: int = Field(1, ge=1, le=64, description="Tasks at a time in subprocesses; one a core.")
    worker_state_dir: Path = Field(description="Results wait here for their answer; one worker process a folder.")
    worker_scratch_dir: Path = Field(description="Tasks work here; emptied at the start.")
    worker_health_host: str = Field("127.0.0.1", description="Address of the health server.")
    worker_health_port: int = Field(ge=0, le=65535, description="Port of the health server; 0 takes any.")
    worker_exit_when_idle_seconds: float = Field(
        0, ge=0, description="Ends by itself after so long without work, as a job of Container Apps must; 0: never."
    )
    worker_heartbeat_seconds: float = Field(5.0, gt=0, le=60)
    worker_task_memory_bytes: int = Field(4 << 30, ge=0, description="Memory limit of a subprocess task; 0: none.")
    worker_journal_file: Path | None = Field(None, description="Every execution appends a line; for chaos tests.")
    worker_service_key: SecretStr = Field(description="This worker's credential at the orchestrators.")
    dag_callback_url: str = Field(
        description="Comma-separated base URLs of orchestrators, each up to /api/v1/callbacks."
    )
    dag_offer_urls: str = Field(
        "",
        description="Comma-separated base URLs of single orchestrators, like DAG_CALLBACK_URL: at each of them slots "
        "stand open for the tasks that it makes. Default: those of DAG_CALLBACK_URL.",
    )
    adf_factory_id: str | None = Field(
        None,
        pattern=r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.DataFactory/factories/[^/]+$",
        description="Data Factory that copies public versions outside. Default: the worker copies by itself.",
    )
    adf_pipeline: str = Field("geodag-export", min_length=1, description="Its pipeline that copies one file.")
    adf_endpoint: str = Field(
        "https://management.azure.com",
        pattern=r"^(https://|http://127\.0\.0\.1[:/])",
        description="Where Azure's management answers; other clouds have another.",
    )
    source_max_bytes: int = Field(50 * 1024**3, gt=0, description="Largest file that is fetched from a URL.")
    source_allow_loopback: bool = Field(
        False, description="Lets sources lie at 127.0.0.1 over http; for a stack on one machine."
    )

    @field_validator("worker_queue")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in KNOWN_QUEUES:
            raise ValueError(f"must be one of {', '.join(sorted(KNOWN_QUEUES))}")
        return value

    @field_validator("dag_callback_url", "dag_offer_urls")
    @classmethod
    def _urls(cls, value: str, info: ValidationInfo) -> str:
        may_be_empty = info.field_name == "dag_offer_urls"
        if not (urls := _split(value)) and may_be_empty:
            return value
        if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
            raise ValueError("must list http(s) URLs, separated by commas")
        return value

    @field_validator("worker_state_dir", "worker_scratch_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.resolve()

    @model_validator(mode="after")
    def _apart(self) -> Self:
        """The scratch folder is emptied, so nothing else may lie in it."""
        if self.worker_state_dir.is_relative_to(self.worker_scratch_dir):
            raise ValueError("WORKER_STATE_DIR must not lie in WORKER_SCRATCH_DIR, which is emptied at every start")
        return self

    @model_validator(mode="after")
    def _factory_by_identity(self) -> Self:
        """Nothing falls back from a factory to copies of our own."""
        if self.adf_factory_id is not None and not self.use_managed_identity:
            raise ValueError("ADF_FACTORY_ID needs USE_MANAGED_IDENTITY")
        return self

    @property
    def callback_urls(self) -> tuple[str, ...]:
        """Return the orchestrators' base URLs."""
        return _split(self.dag_callback_url)

    @property
    def offer_urls(self) -> tuple[str, ...]:
        """Return where slots stand open."""
        return _split(self.dag_offer_urls) or self.callback_urls

    @property
    def offered_slots(self) -> int:
        """Return how many tasks of the credit stand open at each address: half of it stands open at all together."""
        return self.worker_credit // 2 // len(self.offer_urls) if self.paced_by is RunMode.INLINE else 0

    @property
    def paced_by(self) -> RunMode:
        """Return the kind of slot that must be free before the worker receives."""
        return RunMode.INLINE if self.worker_type == "light" else RunMode.SUBPROCESS


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
