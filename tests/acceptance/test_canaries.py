"""Secrets and inner names are seeded once, then everything that leaves or stays is searched for them.

Cases D47 (a SAS that gives 403 is nowhere) and C11 (no signed link in item, collection, links or answers) among them.
"""

import json
import re
import secrets
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from cli.stack.cluster import Cluster, find_installation
from core.identity import SERVICE_HEADER
from core.wire import TaskMessage
from tests.acceptance import rasters
from tests.acceptance.conftest import CANARY_NODE, CANARY_WORKFLOW
from tests.acceptance.platform import Answer, Json, Platform, http
from tests.support.waiting import wait_until

SAS, WRONG_SAS, TOKEN = (f"{name}{secrets.token_hex(12)}" for name in ("SECRETaa11", "SECRETbb22", "70ce17"))


@dataclass
class Partner:
    """A partner's storage, which wants the SAS, and its receiver of webhooks."""

    content: bytes
    url: str = ""
    hooks: list[str] = field(default_factory=list)
    """Heads and bodies."""
    asked: list[str] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        partner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                partner.asked.append(self.path)
                allowed = f"sig={SAS}" in self.path
                body = partner.content if allowed else b"<Error>" + self.path.encode() + b"</Error>"
                self.reply(200 if allowed else 403, body)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                partner.hooks.append(f"{self.headers}\n{body}")
                self.reply(204, b"")

            def reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def partner(platform: Platform) -> Iterator[Partner]:
    """Yield a partner whose URLs and whose workflow the registry allows for this test."""
    made = Partner(rasters.geotiff(rasters.terrain(64, 64)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), made.handler())
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    before = platform.rows("SELECT allowed_sources, allowed_workflows FROM dagapp.platforms WHERE platform_id = 'ddh'")
    (row,) = before
    sources, workflows = [*row["allowed_sources"], {"url": f"{made.url}/exports/"}], [CANARY_WORKFLOW, "raster_ingest"]
    register(platform, sources, workflows)
    yield made
    register(platform, row["allowed_sources"], row["allowed_workflows"])
    server.shutdown()
    thread.join()
    server.server_close()


def register(platform: Platform, sources: list[Json], workflows: list[str]) -> None:
    statement = (
        "UPDATE dagapp.platforms SET allowed_sources = %s, allowed_workflows = %s"
        " WHERE platform_id = 'ddh' RETURNING platform_id"
    )
    platform.rows(statement, Jsonb(sources), Jsonb(workflows))


class Story:
    """Calls of partners, reviewers and the public, each answer kept as text."""

    def __init__(self, platform: Platform, partner: Partner) -> None:
        self.platform = platform
        self.partner = partner
        self.told: list[str] = []

    def call(self, method: str, url: str, subject: str | None = "submitter-ddh", **more: Any) -> Answer:
        """Call, and keep what was answered."""
        headers = {} if subject is None else self.platform.as_(subject)
        answer = http(method, url, headers=headers, **more)
        pixels = answer.headers.get("content-type", "").startswith("image/")
        text = "(pixels)" if pixels else answer.body.decode("latin-1")
        self.told.append(f"{method} {url.partition('?')[0]} {dict(answer.headers)}\n{text}")
        return answer

    def submit(self, dataset: str, sas: str, **extra: Any) -> Json:
        """Submit by a URL with a SAS and return the request when it is final."""
        body = {
            "platform_id": "ddh", "dataset_id": dataset, "resource_id": "r1", "version_label": "v1",
            "data_type": "raster", "workflow_id": CANARY_WORKFLOW, "callback_url": f"{self.partner.url}/hook",
            "source": {"url": f"{self.partner.url}/exports/{dataset}.tif?sv=2024&se=2030&skoid=x&sig={sas}"}, **extra,
        }  # fmt: skip
        accepted = self.call("POST", f"{self.platform.gateway}/api/platform/submit", body=body)
        assert accepted.status == 202, accepted.body
        request_id = accepted.json["request_id"]
        self.platform.finished(request_id)
        final: Json = self.call("GET", f"{self.platform.gateway}/api/platform/status/{request_id}").json
        return final

    def look(self, asset: str) -> None:
        """Ask every door that a partner or the public has about an asset."""
        gateway, serving = self.platform.gateway, self.platform.serving
        for path in (
            f"assets/{asset}", f"assets/{asset}/versions", f"assets/{asset}/versions/0", "assets?limit=5",
            "platform/requests?limit=5", f"assets/{asset}/versions/0/comments",
        ):  # fmt: skip
            self.call("GET", f"{gateway}/api/{path}")
        self.call("GET", f"{gateway}/api/assets/reviews?limit=5", "reviewer")
        for url in self.platform.doors(asset, "11/1084/696").values():
            self.call("GET", url, None)
        item = self.call("GET", f"{serving}/stac/{asset}", None)
        if item.status == 200:
            self.call("GET", f"{serving}/stac/collections/{item.json['collection']}", None)


def dead_letter(platform: Platform) -> None:
    """Put a message with a token of nobody's task, and one that nobody can read, into the queue."""
    message = TaskMessage(
        task_id=f"{'0' * 32}_nothing_0", job_id="0" * 32, node_id="nothing", attempt=0, dispatch_no=1, handler="echo",
        queue="functionapp-tasks", params={"note": "dead"}, timeout_seconds=5, token=TOKEN,
    )  # fmt: skip
    bodies = {"canary-1": message.model_dump(mode="json"), "canary-2": {"token": TOKEN, "nonsense": True}}
    platform.send("functionapp-tasks", bodies)
    taken = "SELECT count(*) FROM dagapp.dag_dead_letters WHERE message_id LIKE 'canary-%%' AND %s"
    wait_until(lambda: platform.value(taken, True) == 2, "the letters are taken over", 30)


