"""The private cluster starts from nothing, from anything a crash left, and never loses what was committed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

from cli.stack.cluster import Account, Cluster, ClusterError, find_installation, free_port
from repositories import roles
from tests.support.waiting import wait_until


@pytest.fixture
def cluster(open_folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(open_folder)
    yield cluster
    cluster.destroy()


def answer(cluster: Cluster, query: str = "SELECT 42") -> object:
    with psycopg.connect(cluster.admin_conninfo(), autocommit=True) as conn:
        cursor = conn.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_a_cluster_is_made_started_and_stopped_as_an_unprivileged_user(cluster: Cluster) -> None:
    cluster.start()
    assert answer(cluster) == 42
    pid = cluster.pid()
    assert pid is not None
    if os.geteuid() == 0:
        assert Path(f"/proc/{pid}").stat().st_uid != 0
    cluster.stop()
    assert not cluster.is_running()
    assert cluster.pid() is None


def test_starting_and_stopping_twice_is_the_same_as_once(cluster: Cluster) -> None:
    cluster.start()
    pid = cluster.pid()
    cluster.start()
    assert cluster.pid() == pid
    cluster.stop()
    cluster.stop()


def test_a_restart_keeps_port_and_data(cluster: Cluster) -> None:
    cluster.start()
    port, pid = cluster.port, cluster.pid()
    answer(cluster, "CREATE TABLE kept (id integer)")
    cluster.restart("immediate")
    assert cluster.port == port
    assert cluster.pid() != pid
    assert answer(cluster, "SELECT count(*) FROM kept") == 0


def test_a_killed_server_is_seen_as_gone_and_starts_again_with_all_commits(cluster: Cluster) -> None:
    cluster.start()
    answer(cluster, "CREATE TABLE kept (id integer)")
    cluster.kill()
    wait_until(lambda: not cluster.is_running(), "the killed postmaster is gone")
    assert (cluster.data / "postmaster.pid").exists()
    cluster.start()
    assert answer(cluster, "SELECT count(*) FROM kept") == 0


def test_a_stale_or_broken_pid_file_does_not_stop_a_start(cluster: Cluster) -> None:
    cluster.start()
    for content in ("999999999\n", "1\n", "", "not a number\n", f"{os.getpid()}\n"):
        cluster.stop()
        (cluster.data / "postmaster.pid").write_text(content)
        assert not cluster.is_running(), content
        cluster.start()
        assert answer(cluster) == 42, content


def test_a_cluster_whose_making_was_interrupted_is_made_again(cluster: Cluster) -> None:
    cluster.initialise()
    (cluster.base / "initialised").unlink()
    (cluster.data / "PG_VERSION").unlink()
    cluster.start()
    assert answer(cluster) == 42


def test_a_new_port_is_used_from_the_next_start_on(cluster: Cluster, open_folder: Path) -> None:
    cluster.start()
    old = cluster.port
    cluster.stop()
    moved = Cluster(open_folder, free_port())
    moved.start()
    assert moved.port != old
    assert answer(moved) == 42


def test_tcp_asks_a_password_and_the_superuser_has_none(cluster: Cluster) -> None:
    cluster.start()
    dsn = conninfo.make_conninfo(cluster.admin_conninfo(), host="127.0.0.1", password="")
    with pytest.raises(psycopg.OperationalError, match="password"), psycopg.connect(dsn):
        pass


def test_a_deployed_cluster_lets_each_role_in_with_its_password_and_again_after_a_change(cluster: Cluster) -> None:
    cluster.start()
    passwords = {role: f"first-{role}" for role in roles.LOGIN_ROLES}
    first = cluster.deploy(passwords)
    assert first.created_database
    assert first.migrations
    passwords = {role: f"second '{role}" for role in roles.LOGIN_ROLES}
    again = cluster.deploy(passwords)
    assert not again.created_database
    assert again.migrations == ()
    for role, password in passwords.items():
        dsn = conninfo.make_conninfo(cluster.admin_conninfo("geodag"), host="127.0.0.1", user=role, password=password)
        with psycopg.connect(dsn) as conn:
            assert conn.execute("SELECT session_user::text").fetchone() == (role,)
    assert "second" not in cluster.log.read_text()
    assert "first-" not in cluster.log.read_text()


def test_commits_are_durable_by_default(cluster: Cluster) -> None:
    cluster.start()
    assert (answer(cluster, "SHOW fsync"), answer(cluster, "SHOW synchronous_commit")) == ("on", "on")


@pytest.mark.parametrize("name", ["closed", "x" * 100])
def test_a_home_that_the_server_cannot_use_gets_its_cluster_beside_or_is_refused(
    open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("cli.stack.cluster.SHARED_STATE", open_folder / "var")
    unusable = tmp_path / name
    unusable.mkdir(mode=0o700)
    if os.geteuid() != 0 and len(name) > 99:  # only root may hand the server to another account and folder
        with pytest.raises(ClusterError, match="too long"):
            Cluster(unusable)
        return
    cluster = Cluster(unusable)
    try:
        cluster.start()
        assert answer(cluster) == 42
        assert Cluster(unusable).pid() == cluster.pid()
        assert os.geteuid() != 0 or cluster.base.is_relative_to(open_folder / "var")
    finally:
        cluster.destroy()


def test_a_folder_whose_socket_path_would_be_too_long_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="too long"):
        Cluster(tmp_path / ("x" * 100), account=Account(None, None)).initialise()


def test_the_server_does_not_hold_the_starter_s_output_open(open_folder: Path) -> None:
    code = (
        "from pathlib import Path; from cli.stack.cluster import Cluster; import sys;"
        "Cluster(Path(sys.argv[1])).start(); print('started')"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(open_folder)], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.strip() == "started"
    finally:
        Cluster(open_folder).destroy()


def test_without_postgis_the_message_carries_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="apt-get install"):
        find_installation(tmp_path)
