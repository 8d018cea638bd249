"""Copies to the external zone by a pipeline of Azure Data Factory, over its REST interface.

https://learn.microsoft.com/rest/api/datafactory/pipelines/create-run and …/pipeline-runs/get. The pipeline belongs to
the network's owner; it takes the parameters `sourceContainer`, `sourceName`, `targetContainer`, `targetName` and
`reference`, and copies one file. Plain REST instead of Azure's SDK: two calls, on the HTTP client that is there anyway.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from core.errors import TransientError
from core.ports import BlobRef, BlobRepository, ExportRun, ExportState
from repositories.external_zone import ExternalZone

RESOURCE: Final = "https://management.azure.com"
API_VERSION: Final = "2018-06-01"
TIMEOUT_SECONDS: Final = 30.0
MAX_MESSAGE: Final = 500
_STATES: Final = {
    "Queued": ExportState.RUNNING,
    "InProgress": ExportState.RUNNING,
    "Canceling": ExportState.RUNNING,
    "Succeeded": ExportState.SUCCEEDED,
    "Failed": ExportState.FAILED,
    "Cancelled": ExportState.FAILED,
}

Token = Callable[[], Awaitable[str]]


class DataFactoryExport(ExternalZone):
    """`ExternalExport` by pipeline runs."""

    def __init__(
        self, blobs: BlobRepository, factory_id: str, pipeline: str, token: Token, endpoint: str = RESOURCE
    ) -> None:
        """Connect nothing yet.

        Args:
            blobs: Where copies are looked at and taken back.
            factory_id: Azure's resource id, /subscriptions/…/factories/….
            pipeline: Name of the pipeline.
            token: Returns a token for the management endpoint.
            endpoint: Where that is.
        """
        super().__init__(blobs)
        self._base = f"{endpoint.rstrip('/')}/{factory_id.strip('/')}"
        self._pipeline = pipeline
        self._token = token

    async def start(self, source: BlobRef, target: BlobRef, reference: str) -> str:
        """Begin a run and return its id.

        Raises:
            TransientError: EXPORT_UNAVAILABLE: refused, or no answer; a run may have begun, whose copy nobody names.
        """
        parameters = {
            "sourceContainer": source.container,
            "sourceName": source.name,
            "targetContainer": target.container,
            "targetName": target.name,
            "reference": reference,
        }
        answer = await self._call("POST", f"pipelines/{quote(self._pipeline, safe='')}/createRun", parameters)
        return _text(answer, "runId")

    async def look(self, run_id: str) -> ExportRun:
        """Return how a run is doing.

        Raises:
            TransientError: EXPORT_UNAVAILABLE.
        """
        answer = await self._call("GET", f"pipelineruns/{quote(run_id, safe='')}")
        status = _text(answer, "status")
        if status not in _STATES:
            raise _unavailable(f"run {run_id} is in an unknown state {status[:40]!r}")
        return ExportRun(run_id, _STATES[status], str(answer.get("message") or "")[:MAX_MESSAGE])

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {await self._token()}"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    method,
                    f"{self._base}/{path}",
                    params={"api-version": API_VERSION},
                    headers=headers,
                    json=body,
                    allow_redirects=False,
                ) as answer,
            ):
                text = await answer.text()
                if answer.status != 200:
                    raise _unavailable(f"HTTP {answer.status} {_code(text)}".rstrip())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unavailable(type(error).__name__) from error
        return _document(text)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _unavailable("its answer is no JSON object")
    return document


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise _unavailable(f"its answer has no {name}")
    return value


def _code(text: str) -> str:
    """Return the code of an error as Azure's management answers it; never its message, which may repeat names."""
    try:
        return str(json.loads(text)["error"]["code"])[:80]
    except (ValueError, KeyError, TypeError):
        return ""


def _unavailable(why: str) -> TransientError:
    return TransientError(f"the data factory does not do it: {why}", code="EXPORT_UNAVAILABLE")
