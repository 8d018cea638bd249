"""Every error is a problem document (RFC 9457) with a stable code."""

import io
from typing import Any
from urllib.parse import unquote

import pytest
from psycopg import AsyncConnection, conninfo, sql

from orchestrator.deps import MAX_BODY_BYTES
from tests.support.databases import Database
from tests.support.doors import Door
from tests.support.waiting import await_until

MEMBERS = {"type", "title", "status", "detail", "instance", "code", "classification", "error_id", "user_fixable"}


async def create(door: Door, body: Any = None, raw: Any = None) -> tuple[int, Any]:
    return await door.call("POST", "/api/v1/jobs", body=body, raw=raw, caller="operator", service="gateway")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_problem_has_all_its_members(standing: Door) -> None:
    code, body = await create(standing, {"workflow_id": "nope"})
    assert code == 404
    assert set(body) >= MEMBERS
    assert (body["code"], body["field"], body["value"]) == ("NOT_FOUND", "workflow_id", "nope")
    assert body["type"] == "urn:geodag:error:not_found"
    assert body["instance"] == "/api/v1/jobs"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "PARAMETER_MISSING", "workflow_id"),
        ({"workflow_id": "echo_test", "surprise": 1}, "PARAMETER_INVALID", "surprise"),
        ({"workflow_id": "echo_test", "inputs": {"message": 5}}, "PARAMETER_INVALID", "inputs.message"),
        ({"workflow_id": "echo_test", "inputs": {"nope": 5}}, "PARAMETER_INVALID", "inputs.nope"),
        ({"workflow_id": "echo_test", "priority": 11}, "PARAMETER_INVALID", "priority"),
        ({"workflow_id": "echo_test", "inputs": {"message": "a\x00b"}}, "PARAMETER_INVALID", "inputs.message"),
    ],
)
async def test_a_wrong_body_names_the_field(standing: Door, body: Any, code: str, field: str) -> None:
    status, answer = await create(standing, body)
    assert (status, answer["code"], answer["field"]) == (422, code, field)
    assert await standing.get("/api/v1/jobs") == {"jobs": [], "next_after": None}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b'{"workflow_id": NaN}'])
async def test_a_body_that_is_no_json_object_is_422(standing: Door, raw: bytes) -> None:
    status, answer = await create(standing, raw=raw)
    assert (status, answer["code"]) == (422, "PARAMETER_INVALID")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("jobs/any/nodes/g/gate", b'{"decision": "approved", "data": {"message": %s}}', "data.message"),
        ("jobs", b'{"workflow_id": "echo_test", "inputs": {"message": %s}}', "inputs.message"),
    ],
)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(b"9" * 5000, "PLACE is a whole number of 16610 bits, more than 4096", id="digits"),
        pytest.param(b"-" + b"9" * 2000, "PLACE is a whole number of 6644 bits, more than 4096", id="minus"),
        pytest.param(b"NaN", "PLACE is nan, which is not a JSON number", id="NaN"),
        pytest.param(b"-Infinity", "PLACE is -inf, which is not a JSON number", id="Infinity"),
        pytest.param(b"1e999", "PLACE is inf, which is not a JSON number", id="1e999"),
        pytest.param(b'"\\ud800"', "PLACE contains half of a surrogate pair", id="surrogate"),
        pytest.param(b"[" * 150 + b"]" * 150, "PLACE[0][0][0]", id="deep"),
        pytest.param(b"[" * 250 + b"]" * 250, "PLACE[0][0][0]", id="deeper"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, "body is nested deeper than 100 levels", id="deepest"),
        pytest.param(b"{", "body is not JSON: it breaks off at line 1, column", id="broken"),
        pytest.param(b'"\xff"', "body is not text in UTF-8", id="bytes"),
    ],
)
async def test_what_is_wrong_with_json_is_said_alike(
    standing: Door, path: str, body: bytes, place: str, value: bytes, said: str
) -> None:
    status, answer = await standing.call(
        "POST", f"/api/v1/{path}", raw=body % value, caller="operator", service="gateway"
    )
    assert (status, answer["code"]) == (422, "PARAMETER_INVALID")
    assert said.replace("PLACE", place) in answer["detail"]
    assert answer.get("field", "").startswith(place if "PLACE" in said else "")
    assert ("field" in answer) == ("PLACE" in said)
    assert len(answer["detail"]) < 120


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "raw", "key"),
    [
        ("jobs", b'{"workflow_id": "echo_test", "inputs": {"message": "a", "message": "b"}}', "message"),
        ("jobs/batch", b'{"jobs": [{"workflow_id": "echo_test", "workflow_id": "other"}]}', "workflow_id"),
        ("commands/cancel", b'{"dry_run": true, "dry_run": false, "filter": {"workflow_id": "w"}}', "dry_run"),
        ("jobs/any/cancel", b'{"reason": "a", "reason": "b"}', "reason"),
    ],
)
async def test_a_key_that_stands_twice_is_named(standing: Door, path: str, raw: bytes, key: str) -> None:
    status, answer = await standing.call("POST", f"/api/v1/{path}", raw=raw, caller="operator", service="gateway")
    assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", key)
    assert await standing.get("/api/v1/jobs") == {"jobs": [], "next_after": None}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_beyond_the_limit_is_413(standing: Door) -> None:
    status, answer = await create(standing, raw=io.BytesIO(b" " * (MAX_BODY_BYTES + 1)))
    assert (status, answer["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_path_is_404_and_a_wrong_method_405(standing: Door) -> None:
    status, answer = await standing.call("GET", "/api/v1/nowhere", caller="operator")
    assert (status, answer["code"]) == (404, "NOT_FOUND")
    status, answer = await standing.call("DELETE", "/api/v1/jobs", caller="operator", service="gateway")
    assert (status, answer["code"]) == (405, "METHOD_NOT_ALLOWED")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_query_names_the_parameter(standing: Door) -> None:
    status, answer = await standing.call("GET", "/api/v1/jobs?limit=0", caller="operator")
    assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", "limit")
    status, answer = await standing.call("GET", "/api/v1/jobs?status=NOPE", caller="operator")
    assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", "status")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", ["1_0", "5.0", "%2B5", "%205", "5%20", "", "x", "0x5", "%D9%A5", "1e1", "true"])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("jobs", "limit"),
        ("jobs/any/events", "after"),
        ("dead-letters", "before"),
        ("workflows/echo_test", "version"),
        ("audit", "version_ordinal"),
        ("stats", "hours"),
    ],
)
async def test_a_whole_number_has_one_way_to_be_written(standing: Door, path: str, name: str, text: str) -> None:
    status, answer = await standing.call("GET", f"/api/v1/{path}?{name}={text}", caller="operator")
    assert (status, answer["code"], answer["field"], answer["value"]) == (422, "PARAMETER_INVALID", name, unquote(text))
    assert answer["detail"] == f"{name}: expected a whole number"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", ["yes", "on", "1", "0", "True", "TRUE", "t", "%20true", ""])
