"""Who is calling: API keys of the local file, Entra tokens, or the principal of EasyAuth; one answer for all doors."""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from core.errors import Unauthenticated
from core.identity import SERVICE_HEADER, SERVICE_ROLES, Caller, KeyFile, Role, presented_key
from edge.easyauth import PRINCIPAL_HEADER, principal
from edge.jwks import JwksCache
from edge.settings import IdentitySettings
from edge.tokens import TokenPolicy, key_id, looks_like_a_token, read_platforms, verify
from repositories.settings import SettingsError, read_secret_file

log = logging.getLogger(__name__)

Headers = Mapping[str, str]
"""Any mapping with lower-case or exact names."""
_NOBODY: Final = KeyFile(keys=())
_SERVICE_HEADER: Final = SERVICE_HEADER.lower()


@dataclass(frozen=True, slots=True)
class Tokens:
    """How tokens are judged in this process."""

    policy: TokenPolicy
    cache: JwksCache


class Identity:
    """Verifies credentials; `prepare` may fetch keys, everything else is immediate."""

    def __init__(self, keys: KeyFile = _NOBODY, tokens: Tokens | None = None, *, trusts_easyauth: bool = False) -> None:
        self._keys = keys
        self._tokens = tokens
        self._trusts_easyauth = trusts_easyauth

    @property
    def takes_tokens(self) -> bool:
        """Return whether credentials may be tokens, for which `prepare` has to be called."""
        return self._tokens is not None

    async def prepare(self, headers: Headers) -> None:
        """See to it that the keys are known with which the tokens of a request were signed."""
        if self._tokens is None:
            return
        for presented in (presented_key(headers), _service_credential(headers)):
            if presented is None or not looks_like_a_token(presented):
                continue
            try:
                kid = key_id(presented)
            except Unauthenticated:
                continue  # told when the credential is asked for
            await self._tokens.cache.prepare(kid)

    def caller(self, headers: Headers) -> Caller | None:
        """Return the verified caller without service roles, None when no credential is presented.

        Raises:
            Unauthenticated: A credential is presented that nobody issued, or that only services hold.
            IdentityUnavailable: A token is presented and the provider's keys cannot be had.
        """
        presented = presented_key(headers)
        if presented is None:
            lowered = {name.lower(): value for name, value in headers.items()}
            if self._trusts_easyauth and (header := lowered.get(PRINCIPAL_HEADER)) and self._tokens is not None:
                return principal(header, self._tokens.policy.platforms)
            if lowered.get("authorization"):
                raise Unauthenticated("the credential is not known")
            return None
        found = self._find(presented)
        if found is None or (found.roles and found.roles <= SERVICE_ROLES):
            raise Unauthenticated("the credential is not known")
        return found.model_copy(update={"roles": found.roles - SERVICE_ROLES})

    def is_service(self, headers: Headers, role: Role) -> bool:
        """Return whether a request carries the credential of a service with this role."""
        presented = _service_credential(headers)
        found = None if presented is None else self._find(presented)
        return found is not None and found.has(role)

    def _find(self, presented: str) -> Caller | None:
        if self._tokens is not None and looks_like_a_token(presented):
            return verify(presented, self._tokens.cache.keys(), self._tokens.policy)
        return self._keys.find(presented)


def _service_credential(headers: Headers) -> str | None:
    return headers.get(_SERVICE_HEADER) or headers.get(SERVICE_HEADER)


def build_identity(settings: IdentitySettings) -> Identity:
    """Return the identity of a process.

    Raises:
        SettingsError: The key file or the platforms file cannot be read, or EasyAuth is asked for where it is not on.
    """
    keys = _NOBODY if settings.api_keys_file is None else _read_keys(settings)
    if settings.identity_mode == "keys":
        return Identity(keys)
    if settings.entra_issuer is None or settings.entra_audience is None or settings.entra_jwks_url is None:
        raise SettingsError("ENTRA_ISSUER, ENTRA_AUDIENCE and ENTRA_JWKS_URL are required")
    policy = TokenPolicy(settings.entra_issuer, settings.entra_audience, read_platforms(settings.entra_platforms_file))
    easyauth = settings.identity_mode == "easyauth"
    if easyauth and os.environ.get("WEBSITE_AUTH_ENABLED", "").lower() != "true":
        raise SettingsError("IDENTITY_MODE=easyauth needs WEBSITE_AUTH_ENABLED=True, which App Service sets")
    return Identity(keys, Tokens(policy, JwksCache(settings.entra_jwks_url)), trusts_easyauth=easyauth)


def _read_keys(settings: IdentitySettings) -> KeyFile:
    assert settings.api_keys_file is not None
    try:
        return KeyFile.model_validate_json(read_secret_file(settings.api_keys_file))
    except ValidationError as error:
        places = sorted({".".join(map(str, problem["loc"])) or "it" for problem in error.errors()})
        raise SettingsError(f"{settings.api_keys_file} is no key file: {', '.join(places)}") from error


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class PrepareIdentity:
    """ASGI middleware: fetches signing keys before a request with a token is judged."""

    def __init__(self, app: App, identity: Identity) -> None:
        self._app = app
        self._identity = identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and self._identity.takes_tokens:
            await self._identity.prepare(
                {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            )
        await self._app(scope, receive, send)
