"""Loopback ports of the local stack: fixed by default, free ones where a fixed one is taken."""

import socket
from collections.abc import Mapping

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


def choose_ports(names: tuple[str, ...], preferred: Mapping[str, int]) -> dict[str, int]:
    """Return one port per name: the preferred one when it is free, else any free one.

    All free ports are held open until every name has one, so that two names never get the same.
    """
    chosen = {name: port for name, port in preferred.items() if name in names and is_free(port)}
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
