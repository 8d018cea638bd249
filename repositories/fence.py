"""The worker's fence: hold the attempt, then change something in place, in one transaction (architecture §3.10)."""

from typing import Any

from psycopg import AsyncConnection, errors

from core.errors import GeodagError

UNKNOWN = "GD001"
NOT_LEASED = "GD002"


class FenceLost(GeodagError):
    """The attempt is not (or no longer) leased under this token: what it was about to change must stay as it is."""

    code = "FENCE_LOST"


async def hold(conn: AsyncConnection[Any], task_id: str, token: str) -> None:
    """Lock the attempt FOR SHARE until the transaction ends, so that nobody can revoke or expire it meanwhile.

    Heartbeats of the attempt wait for that transaction too: keep it short.

    Raises:
        FenceLost: The attempt is unknown, the token is another's, or it is not leased.
    """
    try:
        await conn.execute("SELECT fence.hold(%s, %s)", (task_id, token))
    except errors.DatabaseError as error:
        if error.sqlstate not in (UNKNOWN, NOT_LEASED):
            raise
        raise FenceLost(f"{task_id}: {error.diag.message_primary}", value=task_id) from error
