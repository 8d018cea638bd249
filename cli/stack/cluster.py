"""A private PostgreSQL + PostGIS cluster in one folder, run by an unprivileged user.

The server listens on a Unix socket inside the folder (trust, for the folder's owner and root) and on loopback TCP
(SCRAM passwords). Every call is idempotent and none believes a leftover: after a `kill -9` of anything, `start` works.
"""

import asyncio
import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from core.errors import GeodagError
from repositories.deploy import Deployed, deploy
from repositories.roles import PROCESS_ROLES

INSTALL_HINT: Final = "apt-get install --no-install-recommends postgresql-15 postgresql-15-postgis-3"
SUPERUSER: Final = "postgres"
VERSIONS: Final = (18, 17, 16, 15)
SOCKET_PATH_LIMIT: Final = 107
"""Linux's limit on the path of a Unix socket, in bytes."""
SOCKET_NAME: Final = ".s.PGSQL.65535"
SHARED_STATE: Final = Path("/var/lib/geodag")
"""Where root puts a cluster whose home the server's account could not enter, as below /root."""

LOCAL_CONFIG: Final = MappingProxyType(
    {
        "shared_buffers": "256MB",
        "max_connections": "200",
        "work_mem": "16MB",
        "maintenance_work_mem": "128MB",
        "wal_level": "replica",
        "max_wal_size": "2GB",
        "checkpoint_timeout": "15min",
        "random_page_cost": "1.1",
        "jit": "off",
        "fsync": "on",
        "synchronous_commit": "on",
        "password_encryption": "scram-sha-256",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_min_duration_statement": "2s",
        "log_line_prefix": "%m [%p] %q%u@%d %a ",
    }
)
TEST_CONFIG: Final = MappingProxyType(
    {
        **LOCAL_CONFIG,
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "max_connections": "400",
        "autovacuum_naptime": "5s",
    }
)


class ClusterError(GeodagError):
    """The private database cluster cannot be made or started; the message says what to do."""

    code = "CLUSTER_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Installation:
    """PostgreSQL's programs of one major version that also has PostGIS."""

    version: int
    bin: Path


@dataclass(frozen=True, slots=True)
class Account:
    """Who the server runs as; None of both when it is the current user."""

    uid: int | None
    gid: int | None


def find_installation(root: Path = Path("/usr")) -> Installation:
    """Return the newest PostgreSQL ≥ 15 with PostGIS.

    Raises:
        ClusterError: None is installed; the message carries the command that installs one.
    """
    for version in VERSIONS:
        programs = root / "lib/postgresql" / str(version) / "bin"
        control = root / "share/postgresql" / str(version) / "extension/postgis.control"
        if (programs / "pg_ctl").exists() and control.exists():
            return Installation(version, programs)
    raise ClusterError(f"no PostgreSQL with PostGIS found; run: {INSTALL_HINT}", remediation=INSTALL_HINT)


def server_account() -> Account:
    """Return the account for the server: PostgreSQL refuses root, so root hands over to postgres or nobody."""
    if os.geteuid() != 0:
        return Account(None, None)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise ClusterError("running as root and neither the user postgres nor nobody exists")


