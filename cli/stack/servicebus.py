"""The Service Bus of a local stack: a peer that speaks its protocol, as a process of its own on loopback.

It lives with the tests, which a checkout has and an installed package does not.
"""

import sys
from pathlib import Path
from typing import Any, Final

from cli.stack.ports import HOST
from core.handlers_catalog import KNOWN_QUEUES

MODULE: Final = "tests.peers.servicebus"
MAIN: Final = Path(__file__).resolve().parents[2].joinpath(*MODULE.split("."), "__main__.py")
KEY_NAME: Final = "geodag"
QUEUES: Final = (*sorted(KNOWN_QUEUES), "orchestrator-jobs")
MAX_DELIVERIES: Final = 1000
"""As in `infra/`: a task that fits nowhere at present comes back often."""


class PeerMissing(Exception):
    """This is no checkout; the message says what is missing."""


def argv(port: int, settings: Path, journal: Path | None = None) -> list[str]:
    """Return how the peer is started.

    Raises:
        PeerMissing: There is none here.
    """
    if not MAIN.is_file():
        raise PeerMissing(f"--queue servicebus runs {MODULE}, which only a checkout of the repository has: no {MAIN}")
    keeping = [] if journal is None else ["--journal", str(journal)]
    return [sys.executable, "-m", MODULE, "--port", str(port), "--settings", str(settings), *keeping]


def settings(key: str, lock_seconds: float) -> dict[str, Any]:
    """Return the peer's own settings: our queues, and the one key."""
    queue = {"lock_seconds": lock_seconds, "max_delivery_count": MAX_DELIVERIES}
    return {"queues": [{"name": name, **queue} for name in QUEUES], "keys": [{"name": KEY_NAME, "key": key}]}


def connection_string(port: int, key: str) -> str:
    """Return what a client needs that may do everything."""
    return (
        f"Endpoint=sb://{HOST}:{port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};UseDevelopmentEmulator=true"
    )
