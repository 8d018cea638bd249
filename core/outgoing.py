"""The guard of URLs that others chose: which may be called, and which addresses they may lead to."""

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from core.errors import ParameterInvalid

_PORTS: Final = {"https": 443, "http": 80}
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ipaddress.ip_network("2002::/16")
_INSIDE: Final = tuple(
    ipaddress.ip_network(one)
    for one in ("168.63.129.16/32", "192.88.99.0/24", "64:ff9b:1::/48", "fec0::/10", "3fff::/20", "5f00::/16")
)
"""What some Python's `ipaddress` takes for public: the host of any machine on Azure, relays, site-local, examples."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class OutgoingPolicy:
    """Where requests in a partner's name may go."""

    allow_loopback: bool = False
    """For one machine only: plain http to 127.0.0.1, as a receiver under test."""


def check_url(url: str, policy: OutgoingPolicy, field: str, code: str = "CALLBACK_URL_FORBIDDEN") -> None:
    """Check a URL before it is stored; the address it leads to is checked again with every connection.

    Raises:
        ParameterInvalid: with `code` and what is wrong.
    """
    problem = _problem(url, policy)
    if problem is not None:
        raise ParameterInvalid(
            f"{field} {problem}",
            code=code,
            field=field,
            value=url[:200],
            remediation="Give an https URL on a public host, without credentials, query or fragment.",
        )


def _problem(url: str, policy: OutgoingPolicy) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "cannot be read"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "may have no user info, query or fragment"
    if not host or any(not 33 <= ord(c) <= 126 or c == "\\" for c in url):
        return "names no host in plain ASCII"
    literal = _literal(host)
    if policy.allow_loopback and literal is not None and literal.is_loopback:
        return None
    if parts.scheme != "https":
        return "must be https"
    if port not in (None, 443, 8443):
        return "must use port 443 or 8443"
    if literal is not None and not may_connect(literal, policy):
        return "leads to an address that is not public"
    if literal is None and (_looks_numeric(host) or "." not in host.rstrip(".")):
        return "must name a host with its domain"
    return None


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _looks_numeric(host: str) -> bool:
    """Decimal, octal and hexadecimal spellings of addresses that resolvers read and `ipaddress` does not."""
    last = host.rstrip(".").rsplit(".", 1)[-1].lower()
    return last.isdecimal() or (last.startswith("0x") and all(c in "0123456789abcdef" for c in last[2:]))


def may_connect(address: Address, policy: OutgoingPolicy) -> bool:
    """Return whether a connection in a partner's name may go to an address; embedded IPv4 addresses count too."""
    if policy.allow_loopback and address.is_loopback:
        return True
    return all(_is_public(one) for one in _all_of(address))


def _is_public(one: Address) -> bool:
    plain = one.is_global and not one.is_multicast and not one.is_reserved
    return plain and not any(one in network for network in _INSIDE)


def _all_of(address: Address) -> tuple[Address, ...]:
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner: list[Address] = []
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64:
        return (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF),)
    if address in _SIX_TO_FOUR and address.sixtofour is not None:
        inner.append(address.sixtofour)
    if address.teredo is not None:
        inner.extend(address.teredo)
    return (address, *inner)
