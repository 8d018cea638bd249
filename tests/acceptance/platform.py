"""The running platform as a test sees it: real processes, HTTP from outside, and the database for its verdicts."""

import asyncio
import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from cli.stack.cluster import Cluster
from cli.stack.layout import BlobsKind, QueueKind
from cli.stack.stack import Stack
from core.identity import CALLER_HEADER, SERVICE_HEADER
from tests.support import azurite_server
from tests.support.service_bus import sent
from tests.support.waiting import wait_until

Json = dict[str, Any]
FINAL_STATES = {"completed", "failed", "cancelled"}
BUSINESS_TABLES = (
    "dagapp.platform_requests",
    "dagapp.platform_request_jobs",
    "dagapp.geospatial_assets",
    "dagapp.asset_versions",
    "dagapp.asset_audit",
    "dagapp.dag_jobs",
    "dagapp.dag_node_states",
    "dagapp.dag_attempts",
    "dagqueue.messages",
    "pgstac.items",
    "pgstac.collections",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str, str | None]:
        """Return status, code and field of a problem document."""
        assert self.headers["content-type"].startswith("application/problem+json"), (self.status, self.body[:500])
        return self.status, self.json["code"], self.json.get("field")


def http(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: Json | bytes | None = None,
    timeout_seconds: float = 40.0,
) -> Answer:
    """Return the answer of one call, whatever its status.

    Raises:
        OSError: Nobody answered, or the answer broke off because its sender was killed.
    """
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} if isinstance(body, dict) else {}
    request = urllib.request.Request(url, data=data, method=method, headers={**sent, **(headers or {})})
    try:
        with _opened(request, timeout_seconds) as answer:
            return Answer(answer.status, _lowered(answer.headers), answer.read())
    except HTTPException as error:
        raise ConnectionResetError("the answer broke off") from error


def _opened(request: urllib.request.Request, timeout_seconds: float) -> Any:
    """Return the answer, open; one with an error's status is an answer too."""
    try:
        return urllib.request.urlopen(request, timeout=timeout_seconds)
    except urllib.error.HTTPError as error:
        return error


