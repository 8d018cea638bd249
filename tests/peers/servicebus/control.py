"""The control endpoint: what a test does to a peer that runs in another process, as JSON over HTTP on loopback.

    GET /queues       counts of each queue            POST /faults    plan one (the fields of `Fault`)
    GET /faults       those that struck               DELETE /faults  forget the planned ones
    POST /advance     {"seconds": 5}                  POST /drop      {"queue": "work"}, or {} for every connection
    POST /expire      {"queue": "work"}

It asks nobody who they are: `python -m tests.peers.servicebus` opens it only when told to.
"""

import json
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.peers.servicebus.errors import BrokerError
from tests.peers.servicebus.faults import Action, Fault, Step
from tests.peers.servicebus.model import State
from tests.peers.servicebus.web import Request, Response

if TYPE_CHECKING:
    from tests.peers.servicebus.peer import Peer


def answering(peer: "Peer") -> Callable[[Request], Response]:
    """Return what answers requests about a peer."""

    def answer(request: Request) -> Response:
        try:
            return Response(200, json.dumps(_act(peer, request)).encode())
        except (ValueError, TypeError, KeyError, BrokerError) as problem:
            return Response(400, json.dumps({"problem": str(problem)}).encode())

    return answer


def _act(peer: "Peer", request: Request) -> Any:
    said: dict[str, Any] = json.loads(request.body or b"{}")
    route = (request.method, request.path)
    if route == ("GET", "/queues"):
        return {queue.name: counts(peer, queue.name) for queue in peer.broker}
    if route == ("GET", "/faults"):
        return [asdict(fault) | {"struck": queue} for fault, queue in peer.faults.struck]
    if route == ("POST", "/faults"):
        return peer.faults.add(Fault(Step(said.pop("step")), Action(said.pop("action")), **said))
    if route == ("DELETE", "/faults"):
        return peer.faults.clear()
    if route == ("POST", "/advance"):
        return peer.advance(float(said["seconds"]))
    if route == ("POST", "/drop"):
        return peer.drop_connections(said.get("queue"))
    if route == ("POST", "/expire"):
        return peer.expire_locks(said["queue"])
    raise ValueError(f"nothing is at {request.method} {request.path}")


def counts(peer: "Peer", path: str) -> dict[str, int]:
    """Return how many messages of a queue stand where; the locked ones are among the active."""
    queue = peer.broker.find(path)
    messages = queue.messages.values()
    found = {state.name.lower(): sum(message.state is state for message in messages) for state in State}
    return found | {"locked": sum(message.lock is not None for message in messages)}


@dataclass(frozen=True, slots=True)
class RemotePeer:
    """A peer in another process, by the address of its control endpoint. Its methods block for a moment."""

    url: str

    def add(self, fault: Fault) -> None:
        """Plan a fault."""
        self._ask("POST", "/faults", asdict(fault))

    def clear(self) -> None:
        """Forget the planned faults."""
        self._ask("DELETE", "/faults")

    def struck(self) -> list[dict[str, Any]]:
        """Return the faults that struck, with the queue each struck."""
        found: list[dict[str, Any]] = self._ask("GET", "/faults")
        return found

    def queues(self) -> dict[str, dict[str, int]]:
        """Return the counts of every queue."""
        found: dict[str, dict[str, int]] = self._ask("GET", "/queues")
        return found

    def advance(self, seconds: float) -> None:
        """Put the peer's clock forward."""
        self._ask("POST", "/advance", {"seconds": seconds})

    def drop_connections(self, queue: str | None = None) -> int:
        """Drop the connections with a link to a queue, or all; return how many there were."""
        return int(self._ask("POST", "/drop", {"queue": queue}))

    def expire_locks(self, queue: str) -> int:
        """Let every lock of a queue expire now; return how many there were."""
        return int(self._ask("POST", "/expire", {"queue": queue}))

    def _ask(self, method: str, path: str, said: Any = None) -> Any:
        body = None if said is None else json.dumps(said).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read())
