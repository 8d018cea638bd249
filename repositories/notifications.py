"""Wake-ups without payload, delivered when the transaction commits."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import scalar_row

from repositories.documents import Pending, send

UNOWNED_CHANNEL = "dag_unowned"
ENDED_CHANNEL = "dag_ended"


def owner_channel(owner_id: str) -> str:
    """Return the channel on which an owner hears of its inbox."""
    return f"dag_owner_{owner_id}"


def owner_channels(owner_ids: Iterable[str | None]) -> list[str]:
    """Return the channels on which these owners hear; None stands for whoever takes a job that nobody owns."""
    return [UNOWNED_CHANNEL if owner_id is None else owner_channel(owner_id) for owner_id in owner_ids]


async def notify(conn: AsyncConnection[Any], channels: Iterable[str]) -> None:
    """Wake whoever listens on these channels."""
    await conn.execute("SELECT pg_notify(channel, '') FROM unnest(%s::text[]) AS channel", (sorted(set(channels)),))


async def clock(conn: AsyncConnection[Any]) -> Pending[datetime]:
    """Return the one clock, read now: after the locks that the transaction took before."""
    return await send(conn, scalar_row, "SELECT dagapp.clock()")
