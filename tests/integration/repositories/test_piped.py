"""Connections whose transactions send their statements together, on a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, scalar_row
from pydantic import BaseModel

from core.models.table import Table
from core.statuses import AttemptState
from repositories.documents import row_of, send
from repositories.engine_pool import PREPARE_THRESHOLD
from repositories.piped import PipedConnection
from services.work import after_commit
from tests.support.databases import Database
from tests.support.waiting import await_until


class Pair(BaseModel):
    """A row."""

    number: int
    text: str | None


class Note(Table):
    """A row of a table."""

    number: int
    state: AttemptState | None = None
    data: list[str] | None = None


NOTE = "SELECT %s::int AS number, %s::text AS state, %s::jsonb AS data"
PAIR = "SELECT %s::int AS number, %s::text AS text"


@pytest.fixture(params=[None, PREPARE_THRESHOLD], ids=["as text", "prepared"])
async def conn(database: Database, request: pytest.FixtureRequest) -> AsyncIterator[PipedConnection]:
    """Return a connection, behind a transaction pooler or not."""
    async with await PipedConnection.connect(database.conninfo(), prepare_threshold=request.param) as connection:
        yield connection


async def scalar(conn: PipedConnection, statement: str) -> object:
    """Return one value by a transaction of its own."""
    async with conn.piped():
        cursor = conn.cursor(row_factory=scalar_row)
        await cursor.execute(statement)
        return await cursor.fetchone()


async def test_rows_come_in_the_order_of_the_statements_whoever_asks_first(conn: PipedConnection) -> None:
    async with conn.piped():
        cursors = [conn.cursor(row_factory=class_row(Pair)) for _ in range(3)]
        for number, cursor in enumerate(cursors):
            await cursor.execute(PAIR, (number, None if number == 1 else str(number)))
        last, first = await cursors[2].fetchall(), await cursors[0].fetchone()
        assert (first, await cursors[1].fetchall(), last) == (
            Pair(number=0, text="0"),
            [Pair(number=1, text=None)],
            [Pair(number=2, text="2")],
        )


async def test_a_statement_takes_parameters_by_name_and_of_other_types_the_next_time(conn: PipedConnection) -> None:
    for value in (1, 2**40, 2**70, "text", None):
        async with conn.piped():
            cursor = await conn.execute("SELECT %(one)s::text || %(two)s, %(one)s", {"one": value, "two": "%"})
            assert (await cursor.fetchone() or ())[0] == (None if value is None else f"{value}%")


async def test_rows_of_tables_are_read_without_a_cursor_in_any_order_beside_others(conn: PipedConnection) -> None:
    for number in (1, 2):
        async with conn.piped():
            first = await send(conn, row_of(Note), NOTE, (number, "leased", '["\\"", "{"]'))
            none = await send(conn, row_of(Note), f"{NOTE} WHERE false", (number, None, None))
            other = await conn.execute("SELECT %s::int", (number,))
            last = await send(conn, row_of(Note), NOTE, (number, None, None))
            assert await last.rows() == [Note(number=number)]
            assert await first.rows() == [Note(number=number, state=AttemptState.LEASED, data=['"', "{"])]
            assert (await none.rows(), await other.fetchone()) == ([], (number,))


async def test_json_is_read_however_deep_it_is(conn: PipedConnection) -> None:
    for depth in (1, 100, 500):
        async with conn.piped():
            found = await conn.execute("SELECT %s::jsonb, %s::json", ("[" * depth + "]" * depth, '{"a": 1e400}'))
            value, other = await found.fetchone() or ([], {})
        for _ in range(depth - 1):
            (value,) = value
        assert (value, other) == ([], {"a": float("inf")})


async def test_no_row_is_none_and_whoever_wants_rows_of_his_own_has_them(conn: PipedConnection) -> None:
    async with conn.piped():
        assert await (await conn.execute("SELECT 1 WHERE false")).fetchone() is None
        conn.row_factory = scalar_row
        assert await (await conn.execute("SELECT 7")).fetchone() == 7


async def test_a_column_that_a_table_has_got_since_is_a_column_of_its_rows(conn: PipedConnection) -> None:
    table, statement = row_of(Note), "SELECT * FROM seen AS s(number)"
    for columns in ("1 AS number", "1 AS number, 'queued' AS state"):
        async with conn.piped():
            await conn.execute(f"CREATE TEMPORARY TABLE seen AS SELECT {columns}")
            rows = await (await send(conn, table, statement)).rows()
            await conn.execute("DROP TABLE seen")
        conn.names.clear()
    assert rows == [Note(number=1, state=AttemptState.QUEUED)]


@pytest.mark.parametrize("seen", [True, False])
async def test_rows_of_a_table_behind_a_failure_are_an_error(conn: PipedConnection, seen: bool) -> None:
    async def fail() -> None:
        async with conn.piped():
            failing = await conn.execute("SELECT 1 / 0")
            after = await send(conn, row_of(Note), NOTE, (1, None, None))
            if seen:
                with pytest.raises(errors.DivisionByZero):
                    await failing.fetchall()
            await after.rows()

    with pytest.raises(errors.InFailedSqlTransaction if seen else errors.DivisionByZero):
        await fail()
    assert await scalar(conn, "SELECT 7") == 7


async def test_what_is_written_is_committed_at_the_end(conn: PipedConnection, database: Database) -> None:
    async with conn.piped():
        await conn.execute("CREATE TEMPORARY TABLE seen (number int)")
        await conn.execute("INSERT INTO seen VALUES (1)")
    assert conn.info.transaction_status is TransactionStatus.IDLE
    assert await scalar(conn, "SELECT count(*) FROM seen") == 1


@pytest.mark.parametrize("asks", [True, False])
async def test_the_error_of_a_statement_ends_the_transaction_and_keeps_the_connection(
    conn: PipedConnection, asks: bool
) -> None:
    await conn.execute("CREATE TEMPORARY TABLE seen (number int)")
    await conn.commit()

    async def fail() -> None:
        async with conn.piped():
            await conn.execute("INSERT INTO seen VALUES (1)")
            await conn.execute("SELECT 1 / 0")
            after = await conn.execute("INSERT INTO seen VALUES (2) RETURNING number")
            if asks:
                await after.fetchall()

    with pytest.raises(errors.DivisionByZero):
        await fail()
    assert conn.info.transaction_status is TransactionStatus.IDLE
    assert await scalar(conn, "SELECT count(*) FROM seen") == 0


async def test_a_statement_that_cannot_be_prepared_fails_each_time_and_nothing_else_does(conn: PipedConnection) -> None:

    async def fail() -> None:
        async with conn.piped():
            await conn.execute("SELECT FROM no_such_table")

    for _ in range(2):
        with pytest.raises(errors.UndefinedTable):
            await fail()
        assert await scalar(conn, "SELECT 7") == 7


@pytest.mark.parametrize("asks", [True, False])
async def test_what_failed_beside_new_statements_never_confuses_later_ones(conn: PipedConnection, asks: bool) -> None:
    async def fail(number: int) -> None:
        async with conn.piped():
            await conn.execute(f"SELECT {number}, 'before'")
            await conn.execute(f"SELECT {number} / 0")
            after = await conn.execute(f"SELECT {number}, 'after'")
            if asks:
                await after.fetchall()
            raise ValueError

    for number in range(5):
        with pytest.raises((errors.DivisionByZero, ValueError)):
            await fail(number)
        for text in ("after", "before"):
            async with conn.piped():
                cursor = await conn.execute(f"SELECT {number}, '{text}'")
                assert await cursor.fetchall() == [(number, text)]


async def test_a_rollback_of_an_ordinary_transaction_leaves_what_is_prepared(conn: PipedConnection) -> None:
    for _ in range(3):
        assert await scalar(conn, "SELECT 7") == 7
        for _ in range(3):
            await (await conn.execute("SELECT 8")).fetchall()
        await conn.rollback()


async def test_a_failure_that_the_block_passes_over_is_not_taken_for_a_commit(conn: PipedConnection) -> None:
    async def pass_over() -> None:
        async with conn.piped():
            with contextlib.suppress(errors.DivisionByZero):
                await (await conn.execute("SELECT 1 / 0")).fetchall()

    with pytest.raises(errors.InFailedSqlTransaction):
        await pass_over()
    assert await scalar(conn, "SELECT 7") == 7


async def test_an_error_of_the_block_rolls_back(conn: PipedConnection) -> None:
    await conn.execute("CREATE TEMPORARY TABLE seen (number int)")
    await conn.commit()

    async def fail() -> None:
        async with conn.piped():
            await conn.execute("INSERT INTO seen VALUES (1)")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await fail()
    assert await scalar(conn, "SELECT count(*) FROM seen") == 0


async def test_a_cancelled_block_gives_up_the_connection_and_its_locks(
    conn: PipedConnection, database: Database
) -> None:
    async with await psycopg.AsyncConnection.connect(database.conninfo(), autocommit=True) as other:

        async def is_free() -> bool:
            cursor = await other.execute("SELECT pg_try_advisory_lock(5)")
            return bool((await cursor.fetchone() or (False,))[0])

        holds = asyncio.Event()

        async def hold() -> None:
            async with conn.piped():
                await (await conn.execute("SELECT pg_advisory_xact_lock(5)")).fetchall()
                holds.set()
                await (await conn.execute("SELECT pg_sleep(1)")).fetchall()

        holding = asyncio.create_task(hold())
        await holds.wait()
        assert not await is_free()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert conn.closed
        await await_until(is_free, "the lock given up", timeout_seconds=10)


async def test_a_lost_server_is_an_operational_error(conn: PipedConnection, database: Database) -> None:
    async def lose() -> None:
        async with conn.piped():
            cursor = await conn.execute("SELECT pg_backend_pid()")
            pid = (await cursor.fetchone() or (0,))[0]
            async with await psycopg.AsyncConnection.connect(database.conninfo(), autocommit=True) as other:
                await other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            await (await conn.execute("SELECT 1")).fetchall()

    with pytest.raises(psycopg.OperationalError):
        await lose()
    assert conn.closed


async def test_a_server_lost_after_its_last_answer_is_an_operational_error(
    conn: PipedConnection, database: Database
) -> None:
    """Its farewell is one answer more than there were statements."""

    async def lose() -> None:
        async with conn.piped():
            cursor = await conn.execute("SELECT 1")
            conn.pgconn.send_flush_request()
            conn.pgconn.flush()
            async with await psycopg.AsyncConnection.connect(database.conninfo(), autocommit=True) as other:
                ended = await other.execute("SELECT pg_terminate_backend(%s, 10000)", (conn.info.backend_pid,))
                assert await ended.fetchone() == (True,)
            await cursor.fetchall()

    with pytest.raises(psycopg.OperationalError):
        await lose()
    assert conn.closed


async def test_statements_and_answers_larger_than_any_buffer_pass_both_ways(conn: PipedConnection) -> None:
    large = "x" * 8_000_000
    async with conn.piped():
        cursors = [await conn.execute("SELECT %s::text", (large,)) for _ in range(3)]
        assert [len((await cursor.fetchone() or ("",))[0]) for cursor in cursors] == [len(large)] * 3


async def test_outside_a_pipe_the_connection_is_psycopgs(conn: PipedConnection) -> None:
    async with conn.transaction():
        cursor = await conn.execute("SELECT %s::int", (3,))
        assert await cursor.fetchone() == (3,)


async def test_the_server_works_on_what_was_hurried_while_nobody_asks(
    conn: PipedConnection, database: Database
) -> None:
    async with await psycopg.AsyncConnection.connect(database.conninfo(), autocommit=True) as other:

        async def is_held() -> bool:
            held = await other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711")
            return await held.fetchone() == (1,)

        async with conn.piped():
            await conn.execute("SELECT pg_advisory_xact_lock(4711)")
            assert conn.pipe is not None
            conn.pipe.hurry()
            await await_until(is_held, "the server begins")
            assert await (await send(conn, scalar_row, "SELECT 1")).rows() == [1]
        assert not await is_held()


async def test_what_does_not_fit_the_line_is_hurried_in_part_and_comes_whole(conn: PipedConnection) -> None:
    async with conn.piped():
        sent = await send(conn, scalar_row, "SELECT length(%s::text)", ["x" * (16 << 20)])
        assert conn.pipe is not None
        conn.pipe.hurry()
        assert await sent.rows() == [16 << 20]


async def test_what_is_left_for_after_the_commit_is_done_then_and_once(conn: PipedConnection) -> None:
    done: list[object] = []
    async with conn.piped():
        after_commit(conn, lambda: done.append(conn.pgconn.transaction_status))
        await conn.execute("SELECT 1")
        assert done == []
    assert done == [TransactionStatus.IDLE]
    assert await scalar(conn, "SELECT 2") == 2
    after_commit(conn, lambda: done.append("at once"))
    assert done == [TransactionStatus.IDLE, "at once"]


LATE = "CREATE TEMP TABLE t (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)", "INSERT INTO t VALUES (1), (1)"


@pytest.mark.parametrize("statements", [("SELECT 1 / 0",), LATE], ids=["a statement fails", "the commit fails"])
async def test_nothing_is_done_after_a_transaction_that_did_not_commit(
    conn: PipedConnection, statements: tuple[str, ...]
) -> None:
    """Nor by the next transaction of the connection."""
    done: list[str] = []

    async def fail() -> None:
        async with conn.piped():
            after_commit(conn, lambda: done.append("never"))
            for statement in statements:
                await conn.execute(statement)

    with pytest.raises(errors.Error):
        await fail()
    assert await scalar(conn, "SELECT 2") == 2
    assert done == []


async def test_what_fails_after_the_commit_undoes_nothing_and_keeps_nobody(
    conn: PipedConnection, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def fail() -> None:
        raise RuntimeError("a defect")

    async with conn.piped():
        after_commit(conn, fail)
        after_commit(conn, lambda: done.append("next"))
        await conn.execute("CREATE TEMP TABLE kept ()")
    assert done == ["next"]
    assert "not done after the commit" in caplog.text
    assert await scalar(conn, "SELECT to_regclass('kept')::text") == "kept"


async def test_answers_of_a_part_are_there_while_the_server_is_busy_with_the_next(
    conn: PipedConnection, database: Database
) -> None:
    async with await psycopg.AsyncConnection.connect(database.conninfo()) as other, conn.piped():
        await other.execute("SELECT pg_advisory_xact_lock(7)")
        first = await send(conn, row_of(Note), NOTE, (1, None, None))
        assert conn.pipe is not None
        conn.pipe.part()
        second = await send(conn, row_of(Note), f"{NOTE} FROM pg_advisory_xact_lock(7)", (2, None, None))
        third = conn.cursor(row_factory=scalar_row)
        await third.execute("SELECT 3")
        assert await first.rows() == [Note(number=1)]
        await other.commit()
        assert (await third.fetchone(), await second.rows()) == (3, [Note(number=2)])
    assert await scalar(conn, "SELECT 4") == 4


@pytest.mark.parametrize("failing", [0, 1], ids=["the first part", "the second part"])
async def test_a_part_that_fails_undoes_the_transaction_whoever_asks(conn: PipedConnection, failing: int) -> None:
    async def divide() -> None:
        async with conn.piped():
            await conn.execute("INSERT INTO kept VALUES (1)")
            await conn.execute("SELECT 1 / %s::int", (failing,))
            assert conn.pipe is not None
            conn.pipe.part()
            await (await conn.execute("SELECT 1 / %s::int", (1 - failing,))).fetchall()

    await conn.execute("CREATE TEMPORARY TABLE kept (number int)")
    await conn.commit()
    with pytest.raises(errors.DivisionByZero):
        await divide()
    assert await scalar(conn, "SELECT count(*) FROM kept") == 0


async def test_a_commit_reads_what_parts_have_left(conn: PipedConnection) -> None:
    async with conn.piped():
        await conn.execute("CREATE TEMPORARY TABLE kept AS SELECT 5 AS number")
        assert conn.pipe is not None
        conn.pipe.part()
        await conn.execute("UPDATE kept SET number = 6")
    assert await scalar(conn, "SELECT number FROM kept") == 6
