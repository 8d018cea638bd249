"""Clients at the gateway who try once more after an answer that says nothing, and remember every one that did."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.acceptance.platform import Answer, Platform, http
from tests.acceptance.rasters import geotiff, terrain

Json = dict[str, Any]
RETRY_SECONDS: Final = 1.0
"""Where an answer names no time."""
MOST_RETRY_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 40.0
JOB_SECONDS: Final = 400.0
"""What a job may take: what a killed worker had in its hands comes again after the queue's lock of 60 s, each time, and
a dispatch that nobody claims is repeated after 300 s."""


class Unanswered(AssertionError):
    """The retry was no better than the first try."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A first try that was not answered well."""

    call: str
    what: str
    again: str


@dataclass
class Door:
    """The gateway as one client sees it."""

    url: str
    troubles: list[Trouble] = field(default_factory=list)
    tries_again: bool = False
    """From a first try that was not answered well until the second one was answered."""

    def call(self, method: str, path: str, headers: Mapping[str, str], body: Json | bytes | None = None) -> Answer:
        """Return an answer below 500, the first or that of the one retry.

        Raises:
            Unanswered: neither was one.
        """
        url = path if path.startswith("http") else self.url + path
        first = _tried(method, url, headers, body)
        if isinstance(first, Answer) and first.status < 500:
            return first
        self.tries_again = True
        # The client's own pause, not a synchronisation.
        threading.Event().wait(_pause(first))
        again = _tried(method, url, headers, body)
        self.tries_again = False
        self.troubles.append(Trouble(f"{method} {path}", _described(first), _described(again)))
        if isinstance(again, Answer) and again.status < 500:
            return again
        raise Unanswered(self.troubles[-1])


