"""Which workflows there are for whoever names one: those of the files, and those of which jobs may be left."""

from core.errors import NotFound
from core.wording import did_you_mean
from repositories.workflows import WorkflowRepository
from services.shelf import LISTED, Shelf
from services.work import Connection


async def is_known(conn: Connection, shelf: Shelf, workflow_id: str) -> bool:
    """Return whether a file has the workflow, or a definition of it was ever stored, as that of each job is."""
    return workflow_id in shelf.catalogue.ids() or await WorkflowRepository(conn).is_stored(workflow_id)


async def check_known(conn: Connection, shelf: Shelf, workflow_id: str, field: str) -> None:
    """Refuse what names no workflow, which would mean no job for ever. Raises `NotFound`."""
    if not await is_known(conn, shelf, workflow_id):
        raise unknown_workflow(shelf, workflow_id, field)


def unknown_workflow(shelf: Shelf, workflow_id: str, field: str) -> NotFound:
    """Return the refusal of a name that no workflow has."""
    return NotFound(
        f"there is no workflow {workflow_id[:64]}{did_you_mean(workflow_id, shelf.catalogue.ids())}",
        field=field,
        value=workflow_id[:64],
        remediation=LISTED,
    )
