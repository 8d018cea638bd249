"""Prints how many items a second 20 publishers get into the catalogue: `python -m bench.catalogue [items each]`."""

import asyncio
import os
import sys

from repositories import roles
from tests.support.databases import Server
from tests.support.folders import open_to_others
from tests.support.publishing import PUBLISHERS, measure


async def run(conninfo: str, each: int) -> None:
    """Print a table of batches and collections."""
    print("| items | batch | collections | seconds | items/s | stored | deadlocks |")
    print("|---|---|---|---|---|---|---|")
    for batch in (10, 100):
        for collections in (1, PUBLISHERS):
            found = await measure(conninfo, each=each, batch=min(batch, each), collections=collections)
            print(
                f"| {found.items} | {min(batch, each)} | {collections} | {found.seconds:.1f} | {found.rate:.0f}"
                f" | {found.stored} | {found.deadlocks} |",
                flush=True,
            )


def main() -> int:
    """Run on a PostgreSQL server of its own."""
    with open_to_others("bench") as folder:
        server = Server(folder)
        try:
            server.ensure_ready()
            database = server.clone()
            each = int(sys.argv[1]) if len(sys.argv) > 1 else 100
            print(f"load average {os.getloadavg()[0]:.0f}")
            asyncio.run(run(database.conninfo(roles.WORKER), each))
        finally:
            server.destroy()
    return 0


if __name__ == "__main__":
    sys.exit(main())
