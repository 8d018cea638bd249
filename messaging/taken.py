"""What comes out of the embedded queue's tables."""

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.rows import TupleRow
from pydantic import ValidationError

from core.ports import Delivery
from core.wire import TaskMessage

_FAULTS: Final[Mapping[str, str]] = {"missing": "missing", "extra_forbidden": "unknown"}
"""What is wrong with a part of a body, by the type of its problem; of any other type it is wrong."""


def delivery_of(row: TupleRow) -> Delivery:
    """Return one row (message id, delivery count, body) as a delivery."""
    identifier, delivery_count, body = row
    try:
        message = TaskMessage.model_validate_json(body)
    except ValidationError as error:
        return Delivery(None, identifier, delivery_count - 1, None, unreadable(error))
    return Delivery(message, identifier, delivery_count - 1, None)


def unreadable(error: ValidationError) -> str:
    """Return why a body is no task message; never its content."""
    found: dict[str, set[str]] = {}
    for problem in error.errors():
        if not problem["loc"]:
            whole = "JSON" if problem["type"] == "json_invalid" else "an object"
            return f"not a task message: the body is not {whole}"
        place = ".".join(str(part) for part in problem["loc"])
        found.setdefault(_FAULTS.get(problem["type"], "wrong"), set()).add(place)
    told = (f"{fault} {', '.join(sorted(places))}" for fault, places in sorted(found.items()))
    return f"not a task message: {'; '.join(told)}"


class TakenMessages:
    """Rows that were asked for."""

    def __init__(self, cursor: psycopg.AsyncCursor[TupleRow]) -> None:
        self._cursor = cursor

    async def deliveries(self) -> list[Delivery]:
        """Wait for the rows and read them."""
        return [delivery_of(row) for row in await self._cursor.fetchall()]


class QueueNames:
    """Names of queues that were asked for."""

    def __init__(self, cursor: psycopg.AsyncCursor[TupleRow]) -> None:
        self._cursor = cursor

    async def names(self) -> set[str]:
        """Wait for them."""
        return {row[0] for row in await self._cursor.fetchall()}