def free_port() -> int:
    """Return a loopback TCP port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster: a folder, usually `home/postgres`, with `data`, `run` (socket), `postgresql.log` and `port`."""

    home: Path
    wanted_port: int | None = None
    """Used from the next start on; None keeps the port of the last start, or takes a free one."""
    installation: Installation = field(default_factory=find_installation)
    config: Mapping[str, str] = field(default_factory=lambda: LOCAL_CONFIG)
    account: Account = field(default_factory=server_account)
    judge_port: int | None = None
    """Where an LDAP server on loopback says whether the password of a process is a token of its role."""

    @property
    def base(self) -> Path:
        """Return the folder of the cluster; one that was made stays where it is."""
        usual = self.home.absolute() / "postgres"
        if self.account.uid is None or (usual / "initialised").exists() or _is_reachable(usual):
            return usual
        return SHARED_STATE / hashlib.sha256(os.fsencode(usual)).hexdigest()[:16]

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.base / "data"

    @property
    def socket_dir(self) -> Path:
        """Return the folder of the Unix socket; libpq takes it as a host."""
        return self.base / "run"

    @property
    def log(self) -> Path:
        """Return the server's log file."""
        return self.base / "postgresql.log"

    @property
    def port(self) -> int:
        """Return the TCP port of the last start, which also names the socket."""
        return int((self.base / "port").read_text())

    def admin_conninfo(self, database: str = "postgres") -> str:
        """Return how the administrator connects: by the socket, without a password."""
        return f"host={self.socket_dir} port={self.port} user={SUPERUSER} dbname={database}"

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Make what is missing, start the server unless it runs, and wait until it accepts connections."""
        if self.is_running():
            if self._write("pg_hba.conf", self._access()):
                self._run("pg_ctl", "-D", str(self.data), "reload")
            return
        self.initialise()
        self._forget_stale_postmaster()
        arguments = ["-w", "-t", str(int(timeout_seconds)), "-l", str(self.log), "-o", f"-c port={self.port}", "start"]
        done = self._run("pg_ctl", "-D", str(self.data), *arguments)
        if done.returncode != 0:
            raise ClusterError(f"PostgreSQL did not start: {self._log_tail()}")

    def initialise(self) -> None:
        """Create folder, cluster and configuration; a half-made cluster is made again."""
        self._make_folders()
        if not (self.base / "initialised").exists():
            self._initdb()
        port_file = self.base / "port"
        if self.wanted_port is not None or not port_file.exists():
            port_file.write_text(str(self.wanted_port or free_port()))
        self._write_configuration()

    def deploy(self, passwords: Mapping[str, str], database: str = "geodag") -> Deployed:
        """Create, prepare and migrate the database of a running cluster; idempotent.

        The deploy role connects over TCP with its password, so what it may do is what a cloud's administrator may.
        """
        return asyncio.run(deploy(self.admin_conninfo(), database, passwords, host="127.0.0.1"))

    def stop(self, mode: str = "fast", timeout_seconds: float = 60.0) -> None:
        """Stop the server (mode smart, fast or immediate) and wait until it is gone; fine when it is not running."""
        if not self.is_running():
            return
        done = self._run("pg_ctl", "-D", str(self.data), "-w", "-t", str(int(timeout_seconds)), "-m", mode, "stop")
        if done.returncode != 0 and self.is_running():
            raise ClusterError(f"PostgreSQL did not stop: {done.stdout.strip()}")

    def restart(self, mode: str = "fast") -> None:
        """Stop, then start on the same port."""
        self.stop(mode)
        self.start()

    def is_running(self) -> bool:
        """Return whether the postmaster of this data directory lives."""
        return self.pid() is not None

    def pid(self) -> int | None:
        """Return the process id of the postmaster, None when it does not live (whatever a stale file says)."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if _works_in(pid, self.data) else None

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL, as a crash would; its children end by themselves."""
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGKILL)

    def destroy(self) -> None:
        """Stop the server and remove everything."""
        if self.base.exists():
            self.stop("immediate")
            shutil.rmtree(self.base, ignore_errors=True)

    def _make_folders(self) -> None:
        if not _fits_socket(self.base):
            raise ClusterError(f"the folder's path is too long for a socket: {self.base}", value=str(self.base))
        self.socket_dir.mkdir(parents=True, exist_ok=True)
        for folder in (self.base, self.socket_dir):
            self._give(folder)
            folder.chmod(0o755)

    def _initdb(self) -> None:
        if self.data.exists():
            shutil.rmtree(self.data)
        arguments = ["--username", SUPERUSER, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        # Who may connect is written before the first start; the superuser has no password, so TCP is closed to it.
        arguments += ["--auth=trust"]
        done = self._run("initdb", "-D", str(self.data), *arguments)
        if done.returncode != 0:
            raise ClusterError(f"initdb failed: {done.stdout.strip()[-500:]}")
        (self.base / "initialised").write_text(str(self.installation.version))

    def _write_configuration(self) -> None:
        """Write our settings to a file that postgresql.conf includes, and who may connect how."""
        settings = {
            **self.config,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
        }
        lines = [f"{name} = '{value}'" for name, value in settings.items()]
        self._write("geodag.conf", "\n".join(lines) + "\n")
        main = self.data / "postgresql.conf"
        if "include = 'geodag.conf'" not in main.read_text():
            with main.open("a") as stream:
                stream.write("\ninclude = 'geodag.conf'\n")
        self._write("pg_hba.conf", self._access())

    def _access(self) -> str:
        """Return who may connect how."""
        lines = ["local all all trust", "host all all 127.0.0.1/32 scram-sha-256"]
        if self.judge_port is not None:
            judge = f'ldapserver=127.0.0.1 ldapport={self.judge_port} ldapprefix="cn=" ldapsuffix=",dc=geodag"'
            lines.insert(1, f"host all {','.join(PROCESS_ROLES)} 127.0.0.1/32 ldap {judge}")
        return "\n".join(lines) + "\n"

    def _write(self, name: str, text: str) -> bool:
        """Write a file of the server's unless it says this already; return whether."""
        path = self.data / name
        if path.exists() and path.read_text() == text:
            return False
        path.write_text(text)
        self._give(path)
        path.chmod(0o600)
        return True

    def _give(self, path: Path) -> None:
        if self.account.uid is not None and self.account.gid is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def _forget_stale_postmaster(self) -> None:
        """Remove what a killed server left, once its children are gone: they still hold the shared memory."""
        deadline = time.monotonic() + 15.0
        while _is_used(self.data) and time.monotonic() < deadline:
            time.sleep(0.05)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for leftover in self.socket_dir.glob(".s.PGSQL.*"):
            leftover.unlink(missing_ok=True)

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        with (self.base / "pg_ctl.out").open("w+") as output:
            done = subprocess.run(
                [str(self.installation.bin / program), *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True, check=False,
                cwd=self.base, start_new_session=True,
                user=self.account.uid, group=self.account.gid,
                extra_groups=None if self.account.uid is None else [],
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            )  # fmt: skip
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, output.read(), None)

    def _log_tail(self) -> str:
        try:
            return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])
        except OSError:
            return "no log"


def _fits_socket(base: Path) -> bool:
    return len(os.fsencode(base / "run" / SOCKET_NAME)) <= SOCKET_PATH_LIMIT


def _is_reachable(base: Path) -> bool:
    """Return whether an account that owns none of them may pass all folders above `base`, and the socket fits."""
    present = [folder for folder in base.resolve().parents if folder.exists()]
    return _fits_socket(base) and all(folder.stat().st_mode & 0o001 for folder in present)


def _works_in(pid: int, data: Path) -> bool:
    """Return whether `pid` is a live server process of this data directory, and not a reused number."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == data.resolve() and not _is_zombie(pid)
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _is_used(data: Path) -> bool:
    """Return whether any process works in the data directory; every server process does."""
    return any(_works_in(int(entry.name), data) for entry in Path("/proc").iterdir() if entry.name.isdigit())
