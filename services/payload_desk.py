"""Makes the values that evaluations ask for (`core.dag.rendering`), beside them and outside of every transaction.

An evaluation leaves its needs here and goes on. When a value is made, the job is advanced again in a transaction of its
own with the answer in its state. What gets lost on the way, by a crash or by an outage of the storage, is asked for
again by the job's next evaluation, which its timer brings soon; so nothing is remembered that would have to be kept.

Little is read in a thread. More than `APART_BYTES` is read in a process of its own, which ends with the value: parsed
JSON takes many times the room of its text, and this process never holds it.
"""

import asyncio
import logging
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.dag.chores import Chore
from core.dag.rendering import ANSWER, Rendered, Rendering, perform
from core.errors import DatabaseUnavailable, ErrorDetail, StorageUnavailable
from core.payloads import PayloadLost, PayloadRef, decode, ref_to, value_prefix
from repositories.payloads import PayloadStore
from services.render_child import Order

log = logging.getLogger(__name__)

APART_BYTES = 1 << 20
"""What is larger is read in a process of its own."""
AT_A_TIME = {"quick": 4, "slow": 2}
"""What is read apart, and chores, hold up no small values."""
REMEMBERED_BYTES = 4 << 20
"""JSON of answers that are kept: a node may need several, one after the other."""
MAX_WAITING = 1000
"""Beyond so many, values are left to be asked for again."""
SECONDS = 300.0
STORAGE_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
DELIVERY_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 1.0)
CRASHES = 3

Advance = Callable[[str], Awaitable[bool]]
"""Advances one job in a transaction of its own; False when somebody holds it, or it is not there yet."""


Make = Callable[[], Awaitable[Rendered]]


class MakerDied(Exception):
    """The process that makes a value ended without an answer."""


