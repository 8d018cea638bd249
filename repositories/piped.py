"""A connection whose transactions send their statements together, at a fraction of what psycopg's pipeline costs.

Inside `piped()` a statement is only put on the wire; whoever asks for rows sends what is there, ends it with a Sync and
reads every answer. psycopg's own pipeline does the same with a generator per statement and took 1 ms of CPU for a
transaction of five statements; this takes a fifth of it (`bench/README.md`). Types, errors, rows and everything outside
`piped()` are psycopg's. Most statements are constant texts with plain values; those are made ready here, as psycopg
would, at a quarter of its cost; and JSON is read by pydantic's reader, at a fifth.

Each Sync leaves the server "idle in transaction", so a client that is stopped then loses its locks by the server's
`idle_in_transaction_session_timeout`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final, Generic, Self, TypeVar

from psycopg import AsyncConnection, AsyncCursor, abc, errors, pq
from psycopg._queries import PostgresQuery
from psycopg.abc import Params
from psycopg.adapt import Transformer
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads

from core.json_text import read_json
from repositories.plain_values import prepared

log = logging.getLogger(__name__)

MAX_PREPARED: Final = 300
"""Statements that one connection keeps prepared; what comes later is sent as text."""

_GOOD: Final = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY})
Key = tuple[bytes, tuple[int, ...]]
Row = TypeVar("Row")
Reader = Callable[[pq.abc.PGresult, abc.Transformer], list[Row]]
"""Makes rows of a result with its columns loaded by the transformer."""


def tuples(result: pq.abc.PGresult, transformer: abc.Transformer) -> list[tuple[Any, ...]]:
    """Return the rows of a result as they are."""
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


class PipedCursor(AsyncCursor[Any]):
    """A cursor that only sends while its connection is piped; its rows come with the answers."""

    async def execute(self, query: Any, params: Params | None = None, **how: Any) -> Self:
        """Send a statement; outside `piped()`, run it."""
        pipe = self._pipe
        if pipe is None:
            return await super().execute(query, params, **how)
        self._reset()
        self._tx = Transformer(self)
        pipe.send(query, params, self)
        return self

    @property
    def _pipe(self) -> "Pipe | None":
        connection = self._conn
        return connection.pipe if isinstance(connection, PipedConnection) else None

    async def _fetch_pipeline(self) -> None:
        """Psycopg calls this before it looks at rows."""
        if (pipe := self._pipe) is not None:
            await pipe.until(lambda: self.pgresult is not None)

    def answered(self, result: pq.abc.PGresult) -> None:
        """Take the result; of a statement that failed or did not run there is none."""
        if result.status in _GOOD:
            self._set_results([result])


class Answer(Generic[Row]):
    """Rows of a statement that was sent without a cursor."""

    def __init__(self, pipe: "Pipe", reader: Reader[Row]) -> None:
        self._pipe = pipe
        self._reader = reader
        self._result: pq.abc.PGresult | None = None

    def answered(self, result: pq.abc.PGresult) -> None:
        """Take the result; of a statement that failed or did not run there is none."""
        if result.status in _GOOD:
            self._result = result

    async def fetchall(self) -> list[Row]:
        """Return all rows, read when the first one asks."""
        await self._pipe.until(lambda: self._result is not None)
        if self._result is None:
            raise errors.InFailedSqlTransaction("a statement of the transaction had failed")
        return self._reader(self._result, self._pipe.transformer) if self._result.ntuples else []

    async def fetchone(self) -> Row | None:
        """Return the first row, None when there is none."""
        return next(iter(await self.fetchall()), None)


class PipedConnection(AsyncConnection[Any]):
    """A psycopg connection that can be piped."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.cursor_factory = PipedCursor
        self.pipe: Pipe | None = None
        self.after_commit: list[Callable[[], None]] = []
        """What the transaction of now leaves to be done once it has committed."""
        set_json_loads(read_json, self)
        self.transformer = Transformer(self)
        self.names: dict[Key, bytes] = {}
        """Statements that are prepared, by text and types of their parameters."""
        self.numbers = count()
        """A name is never used again: the statement may be there although its answer was not read."""

    @property
    def plain_pipe(self) -> "Pipe | None":
        """Return the pipe when rows need no cursor; whoever put cursors of his own on the connection has them."""
        return self.pipe if self.cursor_factory is PipedCursor else None

    async def execute(self, query: Any, params: Params | None = None, **how: Any) -> Any:
        """Run a statement; inside `piped()` send it: then only `fetchall` and `fetchone` are there, of plain rows."""
        if (pipe := self.plain_pipe) is None or self.row_factory is not tuple_row:
            return await super().execute(query, params, **how)
        return pipe.ask(query, params, tuples)

    @asynccontextmanager
    async def piped(self) -> AsyncIterator[None]:
        """Run the block in one transaction; the commit travels with the last statements.

        An error rolls back; a cancelled block gives up the connection: the server ends the transaction after the
        statement that it is at. Then nothing of `after_commit` is done.
        """
        self.pgconn.enter_pipeline_mode()
        self.pipe = Pipe(self)
        self.after_commit = []
        try:
            self.pipe.send("BEGIN")
            yield
            await self.pipe.commit()
        except Exception:
            await self.pipe.roll_back()
            raise
        except BaseException:
            self.pgconn.finish()
            raise
        finally:
            self.pipe = None
            if self.pgconn.status == pq.ConnStatus.OK:
                self.pgconn.exit_pipeline_mode()
        waiting, self.after_commit = self.after_commit, []
        for do in waiting:
            try:
                do()
            except Exception:  # what is committed may not look as if it had failed
                log.exception("not done after the commit")


