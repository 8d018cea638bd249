"""What the engine is measured beside, in the same run: skeletons behind a balancer, and durable queues.

Each has a database of its own on the stack's server.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench import skeleton, tasks
from bench.peers import PEERS, WORKERS
from cli.stack.layout import REPOSITORY
from cli.stack.ports import HOST, choose_ports
from cli.stack.processes import Part, PartSpec, end_parts, wait_until
from cli.stack.stack import Stack, answers
from repositories import roles


@dataclass(frozen=True, slots=True)
class Skeleton:
    """An app without an engine: its module, its tables, and whether tasks need a worker."""

    module: str
    tables: LiteralString
    has_worker: bool
    query: str = ""


SKELETONS: Mapping[str, Skeleton] = {
    "skeleton": Skeleton("bench.tasks", tasks.TABLES, has_worker=True, query="?wait=30"),
    "floor": Skeleton("bench.skeleton", skeleton.TABLES, has_worker=False),
}


@contextmanager
def running_skeletons(stack: Stack, kind: Skeleton) -> Iterator[tuple[dict[str, int], int]]:
    """Run two skeletons behind a balancer, like the two orchestrators; yield pids and the balancer's port."""
    names = ("skeleton-1", "skeleton-2")
    ports = choose_ports(("balancer", *names), {})
    urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    dsn = _new_database(stack, "skeleton")
    with psycopg.connect(dsn) as conn:
        conn.execute(kind.tables)
    upstreams = [word for name in names for word in ("--upstream", f"{HOST}:{ports[name]}")]
    parts: dict[str, Part] = {}
    try:
        for name in names:
            settings = {"SKELETON_DSN": dsn, "SKELETON_PORT": str(ports[name])}
            parts[name] = _start(stack, name, ["-m", kind.module], settings)
        listen = ["-m", "cli.stack.balancer", "--listen", f"{HOST}:{ports['balancer']}"]
        parts["balancer"] = _start(stack, "skeleton-balancer", [*listen, *upstreams], {})
        for name in (*names, "balancer"):
            if not wait_until(lambda url=f"{urls[name]}/readyz": answers(url), 30):  # type: ignore[misc]
                raise RuntimeError(f"{name} did not start; see {stack.home.log(name)}")
        if kind.has_worker:
            worker = ["-m", kind.module, *(urls[name] for name in names)]
            parts["worker"] = _start(stack, "skeleton-worker", worker, {})
        yield {name: part.pid for name, part in parts.items()}, ports["balancer"]
    finally:
        end_parts(list(parts.values()), 5)


@contextmanager
def running_peer(stack: Stack, name: str) -> Iterator[str]:
    """Run the workers of a durable queue; yield how its database is reached."""
    dsn = _new_database(stack, name)
    address = conninfo_to_dict(dsn)
    url = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**address)
    asyncio.run(PEERS[name].install(url))
    parts: list[Part] = []
    try:
        for number in range(WORKERS):
            parts.append(_start(stack, f"{name}-{number}", ["-m", "bench.peers", name], {"PEER_DSN": url}))
        yield url
    finally:
        end_parts(parts, 1)


def _new_database(stack: Stack, name: str) -> str:
    with psycopg.connect(stack.cluster.admin_conninfo(), autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
        conn.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(roles.DEPLOY)))
    return make_conninfo(
        host=HOST,
        port=stack.plan.ports["postgres"],
        dbname=name,
        user=roles.DEPLOY,
        password=stack.credentials.passwords[roles.DEPLOY],
    )


def _start(stack: Stack, name: str, arguments: Sequence[str], settings: Mapping[str, str]) -> Part:
    environment = {"PATH": os.environ["PATH"], **settings}
    log, record = stack.home.log(name), stack.home.record(name)
    return Part.start(PartSpec(name, [sys.executable, *arguments], environment, log, record, REPOSITORY))
