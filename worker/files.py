"""Scratch folders of tasks and the files that leave them."""

import asyncio
import hashlib
import stat
from pathlib import Path

from core.errors import DataError, GeodagError, ParameterInvalid
from core.payloads import is_payload
from core.ports import BlobRef, BlobRepository
from core.wire import TaskMessage
from handlers.raster.sidecar_names import names_beside
from worker.state_dir import file_name


def place_scratch(root: Path, task_id: str) -> Path:
    """Create and return the task's own folder, with an empty `out` in it."""
    scratch = root / file_name(task_id)
    scratch.mkdir(mode=0o700)
    (scratch / "out").mkdir(mode=0o700)
    return scratch


def output_blob(message: TaskMessage, place: str, scratch: Path, file: str) -> tuple[Path, BlobRef]:
    """Return the file a handler left in `out` and the blob it becomes: `<output_prefix>/<place>/<file>`.

    A place is a task id, for an item of a batch followed by the item's index.

    Raises:
        GeodagError: the handler named something that is no plain file of its own.
    """
    source = scratch / "out" / file
    if Path(file).name != file or file.startswith(".") or not _is_plain_file(source):
        raise GeodagError("the handler named an output file that is no plain file in its folder", value=file)
    ref = BlobRef.parse(f"{message.params['output_prefix']}/{place}/{file}")
    if is_payload(ref.container, ref.name):
        raise GeodagError("files cannot be written among the stored values of jobs", field="output_prefix")
    return source, ref


def staging_place(scratch: Path, ref: BlobRef) -> Path:
    """Return the folder that a blob is staged into, and create it.

    Blobs of one folder share it, so that sidecars lie beside their raster; equal names of other folders do not meet.
    """
    folder = ref.name.rpartition("/")[0]
    place = scratch / "staged" / hashlib.sha256(f"{ref.container}/{folder}".encode()).hexdigest()[:16]
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


async def stage_sidecars(blobs: BlobRepository, ref: BlobRef, scratch: Path) -> None:
    """Stage the small files beside a raster that are there, next to it."""
    folder, slash, raster = ref.name.rpartition("/")

    async def stage(name: str) -> None:
        beside = BlobRef(ref.container, f"{folder}{slash}{name}")
        try:
            await blobs.stat(beside)
        except (DataError, ParameterInvalid):
            return  # there is none, or its name would be no blob's
        await blobs.stage(beside, staging_place(scratch, beside))

    await asyncio.gather(*map(stage, names_beside(raster)))


def _is_plain_file(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1
