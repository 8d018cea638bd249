"""The desk of an instance that does only what it is told, so that what is made beside jobs has its turn like others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import core.dag.fan_out
import core.dag.rendering
import repositories.fan_outs
import services.chores
import services.writing_fan_outs
from services.payload_desk import Make, PayloadDesk

SMALL: Final = (
    (core.dag.fan_out, "INLINE_BYTES", 1),
    (core.dag.rendering, "LINE_ITEMS", 2),
    (repositories.fan_outs, "CHUNK_ITEMS", 2),
    (services.writing_fan_outs, "CHUNK_ITEMS", 2),
    (services.chores, "LINES_BYTES", 1),
    (services.chores, "PAGE_ITEMS", 2),
    (services.chores, "LIMIT_BYTES", 40),
    (services.chores, "PAUSES", (0.0,)),
)
"""Few and small values go the ways of many and large ones, each page in a transaction of its own."""


@dataclass(slots=True)
class HandDesk(PayloadDesk):
    """The real desk; what is left here waits until somebody serves it, or for ever."""

    _asked: dict[str, partial[Any]] = field(default_factory=dict)

    def _start(self, key: str, facts: Mapping[str, Any], make: Make, pace: str) -> None:
        self._asked.setdefault(key, partial(self._serve, key, facts, make, pace))

    async def serve(self) -> None:
        """Make what is asked for, one after the other, and what their jobs ask for then."""
        while self._asked:
            await self.serve_one()

    async def serve_one(self) -> None:
        """Make what was asked for first."""
        await self._asked.pop(next(iter(self._asked)))()
