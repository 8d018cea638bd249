"""Who is calling. The gateway looks a key up to fail early; the orchestrator verifies every mutation itself."""

from collections.abc import Mapping

from core.errors import NotFound, Unauthenticated
from core.identity import Caller, Role
from edge.identity import Identity


class Authenticator:
    """Callers by their credentials."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return the verified caller of a request.

        Raises:
            Unauthenticated: no credential, an unknown one, or one that only services hold.
        """
        await self._identity.prepare(headers)
        caller = self._identity.caller(headers)
        if caller is None:
            raise Unauthenticated(
                "a credential is required: X-API-Key, or Authorization: Bearer", remediation="Send your API key."
            )
        return caller

    async def operator(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller of an operational route, which is not there for everybody else.

        Raises:
            Unauthenticated: as `caller`.
            NotFound: the caller is no operator.
        """
        caller = await self.caller(headers)
        if not caller.has(Role.OPERATOR):
            raise NotFound("there is no such resource")
        return caller
