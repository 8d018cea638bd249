"""`python -m tests.peers.servicebus`: the peer as a process of its own.

    python -m tests.peers.servicebus --port 0 --queue work --ports-file ports.json

It listens on loopback alone, writes its ports as JSON to the file and to standard output once it listens, and ends on
SIGTERM or SIGINT. `--settings` names a JSON file for the rest:

    {"queues": [{"name": "work", "lock_seconds": 30}], "keys": [{"name": "...", "key": "...", "claims": ["Send"]}],
     "directory": {"jwks": {}, "issuer": "...", "audiences": ["..."], "rights": {"<oid>": {"work": ["Listen"]}}}}
"""

import argparse
import asyncio
import json
import os
import signal
import ssl
from pathlib import Path
from typing import Any

from tests.peers.servicebus.auth import Claim, Directory, SharedKey
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.peer import STANDARD_BYTES, Peer, PeerSettings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.peers.servicebus", description="A Service Bus peer.")
    parser.add_argument("--port", type=int, default=0, help="AMQP without TLS; 0 takes any")
    parser.add_argument("--tls-only", action="store_true", help="no AMQP without TLS")
    parser.add_argument("--tls-port", type=int, default=0, help="AMQP with TLS, when there is a certificate")
    parser.add_argument("--admin-port", type=int, default=0, help="ATOM over HTTPS, when there is a certificate")
    parser.add_argument("--control-port", type=int, help="control endpoint; none when left out")
    parser.add_argument("--cert", type=Path, help="certificate chain, PEM")
    parser.add_argument("--key", type=Path, help="its private key, PEM")
    parser.add_argument("--queue", action="append", default=[], help="a queue with usual settings; may be given again")
    parser.add_argument("--settings", type=Path, help="JSON file with queues, keys and directory")
    parser.add_argument("--journal", type=Path, help="file that keeps the messages for a restart")
    parser.add_argument("--max-message-bytes", type=int, default=STANDARD_BYTES)
    parser.add_argument("--ports-file", type=Path, help="where to write the ports, as JSON")
    return parser.parse_args()


def settings_of(arguments: argparse.Namespace) -> PeerSettings:
    """Return what the arguments and their settings file ask for."""
    said = json.loads(arguments.settings.read_text()) if arguments.settings else {}
    tls = None
    if arguments.cert:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(arguments.cert, arguments.key)
    queues = [QueueSettings(**queue) for queue in said.get("queues", ())]
    return PeerSettings(
        queues=(*queues, *(QueueSettings(name) for name in arguments.queue)),
        keys=tuple(_key(**key) for key in said["keys"]) if "keys" in said else (SharedKey(),),
        directory=_directory(**said["directory"]) if "directory" in said else None,
        max_message_bytes=arguments.max_message_bytes,
        port=None if arguments.tls_only else arguments.port,
        tls=tls,
        tls_port=arguments.tls_port,
        admin_port=arguments.admin_port,
        control_port=arguments.control_port,
        journal=arguments.journal,
    )


def _key(name: str, key: str, claims: list[str] | None = None) -> SharedKey:
    return SharedKey(name, key, frozenset(Claim) if claims is None else frozenset(map(Claim, claims)))


def _directory(jwks: Any, issuer: str, rights: dict[str, dict[str, list[str]]], **audiences: list[str]) -> Directory:
    by_bearer = {
        oid: {path: frozenset(map(Claim, claims)) for path, claims in paths.items()} for oid, paths in rights.items()
    }
    given = {name: frozenset(value) for name, value in audiences.items()}
    return Directory(jwks, issuer, rights=by_bearer, **given)


async def run(arguments: argparse.Namespace) -> None:
    """Run the peer until a signal asks it to end."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, ended.set)
    peer = Peer(settings_of(arguments))
    await peer.start()
    ports = json.dumps(peer.ports)
    print(ports, flush=True)
    if arguments.ports_file:
        fresh = arguments.ports_file.with_suffix(".new")
        fresh.write_text(ports + "\n")
        os.replace(fresh, arguments.ports_file)
    await ended.wait()
    await peer.stop()


if __name__ == "__main__":
    asyncio.run(run(_arguments()))
