"""Takes the files of an earlier task with equal params instead of making them again, once their bytes are verified.

A note beside the files says what an equal task returned, with the SHA-256 of each file. So a job that is rerun, or an
attempt whose result was lost, costs a look at what is there.
"""

import hashlib
import json
import logging
from collections.abc import Sequence

from pydantic import ValidationError

from core.errors import Conflict, DataError
from core.ids import canonical_json, digest
from core.ports import BlobRef, BlobRepository
from core.wire import Json
from worker.tasks import RunningTask

_MAX_NOTE_BYTES = 1 << 20


class Reuse:
    """Notes about finished tasks below their output prefix."""

    def __init__(self, blobs: BlobRepository, logger: logging.Logger) -> None:
        self._blobs = blobs
        self._logger = logger

    async def find(self, task: RunningTask) -> Json | None:
        """Return the output of an equal task whose files are all whole; a note about others is removed."""
        ref = _note_of(task)
        try:
            note = json.loads(await self._blobs.read(ref, _MAX_NOTE_BYTES))
        except DataError:
            return None
        for path, expected in note["files"].items():
            if await self._sha256(BlobRef.parse(path)) != expected:
                self._logger.warning("stored file is not whole", extra={"task_id": task.task_id, "blob": path})
                await self._blobs.delete_prefix(ref.container, ref.name)
                return None
        return self._output(task, note["output"])

    def _output(self, task: RunningTask, output: Json) -> Json | None:
        """Return an output that is one here: another build, beside this one in an upgrade, may say more of it."""
        try:
            task.spec.output.model_validate(output)
        except ValidationError:
            self._logger.info("another build's output is not read", extra={"task_id": task.task_id})
            return None
        return output

    async def keep(self, task: RunningTask, output: Json, files: Sequence[BlobRef]) -> None:
        """Note what a task returned and what its files are; the first of two equal tasks is noted."""
        found = {str(ref): await self._sha256(ref) for ref in files}
        note = canonical_json({"files": found, "output": output}).encode()
        try:
            await self._blobs.create(_note_of(task), note)
        except Conflict:
            self._logger.info("an equal task was faster", extra={"task_id": task.task_id})

    async def _sha256(self, ref: BlobRef) -> str | None:
        found = hashlib.sha256()
        try:
            async for part in self._blobs.stream(ref):
                found.update(part)
        except DataError:
            return None
        return found.hexdigest()


def _note_of(task: RunningTask) -> BlobRef:
    message = task.message
    key = digest([task.spec.name, task.spec.reusable, message.params])
    return BlobRef.parse(f"{message.params['output_prefix']}/notes/{key}.json")
