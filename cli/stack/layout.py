"""Which parts a local stack has, how each is started, and where everything of a home lies."""

import base64
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cli.stack import identity, servicebus
from cli.stack.azurite import Azurite
from cli.stack.credentials import Credentials, keys_path
from cli.stack.identity import Identities
from cli.stack.ports import HOST
from cli.stack.processes import PartSpec
from core.handlers_catalog import HEAVY_QUEUE, LIGHT_QUEUE

REPOSITORY = Path(__file__).resolve().parents[2]
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
DATABASE = "geodag"
ACCOUNT = "geodaglocal"
"""Of the Azurite of a stack that has one."""
UPLOAD_MAX_BYTES = 50 * 1024**3
WITHOUT_SETTINGS = frozenset({"balancer", "identity", "servicebus", "azurite"})
"""Kinds of parts that are configured by their arguments."""
WORKER_QUEUES = {"light": LIGHT_QUEUE, "heavy": HEAVY_QUEUE}

Settings = Mapping[str, str]


class QueueKind(StrEnum):
    """What carries the tasks of a stack."""

    POSTGRES = "postgres"
    SERVICEBUS = "servicebus"


class BlobsKind(StrEnum):
    """What holds the files of a stack."""

    FOLDERS = "folders"
    AZURITE = "azurite"


@dataclass(frozen=True, slots=True)
class Build:
    """A checkout of the project, and the interpreter that finds its packages."""

    build_id: str = "local"
    root: Path = REPOSITORY
    python: str = sys.executable


