"""The whole platform on this machine: database, orchestrators behind a balancer, workers, gateway and serving.

One process at a time supervises a home; it holds a lock that the kernel releases when it dies, however it dies. The
next one ends what a dead supervisor left (by pid *and* start time) and goes on with the same database, ports and keys.
"""

import asyncio
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from cli.stack import identity, servicebus
from cli.stack.azurite import AzuriteMissing, check_installed
from cli.stack.certificates import self_signed
from cli.stack.cluster import LOCAL_CONFIG, Cluster
from cli.stack.credentials import Credentials, ensure_credentials
from cli.stack.definitions import FolderTaken, gather
from cli.stack.files import PRIVATE, lock, read_json, write_json
from cli.stack.layout import REPOSITORY, BlobsKind, Home, Plan, QueueKind, Shape, Urls, health_path, kind_of
from cli.stack.ports import DEFAULT_PORTS, HOST, PortClaims, choose_ports
from cli.stack.processes import ProcessId, end_stale, wait_until
from cli.stack.servicebus import PeerMissing
from cli.stack.supervisor import Report, Supervisor
from repositories.blobs import make_zones

START_TIMEOUT_SECONDS = 120.0
GRACE_SECONDS = 10.0
CHECK_DATABASE_SECONDS = 0.5
PROBE_TIMEOUT_SECONDS = 2.0


class StackError(Exception):
    """The local stack cannot do what it was asked; the message says why."""


class AlreadyRunning(StackError):
    """Another process supervises this home."""


class StartAborted(StackError):
    """The start was interrupted."""


def read_state(root: Path) -> dict[str, Any] | None:
    """Return what the last supervisor of a home recorded, and whether it lives: {state, running, ports, …}."""
    state = read_json(Home(root).state_file)
    if not isinstance(state, dict):
        return None
    supervisor = ProcessId.load(state.get("supervisor"))
    return state | {"running": supervisor is not None and supervisor.is_alive()}


def stop_leftovers(root: Path) -> None:
    """End what no supervisor watches any more, the database too; raises AlreadyRunning when one does."""
    stack = Stack(root)
    stack.acquire()
    stack.end_leftovers()
    Cluster(stack.home.root).stop()
    stack.stop()