@dataclass(slots=True)
class PayloadDesk:
    """What is asked for, by key, and what is answered."""

    store: PayloadStore
    answers: OrderedDict[str, Rendered] = field(default_factory=OrderedDict)
    """Handed to every evaluation. Failures stay only until their job was advanced with them: they may pass."""
    advance: Advance | None = None
    """Set by the composition root, since whoever advances asks here."""
    perform: Callable[[Chore], Awaitable[Rendered]] | None = None
    """Does a chore; set likewise."""
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _turns: dict[str, asyncio.Semaphore] = field(
        default_factory=lambda: {pace: asyncio.Semaphore(number) for pace, number in AT_A_TIME.items()}
    )

    def want(self, job_id: str, needs: Iterable[Rendering]) -> None:
        """See to it that these values are made and that the job hears of it; returns at once."""
        for wanted in needs:
            facts = {"job_id": job_id, "path": wanted.path, "read_bytes": wanted.size_bytes}
            pace = "slow" if _is_apart(wanted) else "quick"
            self._start(wanted.key, facts, partial(self._make_patiently, wanted), pace)

    def want_done(self, chores: Iterable[Chore]) -> None:
        """See to it that these chores are done and that their jobs hear of it; returns at once."""
        for chore in chores:
            if self.perform is None:
                raise RuntimeError("nobody said how chores are done")
            facts = {"job_id": chore.job_id, "path": chore.key}
            self._start(chore.key, facts, partial(self.perform, chore), "slow")

    def _start(self, key: str, facts: Mapping[str, Any], make: Make, pace: str) -> None:
        if key not in self._tasks and len(self._tasks) < MAX_WAITING:
            self._tasks[key] = task = asyncio.create_task(self._serve(key, facts, make, pace), name=facts["path"])
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def settled(self) -> None:
        """Wait until nothing is asked for."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop making values; whoever takes the jobs over asks again."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, key: str, facts: Mapping[str, Any], make: Make, pace: str) -> None:
        started = time.monotonic()
        try:
            async with self._turns[pace]:
                answer = await make()
            self._remember(key, answer)
            failure = answer.error.code if answer.error else None
            log.info("value made", extra={**facts, "seconds": round(time.monotonic() - started, 3), "error": failure})
            await self._deliver(facts["job_id"])
        except (StorageUnavailable, DatabaseUnavailable) as error:
            log.warning("value not made yet", extra={**facts, "reason": str(error)})
        except Exception:
            log.exception("value not made", extra=facts)
        finally:
            if (known := self.answers.get(key)) is not None and known.error is not None:
                self._forget(key)

    def _remember(self, key: str, answer: Rendered) -> None:
        """Keep an answer, and forget the oldest ones beyond what may be kept."""
        self.answers[key] = answer
        self._sizes[key] = len(ANSWER.dump_json(answer))
        while sum(self._sizes.values()) > REMEMBERED_BYTES and len(self.answers) > 1:
            self._forget(next(iter(self.answers)))

    def _forget(self, key: str) -> None:
        self.answers.pop(key, None)
        self._sizes.pop(key, None)

    async def _deliver(self, job_id: str) -> None:
        """Advance the job with the answer, again while somebody holds it or its creation is not committed yet."""
        if self.advance is None:
            raise RuntimeError("nobody said how jobs are advanced")
        for pause in DELIVERY_PAUSES:
            await asyncio.sleep(pause)
            try:
                if await self.advance(job_id):
                    return
            except DatabaseUnavailable as error:
                log.warning("value not delivered yet", extra={"job_id": job_id, "reason": str(error)})

    async def _make_patiently(self, wanted: Rendering) -> Rendered:
        """Make a value, through outages of the storage; a process that dies every time is the value's fault."""
        crashes = 0
        for pause in (*STORAGE_PAUSES, None):
            try:
                return await self.make(wanted)
            except StorageUnavailable:
                if pause is None:
                    raise
            except MakerDied as death:
                crashes += 1
                log.error(
                    "value maker died", extra={"job_id": wanted.job_id, "path": wanted.path, "reason": str(death)}
                )
                if crashes == CRASHES:
                    message = f"{wanted.path} cannot be made from {wanted.size_bytes} bytes of stored values: {death}"
                    return Rendered(error=ErrorDetail(code="INTERNAL", message=message))
            await asyncio.sleep(pause or 0.0)
        raise MakerDied("no try was left")

    async def make(self, wanted: Rendering) -> Rendered:
        """Return the value of a rendering with everything large in it stored; what is wrong with it is in the answer.

        Raises:
            StorageUnavailable: Try again.
            MakerDied: The process for it ended without an answer.
        """
        try:
            if _is_apart(wanted):
                return await self._make_apart(wanted)
            return await self._make_here(wanted)
        except PayloadLost as lost:
            return Rendered(error=lost.detail)

    async def _make_here(self, wanted: Rendering) -> Rendered:
        read = {one.ref.blob: await self.store.get(one.ref) for one in wanted.large}
        prefix, kept = value_prefix(wanted.job_id), dict[str, bytes]()

        def keep(data: bytes) -> PayloadRef:
            ref = ref_to(prefix, data)
            kept[ref.blob] = data
            return ref

        answer = await asyncio.to_thread(perform, wanted, lambda ref: decode(ref, read[ref.blob]), keep)
        for data in kept.values():
            await self.store.put(prefix, data)
        return answer

    async def _make_apart(self, wanted: Rendering) -> Rendered:
        with tempfile.TemporaryDirectory(prefix="geodag-value-", ignore_cleanup_errors=True) as folder:
            staged = [str(await self.store.stage(one.ref, Path(folder))) for one in wanted.large]
            answer = await _ask_process(Order(rendering=wanted, files=tuple(staged), folder=folder))
            for ref in (*answer.refs.values(), *((answer.ref,) if answer.ref else ())):
                await self.store.put_file(ref, Path(folder) / Path(ref.blob).name)
            return answer


def _is_apart(wanted: Rendering) -> bool:
    return wanted.size_bytes > APART_BYTES


async def _ask_process(order: Order) -> Rendered:
    """Run `services.render_child` with nothing of this process's environment, so that it holds no secret."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-m",
        "services.render_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, complaint = await process.communicate(order.model_dump_json().encode())
    except TimeoutError as error:
        raise MakerDied(f"it was not done in {SECONDS:g} seconds") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        log.error("value maker complained", extra={"stderr": complaint[-2000:].decode(errors="replace")})
        raise MakerDied(f"its process ended with exit status {process.returncode}")
    return _read(said)


def _read(said: bytes) -> Rendered:
    try:
        return ANSWER.validate_json(said)
    except ValidationError as error:
        raise MakerDied("its answer cannot be read") from error
