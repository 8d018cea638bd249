"""The process's managed identity as the credential that Azure's SDKs take."""

import asyncio
from typing import Any, Final, Self

from azure.core.credentials import AccessToken

from repositories.managed_identity import ManagedIdentity

_DEFAULT: Final = "/.default"


class IdentityCredential:
    """An `AsyncTokenCredential` over the one provider of a process; closing it closes nothing."""

    def __init__(self, identity: ManagedIdentity) -> None:
        self._identity = identity

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Return a token for the resource of a scope, without holding up the event loop.

        Raises:
            NoToken: There is none; it is no error of the SDK's, so nothing tries again at once.
        """
        (scope,) = scopes
        token = await asyncio.to_thread(self._identity.token, scope.removesuffix(_DEFAULT).rstrip("/"))
        return AccessToken(token.text, int(token.expires_at))

    async def close(self) -> None:
        """Do nothing: the provider belongs to the process."""

    async def __aenter__(self) -> Self:
        """Return the credential."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""
