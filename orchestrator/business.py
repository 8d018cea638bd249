"""The use cases of partners, reviewers and operators, wired together for one process."""

import logging
from dataclasses import dataclass
from pathlib import Path

from core.dag.catalogue import WorkflowCatalogue
from core.dag.yaml_source import MAX_CHARACTERS
from core.operations import OperationCatalogue, load_operations
from core.outgoing import OutgoingPolicy
from core.ports import BlobRepository, Sealer
from core.status_view import PublicUrls
from edge.outgoing import OutgoingClient
from orchestrator.settings import OrchestratorSettings
from orchestrator.waiters import JobWaiters
from repositories.database import AsyncPool
from repositories.payloads import PayloadStore
from services.approvals import ApprovalService
from services.audit import AuditService
from services.commands import CommandService
from services.external import ExternalJobs
from services.jobs import JobService
from services.platforms import PlatformService
from services.requests import RequestService
from services.reviews import ReviewService
from services.status import StatusService
from services.submit import SubmitService, UrlSources
from services.uploads import UploadService
from services.validate import ValidateService
from services.webhooks import WebhookService

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Business:
    """The use cases of partners and reviewers."""

    operations: OperationCatalogue
    submits: SubmitService
    validates: ValidateService
    approvals: ApprovalService
    reviews: ReviewService
    audit: AuditService
    status: StatusService
    requests: RequestService
    platforms: PlatformService
    uploads: UploadService
    webhooks: WebhookService


def read_definitions(folder: Path) -> dict[str, str]:
    """Return the text of every YAML file by name, of one that is too long only enough for its refusal.

    Bytes that are not UTF-8 stay visible, for whoever reads the YAML.
    """
    return {path.name: _beginning(path) for path in sorted(folder.glob("*.y*ml"))}


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        return file.read(MAX_CHARACTERS + 1)


def load_operation_catalogue(folder: Path, workflows: WorkflowCatalogue) -> OperationCatalogue:
    """Return the operations of a folder; files that are broken are logged and listed."""
    catalogue = load_operations(read_definitions(folder), frozenset(workflows.ids()))
    for broken in catalogue.broken:
        log.error("operation file broken", extra={"file": broken.file, "reason": broken.error})
    return catalogue


def build_business(
    settings: OrchestratorSettings,
    pool: AsyncPool,
    blobs: BlobRepository,
    workflows: WorkflowCatalogue,
    jobs_service: JobService,
    waiters: JobWaiters,
    commands: CommandService,
    sealer: Sealer,
) -> Business:
    """Return the use cases of partners and reviewers, wired together."""
    urls = PublicUrls(
        gateway=settings.public_gateway_url,
        serving=settings.public_serving_url,
        external=settings.public_external_url.rstrip("/"),
    )
    outgoing = OutgoingPolicy(allow_loopback=settings.webhook_allow_loopback)
    sources = UrlSources(OutgoingPolicy(allow_loopback=settings.source_allow_loopback), sealer)
    operations = load_operation_catalogue(settings.workflows_dir / "operations", workflows)
    submits = SubmitService(pool, blobs, jobs_service, urls, outgoing, sources, operations)
    external = ExternalJobs(jobs_service) if settings.external_export else None
    approvals, status = ApprovalService(pool, blobs, external), StatusService(pool, urls)
    return Business(
        operations=operations,
        submits=submits,
        validates=ValidateService(pool, submits, jobs_service, waiters, PayloadStore(blobs)),
        approvals=approvals,
        reviews=ReviewService(pool, approvals),
        audit=AuditService(pool),
        status=status,
        platforms=PlatformService(pool),
        requests=RequestService(pool, submits, status, commands),
        uploads=UploadService(
            pool,
            blobs,
            key=settings.upload_key.get_secret_value().encode(),
            max_bytes=settings.upload_max_bytes,
            base_url=settings.public_orchestrator_url,
        ),
        webhooks=WebhookService(pool, OutgoingClient(outgoing), sealer, urls, outgoing),
    )
