"""What Service Bus has set aside of a queue, brought to the table that the desk of dead letters empties."""

import json
import logging
from typing import Any, Final

from core.dag.json_values import NotJson, check_json
from core.errors import TransientError
from core.wording import readable
from messaging.servicebus import QueueReader, Received
from messaging.tireless import for_ever
from repositories.database import AsyncPool, transaction
from repositories.dead_letters import DeadLetterRepository

log = logging.getLogger(__name__)

MAX_LETTERS: Final = 20
RECEIVE_SECONDS: Final = 20.0
NO_REASON: Final = "set aside without a reason"


class LetterCarrier:
    """Inserts each letter, then completes it; one that comes again is there already."""

    def __init__(self, pool: AsyncPool, reader: QueueReader, queue: str) -> None:
        self._pool = pool
        self._reader = reader
        self._queue = queue

    async def run(self) -> None:
        """Carry until cancelled; never ends because of an error."""
        await for_ever(lambda: self.carry(RECEIVE_SECONDS), "dead letters not carried", {"queue": self._queue})

    async def carry(self, wait_seconds: float) -> int:
        """Carry what is there and return how many letters.

        Raises:
            TransientError: Some could not be carried, not even without their bodies, which held up none received with
                them; or the broker or the database is away.
        """
        letters = await self._reader.receive(MAX_LETTERS, wait_seconds)
        failed = 0
        for one in letters:
            try:
                await self._bring(one)
            except TransientError:
                raise
            except Exception:
                log.exception("dead letter not carried", extra={"queue": self._queue, "message_id": one.message_id})
                failed += 1
        if failed:
            raise TransientError(f"{failed} of {len(letters)} dead letters could not be carried")
        return len(letters)

    async def _bring(self, letter: Received) -> None:
        """Carry a letter; one that cannot be as it is, without its body: what is given back comes first again."""
        try:
            try:
                await self._insert(_row(letter, self._queue, _body(letter)))
            except TransientError:
                raise
            except Exception as error:
                log.exception("dead letter unreadable", extra={"queue": self._queue, "message_id": letter.message_id})
                await self._insert(_row(letter, self._queue, {"unreadable": type(error).__name__}))
        except BaseException:
            await self._reader.abandon(letter)
            raise
        await self._reader.complete([letter])

    async def _insert(self, row: dict[str, Any]) -> None:
        async with transaction(self._pool) as conn:
            await DeadLetterRepository(conn).bring(row)

    async def close(self) -> None:
        """Give back what was not carried."""
        await self._reader.close()


def _row(letter: Received, queue: str, body: Any) -> dict[str, Any]:
    raw, message_id = letter.raw, readable(letter.message_id)
    task_id = message_id.rpartition(".")[0]
    return {
        "message_id": message_id or f"#{raw.sequence_number}",
        "queue": queue,
        "task_id": (task_id or message_id)[:160],
        "body": body,
        "reason": readable(raw.dead_letter_reason or raw.dead_letter_error_description or NO_REASON),
        "delivery_count": raw.delivery_count or 0,
        "enqueued_at": raw.enqueued_time_utc,
    }


def _body(letter: Received) -> Any:
    """Return the body as JSON that a table takes; of anything else only how much it is."""
    try:
        data = letter.body()
    except ValueError as error:
        return {"unreadable": str(error)}
    try:
        body = json.loads(data.decode())
        check_json(body, "body")
    except (ValueError, RecursionError, NotJson):
        return {"unreadable": f"{len(data)} bytes"}
    return body
