"""The judge of passwords answers binds and survives everything else."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.peers.identity.database import AUDIENCES, Judge
from tests.peers.servicebus.auth import ALL, Directory, Gatekeeper
from tests.support.tokens import ISSUER, SigningKey

KEY = SigningKey("k")
AUDIENCE = "https://ossrdbms-aad.database.windows.net"


def message(number: int, request: bytes) -> bytes:
    return value(0x30, value(0x02, bytes([number])) + request)


def value(kind: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([kind]) + (bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")) + content


def bind(name: str, password: str, kind: int = 0x80) -> bytes:
    return value(0x60, value(0x02, b"\x03") + value(0x04, name.encode()) + value(kind, password.encode()))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    directory = Directory({"keys": [KEY.jwk()]}, ISSUER, AUDIENCES, {"us": {"worker": ALL}})
    with Judge(0, Gatekeeper((), directory)) as judge:
        thread = threading.Thread(target=judge.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield judge.server_address[1]
        judge.shutdown()
        thread.join()


def asked(port: int, data: bytes, last: bool = True) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as conn:
        conn.sendall(data)
        if last:
            conn.shutdown(socket.SHUT_WR)
        return conn.recv(1000)


def test_a_token_of_the_role_binds_and_nothing_else_does(port: int) -> None:
    token = KEY.token(aud=AUDIENCE, oid="us", roles=None)
    answers = {
        ("cn=worker,dc=geodag", token): 0,
        ("cn=serving,dc=geodag", token): 49,
        ("cn=,dc=geodag", token): 49,
        ("", token): 49,
        ("cn=worker,dc=geodag", ""): 49,
        ("cn=worker,dc=geodag", KEY.token(aud="other", oid="us", roles=None)): 49,
    }
    for number, ((name, password), code) in enumerate(answers.items(), 1):
        result = bytes([0x61, 7, 0x0A, 1, code, 0x04, 0, 0x04, 0])
        assert asked(port, message(number, bind(name, password)), last=False) == message(number, result)


def test_other_requests_are_no_protocol_of_ours(port: int) -> None:
    assert asked(port, message(1, bind("cn=worker", "x", kind=0xA3)))[9] == 2
    assert asked(port, message(1, value(0x63, b"search")))[9] == 2
    assert asked(port, message(1, value(0x42, b""))) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x30", b"GET / HTTP/1.1\r\n\r\n", b"\x30\x05\x02", b"\x30\x84\xff\xff\xff\xff", b"\x30\x80",
        b"\x30\x02\x02\x09", b"\x30\x00", b"\x31\x02\x02\x00",
    ],
)  # fmt: skip
def test_what_is_no_message_ends_the_conversation(port: int, data: bytes) -> None:
    assert asked(port, data) == b""
