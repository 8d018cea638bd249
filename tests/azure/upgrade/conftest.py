"""A platform of the build before, on the schema of the build before, whose parts become this build one by one."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cli.stack.cluster import Cluster
from cli.stack.layout import Build, QueueKind, Shape
from cli.stack.stack import Stack
from tests.acceptance.conftest import DATABASE, hurried
from tests.acceptance.platform import Platform
from tests.azure.upgrade.builds import previous_build
from tests.azure.upgrade.doors import TwoDoors
from tests.support.folders import open_to_others

DEPLOY = """
import asyncio, json, sys
from repositories.deploy import deploy
print(asyncio.run(deploy(sys.argv[1], "geodag", json.load(sys.stdin), host="127.0.0.1")))
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Yield the folder of the platform and of the build before."""
    with open_to_others("upgrade") as folder:
        yield folder


@pytest.fixture(scope="module")
def previous(home: Path) -> Build:
    """Return the build before."""
    return previous_build(home / "previous")


@pytest.fixture(scope="module")
def builds(previous: Build) -> dict[str, Build]:
    """Return which build each part starts from; tests change it."""
    return dict.fromkeys(SHAPE.part_names, previous)


SHAPE = Shape(light=2, heavy=1, queue=QueueKind.POSTGRES)


@pytest.fixture(scope="module")
def platform(home: Path, previous: Build, builds: dict[str, Build]) -> Iterator[Platform]:
    """Yield it, running; lease and threshold are shortened as in the acceptance tests."""
    journal = home / "journal.txt"

    def deploy(cluster: Cluster, passwords: Mapping[str, str]) -> None:
        command = (previous.python, "-c", DEPLOY, cluster.admin_conninfo())
        subprocess.run(command, cwd=previous.root, input=json.dumps(dict(passwords)), text=True, check=True)

    shape = Shape(light=SHAPE.light, heavy=SHAPE.heavy, queue=SHAPE.queue, overrides=hurried(journal), builds=builds)
    stack = Stack(home / "stack", ports={}, shape=shape, database_config=DATABASE, deploy=deploy)
    stack.start()
    yield Platform(stack, journal)
    stack.stop()


@pytest.fixture(scope="module")
def doors(platform: Platform) -> Iterator[TwoDoors]:
    """Yield the balanced gateway, as Azure shows several instances behind one name."""
    doors = TwoDoors(platform.stack)
    yield doors
    doors.close()
