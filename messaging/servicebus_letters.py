"""What Service Bus has set aside of a queue, brought to the table that the desk of dead letters empties."""

import json
from typing import Any, Final

from messaging.servicebus import QueueReader, Received
from messaging.tireless import for_ever
from repositories.database import AsyncPool, transaction
from repositories.dead_letters import DeadLetterRepository

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
        """Carry what is there and return how many letters."""
        letters = await self._reader.receive(MAX_LETTERS, wait_seconds)
        for one in letters:
            try:
                async with transaction(self._pool) as conn:
                    await DeadLetterRepository(conn).bring(_row(one, self._queue))
            except BaseException:
                await self._reader.abandon(one)
                raise
            await self._reader.complete([one])
        return len(letters)

    async def close(self) -> None:
        """Give back what was not carried."""
        await self._reader.close()


def _row(letter: Received, queue: str) -> dict[str, Any]:
    raw, task_id = letter.raw, letter.message_id.rpartition(".")[0]
    return {
        "message_id": letter.message_id or f"#{raw.sequence_number}",
        "queue": queue,
        "task_id": (task_id or letter.message_id)[:160],
        "body": _body(letter),
        "reason": raw.dead_letter_reason or raw.dead_letter_error_description or NO_REASON,
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
        text = data.decode()
        if "\\u0000" in text:
            raise ValueError("PostgreSQL stores no U+0000")
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"unreadable": f"{len(data)} bytes"}


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
