"""Base of every process's settings: names from the environment, and a start that stops when one is wrong.

A process subclasses `DatabaseSettings` (or `ProcessSettings`) and calls `load` in its composition root. Secrets are
`SecretStr`; a message names variables, never their values.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Self

from psycopg import conninfo
from pydantic import Field, PrivateAttr, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from core.errors import DatabaseUnavailable, GeodagError
from repositories.logs import redact
from repositories.managed_identity import POSTGRES, ManagedIdentity, NoToken

PREFIXES: Final = (
    "ORCHESTRATOR_", "WORKER_", "GATEWAY_", "SERVING_", "DAG_", "SERVICE_BUS_", "BLOB_", "ADF_", "RETENTION_",
)  # fmt: skip
"""Names that start like this belong to geodag, so an unknown one is a typing error."""

SHARED_NAMES: Final = frozenset(
    {
        "ORCHESTRATOR_HOST", "ORCHESTRATOR_PORT", "ORCHESTRATOR_POLL_INTERVAL", "ORCHESTRATOR_HEARTBEAT_SECONDS",
        "ORCHESTRATOR_THRESHOLD_SECONDS", "ORCHESTRATOR_URL",
        "WORKER_QUEUE", "WORKER_TYPE", "WORKER_ID", "WORKER_SLOTS_INLINE", "WORKER_SLOTS_PROCESS", "WORKER_CREDIT",
        "WORKER_STATE_DIR", "WORKER_SCRATCH_DIR", "WORKER_HEALTH_HOST", "WORKER_HEALTH_PORT",
        "WORKER_HEARTBEAT_SECONDS", "WORKER_TASK_MEMORY_BYTES", "WORKER_EXIT_WHEN_IDLE_SECONDS", "WORKER_JOURNAL_FILE",
        "WORKER_SERVICE_KEY", "DAG_CALLBACK_URL", "DAG_OFFER_URLS",
        "GATEWAY_HOST", "GATEWAY_PORT", "GATEWAY_SERVICE_KEY", "GATEWAY_WORKER_URLS", "GATEWAY_SERVING_URLS",
        "SERVING_HOST", "SERVING_PORT", "ADF_FACTORY_ID", "ADF_PIPELINE", "ADF_ENDPOINT",
        "SERVICE_BUS_FQDN", "SERVICE_BUS_CONNECTION_STRING", "SERVICE_BUS_CUSTOM_ENDPOINT", "SERVICE_BUS_CA_FILE",
        "SERVICE_BUS_JOBS_QUEUE", "SERVICE_BUS_MAX_UNCLAIMED",
        "BLOB_ROOT", "BLOB_CONNECTION_STRING", "BLOB_URL", "BLOB_CA_FILE", "BLOB_SIGNATURE_SECONDS",
        "RETENTION_EVENTS_DAYS", "RETENTION_ARCHIVE_EVENTS", "RETENTION_JOBS_DAYS", "RETENTION_DELETED_DAYS",
        "RETENTION_FILES_DAYS", "RETENTION_UPLOADS_DAYS", "RETENTION_DELIVERIES_DAYS", "RETENTION_DEAD_LETTERS_DAYS",
        "RETENTION_BATCHES_DAYS", "RETENTION_RESULTS_DAYS",
    }
)  # fmt: skip
"""Names of all processes: several may share one environment, so another process's name is no error."""


class SettingsError(GeodagError):
    """The environment lacks a required setting or has one that nobody knows; the process does not start."""

    code = "SETTINGS_INVALID"