def _lowered(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class Platform:
    """One running stack."""

    def __init__(self, stack: Stack, journal: Path) -> None:
        self.stack = stack
        self.journal = journal
        self.gateway = stack.urls.gateway
        self.serving = stack.urls.serving
        self.orchestrator = stack.urls.orchestrator

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Json]]:
        """Yield an administrator's connection to the platform's database."""
        conninfo = Cluster(self.stack.home.root).admin_conninfo("geodag")
        with psycopg.connect(conninfo, autocommit=True, row_factory=dict_row) as conn:
            conn.execute("SET search_path = pgstac, public")
            yield conn

    def database_answers(self) -> bool:
        """Return whether the database accepts connections."""
        try:
            return bool(self.value("SELECT true"))
        except psycopg.OperationalError:
            return False

    def rows(self, query: str, *parameters: object, **named: object) -> list[Json]:
        """Return what the database says; values are by position or by name."""
        with self.connection() as conn:
            return conn.execute(query, named or parameters).fetchall()

    def value(self, query: str, *parameters: object) -> Any:
        """Return the only column of the only row."""
        (row,) = self.rows(query, *parameters)
        (value,) = row.values()
        return value

    def as_(self, subject: str) -> dict[str, str]:
        """Return the headers of a caller of the local key file."""
        return {CALLER_HEADER: self.stack.credentials.keys[subject]}

    def as_gateway(self, subject: str) -> dict[str, str]:
        """Return the headers with which the gateway passes a caller on."""
        return {**self.as_(subject), SERVICE_HEADER: self.stack.credentials.keys["gateway"]}

    def upload(self, content: bytes, filename: str, platform: str = "ddh") -> Json:
        """Put bytes behind an upload address and return the submit's `source`."""
        headers = self.as_(f"submitter-{platform}")
        wish = {"platform_id": platform, "filename": filename}
        address = http("POST", f"{self.gateway}/api/platform/uploads", headers=headers, body=wish)
        assert address.status in {200, 201}, address.body
        answer = http("PUT", address.json["upload_url"], body=content)
        assert answer.status in {200, 201, 204}, answer.body
        return {key: address.json[key] for key in ("container_name", "blob_name")}

    def submit(self, source: Json, dataset: str, **extra: Any) -> Answer:
        """Submit an uploaded raster."""
        body = {
            "platform_id": "ddh",
            "dataset_id": dataset,
            "resource_id": "r1",
            "version_label": "v1",
            "data_type": "raster",
            "source": source,
            **extra,
        }
        return http("POST", f"{self.gateway}/api/platform/submit", headers=self.as_("submitter-ddh"), body=body)

    def accepted(self, content: bytes, dataset: str, **extra: Any) -> Json:
        """Upload and submit a raster and return the 202."""
        answer = self.submit(self.upload(content, f"{dataset}.tif"), dataset, **extra)
        assert answer.status == 202, answer.body
        accepted: Json = answer.json
        return accepted

    def finished(self, request_id: str, timeout_seconds: float = 90.0) -> Json:
        """Return the status of a request once it is final."""

        def final() -> Json | None:
            url = f"{self.gateway}/api/platform/status/{request_id}?wait=5"
            answer = http("GET", url, headers=self.as_("submitter-ddh"))
            assert answer.status == 200, answer.body
            status: Json = answer.json
            return status if status["state"] in FINAL_STATES else None

        return wait_until(final, f"request {request_id} final", timeout_seconds)  # type: ignore[return-value]

    def approve(self, asset_id: str, ordinal: int, **body: Any) -> Answer:
        """Approve a version as the reviewer."""
        url = f"{self.gateway}/api/assets/{asset_id}/versions/{ordinal}/approve"
        return http("POST", url, headers=self.as_("reviewer"), body={"clearance_level": "public", **body})

    def doors(self, asset_id: str, tile: str, query: str = "") -> dict[str, str]:
        """Return every content door of an asset; `tile` is z/x/y."""
        paths = {
            "stac": f"stac/{asset_id}",
            "tile": f"tiles/{asset_id}/{tile}.png",
            "tilejson": f"tiles/{asset_id}/tilejson.json",
            "preview": f"preview/{asset_id}.png",
            "download": f"download/{asset_id}",
        }
        return {name: f"{self.serving}/{path}{query}" for name, path in paths.items()}

    def create_job(self, workflow_id: str, inputs: Json, timeout_seconds: float = 40.0) -> str:
        """Create a job as the operator and return its id."""
        answer = http(
            "POST",
            f"{self.orchestrator}/api/v1/jobs",
            headers=self.as_gateway("operator"),
            body={"workflow_id": workflow_id, "inputs": inputs},
            timeout_seconds=timeout_seconds,
        )
        assert answer.status == 202, answer.body
        return str(answer.json["job_id"])

    def completed(self, job_id: str, timeout_seconds: float) -> None:
        """Wait until a job has completed; a failed one is a failure with its error."""

        def ended() -> bool:
            (job,) = self.rows("SELECT status, error FROM dagapp.dag_jobs WHERE job_id = %s", job_id)
            assert job["status"] != "FAILED", job["error"]
            return bool(job["status"] == "COMPLETED")

        wait_until(ended, f"the end of job {job_id}", timeout_seconds, every=0.2)

    @contextmanager
    def watched(self) -> Iterator[dict[str, int]]:
        """Watch the memory of every orchestrator; at the end the dictionary has by how many bytes each grew."""
        processes = {name: psutil.Process(self.stack.pid(name)) for name in self.stack.shape.orchestrator_names}
        before = {name: process.memory_info().rss for name, process in processes.items()}
        grown = dict.fromkeys(processes, 0)
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                for name, process in processes.items():
                    grown[name] = max(grown[name], process.memory_info().rss - before[name])

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield grown
        finally:
            done.set()
            thread.join()

    def catalogued(self, asset_id: str, ordinal: int) -> Json | None:
        """Return the item of a version as pgstac has it."""
        found = self.rows("SELECT content_hydrate(i) AS item FROM items AS i WHERE id = %s", f"{asset_id}-v{ordinal}")
        return found[0]["item"] if found else None

    def snapshot(self) -> Json:
        """Return how many rows each table has and which blobs exist."""
        with self.connection() as conn:
            counts = {table: _count(conn, table) for table in BUSINESS_TABLES}
        return {**counts, "blobs": self.blob_names()}

    def blob_names(self) -> list[str]:
        """Return every blob there is, as container/name."""
        if self.stack.shape.blobs is BlobsKind.AZURITE:
            return asyncio.run(azurite_server.names(self.stack.plan.azurite))
        blobs = self.stack.home.blobs
        return sorted(str(path.relative_to(blobs)) for path in blobs.rglob("*") if path.is_file())

    def put_blob(self, path: str, source: Path) -> None:
        """Put a local file where others drop theirs; the file itself may be gone afterwards."""
        if self.stack.shape.blobs is BlobsKind.AZURITE:
            azurite_server.store(self.stack.plan.azurite, path, source)
            return
        target = self.stack.home.blobs / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)

    def blob(self, path: str, scratch: Path) -> Path:
        """Return a blob as a local file."""
        if self.stack.shape.blobs is BlobsKind.FOLDERS:
            return self.stack.home.blobs / path
        return asyncio.run(azurite_server.fetched(self.stack.plan.azurite, path, scratch))

    def send(self, queue: str, messages: Mapping[str, Json]) -> None:
        """Put messages of nobody's making into a queue, by their ids; as whoever may send there."""
        if self.stack.shape.queue is QueueKind.SERVICEBUS:
            environment = self.stack.plan.spec("orchestrator-1").environment
            asyncio.run(sent(environment, queue, messages))
            return
        for message_id, body in messages.items():
            self.rows(
                "INSERT INTO dagqueue.messages (message_id, queue, priority, task_id, body)"
                " VALUES (%s, %s, 9, %s, %s) RETURNING message_id",
                message_id, queue, message_id, Jsonb(body),
            )  # fmt: skip

    def worker_of(self, request_id: str, node_id: str) -> str | None:
        """Return the part that holds the lease of a request's node right now."""
        found = self.rows(
            "SELECT w.pid FROM dagapp.dag_attempts AS a"
            " JOIN dagapp.platform_request_jobs AS r ON r.job_id = a.job_id"
            " JOIN dagapp.dag_workers AS w ON w.worker_id = a.worker_id"
            " WHERE r.request_id = %s AND a.node_id = %s AND a.state = 'leased'",
            request_id,
            node_id,
        )
        names = {self.stack.pid(name): name for name in self.stack.shape.worker_names}
        return names.get(found[0]["pid"]) if found else None


def _count(conn: psycopg.Connection[Json], table: str) -> int:
    row = conn.execute(f"SELECT count(*) AS rows FROM {table}").fetchone()  # type: ignore[call-overload]
    assert row is not None
    return int(row["rows"])
