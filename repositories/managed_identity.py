"""Tokens of Azure's managed identity, for PostgreSQL, Blob Storage and Service Bus alike; one provider a process.

Two endpoints give them: what App Service and Container Apps name in the environment (IDENTITY_ENDPOINT with
IDENTITY_HEADER; https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference) and
the one of virtual machines (IMDS). A token is kept until it nears its end; while the endpoint is away, to its end.
"""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from pydantic import SecretStr

from core.errors import TransientError

POSTGRES: Final = "https://ossrdbms-aad.database.windows.net"
STORAGE: Final = "https://storage.azure.com"
SERVICE_BUS: Final = "https://servicebus.azure.net"
API_VERSION: Final = "2019-08-01"
IMDS_API_VERSION: Final = "2018-02-01"
IMDS_PATH: Final = "/metadata/identity/oauth2/token"
TIMEOUT_SECONDS: Final = 5.0
MARGIN_SECONDS: Final = 300.0
"""A token that ends sooner is replaced; of short ones, after half their life."""
RETRY_SECONDS: Final = 5.0
"""Between two attempts while a token is still good."""
_REFUSALS: Final = frozenset({400, 401, 403, 404, 405})


class NoToken(TransientError):
    """The identity endpoint gives none; its answer is not repeated."""

    code = "IDENTITY_UNAVAILABLE"

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(f"the managed identity gives no token: {why}")
        self.refused = refused
        """Whether the endpoint is there and says no."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and, of the wall clock, its end."""

    text: str = field(repr=False)
    expires_at: float
    stale_at: float
    """From then on another one is asked for."""


@dataclass(slots=True)
class ManagedIdentity:
    """Tokens of one identity; safe for threads."""

    endpoint: str
    secret: SecretStr | None = None
    """None: the endpoint is that of a virtual machine, which wants none."""
    client_id: str | None = None
    """Of a user-assigned identity."""
    now: Callable[[], float] = time.time
    _tokens: dict[str, Token] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self, resource: str) -> Token:
        """Return a token that is good for a while; blocks for as long as the endpoint takes to answer.

        Who has one that is still good waits for nobody else who asks the endpoint.

        Raises:
            NoToken: The endpoint gives none, and there is none from before that is still good.
        """
        known = self._tokens.get(resource)
        if not self._lock.acquire(blocking=known is None or self.now() >= known.expires_at):
            assert known is not None
            return known
        try:
            known = self._tokens.get(resource)
            if known is not None and self.now() < known.stale_at:
                return known
            try:
                token = self._fetch(resource)
            except NoToken:
                if known is None or self.now() >= known.expires_at:
                    raise
                token = Token(known.text, known.expires_at, min(self.now() + RETRY_SECONDS, known.expires_at))
            self._tokens[resource] = token
            return token
        finally:
            self._lock.release()

    def prove(self, resource: str, patience_seconds: float) -> None:
        """Return once a token could be had, however long ago the machine started.

        Raises:
            NoToken: The endpoint refuses, or did not answer in time.
        """
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                self.token(resource)
            except NoToken as error:
                if error.refused or time.monotonic() >= deadline:
                    raise
                time.sleep(min(0.5, patience_seconds / 4))
            else:
                return

    def _fetch(self, resource: str) -> Token:
        asked_at = self.now()
        try:
            with urllib.request.urlopen(self._request(resource), timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                document = json.load(answer)
            text, expires_at = document["access_token"], float(document["expires_on"])
            if not isinstance(text, str) or not text:
                raise ValueError
        except urllib.error.HTTPError as error:
            error.close()
            raise NoToken(f"HTTP {error.code}", refused=error.code in _REFUSALS) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NoToken(type(error).__name__) from None
        if expires_at <= asked_at:
            raise NoToken("it ended before it came")
        return Token(text, expires_at, expires_at - min(MARGIN_SECONDS, (expires_at - asked_at) / 2))

    def _request(self, resource: str) -> urllib.request.Request:
        query = {"resource": resource, "api-version": IMDS_API_VERSION if self.secret is None else API_VERSION}
        query |= {} if self.client_id is None else {"client_id": self.client_id}
        if self.secret is None:
            url, headers = f"{self.endpoint.rstrip('/')}{IMDS_PATH}", {"Metadata": "true"}
        else:
            url, headers = self.endpoint, {"X-IDENTITY-HEADER": self.secret.get_secret_value()}
        return urllib.request.Request(f"{url}?{urlencode(query)}", headers=headers)  # noqa: S310 - the platform's own
