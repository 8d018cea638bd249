"""The Service Bus of a local stack: a peer that speaks its protocol, as a process of its own on loopback.

It lives with the tests, which a checkout has and an installed package does not.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cli.stack.ports import HOST
from core.handlers_catalog import KNOWN_QUEUES

MODULE: Final = "tests.peers.servicebus"
MAIN: Final = Path(__file__).resolve().parents[2].joinpath(*MODULE.split("."), "__main__.py")
KEY_NAME: Final = "geodag"
QUEUES: Final = (*sorted(KNOWN_QUEUES), "orchestrator-jobs")
KEY_VARIABLE: Final = "SERVICEBUS_PEER_KEY"


class PeerMissing(Exception):
    """This is no checkout; the message says what is missing."""


def argv(port: int, journal: Path) -> list[str]:
    """Return how the peer is started.

    Raises:
        PeerMissing: There is none here.
    """
    if not MAIN.is_file():
        raise PeerMissing(f"--queue servicebus runs {MODULE}, which only a checkout of the repository has: no {MAIN}")
    queues = [part for queue in QUEUES for part in ("--queue", queue)]
    return [sys.executable, "-m", MODULE, "--port", str(port), "--journal", str(journal), *queues]


def environment(key: str) -> Mapping[str, str]:
    """Return what its process has to know beside its arguments."""
    return {KEY_VARIABLE: f"{KEY_NAME}={key}"}


def connection_string(port: int, key: str) -> str:
    """Return what a client needs that may do everything."""
    return (
        f"Endpoint=sb://{HOST}:{port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};UseDevelopmentEmulator=true"
    )
