"""Passwords that live for a second (D41 of the cases): a real server refuses old ones, and no request fails.

PostgreSQL itself plays the server that refuses: each token becomes the role's password until its own end.
"""

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from core.errors import DatabaseUnavailable
from repositories import roles
from repositories.database import async_pool, listen, read, sync_pool, transaction
from repositories.managed_identity import POSTGRES, ManagedIdentity, NoToken
from repositories.settings import DatabaseSettings, SettingsError
from tests.support.databases import Database

LIFE_SECONDS = 1.0
HEADER = "header-of-the-endpoint"


@dataclass
class Endpoint:
    """The identity endpoint of a machine on Azure."""

    database: Database
    role: str
    url: str = ""
    issued: list[str] = field(default_factory=list)
    queries: list[dict[str, list[str]]] = field(default_factory=list)
    broken: tuple[int, bytes] | None = None

    def issue(self) -> bytes:
        """Make a token the role's password until it ends."""
        token, ends = f"token-{secrets.token_hex(200)}", time.time() + LIFE_SECONDS
        until = datetime.fromtimestamp(ends, UTC).isoformat()
        statement = sql.SQL("ALTER ROLE {} PASSWORD {} VALID UNTIL {}").format(
            sql.Identifier(self.role), sql.Literal(token), sql.Literal(until)
        )
        with psycopg.connect(self.database.admin, autocommit=True) as conn:
            conn.execute(statement)
        self.issued.append(token)
        return json.dumps({"access_token": token, "expires_on": str(ends), "token_type": "Bearer"}).encode()

    def handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.queries.append(parse_qs(urlsplit(self.path).query))
                allowed = self.headers.get("X-IDENTITY-HEADER") == HEADER
                status, body = endpoint.broken or ((200, endpoint.issue()) if allowed else (403, b"{}"))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def endpoint(database: Database) -> Iterator[Endpoint]:
    """Yield an endpoint whose identity is a role of its own."""
    made = Endpoint(database, f"identity_{secrets.token_hex(6)}")
    name, group = sql.Identifier(made.role), sql.Identifier(roles.SERVING)
    with psycopg.connect(database.admin, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}").format(name, group))
    server = ThreadingHTTPServer(("127.0.0.1", 0), made.handler())
    made.url = f"http://127.0.0.1:{server.server_address[1]}/msi/token"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()
    with psycopg.connect(database.admin, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP ROLE {}").format(name))


def settings(endpoint: Endpoint, **changes: object) -> DatabaseSettings:
    known = {
        "postgres_host": endpoint.database.host,
        "postgres_port": endpoint.database.port,
        "postgres_db": endpoint.database.name,
        "postgres_user": endpoint.role,
        "use_managed_identity": True,
        "identity_endpoint": endpoint.url,
        "identity_header": HEADER,
        "db_admin_managed_identity_client_id": "client-1",
    }
    return DatabaseSettings.model_validate(known | changes)


async def test_no_request_fails_while_tokens_end_and_connections_are_replaced(endpoint: Endpoint) -> None:
    mine, asked, until = settings(endpoint), 0, time.monotonic() + 4 * LIFE_SECONDS
    async with async_pool(mine.conninfo, name="tokens", min_size=2, max_size=2, max_lifetime_seconds=0.3) as pool:
        while time.monotonic() < until:
            async with transaction(pool) as conn:
                await conn.execute("SELECT pg_sleep(0.02)")
            asked += 1
    assert asked > 30
    assert len(set(endpoint.issued)) >= 4, "each connection was made with a token that was fresh"
    expected = {"resource": [POSTGRES], "api-version": ["2019-08-01"], "client_id": ["client-1"]}
    assert endpoint.queries[0] == expected


async def test_threads_and_listeners_ask_for_a_token_of_now_too(endpoint: Endpoint) -> None:
    mine = settings(endpoint)
    for _ in range(2):
        with sync_pool(mine.conninfo, name="tokens") as pool, read(pool) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        await (await listen(mine.listen_conninfo, name="tokens")).close()
        await asyncio.sleep(LIFE_SECONDS)
    assert len(endpoint.issued) >= 2


@pytest.mark.parametrize(
    "broken", [(500, b"{}"), (200, b"no json"), (200, b'{"access_token": "t"}'), (200, b"[]"), (403, b"SECRET")]
)
async def test_without_a_token_the_database_is_not_there_and_no_password_is_tried(
    endpoint: Endpoint, broken: tuple[int, bytes]
) -> None:
    endpoint.broken = broken
    with pytest.raises(DatabaseUnavailable) as refused:
        await listen(settings(endpoint).listen_conninfo, name="tokens")
    assert "SECRET" not in str(refused.value)
    endpoint.broken = None
    await (await listen(settings(endpoint).listen_conninfo, name="tokens")).close()


def test_one_token_is_used_until_it_nears_its_end(endpoint: Endpoint) -> None:
    clock = [time.time()]
    identity = ManagedIdentity(endpoint.url, SecretStr(HEADER), now=lambda: clock[0])
    first = identity.token(POSTGRES)
    assert identity.token(POSTGRES) == first
    assert "client_id" not in endpoint.queries[0]
    clock[0] += LIFE_SECONDS
    assert identity.token(POSTGRES) != first
    assert first.text not in repr(identity)


def test_a_token_outlives_the_endpoint_and_then_nothing_replaces_it(endpoint: Endpoint) -> None:
    clock = [time.time()]
    identity = ManagedIdentity(endpoint.url, SecretStr(HEADER), now=lambda: clock[0])
    first = identity.token(POSTGRES)
    endpoint.broken = (503, b"{}")
    clock[0] = first.stale_at
    assert identity.token(POSTGRES).text == first.text
    clock[0] = first.expires_at
    with pytest.raises(NoToken, match="HTTP 503"):
        identity.token(POSTGRES)
    endpoint.broken = None
    assert identity.token(POSTGRES).text != first.text


def test_identity_and_password_exclude_each_other(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "POSTGRES_HOST": "db", "POSTGRES_DB": "d", "POSTGRES_USER": "u", "POSTGRES_PASSWORD": "p",
        "USE_MANAGED_IDENTITY": "true", "IDENTITY_ENDPOINT": endpoint.url, "IDENTITY_HEADER": HEADER,
    }  # fmt: skip
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match="exclude each other"):
        DatabaseSettings.load()
    monkeypatch.delenv("POSTGRES_PASSWORD")
    assert DatabaseSettings.load().use_managed_identity
    endpoint.broken = (403, b"SECRET")
    with pytest.raises(SettingsError, match=r"USE_MANAGED_IDENTITY.*HTTP 403"):
        DatabaseSettings.load()
    monkeypatch.setenv("IDENTITY_PATIENCE_SECONDS", "0.1")
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://127.0.0.1:9/msi/token")
    with pytest.raises(SettingsError, match=r"USE_MANAGED_IDENTITY.*URLError"):
        DatabaseSettings.load()
    monkeypatch.delenv("IDENTITY_HEADER")
    with pytest.raises(SettingsError, match="IDENTITY_HEADER"):
        DatabaseSettings.load()
