"""Tokens of Azure's managed identity as passwords of PostgreSQL: asked for at each connect, kept while they are fresh.

The endpoint and its secret are what App Service and Container Apps put into the environment (IDENTITY_ENDPOINT,
IDENTITY_HEADER; https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference).
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

from core.errors import DatabaseUnavailable

RESOURCE: Final = "https://ossrdbms-aad.database.windows.net"
API_VERSION: Final = "2019-08-01"
TIMEOUT_SECONDS: Final = 5.0
MARGIN_SECONDS: Final = 300.0
"""A token that ends sooner is not used for a new connection; of short ones, half their life."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    stale_at: float
    """Of the wall clock: from then on another one is asked for."""


@dataclass(slots=True)
class ManagedIdentity:
    """Tokens of one identity; safe for threads."""

    endpoint: str
    secret: SecretStr
    client_id: str | None = None
    """Of a user-assigned identity."""
    now: Callable[[], float] = time.time
    _token: _Token | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self) -> str:
        """Return a token that is fresh; blocks for as long as the endpoint takes to answer.

        Raises:
            DatabaseUnavailable: The endpoint gives none; its answer is not repeated.
        """
        with self._lock:
            if self._token is None or self.now() >= self._token.stale_at:
                self._token = self._fetch()
            return self._token.text

    def _fetch(self) -> _Token:
        query = {"resource": RESOURCE, "api-version": API_VERSION}
        query |= {} if self.client_id is None else {"client_id": self.client_id}
        request = urllib.request.Request(  # noqa: S310 - the platform's own address
            f"{self.endpoint}?{urlencode(query)}", headers={"X-IDENTITY-HEADER": self.secret.get_secret_value()}
        )
        asked_at = self.now()
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                document = json.load(answer)
            text, expires_at = str(document["access_token"]), float(document["expires_on"])
        except urllib.error.HTTPError as error:
            error.close()
            raise _no_token(f"HTTP {error.code}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _no_token(type(error).__name__) from None
        return _Token(text, expires_at - min(MARGIN_SECONDS, (expires_at - asked_at) / 2))


def _no_token(why: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the managed identity gives no token: {why}")
