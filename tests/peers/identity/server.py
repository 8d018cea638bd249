"""What Azure gives a machine as its identity, on loopback.

Two doors, as App Service and virtual machines have them: `/msi/token` wants the header of IDENTITY_HEADER,
`/metadata/identity/oauth2/token` the header `Metadata: true`. Tokens are RS256 JWTs with the claims that services look
at: aud, iss, tid, oid, iat, nbf, exp. `/keys` publishes the public halves (JWKS). Tests shorten lives, rotate the key,
take the endpoint away and break its answers.
"""

import json
import secrets
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.support.tokens import SigningKey

TENANT: Final = "3f2c1d7e-8f5a-4a53-9a57-0c8f4d1a6b2e"
ISSUER: Final = f"https://sts.windows.net/{TENANT}/"
Answer = tuple[int, dict[str, Any] | bytes]


@dataclass
class IdentityPeer:
    """One identity, or several by client id, and how the endpoint behaves now."""

    header: str = field(default_factory=lambda: secrets.token_hex(16))
    oid: str = field(default_factory=lambda: str(uuid.uuid4()))
    life_seconds: float = 3600.0
    key: SigningKey = field(default_factory=lambda: SigningKey("first"))
    tenant: str = TENANT
    others: Mapping[str, str] = field(default_factory=dict)
    """Further identities: their `oid` by their headers."""
    clients: frozenset[str] | None = None
    """Client ids that there are; None takes any."""
    claims: dict[str, Any] = field(default_factory=dict)
    """Of every token, instead of the right ones."""
    broken: Answer | None = None
    """What it answers instead of a token."""
    retired: list[SigningKey] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def endpoint(self) -> str:
        """Return what IDENTITY_ENDPOINT says."""
        return f"{self.url}/msi/token"

    @property
    def issuer(self) -> str:
        """Return whom the tokens say they are of."""
        return f"https://sts.windows.net/{self.tenant}/"

    def environment(self) -> dict[str, str]:
        """Return what Azure sets for a process."""
        return {"IDENTITY_ENDPOINT": self.endpoint, "IDENTITY_HEADER": self.header, "USE_MANAGED_IDENTITY": "true"}

    def rotate(self) -> None:
        """Sign with a new key from now on; the old one stays published."""
        self.retired.append(self.key)
        self.key = SigningKey(uuid.uuid4().hex)

    def token(self, resource: str, **claims: Any) -> str:
        """Return a token for a resource, right unless the claims say otherwise."""
        now = int(time.time())
        said: dict[str, Any] = {
            "aud": resource,
            "iss": self.issuer,
            "tid": self.tenant,
            "oid": self.oid,
            "iat": now - 1,
            "nbf": now - 1,
            "exp": now + max(1, int(self.life_seconds)),
            "roles": None,
        }
        return self.key.token(**(said | claims))

    def answer(self, path: str, query: dict[str, str], headers: Any) -> Answer:
        """Return status and document for one request."""
        if path == "/keys":
            return 200, {"keys": [key.jwk() for key in (self.key, *self.retired)]}
        oid = {**self.others, self.header: self.oid}.get(headers.get("X-IDENTITY-HEADER", ""))
        by_header = path == "/msi/token" and oid is not None
        by_place = path == "/metadata/identity/oauth2/token" and headers.get("Metadata") == "true"
        if path not in ("/msi/token", "/metadata/identity/oauth2/token"):
            return 404, {}
        self.queries.append(query)
        if self.broken is not None:
            return self.broken
        if not by_header and not by_place:
            return 401, {"error": "invalid_header"}
        if query.get("api-version") != ("2019-08-01" if by_header else "2018-02-01") or "resource" not in query:
            return 400, {"error": "invalid_request"}
        if self.clients is not None and query.get("client_id") not in self.clients:
            return 400, {"error": "invalid_request", "error_description": "no such identity"}
        token = self.token(query["resource"], **({"oid": oid or self.oid} | self.claims))
        self.issued.append(token)
        ends = str(int(time.time() + self.life_seconds))
        return 200, {"access_token": token, "expires_on": ends, "resource": query["resource"], "token_type": "Bearer"}


@contextmanager
def running(given: IdentityPeer | None = None, port: int = 0) -> Iterator[IdentityPeer]:
    """Serve an identity until the end of the block."""
    peer = given or IdentityPeer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            status, document = peer.answer(split.path, query, self.headers)
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    peer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield peer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