async def test_a_boolean_is_true_or_false(standing: Door, text: str) -> None:
    status, answer = await standing.call("GET", f"/api/v1/dead-letters?settled={text}", caller="operator")
    assert (status, answer["field"], answer["value"]) == (422, "settled", unquote(text))
    assert answer["detail"] == "settled: expected true or false"
    for said in ("true", "false"):
        await standing.get(f"/api/v1/dead-letters?settled={said}&limit=5")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", ["1_0", "%2B5", "%205", "1e1", "nan", "inf", "-1", ".5"])
async def test_seconds_to_wait_are_digits(standing: Door, text: str) -> None:
    status, answer = await standing.call("GET", f"/api/v1/jobs/any?wait={text}", caller="operator")
    assert (status, answer["field"], answer["value"]) == (422, "wait", unquote(text))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_number_in_a_path_has_one_way_to_be_written(standing: Door) -> None:
    path = "/api/v1/dead-letters/1_0/discard"
    status, answer = await standing.call("POST", path, caller="operator", service="gateway")
    assert (status, answer["field"], answer["value"]) == (422, "dead_letter_id", "1_0")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_number_with_very_many_digits_is_out_of_range(standing: Door) -> None:
    status, answer = await standing.call("GET", f"/api/v1/jobs?limit={'9' * 5000}", caller="operator")
    assert (status, answer["detail"]) == (422, "limit: a whole number with too many digits")


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_job_is_404(standing: Door) -> None:
    for what in ("", "/nodes", "/events", "?wait=5"):
        status, answer = await standing.call("GET", f"/api/v1/jobs/nope{what}", caller="operator")
        assert (status, answer["code"], answer["value"]) == (404, "NOT_FOUND", "nope")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "path", ["/api/v1/jobs/%00", "/api/v1/jobs/a%00b/nodes", "/api/v1/jobs/%00/events", "/api/v1/workflows/%00"]
)
async def test_a_nul_in_a_path_names_nothing(standing: Door, path: str) -> None:
    status, answer = await standing.call("GET", path, caller="operator")
    assert (status, answer["code"]) == (404, "NOT_FOUND")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("field", ["worker_id", "queue", "host", "build_id"])
async def test_a_nul_in_what_a_worker_says_of_itself_is_422(standing: Door, field: str) -> None:
    worker = {"worker_id": "w", "queue": "q", "host": "h", "pid": 1, "build_id": "b"} | {field: "a\x00"}
    for route, list_name in (("claims", "claims"), ("heartbeats", "beats"), ("releases", "releases")):
        body = {"worker": worker, "free": {"slots": 1}, list_name: []}
        body = body if route != "releases" else {"worker": worker, list_name: []}
        status, answer = await standing.call("POST", f"/api/v1/callbacks/{route}", body=body, service="worker")
        assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", f"worker.{field}")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "part",
    [{"task_id": "a\x00"}, {"token": "a\x00"}, {"peak_rss_bytes": 2**63}, {"peak_rss_bytes": -1}],
    ids=str,
)
async def test_what_postgresql_could_not_hold_of_a_task_is_422(standing: Door, part: dict[str, Any]) -> None:
    worker = {"worker_id": "w", "queue": "q", "host": "h", "pid": 1, "build_id": "b"}
    task = {"task_id": "t", "token": "0" * 32} | part
    beat = {"worker": worker, "free": {"slots": 1}, "beats": [task]}
    result = {"worker": worker, "results": [task | {"status": "completed", "output": {}}]}
    for route, body in (("heartbeats", beat), ("task-results", result)):
        status, answer = await standing.call("POST", f"/api/v1/callbacks/{route}", body=body, service="worker")
        assert (status, answer["code"]) == (422, "PARAMETER_INVALID")
        assert str(answer["field"]).endswith(next(iter(part)))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30], ids=str)
