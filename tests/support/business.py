"""The business services over a real database and real blobs, with an engine that tests drive by hand."""

import base64
import hashlib
import itertools
import uuid
from dataclasses import dataclass, field
from typing import Any

from core.b2b import SubmitAccepted
from core.b2b_assets import ApproveRequest, RejectRequest, ReviewAnswer, RevokeRequest, SupersedeRequest
from core.dag.catalogue import WorkflowCatalogue
from core.identity import Caller, KeyEntry, KeyFile, Role
from core.models.engine import Job
from core.operations import OperationCatalogue
from core.outgoing import OutgoingPolicy
from core.stac import collection_document
from core.status_view import PublicUrls
from core.wire import TaskMessage, TaskResult, TaskStatus
from edge.seal import Seal
from repositories import pgstac
from repositories.database import AsyncPool, transaction
from services.approvals import ApprovalService
from services.claims import ClaimService
from services.publish import on_job_ended
from services.requests import RequestService
from services.reviews import ReviewService
from services.status import StatusService
from services.submit import SubmitService, UrlSources
from services.uploads import UploadService
from services.work import Connection
from tests.support.engine import Engine, HandWorker, repository_operations, repository_workflows
from tests.support.storage import Storage

URLS = PublicUrls(gateway="https://gateway.test", serving="https://serving.test")
SUBMITTER = Caller(subject="sue", roles=frozenset({Role.SUBMITTER}), platform_id="ddh")
FOREIGNER = Caller(subject="artur", roles=frozenset({Role.SUBMITTER}), platform_id="arcgis")
READER = Caller(subject="rita", roles=frozenset({Role.READER}), platform_id="ddh")
REVIEWER = Caller(subject="rob", roles=frozenset({Role.REVIEWER}))
ADMIN = Caller(subject="ada", roles=frozenset({Role.ADMIN}))
OPERATOR = Caller(subject="otto", roles=frozenset({Role.OPERATOR}))
GATEWAY = Caller(subject="gateway", roles=frozenset({Role.GATEWAY}))
WORKER = Caller(subject="worker", roles=frozenset({Role.WORKER}))
EVERYBODY = (SUBMITTER, FOREIGNER, READER, REVIEWER, ADMIN, OPERATOR, GATEWAY, WORKER)
UPLOAD_KEY = b"k" * 32
SEAL = Seal(base64.b64encode(b"s" * 32).decode())
_COUNTER = itertools.count()


def key_of(caller: Caller) -> str:
    """Return the API key of one of the callers above."""
    return f"key-of-{caller.subject}"


def key_file() -> KeyFile:
    """Return the key file that knows everybody above."""
    return KeyFile(
        keys=tuple(
            KeyEntry(
                sha256=hashlib.sha256(key_of(caller).encode()).hexdigest(),
                subject=caller.subject,
                roles=caller.roles,
                platform_id=caller.platform_id,
            )
            for caller in EVERYBODY
        )
    )


def submit_body(**changes: Any) -> dict[str, Any]:
    """Return a submit of ddh 0038272/shapefile whose file exists; None removes a field."""
    good: dict[str, Any] = {
        "platform_id": "ddh",
        "platform_refs": {"dataset_id": "0038272", "resource_id": "shapefile"},
        "version_label": "V1",
        "data_type": "raster",
        "source": {"container_name": "bronze", "blob_name": "ddh/dem.tif"},
    }
    return {k: v for k, v in (good | changes).items() if v is not None}


@dataclass
class PublishingEngine(Engine):
    """An engine whose jobs end as in an orchestrator: with the publish hook."""

    async def _note_end(self, conn: Connection, job: Job) -> None:
        await super()._note_end(conn, job)
        await on_job_ended(conn, job, self.jobs)


