"""An identity provider for tests: its keys, its tokens, and its JWKS address on loopback."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://login.example/tenant/v2.0"
AUDIENCE = "api://geodag"


@dataclass
class SigningKey:
    """One key pair of the provider."""

    kid: str
    pem: str | None = field(default=None, repr=False)
    """None makes a new one."""

    @cached_property
    def private(self) -> rsa.RSAPrivateKey:
        """The private half."""
        if self.pem is not None:
            loaded = load_pem_private_key(self.pem.encode(), None)
            assert isinstance(loaded, rsa.RSAPrivateKey)
            return loaded
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwk(self) -> dict[str, Any]:
        """Return the public half as a JWK."""
        entry: dict[str, Any] = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return entry | {"kid": self.kid, "use": "sig"}

    def token(self, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token that is right unless the claims say otherwise; None takes a claim away."""
        now = int(time.time())
        usual = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": now + 600,
            "nbf": now - 10,
            "oid": "alice",
            "roles": ["operator"],
        }
        said = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(said, self.private, "RS256", {"kid": self.kid} | (headers or {}))


@dataclass
class Provider:
    """What its JWKS address answers now, and how often it was asked."""

    keys: list[SigningKey]
    down: bool = False
    asked: int = 0
    url: str = ""
    raw: bytes | None = field(default=None)

    async def answer(self, _request: web.Request) -> web.Response:
        """Answer with the keys, or as one that is down."""
        self.asked += 1
        if self.down:
            return web.Response(status=503)
        if self.raw is not None:
            return web.Response(body=self.raw)
        return web.json_response({"keys": [key.jwk() for key in self.keys]})


@asynccontextmanager
async def provider(*keys: SigningKey) -> AsyncIterator[Provider]:
    """Serve a provider on loopback."""
    made = Provider(list(keys))
    app = web.Application()
    app.router.add_get("/keys", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}/keys"
    try:
        yield made
    finally:
        await runner.cleanup()
