"""HTTP calls to an orchestrator in the name of any role, and a worker's calls made by hand."""

import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from core.identity import SERVICE_HEADER
from core.wire import TaskMessage
from orchestrator.deps import Context

KEYS = {
    "submitter": ("submitter", "ddh"),
    "reader": ("reader", "ddh"),
    "reviewer": ("reviewer", None),
    "admin": ("admin", None),
    "operator": ("operator", None),
    "gateway": ("gateway", None),
    "worker": ("worker", None),
}
Answer = tuple[int, Any]


@dataclass
class Door:
    """HTTP calls to one orchestrator, with the credentials of a role; the key of a role is `key-<role>`."""

    session: aiohttp.ClientSession
    base: str
    context: Context

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        caller: str | None = None,
        service: str | None = None,
        raw: Any = None,
        **more: str,
    ) -> Answer:
        """Return status and body, parsed when it is JSON; `more` are headers, with underscores for hyphens."""
        headers = {"Content-Type": "application/json"} | {name.replace("_", "-"): one for name, one in more.items()}
        if caller:
            headers["X-API-Key"] = f"key-{caller}"
        if service:
            headers[SERVICE_HEADER] = f"key-{service}"
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        async with self.session.request(method, self.base + path, data=data, headers=headers) as answer:
            text = await answer.text()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json else text

    async def create(self, workflow_id: str, inputs: dict[str, Any] | None = None) -> str:
        """Create a job as the operator."""
        body = {"workflow_id": workflow_id, "inputs": inputs or {}}
        status, answer = await self.call("POST", "/api/v1/jobs", body=body, caller="operator", service="gateway")
        assert status == 202, answer
        return str(answer["job_id"])

    async def get(self, path: str) -> Any:
        """Return what an operator reads."""
        status, answer = await self.call("GET", path, caller="operator")
        assert status == 200, answer
        return answer

    async def job(self, job_id: str, wait: float = 0) -> Any:
        """Return a job."""
        return await self.get(f"/api/v1/jobs/{job_id}?wait={wait}")

    async def callback(self, what: str, body: Any) -> Any:
        """Call as a worker."""
        status, answer = await self.call("POST", f"/api/v1/callbacks/{what}", body=body, service="worker")
        assert status == 200, answer
        return answer

    async def claim(self, message: TaskMessage, claim_id: str = "claim-1") -> Any:
        """Claim one task and return the answer."""
        claim = {
            "task_id": message.task_id,
            "dispatch_no": message.dispatch_no,
            "token": message.token,
            "claim_id": claim_id,
        }
        body = {"worker": WORKER, "free": {"slots": 10}, "claims": [claim]}
        return (await self.callback("claims", body))["answers"][0]

    async def complete(self, message: TaskMessage, output_ref: Any = None) -> Any:
        """Report the success of one task and return the answer."""
        said = {"output_ref": output_ref} if output_ref else {"output": {"echoed_params": message.params}}
        result = {"task_id": message.task_id, "token": message.token, "status": "completed", **said}
        return (await self.callback("task-results", {"worker": WORKER, "results": [result]}))["answers"][0]


WORKER = {"worker_id": "worker-1", "queue": "functionapp-tasks", "host": "test", "pid": 1, "build_id": "test"}
