"""Loopback ports of the local stack: fixed by default, free ones where a fixed one is taken."""

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from cli.stack.files import lock

HOST = "127.0.0.1"

DEFAULT_PORTS: Mapping[str, int] = {
    "postgres": 55432,
    "gateway": 7071,
    "serving": 8080,
    "balancer": 8000,
    "orchestrator-1": 8001,
    "orchestrator-2": 8002,
    "worker-light-1": 8091,
    "worker-heavy-1": 8096,
    "servicebus": 5672,
}
"""What people meet on a fresh machine; 7071 is the port of the Azure Functions host."""


def is_free(port: int) -> bool:
    """Return whether a server could bind the port on loopback right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class PortClaims:
    """Preferred ports of one stack, from before they are bound: of two that start at once only one gets each.

    Else both would find it free, and the parts of the one would be asked for those of the other. A claim is a lock on a
    file, so it ends with its process; processes of other accounts do not see it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"geodag-ports-{os.getuid()}"
        self._held: list[IO[bytes]] = []

    def take(self, port: int) -> bool:
        """Return whether the port is this stack's until `release`."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        handle = lock(self._folder / str(port))
        if handle is not None:
            self._held.append(handle)
        return handle is not None

    def release(self) -> None:
        """Give all up."""
        held, self._held = self._held, []
        for handle in held:
            handle.close()


def choose_ports(
    names: tuple[str, ...], preferred: Mapping[str, int], claims: PortClaims | None = None
) -> dict[str, int]:
    """Return one port per name: the preferred one when it is free and can be claimed, else any free one.

    All free ports are held open until every name has one, so that two names never get the same.
    """
    chosen = {
        name: port
        for name, port in preferred.items()
        if name in names and is_free(port) and (claims is None or claims.take(port))
    }
    held: list[socket.socket] = []
    try:
        for name in names:
            if name not in chosen:
                chosen[name] = _hold_free(held)
    finally:
        for holder in held:
            holder.close()
    return chosen


def _hold_free(held: list[socket.socket]) -> int:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.append(holder)
    holder.bind((HOST, 0))
    return int(holder.getsockname()[1])
