"""Everything that may stand behind a transaction pooler does: both orchestrators and the gateway, and one is killed."""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from cli.stack.cluster import TEST_CONFIG, server_account
from cli.stack.credentials import ensure_credentials
from cli.stack.layout import Shape
from cli.stack.ports import HOST, choose_ports
from cli.stack.stack import Stack
from tests.acceptance.platform import Platform, http
from tests.support.azurite_server import listens
from tests.support.waiting import wait_until

PROGRAM = "/usr/sbin/pgbouncer"
THRESHOLD_SECONDS = 3.0
TAKEOVER_SECONDS = THRESHOLD_SECONDS + 5.0
ROLES = ("geodag_orchestrator", "geodag_gateway")
CONFIGURATION = """
[databases]
* = host={host} port={postgres}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
admin_users = geodag_orchestrator
pool_mode = transaction
default_pool_size = 6
max_client_conn = 200
logfile = {folder}/pgbouncer.log
"""


@dataclass
class Pooled:
    """A platform whose orchestrators and gateway meet PostgreSQL through PgBouncer."""

    platform: Platform
    port: int
    password: str

    def users(self) -> set[str]:
        """Return whom PgBouncer itself has connections of."""
        dsn = f"host={HOST} port={self.port} dbname=pgbouncer user=geodag_orchestrator password={self.password}"
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as conn:
            rows = conn.execute("SHOW POOLS").fetchall()
        return {str(row[1]) for row in rows}


@pytest.fixture
def pooled(open_folder: Path) -> Iterator[Pooled]:
    home = open_folder
    ports = choose_ports(("postgres", "pgbouncer"), {})
    credentials = ensure_credentials(home / "stack")
    folder = home / "pgbouncer"
    folder.mkdir()
    users = folder / "users.txt"
    users.write_text("".join(f'"{role}" "{credentials.passwords[role]}"\n' for role in ROLES))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        CONFIGURATION.format(host=HOST, postgres=ports["postgres"], port=ports["pgbouncer"], users=users, folder=folder)
    )
    account = server_account()
    if account.uid is not None:
        for path in (folder, users, settings):
            os.chown(path, account.uid, account.gid or 0)
    bouncer = subprocess.Popen([PROGRAM, "-q", str(settings)], user=account.uid, group=account.gid, extra_groups=[])
    through = {"POSTGRES_PORT": str(ports["pgbouncer"])}
    past = {"POSTGRES_LISTEN_PORT": str(ports["postgres"]), "ORCHESTRATOR_HEARTBEAT_SECONDS": "0.5"}
    orchestrator = {**through, **past, "ORCHESTRATOR_THRESHOLD_SECONDS": str(THRESHOLD_SECONDS)}
    shape = Shape(light=1, heavy=0, serving=False, overrides={"orchestrator": orchestrator, "gateway": through})
    stack = Stack(home / "stack", ports={"postgres": ports["postgres"]}, shape=shape, database_config=TEST_CONFIG)
    try:
        wait_until(lambda: listens(ports["pgbouncer"]), "PgBouncer listens")
        stack.start()
        yield Pooled(Platform(stack, home / "journal"), ports["pgbouncer"], credentials.passwords[ROLES[0]])
    finally:
        stack.stop()
        bouncer.terminate()
        bouncer.wait(10)


def owner_of(platform: Platform, job_id: str) -> str:
    """Return the living orchestrator that a job belongs to, empty while it belongs to none."""
    owner = str(platform.value("SELECT owner_id FROM dagapp.dag_jobs WHERE job_id = %s", job_id))
    pids = {str(platform.stack.pid(name)): name for name in platform.stack.shape.orchestrator_names}
    return pids.get(owner.rpartition("-")[0].rpartition("-")[2], "")


def ended(platform: Platform, job_id: str) -> str:
    def final() -> str | None:
        state = str(platform.value("SELECT status FROM dagapp.dag_jobs WHERE job_id = %s", job_id))
        return state if state in {"COMPLETED", "FAILED", "CANCELLED"} else None

    return wait_until(final, f"{job_id} ends", 60, every=0.1) or ""


def test_orchestrators_and_gateway_behind_pgbouncer_and_one_is_killed(pooled: Pooled) -> None:
    platform = pooled.platform
    jobs = [platform.create_job("chain_10", {}) for _ in range(5)]
    jobs += [platform.create_job("sleep_test", {"seconds": 6.0}) for _ in range(4)]
    assert {ended(platform, job) for job in jobs[:5]} == {"COMPLETED"}
    assert pooled.users() >= set(ROLES), "nobody went past it"
    killed = wait_until(lambda: owner_of(platform, jobs[-1]), "an owner", 20)
    platform.stack.kill(killed)
    platform.stack.supervisor.stop_part(killed, 1)
    since = time.monotonic()
    taken = wait_until(lambda: owner_of(platform, jobs[-1]), "a new owner", TAKEOVER_SECONDS, every=0.1)
    assert taken != killed
    assert time.monotonic() - since < TAKEOVER_SECONDS
    assert {ended(platform, job) for job in jobs} == {"COMPLETED"}
    assert ended(platform, platform.create_job("fan_out_test", {"items": list(range(50))})) == "COMPLETED"
    assert http("GET", f"{platform.gateway}/api/readyz").status == 200
