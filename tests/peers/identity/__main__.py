"""`python -m tests.peers.identity`: the endpoint as a process of its own, and what PostgreSQL asks about passwords.

    python -m tests.peers.identity --port 7001 --database-port 7002 --settings identity.json

It listens on loopback alone and ends on SIGTERM or SIGINT. The file is that of `cli.stack.identity.Identities`:

    {"tenant": "...", "key": "<PEM of an RSA key>",
     "identities": {"worker": {"header": "...", "oid": "...", "role": "geodag_worker"}}}
"""

import argparse
import json
import signal
import threading
from pathlib import Path

from tests.peers.identity.database import AUDIENCES, Judge
from tests.peers.identity.server import IdentityPeer, running
from tests.peers.servicebus.auth import ALL, Directory, Gatekeeper
from tests.support.tokens import SigningKey


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.peers.identity", description="An identity endpoint.")
    parser.add_argument("--port", type=int, default=0, help="of the endpoint; 0 takes any")
    parser.add_argument("--database-port", type=int, default=0, help="where PostgreSQL asks, by LDAP")
    parser.add_argument("--life-seconds", type=float, default=3600.0, help="of a token")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file with tenant, key and identities")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    """Run until a signal asks it to end."""
    ended = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: ended.set())
    said = json.loads(arguments.settings.read_text())
    identities = said["identities"].values()
    key = SigningKey(said["tenant"], said["key"])
    peer = IdentityPeer(
        life_seconds=arguments.life_seconds,
        key=key,
        tenant=said["tenant"],
        others={one["header"]: one["oid"] for one in identities},
    )
    rights = {one["oid"]: {one["role"]: ALL} for one in identities}
    directory = Directory({"keys": [key.jwk()]}, peer.issuer, AUDIENCES, rights)
    with Judge(arguments.database_port, Gatekeeper((), directory)) as judge:
        threading.Thread(target=judge.serve_forever, daemon=True).start()
        with running(peer, arguments.port):
            ended.wait()
        judge.shutdown()


if __name__ == "__main__":
    run(_arguments())
