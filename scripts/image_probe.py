"""Looks into the built images and runs each for a moment; `scripts/test-image` builds them and calls this.

What it checks: who runs, what is not there (compilers, GDAL in the orchestrator), that a wrong RUN_MODE stops the
start, that each process lives by its own health check, names its build, and ends in order on SIGTERM. It prints sizes
and times.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from cli.stack.credentials import Credentials, ensure_credentials, keys_path
from cli.stack.ports import choose_ports
from repositories import roles
from tests.support.databases import Database, Server

WORK: Final = Path(os.environ["TEST_IMAGE_WORK"])
BUILD: Final = os.environ["TEST_IMAGE_BUILD"]
BUILDAH: Final = ("buildah", "--root", f"{WORK}/root", "--runroot", f"{WORK}/run", "--storage-driver", "vfs")
ORCHESTRATOR: Final = "geodag-orchestrator"
WORKER: Final = "geodag-worker"
MAX_LAYERS_MIB: Final = {ORCHESTRATOR: 300, WORKER: 500}
START_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 10.0


class Failed(Exception):
    """An image is not what it must be."""


def check(holds: bool, what: str) -> None:
    """Say what holds, or stop."""
    if not holds:
        raise Failed(what)
    print(f"image_probe: {what}")


def buildah(*arguments: str) -> str:
    """Run buildah and return its output."""
    return subprocess.run([*BUILDAH, *arguments], check=True, capture_output=True, text=True).stdout.strip()


class Container:
    """One working container of an image."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.name = buildah("from", "--pull-never", f"localhost/{image}")
        described = json.loads(buildah("inspect", "--type", "image", f"localhost/{image}"))["OCIv1"]["config"]
        self.entrypoint: list[str] = described["Entrypoint"]

    def command(self, arguments: Sequence[str], env: Mapping[str, str], volumes: Mapping[Path, str]) -> list[str]:
        """Return what runs a command inside."""
        options = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
        options += [part for source, target in volumes.items() for part in ("-v", f"{source}:{target}")]
        return [*BUILDAH, "run", "--isolation", "chroot", *options, self.name, "--", *arguments]

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, volumes: Mapping[Path, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end."""
        command = self.command(arguments, env or {}, volumes or {})
        return subprocess.run(command, check=False, capture_output=True, text=True)

    def mebibytes(self, *paths: str) -> int:
        """Return what folders and files inside take."""
        listed = self.run("du", "-scm", *paths).stdout.splitlines()
        return int(listed[-1].split()[0])

    @contextmanager
    def running(self, env: Mapping[str, str], volumes: Mapping[Path, str]) -> Iterator[psutil.Process]:
        """Run the entry point; yield its process, which is Python itself."""
        outer = subprocess.Popen(self.command(self.entrypoint, env, volumes))
        try:
            yield _innermost(psutil.Process(outer.pid))
        finally:
            left = _left(outer)
            for process in psutil.Process(outer.pid).children(recursive=True) if not left else ():
                process.kill()
            outer.wait(DRAIN_SECONDS)

    def remove(self) -> None:
        """Remove the container."""
        buildah("rm", self.name)


def _left(outer: subprocess.Popen[bytes]) -> bool:
    """Return whether buildah follows the process it ran."""
    try:
        outer.wait(DRAIN_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _innermost(outer: psutil.Process) -> psutil.Process:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        inner = [one for one in outer.children(recursive=True) if _is_python(one)]
        if inner:
            return inner[0]
        time.sleep(0.05)
    raise Failed("the entry point started no Python")


def _is_python(process: psutil.Process) -> bool:
    """Return whether a process is Python; one of buildah's own that has just ended is not."""
    try:
        return process.name().startswith("python3")
    except psutil.NoSuchProcess:
        return False


def look_at(container: Container, forbidden: Sequence[str]) -> None:
    """Check who runs and what is not there."""
    check(container.run("id", "-u").stdout.strip() == "10001", f"{container.image} runs as 10001, not as root")
    compilers = container.run("sh", "-c", "for c in cc gcc g++ clang make; do command -v $c; done; true").stdout
    check(not compilers.strip(), f"{container.image} has no compiler")
    for module in forbidden:
        check(container.run("python3", "-c", f"import {module}").returncode != 0, f"{container.image} has no {module}")
    wrong = container.run(*container.entrypoint, env={"RUN_MODE": "bogus"})
    check(wrong.returncode == 78 and "RUN_MODE is 'bogus'" in wrong.stderr, "a wrong RUN_MODE stops the start")
    size = container.mebibytes("/app", "/opt/packages")
    print(f"image_probe: {container.image}: our layers take {size} MiB")
    most = MAX_LAYERS_MIB[container.image]
    check(size < most, f"{container.image}: below {most} MiB")


def answer_of(url: str, key: str | None = None) -> tuple[int, Any]:
    """Return status and JSON of a URL; 0 when nobody answers yet."""
    request = urllib.request.Request(url, headers={"X-API-Key": key} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=3) as reply:
            return reply.status, _parsed(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None


def _parsed(body: bytes) -> Any:
    """Return JSON as what it stands for; serving's probes answer in plain words."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def serves(
    container: Container, env: Mapping[str, str], volumes: Mapping[Path, str], port: int, key: str | None, path: str
) -> None:
    """Run the image until it is ready, ask which build it is and whether it lives, and end it."""
    mode, began = env["RUN_MODE"], time.monotonic()
    with container.running(env, volumes) as process:
        while answer_of(f"http://127.0.0.1:{port}{path}")[0] != 200:
            if time.monotonic() - began > START_SECONDS or not process.is_running():
                raise Failed(f"{mode} does not answer {path}")
            time.sleep(0.1)
        print(f"image_probe: {mode} answers {path} after {time.monotonic() - began:.1f} s")
        status, health = answer_of(f"http://127.0.0.1:{port}/health", key)
        check(status == 200 and health["build_id"] == BUILD, f"{mode} says that it is build {BUILD}")
        if mode == "worker":
            while not answer_of(f"http://127.0.0.1:{port}/health")[1]["free_slots"]["subprocess"]:
                if time.monotonic() - began > START_SECONDS:
                    raise Failed("the worker's subprocess for tasks does not start")
                time.sleep(0.1)
            print(f"image_probe: its subprocess for tasks is ready after {time.monotonic() - began:.1f} s")
        alive = container.run("python3", "/app/healthcheck.py", env=env)
        check(alive.returncode == 0, f"{mode} lives by its health check")
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(DRAIN_SECONDS)
        check(time.monotonic() - asked < DRAIN_SECONDS, f"{mode} left {time.monotonic() - asked:.1f} s after SIGTERM")


def environment(database: Database, credentials: Credentials) -> dict[str, str]:
    """Return what all processes need."""
    return {
        **database.environment(roles.ORCHESTRATOR),
        "API_KEYS_FILE": "/keys.json",
        "BLOB_ROOT": "/blobs",
        "UPLOAD_KEY": credentials.upload_key,
        "SECRETS_KEY": credentials.secrets_key,
        "PUBLIC_ORCHESTRATOR_URL": "http://127.0.0.1:9",
        "PUBLIC_SERVING_URL": "http://127.0.0.1:9",
        "PUBLIC_GATEWAY_URL": "http://127.0.0.1:9",
    }


def smoke(orchestrator: Container, worker: Container, database: Database, home: Path) -> None:
    """Run a small platform out of the two images."""
    credentials = ensure_credentials(home)
    blobs = home / "blobs"
    for zone in ("bronze", "silver", "external"):
        (blobs / zone).mkdir(parents=True)
    for path in (blobs, *blobs.iterdir()):
        path.chmod(0o777)
    common, volumes = environment(database, credentials), {blobs: "/blobs", keys_path(home): "/keys.json:ro"}
    migration = orchestrator.run(
        *orchestrator.entrypoint, env={"RUN_MODE": "migrate", **database.environment(roles.DEPLOY)}
    )
    check(migration.returncode == 0 and "database migrated" in migration.stderr + migration.stdout, "migrate ends well")
    port = choose_ports(("image",), {})["image"]
    modes = {
        "orchestrator": (orchestrator, {"ORCHESTRATOR_PORT": str(port)}),
        "worker": (
            worker,
            {
                **database.environment(roles.WORKER),
                "WORKER_HEALTH_PORT": str(port),
                "WORKER_QUEUE": "container-tasks",
                "WORKER_TYPE": "heavy",
                "WORKER_SERVICE_KEY": credentials.keys["worker"],
                "DAG_CALLBACK_URL": "http://127.0.0.1:9/api/v1/callbacks",
            },
        ),
        "serving": (worker, {**database.environment(roles.SERVING), "SERVING_PORT": str(port)}),
    }
    for mode, (container, own) in modes.items():
        door = "/livez" if mode == "worker" else "/readyz"
        serves(container, {**common, **own, "RUN_MODE": mode}, volumes, port, credentials.keys["operator"], door)


def raster_cases(worker: Container) -> None:
    """Run the tests of the raster handlers inside the worker's image, with its own packages first."""
    root = Path(__file__).resolve().parents[1]
    packages = next((root / ".venv" / "lib").glob("python3.*/site-packages"))
    # What the tests' own support imports; handlers, core and repositories are the image's.
    beside = ("tests", "cli", "function", "orchestrator", "services", "scripts", "workflows", "pyproject.toml")
    volumes = {packages: "/dev-packages:ro", **{root / name: f"/app/{name}:ro" for name in beside}}
    home = "/var/lib/geodag"
    env = {
        "PYTHONPATH": "/app:/opt/packages:/dev-packages",
        "HOME": home,
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{home}/hypothesis",
    }
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/handlers/raster")
    done = worker.run("python3", *arguments, env=env, volumes=volumes)
    print(done.stdout[-2000:], done.stderr[-2000:])
    check(done.returncode == 0, "the raster cases pass inside the worker's image")


def main(arguments: list[str]) -> int:
    """Check both images; 1 when something does not hold."""
    orchestrator, worker = Container(ORCHESTRATOR), Container(WORKER)
    folder = Path(tempfile.mkdtemp(prefix="geodag-image-"))
    folder.chmod(0o755)
    server = Server(folder)
    try:
        look_at(orchestrator, ("rasterio", "numpy", "h5py"))
        look_at(worker, ("orchestrator", "services", "pypgstac"))
        server.ensure_ready()
        smoke(orchestrator, worker, server.clone(), folder / "home")
        if "cases" in arguments:
            raster_cases(worker)
    except Failed as failure:
        print(f"image_probe: NOT so: {failure}")
        return 1
    finally:
        server.destroy()
        orchestrator.remove()
        worker.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