def _tried(method: str, url: str, headers: Mapping[str, str], body: Json | bytes | None) -> Answer | OSError:
    try:
        return http(method, url, headers=headers, body=body, timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        return error


def _pause(answer: Answer | OSError) -> float:
    if isinstance(answer, Answer) and "retry-after" in answer.headers:
        return min(float(answer.headers["retry-after"]), MOST_RETRY_SECONDS)
    return RETRY_SECONDS


def _described(answer: Answer | OSError) -> str:
    return f"{answer.status} {answer.body[:300]!r}" if isinstance(answer, Answer) else repr(answer)


def kind(number: int) -> tuple[str, Json]:
    """Return workflow and inputs of one of the mixed jobs."""
    mixed: tuple[tuple[str, Json], ...] = (
        ("echo_test", {"message": f"m{number}"}),
        ("fan_out_test", {"items": list(range(12))}),
        ("retry_test", {"failure_rate": 0.05, "message": f"m{number}"}),
        ("sleep_test", {"seconds": 3}),
        ("retry_fan_out_test", {"items": list(range(8)), "failure_rate": 0.2}),
        ("multi_phase", {"phases": 4, "seconds_per_phase": 0.5}),
        ("large_values", {"count": 600}),
    )
    return mixed[number % len(mixed)]


class Crowd:
    """Clients who each do one thing after the other until they are told to stop; all of it through the gateway."""

    def __init__(self, platform: Platform, gateway: str, name: str, jobs: int = 4) -> None:
        """Take where they call; `name` is in all that they create, so that two crowds may visit one platform."""
        self._platform = platform
        self._name = name
        self._gateway = gateway
        self._stop = threading.Event()
        self._numbers = iter(range(1_000_000))
        self.doors: list[Door] = []
        self.created: list[str] = []
        self.submitted: list[str] = []
        self._work: tuple[Callable[[Door], None], ...] = (*[self._run_job] * jobs, self._submit, self._look)
        self._pool = ThreadPoolExecutor(len(self._work))
        self._clients: list[Future[None]] = []

    def __enter__(self) -> "Crowd":
        self._clients = [self._pool.submit(self._repeat, one) for one in self._work]
        return self

    def __exit__(self, *_: object) -> None:
        """Let every client end what it does."""
        self._stop.set()
        self._pool.shutdown()

    def check(self) -> bool:
        """Return True while each call was answered, at the latest by its one retry.

        Raises:
            Unanswered: one was not.
        """
        for client in self._clients:
            if client.done():
                client.result()
        return True

    @property
    def is_calm(self) -> bool:
        """Return whether nobody is about to try once more: who meets trouble twice has met two, not one."""
        return not any(door.tries_again for door in self.doors)

    @property
    def troubles(self) -> list[Trouble]:
        """Return every first try that was not answered well."""
        return [one for door in self.doors for one in door.troubles]

    def _repeat(self, work: Callable[[Door], None]) -> None:
        door = Door(self._gateway)
        self.doors.append(door)
        while not self._stop.is_set():
            work(door)

    def _run_job(self, door: Door) -> None:
        """Create a job and wait for its end."""
        number = next(self._numbers)
        workflow_id, inputs = kind(number)
        jobs = "/api/proxy/orchestrator/api/v1/jobs"
        operator = self._platform.as_("operator")
        body = {"workflow_id": workflow_id, "inputs": inputs}
        answer = door.call("POST", jobs, {**operator, "Idempotency-Key": f"{self._name}-{number}"}, body)
        assert answer.status in {200, 202}, answer.body
        job_id = answer.json["job_id"]
        self.created.append(job_id)
        began = time.monotonic()
        while self._job(door, f"{jobs}/{job_id}?wait=5")["status"] in {"PENDING", "RUNNING"}:
            assert time.monotonic() - began < JOB_SECONDS, f"{workflow_id} {job_id} waits: {self._why(job_id)}"

    def _why(self, job_id: str) -> list[Json]:
        """Return what is not over of a job."""
        return self._platform.rows(
            "SELECT a.task_id, a.state, a.dispatch_no, a.queued_at, a.leased_at, a.lease_expires_at, a.redispatch_at,"
            " a.worker_id, a.reason, m.visible_at, dagapp.clock() AS now, j.owner_id, j.wake_at"
            " FROM dagapp.dag_jobs AS j"
            " LEFT JOIN dagapp.dag_attempts AS a ON a.job_id = j.job_id AND a.ended_at IS NULL"
            " LEFT JOIN dagqueue.messages AS m ON m.task_id = a.task_id WHERE j.job_id = %s",
            job_id,
        )

    def _job(self, door: Door, path: str) -> Json:
        answer = door.call("GET", path, self._platform.as_("operator"))
        assert answer.status == 200, answer.body
        job: Json = answer.json
        return job

    def _submit(self, door: Door) -> None:
        """Submit a small raster and follow its request to the end."""
        number = next(self._numbers)
        dataset = f"{self._name}-{number}"
        headers = self._platform.as_("submitter-ddh")
        wish = {"platform_id": "ddh", "filename": f"{dataset}.tif"}
        address = door.call("POST", "/api/platform/uploads", headers, wish).json
        put = door.call("PUT", address["upload_url"], {}, geotiff(terrain(60, 80, seed=number)))
        assert put.status in {200, 201, 204}, put.body
        body = {
            "platform_id": "ddh",
            "dataset_id": dataset,
            "resource_id": "r1",
            "version_label": "v1",
            "data_type": "raster",
            "source": {key: address[key] for key in ("container_name", "blob_name")},
        }
        answer = door.call("POST", "/api/platform/submit", {**headers, "Idempotency-Key": dataset}, body)
        assert answer.status in {200, 202}, answer.body
        request_id = answer.json["request_id"]
        began = time.monotonic()
        while (status := door.call("GET", f"/api/platform/status/{request_id}?wait=5", headers)).json["state"] in {
            "queued",
            "processing",
        }:
            assert status.status == 200, status.body
            assert time.monotonic() - began < JOB_SECONDS, f"{request_id} is still {status.json['state']}"
        assert status.json["state"] == "completed", status.json
        self.submitted.append(request_id)

    def _look(self, door: Door) -> None:
        """Ask for what is there, again and again."""
        for path in ("/api/readyz", "/api/status/stats"):
            answer = door.call("GET", path, self._platform.as_("operator"))
            assert answer.status == 200, answer.body
        self._stop.wait(0.1)