def dump(platform: Platform) -> str:
    """Return the whole database as pg_dump writes it."""
    program = find_installation().bin / "pg_dump"
    conninfo = Cluster(platform.stack.home.root).admin_conninfo("geodag")
    done = subprocess.run([str(program), "--inserts", conninfo], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def logs(platform: Platform, without: str | None = None) -> str:
    """Return what every process has logged, and what workers keep on disk of results; `without` leaves one out."""
    root = platform.stack.home.root
    found = [path for path in sorted((root / "logs").glob("*")) if without is None or without not in path.name]
    assert len(found) >= 6
    kept = [path for path in root.glob("workers/**/*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in (*found, *kept))


def test_no_canary_is_found_where_it_must_not_be(platform: Platform, partner: Partner) -> None:
    story = Story(platform, partner)
    dead_letter(platform)
    good = story.submit("canary-good", SAS)
    assert (good["state"], good["errors"]) == ("completed", []), good
    bad = story.submit("canary-bad", WRONG_SAS)
    assert (bad["state"], bad["errors"][0]["code"]) == ("failed", "SOURCE_FORBIDDEN"), bad
    grant = story.call(
        "POST", f"{platform.gateway}/api/platform/uploads", body={"platform_id": "ddh", "filename": "x.tif"}
    )
    story.told.pop()  # the address is what the partner asked for
    upload_token = grant.json["upload_url"].rpartition("/")[2].partition("?")[0]
    whole = rasters.geotiff(rasters.terrain(64, 64))
    broken = whole[: len(whole) // 2]
    assert http("PUT", grant.json["upload_url"], body=broken).status in {200, 201, 204}
    source = {name: grant.json[name] for name in ("container_name", "blob_name")}
    torn = story.submit("canary-torn", SAS, source=source, workflow_id="raster_ingest")
    assert (torn["state"], torn["errors"][0]["user_fixable"]) == ("failed", True), torn
    asset = good["asset_id"]
    story.look(asset)
    version = f"{platform.gateway}/api/assets/{asset}/versions/0"
    story.call("POST", f"{version}/comments", "reviewer", body={"text": "looks fine"})
    assert story.call("POST", f"{version}/approve", "reviewer", body={"clearance_level": "public"}).status == 200
    story.look(asset)
    story.look(bad["asset_id"])
    for headers in ({"X-API-Key": "wrong"}, {SERVICE_HEADER: platform.stack.credentials.keys["gateway"]}):
        http("GET", f"{platform.gateway}/api/platform/requests", headers=headers)
    wait_until(lambda: len(partner.hooks) >= 4, "the partner was told", 30)

    assert partner.asked[0].endswith(f"sig={SAS}"), "the SAS did reach its host"
    answers, hooks, said, stored = "\n".join(story.told), "\n".join(partner.hooks), logs(platform), dump(platform)
    ours = logs(platform, without="postgres")  # the server's own log names its socket and its data directory
    jobs = [
        row["job_id"]
        for row in platform.rows(
            "SELECT job_id FROM dagapp.platform_request_jobs WHERE request_id = ANY(%s)",
            [good["request_id"], bad["request_id"]],
        )
    ]
    for what, canaries, sinks in (
        ("SAS", [SAS, WRONG_SAS], {"answers": answers, "webhooks": hooks, "logs": said, "database": stored}),
        ("keys", secrets_of(platform), {"answers": answers, "webhooks": hooks, "logs": said, "database": stored}),
        ("tokens", [TOKEN, upload_token], {"answers": answers, "webhooks": hooks, "logs": said, "database": stored}),
        ("job ids", jobs, {"answers": answers, "webhooks": hooks}),
        ("node names", [CANARY_NODE], {"answers": answers, "webhooks": hooks}),
        (
            "paths",
            [str(platform.stack.home.root)],
            {"answers": answers, "webhooks": hooks, "database": stored, "logs": ours},
        ),
        ("bearer tokens", ["eyJ"], {"answers": answers, "webhooks": hooks, "logs": said, "database": stored}),
        ("signed links", ["sig=", "skoid="], {"answers": answers, "webhooks": hooks, "database": items(platform)}),
    ):
        assert len(canaries) > 0
        found = [(where, near(text, one)) for one in canaries for where, text in sinks.items() if one in text]
        assert found == [], what
    assert jobs[0] in said, "the logs are those of these jobs"
    assert jobs[0] in stored, "the dump is of this database"
    assert CANARY_NODE in stored
    assert "canary-2" in stored, "the dead letters are in the dump"


def secrets_of(platform: Platform) -> list[str]:
    """Return everything secret of the stack."""
    made, known = platform.stack.credentials, platform.stack.plan.identities
    ours = [made.upload_key, made.secrets_key, made.storage_key, made.service_bus_key]
    headers = [] if known is None else [one.header for one in known.identities.values()]
    return [*made.keys.values(), *made.passwords.values(), *ours, *headers]


def items(platform: Platform) -> str:
    """Return everything that the catalogue has."""
    return json.dumps(platform.rows("SELECT content FROM items UNION ALL SELECT content FROM collections"))


def near(text: str, canary: str) -> str:
    """Return what stands around a canary, without it."""
    at = text.index(canary)
    return re.sub(re.escape(canary), "(it)", text[max(0, at - 200) : at + 200])
