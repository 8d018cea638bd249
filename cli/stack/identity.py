"""The managed identities of a local stack: one a kind of process, each with its own secret towards the endpoint.

The endpoint is a peer of our own on loopback, a process like the others; it also tells PostgreSQL (by LDAP) whether a
password is a token of the role that uses it. The Service Bus peer believes its key alone. What each may do is what
`infra/modules/roles.bicep` grants.
"""

import json
import secrets
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from pydantic import BaseModel, ConfigDict, Field

from cli.stack.files import PRIVATE, read_json, write_json
from cli.stack.ports import HOST
from cli.stack.servicebus import JOBS_QUEUE, TASK_QUEUES, PeerMissing
from repositories import roles

MODULE: Final = "tests.peers.identity"
MAIN: Final = Path(__file__).resolve().parents[2].joinpath(*MODULE.split("."), "__main__.py")
DATABASE_PORT: Final = "identity-database"
"""Name of the port at which PostgreSQL asks."""
ROLES: Final[Mapping[str, str]] = {
    "orchestrator": roles.ORCHESTRATOR,
    "worker": roles.WORKER,
    "gateway": roles.GATEWAY,
    "serving": roles.SERVING,
}
"""The database role of each kind of process."""
_QUEUE_RIGHTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "orchestrator": dict.fromkeys((*TASK_QUEUES, JOBS_QUEUE), ("Send", "Listen")),
    "worker": dict.fromkeys(TASK_QUEUES, ("Listen",)),
}


class Identity(BaseModel):
    """One identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    header: str = Field(description="What the endpoint wants to see of its process.", repr=False)
    oid: str = Field(description="Whom its tokens name.")
    role: str = Field(description="The database role that its tokens open.")


class Identities(BaseModel):
    """All of a home, and the key that signs their tokens; this is the file that the endpoint reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str
    key: str = Field(description="PEM of the RSA key.", repr=False)
    identities: dict[str, Identity] = Field(description="By kind of process.")

    @property
    def issuer(self) -> str:
        """Return who the tokens say they are of."""
        return f"https://sts.windows.net/{self.tenant}/"

    def directory(self) -> dict[str, Any]:
        """Return what the Service Bus peer has to know: whose tokens it believes, and what their bearers may do."""
        private = serialization.load_pem_private_key(self.key.encode(), None)
        if not isinstance(private, rsa.RSAPrivateKey):
            raise ValueError("the key of the identities is no RSA key")
        public = json.loads(RSAAlgorithm.to_jwk(private.public_key()))
        rights = {self.identities[kind].oid: dict(by_queue) for kind, by_queue in _QUEUE_RIGHTS.items()}
        return {"jwks": {"keys": [public | {"kid": self.tenant}]}, "issuer": self.issuer, "rights": rights}

    def environment(self, kind: str, port: int) -> dict[str, str]:
        """Return what Azure would set for a process of a kind."""
        return {
            "USE_MANAGED_IDENTITY": "true",
            "IDENTITY_ENDPOINT": f"http://{HOST}:{port}/msi/token",
            "IDENTITY_HEADER": self.identities[kind].header,
        }


def ensure_identities(path: Path) -> Identities:
    """Return the identities of a home, made when there are none yet."""
    if (stored := read_json(path)) is not None:
        return Identities.model_validate(stored)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = Identities(
        tenant=str(uuid.uuid4()),
        key=key.decode(),
        identities={
            kind: Identity(header=secrets.token_hex(32), oid=str(uuid.uuid4()), role=role)
            for kind, role in ROLES.items()
        },
    )
    write_json(path, made.model_dump(mode="json"), PRIVATE)
    return made


def argv(port: int, database_port: int, settings: Path, life_seconds: float) -> list[str]:
    """Return how the endpoint is started.

    Raises:
        PeerMissing: There is none here.
    """
    if not MAIN.is_file():
        raise PeerMissing(f"--identity runs {MODULE}, which only a checkout of the repository has: no {MAIN}")
    ports = ["--port", str(port), "--database-port", str(database_port)]
    return [sys.executable, "-m", MODULE, *ports, "--life-seconds", str(life_seconds), "--settings", str(settings)]
