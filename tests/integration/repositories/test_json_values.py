"""What `as_stored` says of numbers is what PostgreSQL makes of them, whoever wrote them."""

import json
import math
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import AsyncConnection
from pydantic_core import to_json

from core.dag.json_values import as_stored
from core.json_text import read_json

EDGES = (0.0, -0.0, 1e15, 9999999999999998.0, 1e16, -1e16, 1e22, 1e23, 5e-324, 1.7976931348623157e308, 2.0, 0.1, 1e-7)


def floats() -> list[float]:
    """Return floats of all sizes, whole ones of more digits than they hold among them."""
    draw = random.Random(11)
    any_bits = (struct.unpack("<d", draw.randbytes(8))[0] for _ in range(2000))
    whole = (float(draw.getrandbits(draw.randrange(1, 200))) for _ in range(500))
    return [*EDGES, *filter(math.isfinite, any_bits), *whole]


@pytest.mark.parametrize("write", [to_json, lambda value: json.dumps(value).encode()], ids=["pydantic", "json"])
async def test_numbers_come_back_as_they_were_taken(conn: AsyncConnection[Any], write: Callable[[Any], bytes]) -> None:
    values = floats()
    for sent in (values, as_stored(values, "x")):
        cursor = await conn.execute("SELECT (%s::jsonb)::text", (write(sent).decode(),))
        row = await cursor.fetchone()
        assert row is not None
        assert repr(read_json(row[0].encode())) == repr(as_stored(values, "x"))
