"""The administration endpoint: queues as ATOM entries over HTTPS, as `ServiceBusAdministrationClient` speaks it.

    GET /$Resources/queues      a feed of the queues      PUT /<queue>     create, or with If-Match: * change
    GET /<queue>                its settings and counts   DELETE /<queue>  delete

A missing queue is an empty feed, as on Service Bus. Everything takes the claim Manage.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.peers.servicebus.auth import Claim
from tests.peers.servicebus.control import counts
from tests.peers.servicebus.errors import ARGUMENT, NOT_FOUND, UNAUTHORIZED, BrokerError
from tests.peers.servicebus.model import QueueSettings
from tests.peers.servicebus.queues import DEAD_LETTER_SUFFIX, Queue
from tests.peers.servicebus.web import Request, Response

if TYPE_CHECKING:
    from tests.peers.servicebus.peer import Peer

_ATOM: Final = "http://www.w3.org/2005/Atom"
_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_FOREVER_SECONDS: Final = 10_675_199 * 86_400.0
"""Service Bus writes «never» as the longest time that .NET knows."""
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")


def answering(peer: "Peer") -> Callable[[Request], Response]:
    """Return what answers requests about a peer's queues."""

    def answer(request: Request) -> Response:
        try:
            return _act(peer, request)
        except BrokerError as problem:
            return _xml(problem.status, _error(problem))
        except ET.ParseError as problem:
            return _xml(400, _error(BrokerError(ARGUMENT, str(problem))))

    return answer


def _act(peer: "Peer", request: Request) -> Response:
    name = request.path.strip("/")
    _authorize(peer, request, name)
    if request.method == "GET" and name.lower() == "$resources/queues":
        skip, top = int(request.query.get("$skip", "0")), int(request.query.get("$top", "100"))
        queues = [queue for queue in peer.broker if not queue.name.endswith(DEAD_LETTER_SUFFIX)]
        return _xml(200, _feed(_entry(peer, queue) for queue in queues[skip : skip + top]))
    if request.method == "GET":
        try:
            return _xml(200, _entry(peer, peer.broker.find(name)))
        except BrokerError:
            return _xml(200, _feed([]))
    if request.method == "PUT":
        known = "if-match" in request.headers
        if known:
            queue = peer.broker.change(_settings(request.body, peer.broker.find(name).settings))
        else:
            queue = peer.broker.create(_settings(request.body, QueueSettings(name)))
        return _xml(200 if known else 201, _entry(peer, queue))
    if request.method == "DELETE":
        peer.broker.delete(name)
        return Response(200)
    raise BrokerError(NOT_FOUND, f"nothing is at {request.method} {request.path}")


def _authorize(peer: "Peer", request: Request, name: str) -> None:
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    audience = "" if name.startswith("$") else name
    now = peer.clock.now()
    if not peer.gatekeeper.admit(token, audience, now).allows(audience, Claim.MANAGE, now):
        raise BrokerError(UNAUTHORIZED, "Manage,EntityRead claims are required to perform this operation.")


def _settings(body: bytes, settings: QueueSettings) -> QueueSettings:
    """Return settings with what a description says of them."""
    found = {element.tag.rpartition("}")[2]: element.text or "" for element in ET.fromstring(body).iter()}
    changed: dict[str, Any] = {}
    if "LockDuration" in found:
        changed["lock_seconds"] = seconds(found["LockDuration"])
    if "MaxDeliveryCount" in found:
        changed["max_delivery_count"] = int(found["MaxDeliveryCount"])
    if "DefaultMessageTimeToLive" in found:
        ttl = seconds(found["DefaultMessageTimeToLive"])
        changed["ttl_seconds"] = ttl if ttl < _FOREVER_SECONDS else None
    if "DeadLetteringOnMessageExpiration" in found:
        changed["dead_letter_expired"] = found["DeadLetteringOnMessageExpiration"] == "true"
    if found.get("RequiresDuplicateDetection") == "true":
        changed["duplicate_window_seconds"] = seconds(found.get("DuplicateDetectionHistoryTimeWindow", "PT10M"))
    if found.get("RequiresSession") == "true":
        raise BrokerError(ARGUMENT, "this peer has no sessions")
    return replace(settings, **changed)


def _entry(peer: "Peer", queue: Queue) -> ET.Element:
    settings, found = queue.settings, counts(peer, queue.name)
    dead = len(queue.dead.messages) if queue.dead is not None else 0
    entry = ET.Element(f"{{{_ATOM}}}entry")
    ET.SubElement(entry, f"{{{_ATOM}}}title", {"type": "text"}).text = queue.name
    content = ET.SubElement(entry, f"{{{_ATOM}}}content", {"type": "application/xml"})
    description = ET.SubElement(content, f"{{{_BUS}}}QueueDescription")
    window = settings.duplicate_window_seconds
    ttl = settings.ttl_seconds
    told = {
        "LockDuration": duration(settings.lock_seconds),
        "MaxSizeInMegabytes": "1024",
        "RequiresDuplicateDetection": _boolean(window is not None),
        "RequiresSession": "false",
        "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S" if ttl is None else duration(ttl),
        "DeadLetteringOnMessageExpiration": _boolean(settings.dead_letter_expired),
        "DuplicateDetectionHistoryTimeWindow": duration(600.0 if window is None else window),
        "MaxDeliveryCount": str(settings.max_delivery_count),
        "EnableBatchedOperations": "true",
        "SizeInBytes": str(sum(len(message.envelope.body) for message in queue.messages.values())),
        "MessageCount": str(len(queue.messages) + dead),
        "Status": "Active",
    }
    for name, text in told.items():
        ET.SubElement(description, f"{{{_BUS}}}{name}").text = text
    stamp = datetime.fromtimestamp(peer.clock.now(), UTC).isoformat().replace("+00:00", "Z")
    for name in ("CreatedAt", "UpdatedAt", "AccessedAt"):
        ET.SubElement(description, f"{{{_BUS}}}{name}").text = stamp
    details = ET.SubElement(description, f"{{{_BUS}}}CountDetails")
    of_kind = {"Active": found["active"], "DeadLetter": dead, "Scheduled": found["scheduled"]}
    for kind, number in {**of_kind, "TransferDeadLetter": 0, "Transfer": 0}.items():
        ET.SubElement(details, f"{{{_COUNTS}}}{kind}MessageCount").text = str(number)
    return entry


def _feed(entries: Any) -> ET.Element:
    feed = ET.Element(f"{{{_ATOM}}}feed")
    ET.SubElement(feed, f"{{{_ATOM}}}title", {"type": "text"}).text = "Queues"
    feed.extend(entries)
    return feed


def _error(problem: BrokerError) -> ET.Element:
    error = ET.Element("Error")
    ET.SubElement(error, "Code").text = str(problem.status)
    ET.SubElement(error, "Detail").text = problem.description
    return error


def _xml(status: int, element: ET.Element) -> Response:
    return Response(status, ET.tostring(element, encoding="utf-8"), "application/atom+xml; charset=utf-8")


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def duration(value: float) -> str:
    """Return seconds as ISO 8601 has them."""
    return f"PT{value:f}".rstrip("0").rstrip(".") + "S"


def seconds(text: str) -> float:
    """Return the seconds of an ISO 8601 duration of days, hours, minutes and seconds.

    Raises:
        BrokerError: it is none.
    """
    if (found := _DURATION.fullmatch(text)) is None or not any(found.groups()):
        raise BrokerError(ARGUMENT, f"{text!r} is no duration")
    days, hours, minutes, rest = (float(part or 0) for part in found.groups())
    return days * 86_400 + hours * 3_600 + minutes * 60 + rest
