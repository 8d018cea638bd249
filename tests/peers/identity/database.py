"""What says to PostgreSQL whether a password is a token of the role: an LDAP server that knows one request.

PostgreSQL 15 judges no JWT by itself. Azure's does; here `pg_hba.conf` sends each password on in a simple bind (RFC
4511, 4.2) as `cn=<role>,dc=geodag`, and the answer is that of `Gatekeeper`: signature, issuer, audience, times, and
whether the bearer may be this role.
"""

import socketserver
import time
from typing import Final

from tests.peers.servicebus.auth import Gatekeeper
from tests.peers.servicebus.errors import BrokerError

AUDIENCES: Final = frozenset(
    {"https://ossrdbms-aad.database.windows.net", "https://ossrdbms-aad.database.windows.net/"}
)
SUCCESS: Final = 0
PROTOCOL_ERROR: Final = 2
INVALID_CREDENTIALS: Final = 49
MAX_BYTES: Final = 64 * 1024
_SEQUENCE, _INTEGER, _OCTETS, _ENUMERATED = 0x30, 0x02, 0x04, 0x0A
_BIND, _BIND_ANSWER, _UNBIND, _SIMPLE = 0x60, 0x61, 0x42, 0x80


class Malformed(Exception):
    """The bytes are not what LDAP says there."""


def judge(gatekeeper: Gatekeeper, name: str, password: str) -> int:
    """Return the result of a bind: success only when the password is a token of the role in the name."""
    role = name.partition(",")[0].removeprefix("cn=")
    if not role:
        return INVALID_CREDENTIALS
    try:
        gatekeeper.admit(password, role, time.time())
    except BrokerError:
        return INVALID_CREDENTIALS
    return SUCCESS


class Judge(socketserver.ThreadingTCPServer):
    """Listens on loopback."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, gatekeeper: Gatekeeper) -> None:
        super().__init__(("127.0.0.1", port), _Conversation)
        self.gatekeeper = gatekeeper


class _Conversation(socketserver.StreamRequestHandler):
    """Binds, until the other side goes."""

    timeout = 10.0

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Judge)
        try:
            while (answer := self._answer(server.gatekeeper)) is not None:
                self.wfile.write(answer)
        except (Malformed, OSError):
            return

    def _answer(self, gatekeeper: Gatekeeper) -> bytes | None:
        """Return the answer to the next request, None when the other side goes."""
        if not (first := self.rfile.read(1)):
            return None
        number, request = _parts(_content(first, self._rest(), _SEQUENCE), 2)
        if request[0] == _UNBIND:
            return None
        code = PROTOCOL_ERROR
        if request[0] == _BIND:
            _, name, secret = _parts(request[1], 3)
            is_simple = name[0] == _OCTETS and secret[0] == _SIMPLE
            if is_simple:
                code = judge(gatekeeper, name[1].decode(errors="replace"), secret[1].decode(errors="replace"))
        result = _made(_ENUMERATED, bytes([code])) + 2 * _made(_OCTETS, b"")
        return _made(_SEQUENCE, _made(_INTEGER, number[1]) + _made(_BIND_ANSWER, result))

    def _rest(self) -> bytes:
        """Return length and content of what has begun."""
        head = self.rfile.read(1)
        if head and head[0] & 0x80:
            head += self.rfile.read(head[0] & 0x7F)
        length, start = _length(head, 0)
        if length > MAX_BYTES:
            raise Malformed("too long")
        content = self.rfile.read(length)
        if len(head) != start or len(content) != length:
            raise Malformed("cut off")
        return head + content


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length and where what it measures begins."""
    if at >= len(data):
        raise Malformed("no length")
    first = data[at]
    if not first & 0x80:
        return first, at + 1
    end = at + 1 + (first & 0x7F)
    if end > len(data) or end == at + 1 or end > at + 5:
        raise Malformed("no length")
    return int.from_bytes(data[at + 1 : end], "big"), end


def _content(tag: bytes, rest: bytes, wanted: int) -> bytes:
    ((found, content),) = _parts(tag + rest, 1)
    if found != wanted:
        raise Malformed("another kind")
    return content


def _parts(data: bytes, least: int) -> list[tuple[int, bytes]]:
    """Return kind and content of the values that lie one behind the other."""
    found, at = list[tuple[int, bytes]](), 0
    while at < len(data):
        length, start = _length(data, at + 1)
        if start + length > len(data):
            raise Malformed("cut off")
        found.append((data[at], data[start : start + length]))
        at = start + length
    if len(found) < least:
        raise Malformed("too few values")
    return found[:least]


def _made(kind: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([kind]) + length + content