class Stack:
    """One local stack, supervised by this process."""

    def __init__(
        self,
        root: Path,
        *,
        shape: Shape | None = None,
        ports: Mapping[str, int] | None = None,
        database_config: Mapping[str, str] = LOCAL_CONFIG,
        report: Report = lambda part, message: None,
        deploy: Callable[[Cluster, Mapping[str, str]], object] = Cluster.deploy,
    ) -> None:
        """Take how it is to be; `deploy` brings the database of a running cluster to the schema wanted."""
        self.home = Home(root.resolve())
        self.shape = shape or Shape()
        self._wanted_ports = DEFAULT_PORTS if ports is None else ports
        self._database_config = database_config
        self._report = report
        self._deploy = deploy
        self._aborted = threading.Event()
        self._database_held = threading.Event()
        self._database_checked_at = 0.0
        self._lock_handle: IO[bytes] | None = None
        self._claims = PortClaims()
        self._supervisor: Supervisor | None = None
        self._plan: Plan | None = None
        self._cluster: Cluster | None = None

    @property
    def plan(self) -> Plan:
        """Return how the parts are started; known once the start has begun."""
        if self._plan is None:
            raise StackError("the stack was not started")
        return self._plan

    @property
    def supervisor(self) -> Supervisor:
        """Return what watches the parts."""
        if self._supervisor is None:
            raise StackError("the stack was not started")
        return self._supervisor

    @property
    def cluster(self) -> Cluster:
        """Return the database cluster."""
        if self._cluster is None:
            raise StackError("the stack was not started")
        return self._cluster

    @property
    def urls(self) -> Urls:
        """Return where the doors are."""
        return self.plan.urls

    @property
    def credentials(self) -> Credentials:
        """Return the keys and passwords of this home."""
        return self.plan.credentials

    def start(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Start everything and return once every part is ready.

        Raises AlreadyRunning, StartAborted, or StackError naming the parts that did not become ready.
        """
        self.acquire()
        try:
            self._prepare()
            self._start_database()
            self._start_parts(timeout_seconds)
        except (AzuriteMissing, FolderTaken, PeerMissing) as error:
            self.stop()
            raise StackError(str(error)) from error
        except BaseException:
            self.stop()
            raise
        self._write_state("ready")

    def abort(self) -> None:
        """Make a start that is under way give up; may be called from a signal handler."""
        self._aborted.set()

    def stop(self) -> None:
        """End every part and the database; what was not started is skipped."""
        if self._plan is not None:
            self._write_state("stopping")
        if self._supervisor is not None:
            # Workers report to orchestrators when they drain, and give messages back.
            last = {*self.shape.orchestrator_names, "balancer", *self.shape.peer_names}
            self._supervisor.stop(last, GRACE_SECONDS)
        if self._cluster is not None:
            self._report("postgres", "stopping")
            self._cluster.stop()
        self._supervisor = self._cluster = None
        if self._plan is not None:
            self._write_state("stopped")
        self._release()

    def end_leftovers(self) -> None:
        """End the parts that a dead supervisor of this home left running."""
        for record in sorted((self.home.root / "run").glob("*.json")):
            if end_stale(record, GRACE_SECONDS):
                self._report(record.stem, "ended what an earlier supervisor left running")

    def pid(self, name: str) -> int | None:
        """Return the pid of a part, None while it is down; `postgres` is the postmaster."""
        return self.cluster.pid() if name == "postgres" else self.supervisor.pid(name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one part, by default SIGKILL; the supervisor then starts it again."""
        if name != "postgres":
            self.supervisor.send(name, number)
        elif pid := self.cluster.pid():
            os.kill(pid, number)

    def replace(self, name: str, grace_seconds: float, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Ask one part to end, kill it after the grace, and start it again, from the build that it now belongs to."""
        self.supervisor.stop_part(name, grace_seconds)
        self.supervisor.start_part(name)
        self.wait_ready(timeout_seconds, (name,))

    def hold_database(self) -> None:
        """Stop PostgreSQL at once and keep it away until `release_database`."""
        self._database_held.set()
        self.cluster.stop()

    def release_database(self) -> None:
        """Start PostgreSQL again."""
        self.cluster.start()
        self._database_held.clear()

    def wait_ready(self, timeout_seconds: float, names: tuple[str, ...] | None = None) -> None:
        """Return once every named part (all by default) answers its readiness probe."""
        wanted = [name for name in names or self.shape.part_names if name != "balancer"]
        waiting = set(wanted)

        def ready() -> bool:
            if self._aborted.is_set():
                raise StartAborted("the start was interrupted")
            waiting.difference_update([name for name in waiting if self.is_ready(name)])
            return not waiting

        if not wait_until(ready, timeout_seconds):
            logs = ", ".join(str(self.home.log(name)) for name in sorted(waiting))
            raise StackError(f"not ready after {timeout_seconds:g} s: {', '.join(sorted(waiting))}; see {logs}")

    def is_ready(self, name: str) -> bool:
        """Return whether one part says that it can work."""
        if self.supervisor.pid(name) is None:
            return False
        port = self.plan.ports[name]
        if name in self.shape.peer_names:
            return listens(port)
        return answers(f"http://{HOST}:{port}{health_path(kind_of(name))}")

    def acquire(self) -> None:
        """Become the one process that may touch this home, or raise AlreadyRunning."""
        self.home.root.mkdir(parents=True, exist_ok=True)
        self._lock_handle = lock(self.home.lock_file)
        if self._lock_handle is None:
            raise AlreadyRunning(f"another process already runs the stack of {self.home.root}")

    def _release(self) -> None:
        if self._lock_handle is not None:
            self._lock_handle.close()
            self._lock_handle = None
        self._claims.release()

    def _prepare(self) -> None:
        """End leftovers, then settle ports and keys, and record them."""
        if self.shape.blobs is BlobsKind.AZURITE:
            check_installed()
        self.end_leftovers()
        self.home.make_folders()
        if self.shape.workflows is not None:
            gather((REPOSITORY / "workflows", self.shape.workflows), self.home.workflows)
        recorded = (read_json(self.home.state_file) or {}).get("ports", {})
        ports = self._choose_ports(self.shape.port_names, {**self._wanted_ports, **recorded})
        identities = None
        if self.shape.identity:
            identities = identity.ensure_identities(self.home.identities)
            self_signed(self.home.tls)
        self._plan = Plan(self.home, self.shape, ports, ensure_credentials(self.home.root), identities)
        if self.shape.queue is QueueKind.SERVICEBUS:
            directory = None if identities is None else identities.directory()
            key, lock_seconds = self.credentials.service_bus_key, self.shape.broker_lock_seconds
            write_json(self.home.peer_settings, servicebus.settings(key, lock_seconds, directory), PRIVATE)
        self._write_state("starting")

    def _choose_ports(self, names: tuple[str, ...], preferred: Mapping[str, int]) -> dict[str, int]:
        """Return free ports; a database that still runs keeps the one it has."""
        cluster = Cluster(self.home.root)
        if cluster.is_running():
            return {"postgres": cluster.port} | choose_ports(names[1:], preferred, self._claims)
        return choose_ports(names, preferred, self._claims)

    def _start_database(self) -> None:
        self._cluster = Cluster(
            self.home.root,
            self.plan.ports["postgres"],
            config=self._database_config,
            judge_port=self.plan.ports.get(identity.DATABASE_PORT) if self.shape.identity else None,
        )
        self._report("postgres", "starting")
        self._cluster.start()
        self._deploy(self._cluster, self.credentials.passwords)
        self._report("postgres", f"ready on port {self.plan.ports['postgres']}")

    def _start_parts(self, timeout_seconds: float) -> None:
        self._supervisor = Supervisor(self.shape.part_names, self.plan.spec, self._report, self._mend_database)
        self._supervisor.start(self.shape.peer_names)
        if self.shape.peer_names:
            self.wait_ready(timeout_seconds, self.shape.peer_names)
        if self.shape.blobs is BlobsKind.AZURITE:
            asyncio.run(make_zones(self.plan.azurite.connection_string, self.plan.azurite.certificate))
        # Workers have nothing to do but to complain before an orchestrator answers.
        for name in self.shape.part_names:
            if name not in self.shape.worker_names:
                self._supervisor.start_part(name)
        self.wait_ready(timeout_seconds, self.shape.orchestrator_names)
        for name in self.shape.worker_names:
            self._supervisor.start_part(name)
        self.wait_ready(timeout_seconds)

    def _mend_database(self) -> None:
        due = time.monotonic() - self._database_checked_at >= CHECK_DATABASE_SECONDS
        if not due or self._database_held.is_set():
            return
        self._database_checked_at = time.monotonic()
        if not self.cluster.is_running():
            self._report("postgres", "ended, starting again")
            self.cluster.start()

    def _write_state(self, state: str) -> None:
        identity = ProcessId.of(os.getpid())
        record = {
            "state": state,
            "supervisor": identity.dump() if identity else None,
            "ports": dict(self.plan.ports),
            "urls": {name: getattr(self.urls, name) for name in Urls.__slots__},
        }
        write_json(self.home.state_file, record)


def listens(port: int) -> bool:
    """Return whether somebody accepts connections at a port of this machine."""
    try:
        socket.create_connection((HOST, port), timeout=PROBE_TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True


def answers(url: str) -> bool:
    """Return whether a GET is answered with success; a refusal or a broken connection is a no."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_SECONDS) as answer:  # noqa: S310 - loopback only
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
