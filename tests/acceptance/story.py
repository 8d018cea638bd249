"""One partner and those around him, as the story of the B2B contract sees them: HTTP only, every answer judged."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from core.problem import Problem
from scripts.demo_check import tile_of
from tests.acceptance.platform import FINAL_STATES, Answer, Json, Platform, http
from tests.support.contract import Contract
from tests.support.waiting import wait_until

PARTNER = "submitter-ddh"
KINDS: Final = {
    "tiles": ("image/png",),
    "preview": ("image/png",),
    "stac": ("application/geo+json", "application/json"),
    "download": ("image/tiff",),
    "report": ("text/html",),
}
"""What a door of serving gives to those who may see."""
FAILURES = 2
"""How often the receiver refuses the delivery that comes first."""


@dataclass
class Receiver:
    """A partner's end of the webhooks, on loopback."""

    url: str = ""
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    times: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When each delivery was tried."""
    first: str | None = None

    def take(self, headers: dict[str, str], content: bytes) -> int:
        """Return the status that a delivery gets."""
        delivery_id = headers["webhook-id"]
        self.first = self.first or delivery_id
        self.times[delivery_id].append(time.monotonic())
        if delivery_id == self.first and len(self.times[delivery_id]) <= FAILURES:
            return 503
        self.seen.append((headers, content))
        return 204

    def told(self) -> list[tuple[str, str]]:
        """Return type and request of what was taken."""
        bodies = [json.loads(content) for _, content in self.seen]
        return [(body["type"], body["request_id"]) for body in bodies]

    def check_signatures(self, secret: str) -> None:
        """Verify every signature as a receiver does (standardwebhooks.com)."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        for headers, content in self.seen:
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + content
            wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            assert f"v1,{wanted}" in headers["webhook-signature"].split(" ")


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Yield a receiver that listens."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(receiver.take({k.lower(): v for k, v in self.headers.items()}, content))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/geodag"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield receiver
    server.shutdown()
    thread.join()
    server.server_close()


class Story:
    """Calls at the gateway, each answer held against the document that the gateway serves."""

    def __init__(self, platform: Platform, callback_url: str) -> None:
        self.platform = platform
        self.callback_url = callback_url
        served = http("GET", f"{platform.gateway}/api/openapi.json")
        assert served.status == 200
        self.contract = Contract(served.json)
        self.serving = Contract(serving_document(http("GET", f"{platform.serving}/openapi.json").json))
        self.judged = 0

    def call(self, method: str, path: str, who: str | None = PARTNER, body: Any = None, **headers: str) -> Answer:
        """Call and judge."""
        known = {} if who is None else self.platform.as_(who)
        sent = known | {name.replace("_", "-"): value for name, value in headers.items()}
        answer = http(method, f"{self.platform.gateway}/api/{path}", headers=sent, body=body)
        complaints = self.contract.complaints(method, f"/api/{path}", answer.status, answer.headers, answer.body)
        assert complaints == [], answer.body[:1000]
        self.judged += 1
        return answer

    def ok(self, method: str, path: str, who: str | None = PARTNER, body: Any = None, status: int = 200) -> Any:
        """Return the document of a call that must succeed."""
        answer = self.call(method, path, who, body)
        assert answer.status == status, (path, answer.body)
        return answer.json

    def refused(self, method: str, path: str, who: str | None = PARTNER, body: Any = None) -> tuple[int, str]:
        """Return status and code of a call that must fail."""
        answer = self.call(method, path, who, body)
        return answer.problem[0], answer.problem[1]

    def upload(self, content: bytes, filename: str) -> Json:
        """Upload a file and return what a submit says of it."""
        wish = {"platform_id": "ddh", "filename": filename, "size_bytes": len(content)}
        address = self.ok("POST", "platform/uploads", body=wish, status=201)
        put = http("PUT", address["upload_url"], body=content)
        assert (put.status, put.json["size_bytes"]) == (201, len(content))
        assert {name: put.json[name] for name in ("container_name", "blob_name")} == {
            name: address[name] for name in ("container_name", "blob_name")
        }
        return {name: address[name] for name in ("container_name", "blob_name")}

    def body(self, dataset: str, label: str, source: Json, **more: Any) -> Json:
        """Return a submit."""
        return {
            "platform_id": "ddh",
            "dataset_id": dataset,
            "resource_id": "dem",
            "version_label": label,
            "data_type": "raster",
            "source": source,
            "callback_url": self.callback_url,
            **more,
        }

    def final(self, request_id: str) -> Json:
        """Return a request's status once it is final, as a partner polls it."""

        def polled() -> Json | None:
            status: Json = self.ok("GET", f"platform/status/{request_id}?wait=20")
            return status if status["state"] in FINAL_STATES else None

        return wait_until(polled, f"request {request_id} final", 90)  # type: ignore[return-value]

    def decide(self, asset: str, ordinal: int, what: str, who: str = "reviewer", **body: Any) -> Json:
        """Let a reviewer decide about a version."""
        answer: Json = self.ok("POST", f"assets/{asset}/versions/{ordinal}/{what}", who, body)
        return answer

    def latest(self, asset: str, who: str = PARTNER) -> int | None:
        """Return the ordinal that `latest` stands for."""
        answer = self.call("GET", f"assets/{asset}/versions/latest", who)
        return answer.json["version_ordinal"] if answer.status == 200 else None

    def doors(self, asset: str, who: str | None, query: str = "") -> set[int]:
        """Return the answers of every content door."""
        x, y = tile_of(10.08, 49.94, 11)
        urls = self.platform.doors(asset, f"11/{x}/{y}", query)
        return {self.door(name, url, who).status for name, url in urls.items()}

    def door(self, name: str, url: str, who: str | None) -> Answer:
        """Ask a content door of serving and judge the answer by serving's document."""
        answer = http("GET", url, headers={} if who is None else self.platform.as_(who))
        complaints = self.serving.complaints("GET", url, answer.status, answer.headers, answer.body)
        assert complaints == [], (name, answer.body[:1000])
        self.judged += 1
        return answer


def serving_document(served: Json) -> Json:
    """Return serving's document with what FastAPI can not know of it: that every refusal is a problem."""
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = served.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(problem.pop("$defs", {}), Problem=problem)
    refusal = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, item in served["paths"].items():
        kinds = KINDS.get(path.split("/")[1], ()) if not path.endswith(".json") else ()
        for operation in item.values():
            good = operation["responses"]["200"] | ({"content": {kind: {} for kind in kinds}} if kinds else {})
            operation["responses"] = {"200": good, "default": refusal}
    return served
