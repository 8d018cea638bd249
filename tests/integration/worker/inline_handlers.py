"""Inline handlers of tests."""

import asyncio
from typing import Any

from core.errors import Finding
from handlers.context import InlineContext, Outcome


async def stubborn(ctx: InlineContext, params: Any) -> Outcome:
    """Hang without ever looking at the context."""
    await asyncio.Event().wait()
    return Outcome({})


async def write(ctx: InlineContext, params: Any) -> Outcome:
    """Say as whom the fenced transaction runs."""
    async with ctx.transaction() as conn:
        row = await (await conn.execute("SELECT current_user")).fetchone()
    return Outcome({"user": row[0]})


async def answer(ctx: InlineContext, params: Any) -> Outcome:
    """Return what JSON has no word for."""
    values = {"nan": float("nan"), "inf": float("inf"), "nul": "a\0b", "huge": 2**5000, "set": {1}}
    return Outcome({"mean": values[params.what]})


async def find(ctx: InlineContext, params: Any) -> Outcome:
    """Note something of which no JSON can be made."""
    return Outcome({}, findings=(Finding(code="ODD", level="info", message="odd", from_={1}),))


async def numbers(ctx: InlineContext, params: Any) -> Outcome:
    """Return text of which its contract makes a float."""
    return Outcome({"ratio": params.what})


async def cleanup(ctx: InlineContext, params: Any) -> Outcome:
    """Say of its own that it took too long, when it is told to stop."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise TimeoutError("a library ran out of time") from None
    return Outcome({})


LET_GO = asyncio.Event()


async def deaf(ctx: InlineContext, params: Any) -> Outcome:
    """Swallow every cancellation, as a broken handler might, until the test lets go."""
    while not LET_GO.is_set():
        try:
            await LET_GO.wait()
        except asyncio.CancelledError:
            continue
    return Outcome({})
