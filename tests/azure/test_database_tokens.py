"""PostgreSQL takes tokens of the identity as passwords and no others: a real server asks a judge that checks them."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from cli.stack.cluster import TEST_CONFIG, Cluster, free_port
from repositories import roles
from repositories.database import async_pool, transaction
from repositories.managed_identity import POSTGRES, STORAGE
from repositories.settings import DatabaseSettings
from tests.peers.identity.database import AUDIENCES, Judge
from tests.peers.identity.server import IdentityPeer
from tests.peers.servicebus.auth import ALL, Directory, Gatekeeper
from tests.support.tokens import SigningKey


@dataclass
class Server:
    """A server of its own, and the identity that is `geodag_worker` there."""

    cluster: Cluster
    identity: IdentityPeer

    def connect(self, password: str, role: str = roles.WORKER) -> str:
        """Return who a password makes us."""
        place = {"host": "127.0.0.1", "port": self.cluster.port, "dbname": "postgres"}
        with psycopg.connect("", **place, user=role, password=password) as conn:
            row = conn.execute("SELECT current_user").fetchone()
        return str(row[0]) if row else ""


@pytest.fixture
def server(open_folder: Path, identity: IdentityPeer) -> Iterator[Server]:
    rights = {identity.oid: {roles.WORKER: ALL}}
    gatekeeper = Gatekeeper((), Directory({"keys": [identity.key.jwk()]}, identity.issuer, AUDIENCES, rights))
    with Judge(0, gatekeeper) as judge:
        thread = threading.Thread(target=judge.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        cluster = Cluster(open_folder, free_port(), config=TEST_CONFIG, judge_port=judge.server_address[1])
        try:
            cluster.start()
            with psycopg.connect(cluster.admin_conninfo(), autocommit=True) as conn:
                for role in (roles.WORKER, roles.SERVING, roles.DEPLOY):
                    conn.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'a password'")  # type: ignore[call-overload]
            yield Server(cluster, identity)
        finally:
            cluster.destroy()
            judge.shutdown()
            thread.join()


async def test_tokens_open_the_role_of_their_identity_and_nothing_else_opens_any(server: Server) -> None:
    place = {"postgres_host": "127.0.0.1", "postgres_port": server.cluster.port, "postgres_db": "postgres"}
    how = {"use_managed_identity": True, "identity_endpoint": server.identity.endpoint}
    settings = DatabaseSettings(
        **place, **how, postgres_user=roles.WORKER, identity_header=SecretStr(server.identity.header)
    )
    async with async_pool(settings.conninfo, name="tokens", min_size=1, max_size=2) as pool, transaction(pool) as conn:
        cursor = await conn.execute("SELECT current_user")
        assert await cursor.fetchone() == (roles.WORKER,)
    token, now = server.identity.token, time.time()
    forged = SigningKey(server.identity.key.kid)
    right: dict[str, Any] = {"iss": server.identity.issuer, "aud": POSTGRES, "oid": server.identity.oid, "roles": None}
    refused = {
        "another audience": token(STORAGE),
        "expired": token(POSTGRES, exp=int(now) - 1),
        "without an end": token(POSTGRES, exp=None),
        "not yet": token(POSTGRES, nbf=int(now) + 300),
        "another issuer": token(POSTGRES, iss="https://sts.windows.net/elsewhere/"),
        "somebody else": token(POSTGRES, oid="somebody else"),
        "forged": forged.token(**right),
        "cut": token(POSTGRES)[:-3],
        "no token": "a password",
        "a shared key": "SharedAccessSignature sr=geodag_worker&sig=a&se=9999999999&skn=b",
    }
    for why, password in refused.items():
        with pytest.raises(psycopg.OperationalError, match="LDAP authentication failed") as told:
            server.connect(password)
        assert password not in str(told.value), why
    with pytest.raises(psycopg.OperationalError, match="LDAP authentication failed"):
        server.connect(token(POSTGRES), roles.SERVING)
    assert server.connect("a password", roles.DEPLOY) == roles.DEPLOY, "the deploy role has a password"
    assert server.connect(token(POSTGRES)) == roles.WORKER
