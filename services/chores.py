"""Does what evaluations want done beside them (`core.dag.chores`): large sources become rows, many outputs one value.

Both go through in pages, so that neither a list of items nor all outputs are ever held, and no transaction is open
while the storage is asked. Both may be done twice, by two instances even: rows that are there stay, and of two blobs
one is named by nobody and goes with the job.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, assert_never

from core.dag.aggregate import ADDED_LEVELS, Aggregate, Incomplete
from core.dag.chores import Chore, Gathering, Unpacking
from core.dag.json_values import as_stored
from core.dag.nodes import Aggregation
from core.dag.rendering import Rendered
from core.dag.tallies import COMPLETED
from core.errors import ErrorDetail, GeodagError, ParameterInvalid
from core.json_text import read_json
from core.payloads import LIMIT_BYTES, MAX_BYTES, PayloadLost, PayloadRef, decode, value_prefix
from repositories.database import AsyncPool, transaction
from repositories.fan_outs import FanOutRepository, Outputs
from repositories.payloads import PayloadStore
from services.work import pipelined

PAGE_ITEMS = 500
"""So many items' outputs are read at once, but at least one batch."""
LINES_BYTES = 1 << 20
"""JSON of items that are stored by one transaction, but for the last line."""
PART_BYTES = 1 << 18
"""What is stored at once of an aggregate."""
READ_BYTES = 16 << 20
"""An output that has to be looked into may not be larger."""
PAUSES = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Waits for the commit of the evaluation that asked."""


class ChoreService:
    """Does chores, one transaction for each page."""

    def __init__(self, pool: AsyncPool, store: PayloadStore) -> None:
        self._pool = pool
        self._store = store

    async def perform(self, chore: Chore) -> Rendered:
        """Do a chore; what is wrong with it for good is in the answer.

        Raises:
            StorageUnavailable, DatabaseUnavailable: Ask again.
        """
        try:
            match chore:
                case Unpacking():
                    await self._unpack(chore)
                    return Rendered()
                case Gathering():
                    return await self._gather(chore)
                case _ as never:
                    assert_never(never)
        except (PayloadLost, GeodagError) as error:
            if isinstance(error, Incomplete) or error.detail.code not in _FINAL:
                raise
            return Rendered(error=error.detail)

    async def _unpack(self, chore: Unpacking) -> None:
        lines: list[str] = []
        size, first = 0, 0
        async for line in self._store.lines(chore.ref):
            lines.append(line.decode())
            size += len(line)
            if size >= LINES_BYTES:
                if not await self._store_lines(chore, first, lines):
                    return
                first, lines, size = first + len(lines), [], 0
        if lines:
            await self._store_lines(chore, first, lines)

    async def _store_lines(self, chore: Unpacking, first: int, lines: list[str]) -> bool:
        """Store lists of items; False when the fan-out does not want them any more."""
        for pause in PAUSES if first == 0 else PAUSES[:1]:
            await asyncio.sleep(pause)
            async with transaction(self._pool) as conn:
                repository = FanOutRepository(conn)
                if await repository.store_lines(chore.job_id, chore.node_id, chore.run_no, first, lines):
                    return True
        return False

    async def _gather(self, chore: Gathering) -> Rendered:
        for pause in PAUSES:
            await asyncio.sleep(pause)
            try:
                return await self._gather_once(chore)
            except Incomplete:
                continue
        raise Incomplete(f"the outputs of {chore.fan_out.node_id} are not all there")

    async def _gather_once(self, chore: Gathering) -> Rendered:
        """Aggregate; a large value becomes a blob while it is made."""
        parts = self._parts(chore)
        head = b""
        async for part in parts:
            head += part
            if len(head) > LIMIT_BYTES:
                break
        else:
            return Rendered(value=_small_value(head, chore.fan_out.node_id))
        blob = f"{value_prefix(chore.job_id)}{uuid.uuid4().hex}.json"
        try:
            return Rendered(ref=await self._store.put_stream(blob, _chained(head, parts), MAX_BYTES))
        except ParameterInvalid:
            message = f"the outputs of {chore.fan_out.node_id} have more than {MAX_BYTES} bytes of JSON together"
            return Rendered(error=ErrorDetail(code="VALUE_TOO_LARGE", message=message))

    async def _parts(self, chore: Gathering) -> AsyncIterator[bytes]:
        """Yield the JSON of the aggregate, piece by piece."""
        aggregate = Aggregate(chore.aggregation, chore.fan_out)
        last: PayloadRef | None = None
        yield aggregate.head()
        async for page in self._pages(chore):
            small = bytearray()
            for output, ref in page:
                if ref is None:
                    last = None
                    data = output.encode()
                    small += aggregate.add_json(data) if aggregate.takes_json else aggregate.add(read_json(data))
                    if len(small) < PART_BYTES:
                        continue
                yield bytes(small)
                small.clear()
                if ref is None:
                    continue
                if chore.aggregation is Aggregation.COLLECT:
                    yield aggregate.add_json(b"")
                    async for piece in self._store.stream(ref):
                        yield piece
                elif chore.aggregation is Aggregation.FIRST and aggregate.is_empty:
                    yield aggregate.add_json(await self._store.get(ref))
                elif aggregate.takes_json:
                    last = ref
                    yield aggregate.add_json(b"null")
                else:
                    yield aggregate.add(await self._read(ref))
            yield bytes(small)
        if last is not None and chore.aggregation is Aggregation.LAST:
            aggregate.replace_result(await self._store.get(last))
        yield aggregate.tail()

    async def _pages(self, chore: Gathering) -> AsyncIterator[list[tuple[str, PayloadRef | None]]]:
        """Yield the JSON of outputs in item order, or where large ones lie; the next page comes while one is used."""
        last = chore.fan_out.next_child - 1
        size = max(1, PAGE_ITEMS // chore.fan_out.batch_size)
        coming = asyncio.create_task(self._page(chore, -1, size))
        try:
            while page := await coming:
                is_last = len(page) < size or page[-1].number >= last
                if not is_last:
                    coming = asyncio.create_task(self._page(chore, page[-1].number, size))
                    await asyncio.sleep(0)  # its question leaves before the answer to the last one is dealt with
                yield [one for child in page for one in _outputs_of(child)]
                if is_last:
                    return
        finally:
            if not coming.cancel() and not coming.cancelled():
                coming.exception()  # nobody asks for it any more

    async def _page(self, chore: Gathering, after: int, size: int) -> list[Outputs]:
        async with pipelined(self._pool) as conn:
            found = await FanOutRepository(conn).outputs(chore.job_id, chore.fan_out.node_id, after, size)
            return await found.rows()

    async def _read(self, ref: PayloadRef) -> dict[str, Any]:
        if ref.size_bytes > READ_BYTES:
            message = f"an output of {ref.size_bytes} bytes is not looked into; at most {READ_BYTES} are"
            raise GeodagError(message, code="VALUE_TOO_LARGE", field=ref.blob)
        value = decode(ref, await self._store.get(ref))
        if not isinstance(value, dict):
            raise PayloadLost(f"the stored output {ref.blob} is no mapping", field=ref.blob)
        stored: dict[str, Any] = as_stored(value, "output")
        return stored


def _small_value(data: bytes, node_id: str) -> dict[str, Any]:
    """Return an aggregate that is no blob; the outputs in it may be workers' blobs, of which nobody has looked into."""
    try:
        value: dict[str, Any] = read_json(data)
    except (ValueError, RecursionError) as error:
        raise PayloadLost(f"an output of {node_id} is not JSON") from error
    stored: dict[str, Any] = as_stored(value, "output", depth=-ADDED_LEVELS)
    return stored


_FINAL = frozenset({"PAYLOAD_MISSING", "PAYLOAD_CORRUPT", "VALUE_TOO_LARGE", "NOT_JSON"})
"""Errors that would be the same again."""


def _outputs_of(child: Outputs) -> list[tuple[str, PayloadRef | None]]:
    if child.outcomes is None:
        if child.status != "COMPLETED":
            return []
        return [(child.output or "{}", _ref(child.output_ref))]
    return [
        (json.dumps(one.get("output")), _ref(one.get("output_ref")))
        for one in child.outcomes
        if one["status"] == COMPLETED
    ]


def _ref(stored: dict[str, Any] | None) -> PayloadRef | None:
    return None if stored is None else PayloadRef.model_validate(stored)


async def _chained(head: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in parts of some size: storing a part costs much more than a small output."""
    held, size = [head], len(head)
    async for part in parts:
        held.append(part)
        size += len(part)
        if size >= PART_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)
