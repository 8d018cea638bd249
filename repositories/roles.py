"""The database roles of security.md: their names, their settings, what they are members of.

`geodag_owner` owns every object and cannot log in. `geodag_migrator` is only a door: a NOINHERIT role between the
orchestrator and `geodag_owner`, so that membership gives no right until somebody says `SET ROLE geodag_owner`; the
attribute means the same on PostgreSQL 15 and, as the grant's INHERIT option, on 16 and later. `geodag_deploy` runs
migrations; it is NOSUPERUSER CREATEROLE, like the administrator that a cloud provider hands out.
"""

from types import MappingProxyType
from typing import Final

OWNER: Final = "geodag_owner"
MIGRATOR: Final = "geodag_migrator"
DEPLOY: Final = "geodag_deploy"
ORCHESTRATOR: Final = "geodag_orchestrator"
WORKER: Final = "geodag_worker"
GATEWAY: Final = "geodag_gateway"
SERVING: Final = "geodag_serving"

PROCESS_ROLES: Final = (ORCHESTRATOR, WORKER, GATEWAY, SERVING)
LOGIN_ROLES: Final = (DEPLOY, *PROCESS_ROLES)
PGSTAC_ROLES: Final = ("pgstac_admin", "pgstac_read", "pgstac_ingest")
EXTENSIONS: Final = ("postgis", "btree_gist", "unaccent")

ATTRIBUTES: Final = MappingProxyType(
    {
        OWNER: "NOLOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOBYPASSRLS NOREPLICATION",
        MIGRATOR: "NOLOGIN NOINHERIT NOSUPERUSER NOCREATEROLE NOCREATEDB",
        DEPLOY: "LOGIN NOSUPERUSER CREATEROLE NOCREATEDB",
        **dict.fromkeys(PROCESS_ROLES, "LOGIN INHERIT NOSUPERUSER NOCREATEROLE NOCREATEDB"),
        **dict.fromkeys(PGSTAC_ROLES, "NOLOGIN"),
    }
)
"""Given when a role is created; an existing role keeps what its administrator chose."""

MEMBERSHIPS: Final = (
    (OWNER, DEPLOY),
    (OWNER, MIGRATOR),
    (MIGRATOR, ORCHESTRATOR),
    # The owner governs what workers leave in geo: default privileges, removal at a rebuild.
    (WORKER, OWNER),
    ("pgstac_ingest", ORCHESTRATOR),
    ("pgstac_ingest", WORKER),
    ("pgstac_read", SERVING),
    # pypgstac migrate sets all three roles (geo-stack.md §3.2).
    *((role, DEPLOY) for role in PGSTAC_ROLES),
)
"""(role, member) pairs."""

SETTINGS: Final = MappingProxyType(
    {
        "idle_in_transaction_session_timeout": "5s",
        "lock_timeout": "2s",
        "statement_timeout": "30s",
        "timezone": "UTC",
    }
)
"""Of every process role: a stopped process must not block a takeover (architecture §3.3)."""

SEARCH_PATHS: Final = MappingProxyType(
    {ORCHESTRATOR: "pgstac, public", WORKER: "pgstac, public", GATEWAY: "dagapi", SERVING: "pgstac, public"}
)
"""Our own SQL names its schemas; pgstac's functions and PostGIS need theirs."""

DATABASE_RIGHTS: Final = MappingProxyType(
    {
        "CONNECT": (*LOGIN_ROLES, OWNER),
        # pgstac's staging triggers and searches use temporary tables.
        "TEMPORARY": (DEPLOY, ORCHESTRATOR, WORKER, *PGSTAC_ROLES),
        "CREATE": (OWNER, DEPLOY, "pgstac_admin"),
    }
)
"""Right on the database itself to who has it; PUBLIC has none."""
