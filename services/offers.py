"""Workers that wait at this instance for tasks: whoever makes some here leases them at once, with no message (ADR 10).

An offer is only memory. While a transaction may fill it, it is lent to that transaction alone; when nothing of it was
used, or the transaction failed, it waits again. One whose worker has gone is never lent; one that was filled in the
same moment is a lost answer, which costs a lease.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from core.wire import ExchangeRequest, Grant
from repositories.database import AsyncPool
from services.rooms import Lent, Room, RoomService
from services.work import Connection, pipelined


@dataclass(eq=False, slots=True)
class Offer:
    """One waiting worker."""

    request: ExchangeRequest
    granted: asyncio.Future[Sequence[Grant]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    lent: bool = False
    over: bool = False
    """Its worker has gone, or waits no longer."""


class Offers:
    """All workers that wait at this instance."""

    def __init__(self, rooms: RoomService) -> None:
        self._rooms = rooms
        self._waiting: list[Offer] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, request: ExchangeRequest) -> Offer:
        """Let a worker wait."""
        offer = Offer(request)
        self._waiting.append(offer)
        return offer

    def close(self, offer: Offer) -> None:
        """Let a worker wait no longer; one whose offer is lent still hears what comes of that."""
        offer.over = True
        if not offer.lent:
            self._end(offer, ())

    def close_all(self) -> None:
        """Let everybody go: this instance is about to end."""
        for offer in list(self._waiting):
            self.close(offer)

    @asynccontextmanager
    async def transaction(self, pool: AsyncPool) -> AsyncIterator[tuple[Connection, Lent]]:
        """Lend a connection as `pipelined` does, and with it the room of all who wait; they hear when it committed."""
        with self._lent() as rooms:
            async with pipelined(pool) as conn:
                yield conn, await self._rooms.lend(conn, rooms)

    @contextmanager
    def _lent(self) -> Iterator[Sequence[Room]]:
        rooms: list[tuple[Offer, Room]] = []
        for offer in self._waiting:
            if not offer.lent and (room := self._rooms.room(offer.request)) is not None:
                offer.lent = True
                rooms.append((offer, room))
        done = False
        try:
            yield [room for _, room in rooms]
            done = True
        finally:
            for offer, room in rooms:
                offer.lent = False
                if done:
                    room.commit()
                if grants := room.granted():
                    self._end(offer, grants)
                elif offer.over:
                    self._end(offer, ())

    def _end(self, offer: Offer, grants: Sequence[Grant]) -> None:
        if offer in self._waiting:
            self._waiting.remove(offer)
        if not offer.granted.done():
            offer.granted.set_result(tuple(grants))
