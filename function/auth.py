"""Who is calling. The gateway looks a key up to fail early; the orchestrator verifies every mutation itself."""

from collections.abc import Mapping

from core.errors import NotFound, Unauthenticated
from core.identity import Caller, KeyFile, Role, presented_key


class Authenticator:
    """Callers by their keys."""

    def __init__(self, keys: KeyFile) -> None:
        self._keys = keys

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return the verified caller of a request.

        Raises:
            Unauthenticated: no credential, an unknown one, or one that only services hold.
        """
        key = presented_key(headers)
        if key is None:
            raise Unauthenticated(
                "a credential is required: X-API-Key, or Authorization: Bearer", remediation="Send your API key."
            )
        caller = self._keys.find_caller(key)
        if caller is None:
            raise Unauthenticated("the credential is not known")
        return caller

    def operator(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller of an operational route, which is not there for everybody else.

        Raises:
            Unauthenticated: as `caller`.
            NotFound: the caller is no operator.
        """
        caller = self.caller(headers)
        if not caller.has(Role.OPERATOR):
            raise NotFound("there is no such resource")
        return caller
