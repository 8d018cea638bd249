"""Logs carry data and never a secret."""

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from repositories.logs import redact, setup_logging

SECRETS = [
    "host=db user=geodag_worker password=hunter22hunter22 dbname=geodag",
    "postgresql://geodag:hunter22hunter22@db:5432/geodag",
    "Authorization: Bearer hunter22hunter22",
    "authorization=Basic hunter22hunter22",
    "sent with bearer hunter22hunter22 to the gateway",
    "X-API-Key: hunter22hunter22",
    "X-Geodag-Service-Key=hunter22hunter22",
    "https://a.blob.core.windows.net/c/b.tif?sv=2024&sig=hunter22hunter22&se=2026",
    "Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=hunter22hunter22",
    "AccountName=a;AccountKey=hunter22hunter22;EndpointSuffix=core",
    "{'token': 'hunter22hunter22'}",
    '{"token": "hunter22hunter22", "task_id": "t"}',
    "POSTGRES_PASSWORD=hunter22hunter22",
    "{'Authorization': 'Bearer hunter22hunter22'}",
    "https://f.azurewebsites.net/api/x?code=hunter22hunter22",
    "PUT http://127.0.0.1:8000/uploads/hunter22hunter22hunter22 refused",
]


@pytest.fixture
def log() -> Iterator[StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = StringIO()
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("text", SECRETS)
def test_no_known_shape_of_a_secret_survives_redaction(text: str) -> None:
    assert "hunter22" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "job j1 node create_cog attempt 2",
        "bronze/uploads/ddh/dem.tif",
        "lease 20 s",
        "code: NOT_FOUND",
        "token_hash=ab",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("text", SECRETS)
def test_message_extra_and_traceback_are_redacted(log: StringIO, log_format: str, text: str) -> None:
    setup_logging("INFO", log_format, "worker", log)
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("geodag").exception("failed: %s", text, extra={"detail": text, "nested": {"a": [text]}})
    assert "hunter22" not in log.getvalue()


def test_a_value_is_hidden_when_its_name_says_secret(log: StringIO) -> None:
    setup_logging("INFO", "json", "worker", log)
    extra = {"token": "abc", "postgres_password": "abc", "body": {"api_key": "abc", "job_id": "j1"}, "token_hash": "h"}
    logging.getLogger("geodag").info("task_claimed", extra=extra)
    entry = json.loads(log.getvalue())
    assert "abc" not in log.getvalue()
    assert entry["body"]["job_id"] == "j1"
    assert entry["token_hash"] == "h"


def test_a_json_line_has_time_level_process_event_and_data(log: StringIO) -> None:
    setup_logging("INFO", "json", "orchestrator", log)
    logging.getLogger("geodag.loop").warning("job_taken_over", extra={"job_id": "j1", "epoch": 2})
    entry = json.loads(log.getvalue())
    assert entry["time"].endswith("+00:00")
    assert {k: entry[k] for k in ("level", "process", "logger", "event", "job_id", "epoch")} == {
        "level": "WARNING",
        "process": "orchestrator",
        "logger": "geodag.loop",
        "event": "job_taken_over",
        "job_id": "j1",
        "epoch": 2,
    }


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("break_", ["\n", "\r\n", "\x0b", "\x1b[2J", "\x00", "\x85", "\u2028"])
def test_no_value_looks_like_another_event_or_moves_the_terminal(log: StringIO, log_format: str, break_: str) -> None:
    setup_logging("INFO", log_format, "gateway", log)
    logging.getLogger("geodag").info("asked %s", f"a{break_}b", extra={"path": f"/x{break_}12:00:00.000 ERROR forged"})
    assert not [character for character in log.getvalue()[:-1] if not character.isprintable()]


def test_setting_up_twice_logs_once(log: StringIO) -> None:
    setup_logging("INFO", "text", "worker", log)
    setup_logging("INFO", "text", "worker", log)
    logging.getLogger("geodag").info("started")
    assert log.getvalue().count("started") == 1