class Pipe:
    """Statements on their way over one connection, in their order."""

    def __init__(self, connection: PipedConnection) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._names, self._numbers = connection.names, connection.numbers
        self._prepares = connection.prepare_threshold is not None
        self.transformer = connection.transformer
        """Loads the columns of answers, and knows how from one to the next."""
        self._takers: deque[Callable[[pq.abc.PGresult], None]] = deque()
        self._syncs = 0
        """Those that were sent and not read."""

    def ask(self, statement: Any, values: Params | None, reader: Reader[Row]) -> Answer[Row]:
        """Put a statement on the wire whose rows a reader makes: without a cursor, which costs more than sending."""
        answer = Answer(self, reader)
        self.send(statement, values, answer)
        return answer

    def send(
        self, statement: Any, values: Params | None = None, cursor: PipedCursor | Answer[Any] | None = None
    ) -> None:
        """Put a statement on the wire."""
        text, params, types, formats = prepared(statement, values) or self._converted(statement, values)
        name = self._name(text, types) if self._prepares else None
        if name is None:
            self._pgconn.send_query_params(text, params, types, formats)
        else:
            self._pgconn.send_query_prepared(name, params, formats)
        self._takers.append(_drop if cursor is None else cursor.answered)

    def _converted(self, statement: Any, values: Params | None) -> tuple[bytes, Any, tuple[int, ...], Any]:
        query = PostgresQuery(Transformer(self._connection))
        query.convert(statement, values)
        return query.query, query.params, query.types, query.formats

    def hurry(self) -> None:
        """Let the server begin with what is on the wire while the caller goes on; what it cannot take yet stays."""
        self._pgconn.flush()

    def part(self) -> None:
        """Let the answers so far be read while the server works on what is sent next."""
        self._sync()

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Read answers, part by part, until one is there or nothing more is to come.

        Raises:
            psycopg.Error: As `answers`.
        """
        while self._takers and not is_there():
            await self.answers()

    async def answers(self) -> None:
        """Send what is there and read the answers of the first part, of all when nobody made parts.

        Raises:
            psycopg.Error: Of the first statement that failed; those after it did not run.
        """
        if not self._takers:
            return
        failed: pq.abc.PGresult | None = None
        if not self._syncs:
            self._sync()
        await self._flush()
        while (result := await self._next()) is not None:
            if result.status not in _GOOD:
                failed = failed or result
            if self._takers:  # else it is the farewell of a server that answered all before
                self._takers.popleft()(result)
        if failed is not None:
            raise errors.error_from_result(failed, encoding=self._connection.info.encoding)

    async def commit(self) -> None:
        """Commit with the last statements.

        Raises:
            psycopg.Error: As `answers`, and when a failure before was passed over, so that nothing is committed.
        """
        done: list[pq.abc.PGresult] = []
        self._pgconn.send_query_params(b"COMMIT", None)
        self._takers.append(done.append)
        await self.until(lambda: bool(done))
        if done[0].command_status != b"COMMIT":
            raise errors.InFailedSqlTransaction("a statement of the transaction had failed")

    async def roll_back(self) -> None:
        """End the transaction whatever state it is in; a connection that does not answer is given up."""
        try:
            await self._drain()
            self._pgconn.send_query_params(b"ROLLBACK", None)
            await self._drain()
        except errors.Error:
            self._pgconn.finish()
        except BaseException:
            self._pgconn.finish()
            raise

    def _name(self, text: bytes, types: tuple[int, ...]) -> bytes | None:
        """Return the name of a prepared statement, which is prepared on the way when it is new."""
        key = (text, types)
        name = self._names.get(key)
        if name is None and len(self._names) < MAX_PREPARED:
            name = self._names[key] = b"geodag_%d" % next(self._numbers)
            self._pgconn.send_prepare(name, text, types)
            self._takers.append(partial(self._prepared, key))
        return name

    def _prepared(self, key: Key, result: pq.abc.PGresult) -> None:
        if result.status not in _GOOD:
            self._names.pop(key, None)

    async def _drain(self) -> None:
        """Read every answer up to a new Sync; errors among them have been raised already, or nobody asks for them."""
        self._sync()
        await self._flush()
        while self._syncs:
            if (result := await self._next()) is not None and self._takers:
                self._takers.popleft()(result)
        self._takers.clear()

    def _sync(self) -> None:
        self._pgconn.pipeline_sync()
        self._syncs += 1

    async def _flush(self) -> None:
        """Send everything; meanwhile read, for a server that is busy answering takes nothing more."""
        while self._pgconn.flush():
            await _until(self._pgconn.socket, writable=True)
            self._pgconn.consume_input()

    async def _next(self) -> pq.abc.PGresult | None:
        """Return the next result, None for a Sync; the mark between two statements is passed over."""
        pgconn, marks = self._pgconn, 0
        while True:
            while pgconn.is_busy():
                await _until(pgconn.socket)
                pgconn.consume_input()
            if (result := pgconn.get_result()) is not None:
                if result.status != pq.ExecStatus.PIPELINE_SYNC:
                    return result
                self._syncs -= 1
                return None
            marks += 1
            if marks > 1:
                raise errors.InternalError("the server answered less than it was asked")


def _drop(result: pq.abc.PGresult) -> None:
    """Nobody looks at this result."""


async def _until(descriptor: int, *, writable: bool = False) -> None:
    """Wait once until a socket is readable, or writable too; no registration outlives the wait."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _set, ready)
    if writable:
        loop.add_writer(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
        if writable:
            loop.remove_writer(descriptor)


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
