"""Brings the database to the schema of this build and ends: `python -m orchestrator.migration`, run by a deployment.

It needs the database's settings alone, with the role `geodag_deploy`; what `geodag db deploy` prepares as
administrator (extensions, roles) is there already. Migrations expand first, so the build that still runs goes on.
"""

import asyncio
import logging
import sys

from psycopg import AsyncConnection

from core.errors import GeodagError
from repositories import migrate
from repositories.logs import setup_logging
from repositories.settings import DatabaseSettings

log = logging.getLogger("orchestrator.migration")


async def run(settings: DatabaseSettings) -> None:
    """Apply what is pending, ours and the catalogue's; nothing to do is fine."""
    dsn = settings.listen_conninfo()
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        done = await migrate.migrate(conn)
        state = await migrate.status(conn)
    if state.pgstac_installed != state.pgstac_wanted:
        await migrate.migrate_pgstac(dsn)
    log.info("database migrated", extra={"applied": list(done), "pgstac": state.pgstac_wanted})


def main() -> int:
    """Migrate; 0 when the database speaks this build's schema."""
    try:
        settings = DatabaseSettings.load()
        setup_logging(settings.log_level, settings.log_format, "migration")
        asyncio.run(run(settings))
    except GeodagError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