@dataclass
class Business:
    """Every business service of one orchestrator."""

    pool: AsyncPool
    storage: Storage
    catalogue: WorkflowCatalogue = field(default_factory=repository_workflows)
    operations: OperationCatalogue = field(default_factory=repository_operations)
    engine: PublishingEngine = field(init=False)
    worker: HandWorker = field(init=False)

    def __post_init__(self) -> None:
        self.blobs = self.storage.repository()
        self.engine = PublishingEngine(self.pool, self.catalogue, blobs=self.blobs)
        self.worker = HandWorker(self.engine)
        self.engine.claims = ClaimService(self.pool, self.engine.lease_seconds, SEAL)
        self.submits = SubmitService(
            self.pool,
            self.blobs,
            self.engine.jobs,
            URLS,
            OutgoingPolicy(allow_loopback=True),
            UrlSources(OutgoingPolicy(), SEAL),
            self.operations,
        )
        self.approvals = ApprovalService(self.pool, self.blobs)
        self.reviews = ReviewService(self.pool, self.approvals)
        self.status = StatusService(self.pool, URLS)
        self.requests = RequestService(self.pool, self.submits, self.status, self.engine.commands)
        self.uploads = UploadService(
            self.pool, self.blobs, key=UPLOAD_KEY, max_bytes=1000, base_url="https://orchestrator.test"
        )
        self.put("ddh/dem.tif", b"pixels")

    def put(self, name: str, content: bytes, container: str = "bronze") -> None:
        """Put a blob where partners drop theirs."""
        self.storage.put(f"{container}/{name}", content)

    async def submit(self, caller: Caller = SUBMITTER, key: str | None = None, **changes: Any) -> SubmitAccepted:
        """Submit."""
        return await self.submits.submit(caller, submit_body(**changes), key)

    async def approve(
        self, accepted: SubmitAccepted, level: str | None = "ouo", caller: Caller = REVIEWER
    ) -> ReviewAnswer:
        """Approve what was submitted."""
        body = ApproveRequest.model_validate({"clearance_level": level})
        return await self.approvals.approve(caller, accepted.asset_id, accepted.version_ordinal, body)

    async def reject(self, accepted: SubmitAccepted, caller: Caller = REVIEWER) -> ReviewAnswer:
        """Reject what was submitted."""
        body = RejectRequest(reason="wrong place")
        return await self.approvals.reject(caller, accepted.asset_id, accepted.version_ordinal, body)

    async def revoke(self, accepted: SubmitAccepted, caller: Caller = REVIEWER) -> ReviewAnswer:
        """Take the approval of what was submitted back."""
        body = RevokeRequest(reason="recalled")
        return await self.approvals.revoke(caller, accepted.asset_id, accepted.version_ordinal, body)

    async def supersede(self, accepted: SubmitAccepted, caller: Caller = SUBMITTER) -> ReviewAnswer:
        """Give up what was submitted."""
        body = SupersedeRequest()
        return await self.approvals.supersede(caller, accepted.asset_id, accepted.version_ordinal, body)

    async def delete(self, accepted: SubmitAccepted, caller: Caller = SUBMITTER) -> ReviewAnswer:
        """Delete what was submitted."""
        return await self.approvals.delete(caller, accepted.asset_id, accepted.version_ordinal, None)

    async def processed(self, caller: Caller = SUBMITTER, **changes: Any) -> SubmitAccepted:
        """Submit, and let the ingest succeed."""
        accepted = await self.submit(caller, **changes)
        await self.finish(await self.job_of(accepted))
        return accepted

    async def approved(self, level: str | None = "ouo", **changes: Any) -> SubmitAccepted:
        """Submit, process and approve."""
        accepted = await self.processed(**changes)
        await self.approve(accepted, level)
        return accepted

    async def job_of(self, accepted: SubmitAccepted) -> str:
        """Return the job that works for a request."""
        (row,) = await self.engine.query(
            "SELECT job_id FROM dagapp.platform_request_jobs WHERE request_id = %s", accepted.request_id
        )
        return str(row["job_id"])

    async def jobs_of(self, accepted: SubmitAccepted) -> dict[str, str]:
        """Return the jobs that work for a request of several, by their names in their order."""
        rows = await self.engine.query(
            "SELECT job_name, job_id FROM dagapp.platform_request_jobs WHERE request_id = %s ORDER BY sequence",
            accepted.request_id,
        )
        return {row["job_name"]: row["job_id"] for row in rows}

    async def finish(self, job_id: str, *ran: TaskMessage) -> None:
        """Run every task of an ingest, but those that ran, to its success, as workers would report it."""
        done = {message.task_id for message in ran}
        while waiting := [m for m in await self.engine.messages(job_id) if m.task_id not in done]:
            for message in waiting:
                await self.worker.run(message, output=await self.output_of(message))
                done.add(message.task_id)

    async def fail(self, job_id: str, **error: Any) -> TaskMessage:
        """Let the first task of a job fail for good; return its message."""
        message = await self.engine.message(job_id)
        await self.worker.claim(message)
        detail = {"code": "CRS_MISSING", "message": "no CRS", "field": "crs", "user_fixable": True} | error
        await self.worker.report(
            TaskResult.model_validate(
                {"task_id": message.task_id, "token": message.token, "status": TaskStatus.FAILED, "error": detail}
            )
        )
        return message

    async def row(self, accepted: SubmitAccepted) -> dict[str, Any]:
        """Return the version's row."""
        (row,) = await self.engine.query(
            "SELECT * FROM dagapp.asset_versions WHERE asset_id = %s AND version_ordinal = %s",
            accepted.asset_id,
            accepted.version_ordinal,
        )
        return row

    async def asset(self, accepted: SubmitAccepted) -> dict[str, Any]:
        """Return the asset's row."""
        (row,) = await self.engine.query(
            "SELECT * FROM dagapp.geospatial_assets WHERE asset_id = %s", accepted.asset_id
        )
        return row

    async def audit(self, accepted: SubmitAccepted) -> list[tuple[str, str, str]]:
        """Return (action, actor, role) of an asset's history."""
        rows = await self.engine.query(
            "SELECT action, actor, actor_role FROM dagapp.asset_audit WHERE asset_id = %s ORDER BY audit_id",
            accepted.asset_id,
        )
        return [(row["action"], row["actor"], row["actor_role"]) for row in rows]

    async def counts(self) -> dict[str, int]:
        """Return how many rows each table of a submit has."""
        (row,) = await self.engine.query(
            """
            SELECT (SELECT count(*) FROM dagapp.geospatial_assets) AS assets,
                   (SELECT count(*) FROM dagapp.asset_versions) AS versions,
                   (SELECT count(*) FROM dagapp.platform_requests) AS requests,
                   (SELECT count(*) FROM dagapp.dag_jobs) AS jobs,
                   (SELECT count(*) FROM dagapp.asset_audit) AS audit,
                   (SELECT count(*) FROM dagqueue.messages) AS messages
            """
        )
        return row

    async def catalogued(self, accepted: SubmitAccepted) -> dict[str, Any] | None:
        """Return the item pgstac has of a version."""
        async with transaction(self.pool) as conn:
            item_id = f"{accepted.asset_id}-v{accepted.version_ordinal}"
            return await pgstac.read_item(conn, "ddh-raster", item_id)

    async def output_of(self, message: TaskMessage) -> dict[str, Any]:
        """Return what each handler of raster_ingest reports."""
        params = message.params
        match message.handler:
            case "source.fetch":
                copy = f"{params['output_prefix']}/{message.task_id}/{params['file_name']}"
                return {"source": copy, "size_bytes": 6, "sha256": "f" * 64, "etag": None}
            case "raster.validate":
                return {
                    "source": params["source"],
                    "content_hash": "c" * 64,
                    "file_size_bytes": 6,
                    "file_size_mb": 0.0,
                    "raster": {"crs_code": "EPSG:4326"},
                    "estimate": {"route": "direct"},
                    "report": {"verdict": "accept", "findings": []},
                }
            case "raster.create_cog":
                return {
                    "blob_path": f"{params['output_prefix']}/{message.task_id}/cog.tif",
                    "sha256": "d" * 64,
                    "size_bytes": 1234,
                    "raster": {},
                    "render": {"bidx": [1], "rescale": [[0, 1]]},
                    "report": {"verdict": "accept", "findings": []},
                }
            case "raster.stac_ensure_collection":
                async with transaction(self.pool) as conn:
                    created = await pgstac.ensure_collection(
                        conn, collection_document(params["collection_id"], params["title"])
                    )
                return {"collection_id": params["collection_id"], "created": created}
            case "raster.stac_register_item":
                known = ("blob_path", "sha256", "size_bytes", "render", "report")
                return {name: params["cog_facts"].get(name) for name in known} | {
                    "stac_item_id": params["item_id"],
                    "stac_collection_id": params["collection_id"],
                    "stac_item": item(params),
                }
            case handler:
                raise AssertionError(f"no output for {handler}")


def item(params: dict[str, Any]) -> dict[str, Any]:
    """Return a valid item for the params of raster.stac_register_item."""
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [],
        "id": params["item_id"],
        "collection": params["collection_id"],
        "geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]},
        "bbox": [0, 0, 1, 1],
        "properties": {"datetime": "2020-01-01T00:00:00Z", "title": params["title"], **params["properties"]},
        "links": [],
        "assets": {"data": {"href": params["href"], "roles": ["data"]}},
    }


def fresh_refs() -> dict[str, str]:
    """Return refs that nobody used before."""
    return {"dataset_id": f"d{next(_COUNTER)}", "resource_id": uuid.uuid4().hex}