THIS_BUILD = Build()


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of each part, and settings by part name, by kind (`orchestrator`, `worker`, …) or for `all`."""

    orchestrators: int = 2
    light: int = 1
    heavy: int = 1
    gateway: bool = True
    serving: bool = True
    queue: QueueKind = QueueKind.POSTGRES
    blobs: BlobsKind = BlobsKind.FOLDERS
    identity: bool = False
    """Whether processes enter database, queue and storage with tokens of an identity, over TLS, and with no key."""
    broker_lock_seconds: float = 60.0
    token_seconds: float = 3600.0
    workflows: Path | None = None
    """Folder of an author's workflows, beside those of the checkout; read when the stack starts."""
    overrides: Mapping[str, Settings] = field(default_factory=dict)
    builds: Mapping[str, Build] = field(default_factory=dict)
    """From which build a part runs at its next start, by its name; the others from this one."""

    def build_of(self, name: str) -> Build:
        """Return what a part runs."""
        return self.builds.get(name, THIS_BUILD)

    @property
    def orchestrator_names(self) -> tuple[str, ...]:
        """Return the names of the orchestrators."""
        return tuple(f"orchestrator-{n}" for n in range(1, self.orchestrators + 1))

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Return the names of the workers."""
        light = tuple(f"worker-light-{n}" for n in range(1, self.light + 1))
        return light + tuple(f"worker-heavy-{n}" for n in range(1, self.heavy + 1))

    @property
    def part_names(self) -> tuple[str, ...]:
        """Return every part in the order of its start; the database is not one of them."""
        fronts = (("gateway",) if self.gateway else ()) + (("serving",) if self.serving else ())
        return (*self.peer_names, *self.orchestrator_names, "balancer", *fronts, *self.worker_names)

    @property
    def peer_names(self) -> tuple[str, ...]:
        """Return the parts that stand in for Azure, on which all others build."""
        wanted = {
            "identity": self.identity,
            "servicebus": self.queue is QueueKind.SERVICEBUS,
            "azurite": self.blobs is BlobsKind.AZURITE,
        }
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def port_names(self) -> tuple[str, ...]:
        """Return what has a port: every part, the database first, and the doors that `Urls` tells of."""
        more = (identity.DATABASE_PORT,) if self.identity else ()
        return tuple(dict.fromkeys(("postgres", "gateway", "serving", *self.part_names, *more)))


@dataclass(frozen=True, slots=True)
class Home:
    """Paths under the home of one stack."""

    root: Path

    @property
    def state_file(self) -> Path:
        """Return the file that says who supervises, and on which ports."""
        return self.root / "stack.json"

    @property
    def lock_file(self) -> Path:
        """Return the file that a living supervisor holds locked."""
        return self.root / "up.lock"

    @property
    def blobs(self) -> Path:
        """Return the folder of the blob zones."""
        return self.root / "blobs"

    @property
    def workflows(self) -> Path:
        """Return the folder of the workflows of a stack that has more than those of the checkout."""
        return self.root / "workflows"

    @property
    def peer_settings(self) -> Path:
        """Return the file of the Service Bus peer's queues and key."""
        return self.root / "servicebus.json"

    @property
    def identities(self) -> Path:
        """Return the file of the identities and of the key that signs their tokens."""
        return self.root / "identity.json"

    @property
    def tls(self) -> Path:
        """Return the folder of the certificate of the parts that stand in for Azure, and of its key."""
        return self.root / "tls"

    @property
    def certificate(self) -> Path:
        """Return what whoever talks to those parts has to believe."""
        return self.tls / "certificate.pem"

    def log(self, part: str) -> Path:
        """Return the log file of a part."""
        return self.root / "logs" / f"{part}.log"

    def record(self, part: str) -> Path:
        """Return the file that says which process a part is."""
        return self.root / "run" / f"{part}.json"

    def make_folders(self) -> None:
        """Make the folders that no other user of the machine looks into: what waits for approval lies there too."""
        for name in ("blobs", "logs", "run", "workers"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
            (self.root / name).chmod(0o700)
        for zone in ("bronze", "silver", "external"):
            (self.blobs / zone).mkdir(exist_ok=True)


@dataclass(frozen=True, slots=True)
class Urls:
    """Where the doors of a stack are."""

    gateway: str
    orchestrator: str
    serving: str

    @classmethod
    def of(cls, ports: Mapping[str, int]) -> "Urls":
        """Return the addresses that belong to the ports of a stack."""
        return cls(*(f"http://{HOST}:{ports[name]}" for name in ("gateway", "balancer", "serving")))


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides how the parts of one stack are started."""

    home: Home
    shape: Shape
    ports: Mapping[str, int]
    credentials: Credentials = field(repr=False)
    identities: Identities | None = None

    @property
    def urls(self) -> Urls:
        """Return the addresses of the doors."""
        return Urls.of(self.ports)

    def spec(self, name: str) -> PartSpec:
        """Return how to start one part."""
        kind, build = kind_of(name), self.shape.build_of(name)
        return PartSpec(
            name=name,
            argv=self._argv(kind, build),
            environment=self._environment(name, kind),
            log_file=self.home.log(name),
            record_file=self.home.record(name),
            working_directory=build.root,
        )

    def _argv(self, kind: str, build: Build) -> list[str]:
        if kind == "servicebus":
            journal = self.home.root / "servicebus.journal"
            return servicebus.argv(self.ports[kind], self.home.peer_settings, journal, self._tls)
        if kind == "identity":
            ports = (self.ports[kind], self.ports[identity.DATABASE_PORT])
            return identity.argv(*ports, self.home.identities, self.shape.token_seconds)
        if kind == "azurite":
            return self.azurite.argv()
        modules = {
            "orchestrator": "orchestrator.main",
            "worker": "worker.main",
            "gateway": "function.local_host",
            "serving": "serving.main",
            "balancer": "cli.stack.balancer",
        }
        argv = [build.python, "-m", modules[kind]]
        if kind == "balancer":
            argv += ["--listen", self._address("balancer")]
            for name in self.shape.orchestrator_names:
                argv += ["--upstream", self._address(name)]
        return argv

    @property
    def azurite(self) -> Azurite:
        """Return the storage account of a stack that has one."""
        key = base64.b64decode(self.credentials.storage_key)
        certificate, private_key = self._tls or (None, None)
        return Azurite(ACCOUNT, key, self.ports["azurite"], self.home.root / "azurite", certificate, private_key)

    @property
    def _tls(self) -> tuple[Path, Path] | None:
        """Return certificate and key, which a stack with identities has."""
        return None if self.identities is None else (self.home.certificate, self.home.tls / "key.pem")

    def _address(self, name: str) -> str:
        return f"{HOST}:{self.ports[name]}"

    def _environment(self, name: str, kind: str) -> dict[str, str]:
        """Return what a part gets: an allow-list of ours, its own settings, then the overrides; nothing else."""
        inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
        environment = inherited | {"PYTHONUNBUFFERED": "1"} | self._settings(name, kind)
        if kind == "azurite":
            environment |= self.azurite.environment()
        for key in ("all", kind, name):
            if kind not in WITHOUT_SETTINGS:
                environment |= self.shape.overrides.get(key, {})
        return environment

    def _settings(self, name: str, kind: str) -> dict[str, str]:
        if kind in WITHOUT_SETTINGS:
            return {}
        common = {"LOG_LEVEL": "INFO", "LOG_FORMAT": "text", "ENVIRONMENT": "production"}
        common["BUILD_ID"] = self.shape.build_of(name).build_id
        common |= self._database(kind)
        if self.identities is not None:
            common |= self.identities.environment(kind, self.ports["identity"])
        if kind in {"worker", "orchestrator"}:
            common |= self._queue()
        if kind == "worker":
            return common | self._worker(name)
        common["API_KEYS_FILE"] = str(keys_path(self.home.root))
        builders = {"orchestrator": self._orchestrator, "gateway": self._gateway, "serving": self._serving}
        return common | builders[kind](name)

    def _database(self, kind: str) -> dict[str, str]:
        role = identity.ROLES[kind]
        password = {"POSTGRES_PASSWORD": self.credentials.passwords[role]}
        return {
            "POSTGRES_HOST": HOST,
            "POSTGRES_PORT": str(self.ports["postgres"]),
            "POSTGRES_DB": DATABASE,
            "POSTGRES_USER": role,
            **(password if self.identities is None else {}),
        }

    def _queue(self) -> dict[str, str]:
        if self.shape.queue is QueueKind.POSTGRES:
            return {}
        if self._tls is not None:
            return servicebus.by_identity(self.ports["servicebus"], self._tls[0])
        text = servicebus.connection_string(self.ports["servicebus"], self.credentials.service_bus_key)
        return {"SERVICE_BUS_CONNECTION_STRING": text}

    def _blobs(self) -> dict[str, str]:
        if self.shape.blobs is BlobsKind.FOLDERS:
            return {"BLOB_ROOT": str(self.home.blobs)}
        return self.azurite.settings()

    def _orchestrator(self, name: str) -> dict[str, str]:
        return {
            "ORCHESTRATOR_HOST": HOST,
            "ORCHESTRATOR_PORT": str(self.ports[name]),
            "WORKFLOWS_DIR": str(self._workflows(name)),
            **self._blobs(),
            "UPLOAD_KEY": self.credentials.upload_key,
            "SECRETS_KEY": self.credentials.secrets_key,
            "WEBHOOK_ALLOW_LOOPBACK": "true",
            "UPLOAD_MAX_BYTES": str(UPLOAD_MAX_BYTES),
            "PUBLIC_ORCHESTRATOR_URL": self.urls.orchestrator,
            "PUBLIC_SERVING_URL": self.urls.serving,
            "PUBLIC_GATEWAY_URL": self.urls.gateway,
        }

    def _workflows(self, name: str) -> Path:
        checkout = self.shape.build_of(name).root / "workflows"
        return checkout if self.shape.workflows is None else self.home.workflows

    def _worker(self, name: str) -> dict[str, str]:
        size = name.split("-")[1]
        return {
            "WORKER_QUEUE": WORKER_QUEUES[size],
            "WORKER_TYPE": size,
            "WORKER_STATE_DIR": str(self.home.root / "workers" / name / "state"),
            "WORKER_SCRATCH_DIR": str(self.home.root / "workers" / name / "scratch"),
            "WORKER_HEALTH_PORT": str(self.ports[name]),
            "DAG_CALLBACK_URL": f"{self.urls.orchestrator}/api/v1/callbacks",
            "DAG_OFFER_URLS": ",".join(
                f"http://{self._address(one)}/api/v1/callbacks" for one in self.shape.orchestrator_names
            ),
            "WORKER_SERVICE_KEY": self.credentials.keys["worker"],
            **self._blobs(),
        }

    def _gateway(self, name: str) -> dict[str, str]:
        return {
            "GATEWAY_HOST": HOST,
            "GATEWAY_PORT": str(self.ports[name]),
            "ORCHESTRATOR_URL": self.urls.orchestrator,
            "GATEWAY_SERVICE_KEY": self.credentials.keys["gateway"],
            "PUBLIC_SERVING_URL": self.urls.serving,
            "PUBLIC_GATEWAY_URL": self.urls.gateway,
        }

    def _serving(self, name: str) -> dict[str, str]:
        return {
            "SERVING_HOST": HOST,
            "SERVING_PORT": str(self.ports[name]),
            **self._blobs(),
            "PUBLIC_SERVING_URL": self.urls.serving,
        }


def kind_of(name: str) -> str:
    """Return the kind of a part: its name without size and number."""
    return name.split("-")[0]


def health_path(kind: str) -> str:
    """Return where a part says that it can work."""
    return {"gateway": "/api/readyz"}.get(kind, "/readyz")
