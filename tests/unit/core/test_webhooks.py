"""Webhooks: signed as integrators' libraries expect, and only to where a partner may send us."""

import base64
import ipaddress
import json
from datetime import UTC, datetime, timedelta

import pytest

from core import webhooks
from core.errors import ParameterInvalid
from core.outgoing import OutgoingPolicy, check_url, may_connect

NOW = datetime(2026, 1, 2, tzinfo=UTC)
STRICT, LOCAL = OutgoingPolicy(), OutgoingPolicy(allow_loopback=True)


def test_the_signature_is_that_of_the_standards_own_example() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = webhooks.signature([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_secrets_rotate_both_sign() -> None:
    both = webhooks.signature([b"new", b"old"], "msg", 1, b"{}")
    assert both.split(" ") == [webhooks.signature([one], "msg", 1, b"{}") for one in (b"new", b"old")]


def test_without_a_secret_nothing_pretends_to_be_signed() -> None:
    assert "webhook-signature" not in webhooks.headers([], "msg", NOW, b"{}")


def test_the_body_has_what_the_contract_says_and_no_job() -> None:
    made = webhooks.body(
        kind="approved", created_at=NOW, request_id="r", asset_id="a", version_ordinal=0, state="completed",
        review="approved", result_url="https://g/api/platform/status/r",
    )  # fmt: skip
    expected = {"type", "timestamp", "request_id", "asset_id", "version_ordinal", "state", "review", "result_url"}
    assert set(json.loads(made)) == expected


def test_pauses_grow_and_then_stay() -> None:
    pauses = [webhooks.next_attempt(n, NOW) - NOW for n in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[0] == timedelta(seconds=5)
    assert pauses[-1] == pauses[-2] == timedelta(hours=12)


@pytest.mark.parametrize(
    "url",
    [
        "http://partner.example/hook",
        "ftp://partner.example/hook",
        "https://user:pass@partner.example/",
        "https://partner.example/hook?token=1",
        "https://partner.example/hook#x",
        "https://partner.example:22/",
        "https://partner.example:99999/",
        "https://localhost/",
        "http://localhost/",  # this one and the next four are case D49
        "http://127.0.0.1:5432",
        "http://10.0.0.5/",
        "http://[::1]/",
        "file:///x",
        "https://intranet/",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://169.254.169.254/metadata",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[2002:0a00:0001::]/",
        "https://[fd00::1]/",
        "https://[fe80::1%25eth0]/",
        "https://2130706433/",
        "https://0x7f.0.0.0x1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://partner.example\\@10.0.0.1/",
        "https://partner.example/\r\nX: y",
        "https://pärtner.example/",
        "https:///hook",
        "https://[::1/",
    ],
)
def test_an_address_that_leads_elsewhere_than_to_a_public_host_is_refused(url: str) -> None:
    with pytest.raises(ParameterInvalid) as caught:
        check_url(url, STRICT, "callback_url")
    assert (caught.value.detail.code, caught.value.detail.field) == ("CALLBACK_URL_FORBIDDEN", "callback_url")


@pytest.mark.parametrize("url", ["https://partner.example/hook", "https://partner.example:8443/a", "https://8.8.8.8/"])
def test_a_public_address_is_taken(url: str) -> None:
    check_url(url, STRICT, "callback_url")


def test_loopback_counts_only_where_one_machine_says_so() -> None:
    check_url("http://127.0.0.1:9000/hook", LOCAL, "callback_url")
    with pytest.raises(ParameterInvalid):
        check_url("http://127.0.0.1:9000/hook", STRICT, "callback_url")
    with pytest.raises(ParameterInvalid):
        check_url("http://10.0.0.1:9000/hook", LOCAL, "callback_url")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("::ffff:93.184.216.34", True),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::ffff:127.0.0.1", False),
        ("2001:0:a00:1::", False),
        ("ff02::1", False),
        ("168.63.129.16", False),
        ("::ffff:168.63.129.16", False),
        ("64:ff9b::a83f:8110", False),
        ("64:ff9b:1::a00:1", False),
        ("192.88.99.1", False),
        ("fec0::1", False),
        ("3fff::1", False),
    ],
)
def test_addresses_are_judged_with_what_is_inside_them(address: str, expected: bool) -> None:
    assert may_connect(ipaddress.ip_address(address), STRICT) is expected
