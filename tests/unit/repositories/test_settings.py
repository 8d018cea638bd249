"""A process starts only with settings that are all there, all known and all right."""

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr

from repositories.settings import PREFIXES, DatabaseSettings, SettingsError


class ExampleSettings(DatabaseSettings):
    worker_queue: str = Field(description="Required.")
    worker_slots_inline: int = Field(64, ge=1)
    worker_service_key: SecretStr | None = None


GOOD = {
    "POSTGRES_HOST": "db",
    "POSTGRES_DB": "geodag",
    "POSTGRES_USER": "geodag_worker",
    "POSTGRES_PASSWORD": "p w'd",
    "WORKER_QUEUE": "light",
}


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with everything that is needed and nothing else of ours."""
    import os

    for name in list(os.environ):
        if name.upper().startswith((*PREFIXES, "POSTGRES_", "LOG_")):
            monkeypatch.delenv(name)
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_good_environment_is_read_with_defaults(environ: pytest.MonkeyPatch) -> None:
    settings = ExampleSettings.load()
    assert (settings.worker_queue, settings.worker_slots_inline, settings.log_format) == ("light", 64, "json")


@pytest.mark.parametrize("name", sorted(set(GOOD) - {"POSTGRES_PASSWORD"}))
@pytest.mark.parametrize("how", ["absent", "empty"])
def test_a_missing_required_variable_stops_the_start_and_is_named(
    environ: pytest.MonkeyPatch, name: str, how: str
) -> None:
    if how == "absent":
        environ.delenv(name)
    else:
        environ.setenv(name, "")
    with pytest.raises(SettingsError, match=f"{name}: Field required"):
        ExampleSettings.load()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_unknown_variable_with_one_of_our_prefixes_stops_the_start_and_is_named(
    environ: pytest.MonkeyPatch, prefix: str
) -> None:
    environ.setenv(f"{prefix}SLOTS_INLNE", "1")
    with pytest.raises(SettingsError, match=f"{prefix}SLOTS_INLNE: unknown variable"):
        ExampleSettings.load()


def test_a_variable_of_another_process_or_another_program_is_no_error(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("ORCHESTRATOR_URL", "http://127.0.0.1:1")
    environ.setenv("SOMETHING_ELSE", "1")
    ExampleSettings.load()


def test_every_problem_is_told_at_once_and_no_value_is(environ: pytest.MonkeyPatch) -> None:
    environ.delenv("WORKER_QUEUE")
    environ.setenv("WORKER_SLOTS_INLINE", "hunter2")
    environ.setenv("DAG_CALBACK_URL", "hunter2")
    with pytest.raises(SettingsError) as caught:
        ExampleSettings.load()
    message = str(caught.value)
    for name in ("WORKER_QUEUE", "WORKER_SLOTS_INLINE", "DAG_CALBACK_URL"):
        assert name in message
    assert "hunter2" not in message


def test_the_conninfo_survives_odd_passwords(environ: pytest.MonkeyPatch) -> None:
    parts = conninfo_to_dict(ExampleSettings.load().conninfo())
    assert parts == {"host": "db", "port": "5432", "dbname": "geodag", "user": "geodag_worker", "password": "p w'd"}


def test_the_listener_goes_past_the_pooler_when_it_is_told_where(environ: pytest.MonkeyPatch) -> None:
    same = ExampleSettings.load()
    assert same.listen_conninfo() == same.conninfo()
    environ.setenv("POSTGRES_LISTEN_HOST", "direct")
    environ.setenv("POSTGRES_LISTEN_PORT", "6432")
    parts = conninfo_to_dict(ExampleSettings.load().listen_conninfo())
    assert (parts["host"], parts["port"]) == ("direct", "6432")


def test_settings_do_not_show_the_password(environ: pytest.MonkeyPatch) -> None:
    assert "p w'd" not in repr(ExampleSettings.load())
