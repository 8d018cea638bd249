"""What somebody at the terminal reads when something is refused."""

import json

import pytest

from cli.errors import ExitCode, ProcessingFailed, Refused, Unreachable, show_error

PROBLEM = {
    "title": "Bad request",
    "status": 400,
    "detail": "dataset_id is missing",
    "code": "PARAMETER_MISSING",
    "field": "dataset_id",
    "remediation": "send dataset_id",
    "value": None,
}


def test_a_refusal_shows_code_field_message_and_remediation(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_error(Refused(400, PROBLEM), as_json=False) == ExitCode.REFUSED
    shown = capsys.readouterr().err
    for word in ("PARAMETER_MISSING", "dataset_id", "dataset_id is missing", "send dataset_id", "400"):
        assert word in shown


def test_as_json_a_refusal_is_the_problem_document(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(Refused(400, PROBLEM), as_json=True)
    assert json.loads(capsys.readouterr().err) == PROBLEM


@pytest.mark.parametrize(("status", "field"), [(401, "x"), (403, "x"), (404, None)])
@pytest.mark.parametrize("as_json", [False, True])
def test_who_is_refused_for_his_role_is_told_that_a_key_of_the_environment_was_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, field: str | None, as_json: bool
) -> None:
    monkeypatch.delenv("GEODAG_API_KEY", raising=False)
    show_error(Refused(status, PROBLEM | {"field": field}), as_json=as_json)
    assert "GEODAG_API_KEY" not in capsys.readouterr().err
    monkeypatch.setenv("GEODAG_API_KEY", "gd_secret")
    show_error(Refused(404, PROBLEM), as_json=as_json)
    assert "GEODAG_API_KEY" not in capsys.readouterr().err
    show_error(Refused(status, PROBLEM | {"field": field}), as_json=as_json)
    shown = capsys.readouterr().err
    assert "GEODAG_API_KEY" in shown
    assert "gd_secret" not in shown


def test_a_failed_request_shows_each_of_its_errors(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [{"code": "CRS_MISSING", "field": "crs", "message": "no CRS"}, {"code": "X", "message": "y"}]
    failed = ProcessingFailed({"request_id": "r1", "state": "failed", "errors": errors})
    assert show_error(failed, as_json=False) == ExitCode.PROCESSING_FAILED
    shown = capsys.readouterr().err
    assert "CRS_MISSING" in shown
    assert "r1" in shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(403, {}), ExitCode.REFUSED),
        (Refused(503, {}), ExitCode.UNREACHABLE),
        (Unreachable("nothing there"), ExitCode.UNREACHABLE),
    ],
)
def test_exit_codes_tell_a_refusal_from_an_outage(error: Refused | Unreachable, code: ExitCode) -> None:
    assert error.exit_code == code
