"""Requests to URLs that others chose: resolved by us, and connected to the very address that was checked."""

import ipaddress
import logging
import socket
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from core.errors import ParameterInvalid
from core.outgoing import OutgoingPolicy, check_url, may_connect

log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 15.0


class AddressForbidden(OSError):
    """A name leads to an address that requests in a partner's name may not reach."""


class GuardedResolver(AbstractResolver):
    """Resolves names and lets only permitted addresses through; what it returns is what is connected to."""

    def __init__(self, policy: OutgoingPolicy, inner: AbstractResolver | None = None) -> None:
        self._policy = policy
        self._inner = inner or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the permitted addresses of a name.

        Raises:
            AddressForbidden: One of them is not permitted: a name that leads inside at times is not trusted at all.
        """
        found = await self._inner.resolve(host, port, family)
        for one in found:
            if not may_connect(ipaddress.ip_address(one["host"].partition("%")[0]), self._policy):
                raise AddressForbidden(f"{host} leads to an address that is not public")
        return found

    async def close(self) -> None:
        """Close the inner resolver."""
        await self._inner.close()


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request ended: a status, or why there is none."""

    status: int | None
    error: str | None = None


class OutgoingClient:
    """Posts to guarded URLs; follows no redirect, reads no body, trusts no proxy variable."""

    def __init__(self, policy: OutgoingPolicy, resolver: AbstractResolver | None = None) -> None:
        self._policy = policy
        self._resolver = resolver

    async def post(self, url: str, content: bytes, headers: dict[str, str]) -> Reply:
        """Return how it went; never raises for what the other side does."""
        try:
            check_url(url, self._policy, "url")
        except ParameterInvalid as error:
            return Reply(None, str(error))
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._policy, self._resolver), use_dns_cache=False, force_close=True
        )
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session,
                session.post(url, data=content, headers=headers, allow_redirects=False) as answer,
            ):
                return Reply(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, AddressForbidden) else error
            return Reply(None, str(cause) if isinstance(cause, AddressForbidden) else type(error).__name__)
