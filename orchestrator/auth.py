"""Who may call what: two credentials on every mutation, each verified here (security.md)."""

from collections.abc import Mapping

from core.errors import Forbidden, Unauthenticated
from core.identity import SERVICE_HEADER, Caller, Role
from edge.identity import Identity


class Authenticator:
    """Callers and services by their credentials; `headers` are any mapping with lower-case names."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def caller(self, headers: Mapping[str, str], *roles: Role) -> Caller:
        """Return the verified caller, holding one of the roles.

        Raises:
            Unauthenticated: No credential, an unknown one, or one that only services hold.
            Forbidden: None of the roles.
        """
        caller = self._identity.caller(headers)
        if caller is None:
            raise Unauthenticated("a credential is required: X-API-Key, or Authorization: Bearer")
        if not caller.has(*roles):
            raise Forbidden(f"this needs the role {' or '.join(sorted(roles))}", field="role")
        return caller

    def mutator(self, headers: Mapping[str, str], *roles: Role) -> Caller:
        """Return the caller of a mutation, which also carries the gateway's credential; neither alone suffices.

        Raises:
            Unauthenticated: One of the two credentials is missing or unknown.
            Forbidden: The caller has none of the roles.
        """
        self.service(headers, Role.GATEWAY)
        return self.caller(headers, *roles)

    def service(self, headers: Mapping[str, str], role: Role) -> None:
        """Check a service credential.

        Raises:
            Unauthenticated: It is missing, unknown, or another service's.
        """
        if not self._identity.is_service(headers, role):
            raise Unauthenticated(f"the credential of a {role} is required in {SERVICE_HEADER}")
