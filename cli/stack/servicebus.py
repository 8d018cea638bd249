"""The Service Bus of a local stack: a peer that speaks its protocol, as a process of its own on loopback.

It lives with the tests, which a checkout has and an installed package does not.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cli.stack.ports import HOST
from core.handlers_catalog import KNOWN_QUEUES

MODULE: Final = "tests.peers.servicebus"
MAIN: Final = Path(__file__).resolve().parents[2].joinpath(*MODULE.split("."), "__main__.py")
KEY_NAME: Final = "geodag"
TASK_QUEUES: Final = tuple(sorted(KNOWN_QUEUES))
JOBS_QUEUE: Final = "orchestrator-jobs"
QUEUES: Final = (*TASK_QUEUES, JOBS_QUEUE)
MAX_DELIVERIES: Final = 1000
"""A task that fits nowhere at present comes back often."""
FQDN: Final = "geodag.servicebus.windows.net"
"""What the namespace is called in audiences of tokens; nobody looks the name up."""


class PeerMissing(Exception):
    """This is no checkout; the message says what is missing."""


def argv(port: int, settings: Path, journal: Path | None = None, tls: tuple[Path, Path] | None = None) -> list[str]:
    """Return how the peer is started; with a certificate and its key it has no door without TLS.

    Raises:
        PeerMissing: There is none here.
    """
    if not MAIN.is_file():
        raise PeerMissing(f"--queue servicebus runs {MODULE}, which only a checkout of the repository has: no {MAIN}")
    door = ["--port", str(port)]
    if tls is not None:
        door = ["--tls-only", "--tls-port", str(port), "--cert", str(tls[0]), "--key", str(tls[1])]
    keeping = [] if journal is None else ["--journal", str(journal)]
    return [sys.executable, "-m", MODULE, *door, "--settings", str(settings), *keeping]


def settings(key: str, lock_seconds: float, directory: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the peer's own settings: our queues, and the one key, or the directory whose tokens it believes."""
    queue = {"lock_seconds": lock_seconds, "max_delivery_count": MAX_DELIVERIES}
    queues = [{"name": name, **queue} for name in QUEUES]
    if directory is not None:
        return {"queues": queues, "keys": [], "directory": dict(directory)}
    return {"queues": queues, "keys": [{"name": KEY_NAME, "key": key}]}


def by_identity(port: int, certificate: Path) -> dict[str, str]:
    """Return the settings of a process that enters with its identity."""
    return {
        "SERVICE_BUS_FQDN": FQDN,
        "SERVICE_BUS_CUSTOM_ENDPOINT": f"sb://localhost:{port}",
        "SERVICE_BUS_CA_FILE": str(certificate),
    }


def connection_string(port: int, key: str) -> str:
    """Return what a client needs that may do everything."""
    return (
        f"Endpoint=sb://{HOST}:{port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};UseDevelopmentEmulator=true"
    )
