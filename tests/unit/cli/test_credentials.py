"""Keys of a home: made once, readable only as digests by the servers."""

import hashlib
import json
import stat
from pathlib import Path

from cli.stack.credentials import KEY_OWNERS, credentials_path, ensure_credentials, keys_path, load_credentials
from core.identity import Caller, KeyFile, Role
from repositories.roles import LOGIN_ROLES


def test_a_second_start_keeps_keys_and_passwords(tmp_path: Path) -> None:
    first = ensure_credentials(tmp_path)
    before = keys_path(tmp_path).read_bytes(), credentials_path(tmp_path).stat().st_mtime_ns
    assert ensure_credentials(tmp_path) == first
    assert (keys_path(tmp_path).read_bytes(), credentials_path(tmp_path).stat().st_mtime_ns) == before


def test_every_subject_is_found_by_its_own_key_with_its_own_role(tmp_path: Path) -> None:
    credentials = ensure_credentials(tmp_path)
    known = KeyFile.model_validate_json(keys_path(tmp_path).read_text())
    for subject, (role, platform_id) in KEY_OWNERS.items():
        caller = known.find(credentials.keys[subject])
        assert caller is not None
        assert (caller.subject, caller.roles, caller.platform_id) == (subject, frozenset({role}), platform_id)


def test_plain_keys_are_private_and_absent_from_the_key_file(tmp_path: Path) -> None:
    credentials = ensure_credentials(tmp_path)
    assert stat.S_IMODE(credentials_path(tmp_path).stat().st_mode) == 0o600
    public = keys_path(tmp_path).read_text()
    assert not [key for key in credentials.keys.values() if key in public]


def test_every_login_role_has_a_password_of_its_own(tmp_path: Path) -> None:
    passwords = ensure_credentials(tmp_path).passwords
    assert set(passwords) == set(LOGIN_ROLES)
    assert len(set(passwords.values())) == len(passwords)


def test_a_subject_that_is_new_in_this_build_gets_a_key_and_the_others_keep_theirs(tmp_path: Path) -> None:
    first = ensure_credentials(tmp_path)
    stored = json.loads(credentials_path(tmp_path).read_text())
    del stored["keys"]["operator"]
    credentials_path(tmp_path).write_text(json.dumps(stored))
    second = ensure_credentials(tmp_path)
    assert second.keys["operator"] != first.keys["operator"]
    assert second.keys["reviewer"] == first.keys["reviewer"]


def test_a_key_that_somebody_added_survives_the_next_start(tmp_path: Path) -> None:
    ensure_credentials(tmp_path)
    stored = json.loads(keys_path(tmp_path).read_text())
    digest = hashlib.sha256(b"their key").hexdigest()
    stored["keys"].append({"sha256": digest, "subject": "gis", "roles": ["submitter"], "platform_id": "arcgis"})
    keys_path(tmp_path).write_text(json.dumps(stored))
    credentials = ensure_credentials(tmp_path)
    known = KeyFile.model_validate_json(keys_path(tmp_path).read_text())
    assert known.find("their key") == Caller(subject="gis", roles=frozenset({Role.SUBMITTER}), platform_id="arcgis")
    assert known.find(credentials.keys["reviewer"]) is not None
    assert len(known.keys) == len(KEY_OWNERS) + 1


def test_a_home_that_was_never_started_has_no_credentials(tmp_path: Path) -> None:
    assert load_credentials(tmp_path) is None


def test_credentials_do_not_show_in_their_own_text(tmp_path: Path) -> None:
    credentials = ensure_credentials(tmp_path)
    assert credentials.keys["admin"] not in repr(credentials)
    assert credentials.upload_key not in str(credentials)


def test_service_roles_are_never_given_to_a_person() -> None:
    services = {subject for subject, (role, _) in KEY_OWNERS.items() if role in {Role.GATEWAY, Role.WORKER}}
    assert services == {"gateway", "worker"}