@pytest.mark.parametrize(
    "field", ["worker.pid", "free.slots", "free.memory_bytes", "free.scratch_bytes", "free.cores"], ids=str
)
async def test_what_postgresql_could_not_count_of_a_worker_is_422(standing: Door, field: str, number: int) -> None:
    said: dict[str, dict[str, Any]] = {
        "worker": {"worker_id": "w", "queue": "q", "host": "h", "pid": 1, "build_id": "b"},
        "free": {"slots": 1},
    }
    part, _, name = field.partition(".")
    said[part][name] = number
    for route, rest in (("claims", {"claims": []}), ("heartbeats", {"beats": []}), ("exchange", {"claim_id": "c"})):
        status, answer = await standing.call("POST", f"/api/v1/callbacks/{route}", body=said | rest, service="worker")
        assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", field)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_upload_address_does_not_stand_in_its_own_refusal(standing: Door) -> None:
    status, answer = await standing.call("PUT", f"/uploads/{'t' * 40}.{'m' * 43}", raw=b"x")
    assert (status, answer["code"], answer["instance"]) == (401, "UNAUTHENTICATED", "/uploads/***")


async def test_an_error_of_ours_is_internal_with_an_id_and_nothing_of_itself(
    door: Door, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await break_jobs(database)
    status, answer = await create(door, {"workflow_id": "echo_test"})
    assert (status, answer["code"]) == (500, "INTERNAL")
    assert "dag_jobs" not in str(answer)
    logged = [record for record in caplog.records if getattr(record, "error_id", None) == answer["error_id"]]
    assert len(logged) == 1
    assert logged[0].exc_info is not None


async def break_jobs(database: Database) -> None:
    """Let every insert of a job fail, as a bad migration would."""
    async with await AsyncConnection.connect(database.admin, autocommit=True) as conn:
        await conn.execute("ALTER TABLE dagapp.dag_jobs ADD CONSTRAINT never CHECK (job_id IS NULL)")


async def test_without_a_database_callers_are_told_to_come_back_and_the_process_recovers(
    door: Door, database: Database
) -> None:
    await allow_connections(database, False)
    status, answer = await create(door, {"workflow_id": "echo_test"})
    assert (status, answer["code"], answer["classification"]) == (503, "DATABASE_UNAVAILABLE", "transient")
    assert (await door.call("GET", "/readyz"))[0] == 503
    assert (await door.call("GET", "/livez"))[0] == 200
    await allow_connections(database, True)

    async def ready() -> bool:
        return (await door.call("GET", "/readyz"))[0] == 200

    await await_until(ready, "ready again", timeout_seconds=20)
    assert (await create(door, {"workflow_id": "echo_test"}))[0] == 202


async def allow_connections(database: Database, allowed: bool) -> None:
    """Close or open this test's own database; the server and its roles belong to every test."""
    admin = conninfo.make_conninfo(database.admin, dbname="postgres")
    async with await AsyncConnection.connect(admin, autocommit=True) as conn:
        change = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        await conn.execute(change.format(sql.Identifier(database.name), sql.Literal(allowed)))
        if not allowed:
            await conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database.name,)
            )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_method_is_told_with_every_method_of_its_place(standing: Door) -> None:
    for path, allow in (
        ("/api/v1/jobs", "GET, POST"),
        ("/api/v1/jobs/batch", "POST"),
        ("/api/v1/settings/pauses/all", "DELETE, PUT"),
    ):
        async with standing.session.request("OPTIONS", standing.base + path) as answer:
            problem = await answer.json()
            assert (answer.status, answer.headers["Allow"]) == (405, allow)
            assert (problem["code"], problem["detail"]) == (
                "METHOD_NOT_ALLOWED",
                f"OPTIONS is not served here; there is {allow}",
            )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_number_is_no_time(standing: Door) -> None:
    for since in ("0", "1700000000", "2026-01-01", "2026-01-01T00:00:00"):
        status, answer = await standing.call("GET", f"/api/v1/audit?since={since}", caller="operator")
        assert (status, answer["code"], answer["field"]) == (422, "PARAMETER_INVALID", "since")
    status, _ = await standing.call("GET", "/api/v1/audit?since=2026-01-01T00:00:00Z", caller="operator")
    assert status == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_bootstrap_takes_no_words(standing: Door) -> None:
    for body, raw in (({"drop": True}, None), (None, b"J&D")):
        status, answer = await standing.call(
            "POST", "/api/v1/bootstrap/migrate", body=body, raw=raw, caller="operator", service="gateway"
        )
        assert (status, answer["code"]) == (422, "PARAMETER_INVALID")