class ProcessSettings(BaseSettings):
    """What every process reads."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", case_sensitive=False, env_ignore_empty=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least severe level logged.")
    log_format: Literal["json", "text"] = Field("json", description="json for machines, text for a terminal.")
    environment: Literal["production", "development"] = Field(
        "production", description="development allows what is named so, and nothing else."
    )
    build_id: str = Field("dev", description="Which build this is; shown in health and in owner rows.")

    @classmethod
    def load(cls) -> Self:
        """Return the settings of this process from the environment.

        Raises:
            SettingsError: A required variable is missing or wrong, or a name with one of our prefixes is unknown.
        """
        problems = list(cls._unknown_names(os.environ))
        try:
            settings = cls()
        except ValidationError as error:
            problems += [f"{'.'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        if not problems:
            problems += settings.problems()
        if problems:
            raise SettingsError(f"{cls.__name__}: " + "; ".join(problems))
        return settings

    def problems(self) -> Sequence[str]:
        """Return what else stops the start although every single setting is right."""
        return ()

    def redacted(self) -> dict[str, str | int | float | bool | None]:
        """Return every setting for people to read: secrets only as being there or not, URLs without credentials."""
        return {name.upper(): _shown(getattr(self, name)) for name in type(self).model_fields}

    @classmethod
    def _unknown_names(cls, environ: Mapping[str, str]) -> tuple[str, ...]:
        known = SHARED_NAMES | {name.upper() for name in cls.model_fields}
        unknown = sorted(n for n in environ if n.upper().startswith(PREFIXES) and n.upper() not in known)
        return tuple(f"{name}: unknown variable" for name in unknown)


def _shown(value: object) -> str | int | float | bool | None:
    if isinstance(value, SecretStr):
        return "(set)" if value.get_secret_value() else "(not set)"
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


class DatabaseSettings(ProcessSettings):
    """How a process reaches PostgreSQL, each with its own role."""

    postgres_host: str = Field(description="Host, or the folder of a Unix socket.")
    postgres_port: int = Field(5432, ge=1, le=65535)
    postgres_db: str = Field(description="Database name.")
    postgres_user: str = Field(description="Role of this process.")
    postgres_password: SecretStr | None = Field(None, description="Absent on a socket that trusts.")
    postgres_listen_host: str | None = Field(None, description="Past any pooler; default: the main host.")
    postgres_listen_port: int | None = Field(None, ge=1, le=65535)
    use_managed_identity: bool = Field(False, description="Passwords are tokens of the managed identity.")
    db_admin_managed_identity_client_id: str | None = Field(None, description="Of a user-assigned identity.")
    identity_endpoint: str | None = Field(None, description="Set by Azure: where the managed identity's tokens are.")
    identity_header: SecretStr | None = Field(None, description="Set by Azure: what that endpoint wants to see.")
    identity_imds_url: str | None = Field(
        None, description="On virtual machines instead, which have neither: http://169.254.169.254."
    )
    identity_patience_seconds: float = Field(
        30.0, ge=0, description="How long a start waits for an identity endpoint that does not answer yet."
    )
    _identity: ManagedIdentity | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _one_kind_of_password(self) -> Self:
        """Nothing falls back from an identity to a password, or the other way round."""
        if not self.use_managed_identity:
            return self
        if self.postgres_password is not None:
            raise ValueError("USE_MANAGED_IDENTITY and POSTGRES_PASSWORD exclude each other")
        service = self.identity_endpoint is not None and self.identity_header is not None
        if service == (self.identity_imds_url is not None):
            raise ValueError(
                "USE_MANAGED_IDENTITY needs IDENTITY_ENDPOINT and IDENTITY_HEADER, which Azure sets, or else"
                " IDENTITY_IMDS_URL"
            )
        endpoint, secret = (self.identity_endpoint, self.identity_header) if service else (self.identity_imds_url, None)
        self._identity = ManagedIdentity(str(endpoint), secret, self.db_admin_managed_identity_client_id)
        return self

    @property
    def identity(self) -> ManagedIdentity | None:
        """Return the one provider of tokens of this process, None when it has passwords and keys."""
        return self._identity

    def problems(self) -> Sequence[str]:
        """Say so when an identity is asked for and cannot be had."""
        try:
            if self._identity is not None:
                self._identity.prove(POSTGRES, self.identity_patience_seconds)
        except NoToken as error:
            return (f"USE_MANAGED_IDENTITY: {error}",)
        return ()

    def conninfo(self) -> str:
        """Return the connection string of the pool, with a token of now: ask again for each connection."""
        return self._conninfo(self.postgres_host, self.postgres_port)

    def listen_conninfo(self) -> str:
        """Return the connection string of the listener and of migrations."""
        return self._conninfo(
            self.postgres_listen_host or self.postgres_host, self.postgres_listen_port or self.postgres_port
        )

    @property
    def is_pooled(self) -> bool:
        """Return whether the main address leads to a pooler, and the listener's past it."""
        return (self.postgres_listen_host or self.postgres_host, self.postgres_listen_port or self.postgres_port) != (
            self.postgres_host,
            self.postgres_port,
        )

    def _conninfo(self, host: str, port: int) -> str:
        secret = {} if self.postgres_password is None else {"password": self.postgres_password.get_secret_value()}
        if self._identity is not None:
            secret = {"password": _password_of(self._identity)}
        return conninfo.make_conninfo(host=host, port=port, dbname=self.postgres_db, user=self.postgres_user, **secret)


def _password_of(identity: ManagedIdentity) -> str:
    try:
        return identity.token(POSTGRES).text
    except NoToken as error:
        raise DatabaseUnavailable(str(error)) from error


def read_secret_file(path: Path) -> str:
    """Return a file's text without the final newline; the error names the file, never its content."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
