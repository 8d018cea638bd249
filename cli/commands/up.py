"""`geodag up` and `geodag down`: the whole platform on this machine."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import CliError, ExitCode
from cli.operator import operate
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import console, key_value_table, plain, print_text, print_warning, show
from cli.stack.layout import REPOSITORY, BlobsKind, Home, QueueKind, Shape
from cli.stack.logs import LogTail, last_lines
from cli.stack.processes import ProcessId, wait_until
from cli.stack.stack import AlreadyRunning, Stack, StackError, StartAborted, read_state, stop_leftovers
from core.errors import GeodagError

FOLLOW_SECONDS = 0.1
DETACH_TIMEOUT_SECONDS = 180.0
DOWN_TIMEOUT_SECONDS = 60.0
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_cyan", "bright_magenta", "bright_green")


class StackFailed(CliError):
    """The local stack did not start or stop."""

    exit_code = ExitCode.UNREACHABLE


class Printer:
    """Prints lines of all parts, each with its part's name in its own colour; usable from any thread."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self._console = console()
        self._width = max(len(part) for part in parts)
        self._styles = {part: COLOURS[number % len(COLOURS)] for number, part in enumerate(parts)}
        self._lock = threading.Lock()

    def line(self, part: str, message: str, style: str | None = None) -> None:
        """Print one line."""
        text = plain(part.ljust(self._width), self._styles.get(part, "white"))
        text.append(" │ ", style="dim").append(plain(message, style or "default"))
        with self._lock:
            self._console.print(text, soft_wrap=True)

    def event(self, part: str, message: str) -> None:
        """Print what the supervisor itself has to say."""
        self.line(part, message, "bold")


def up(
    home: HomeOption = DEFAULT_HOME,
    detach: Annotated[bool, typer.Option("--detach", help="Return once everything is ready.")] = False,
    queue: Annotated[
        QueueKind,
        typer.Option(
            envvar="GEODAG_QUEUE", help="What carries the tasks: the database, or a peer of Azure Service Bus."
        ),
    ] = QueueKind.POSTGRES,
    blobs: Annotated[
        BlobsKind, typer.Option(envvar="GEODAG_BLOBS", help="What holds the files: folders, or Azurite by its SDK.")
    ] = BlobsKind.FOLDERS,
    identity: Annotated[
        bool,
        typer.Option(
            "--identity",
            envvar="GEODAG_IDENTITY",
            help="Enter database, queue and storage with tokens of a managed identity, over TLS, and with no key.",
        ),
    ] = False,
    workflows: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            resolve_path=True,
            help="Folder of workflow files of your own, beside those of the checkout; read at this start.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start the whole platform on this machine and stop it on Ctrl-C; a second `up` only prints the addresses."""
    state = read_state(home)
    shape = Shape(queue=queue, blobs=blobs, identity=identity, workflows=workflows)
    if state and state["running"] and state["state"] in {"ready", "starting"}:
        if workflows is not None:
            print_warning("it runs already, and reads workflows only when it starts: `geodag down` first")
        wait_for_ready(home, None)
        show_urls(home, "geodag is already running", as_json=as_json)
    elif detach:
        _start_detached(home, shape)
        show_urls(home, "geodag is running", as_json=as_json)
    else:
        _run_in_foreground(home, shape)


def down(home: HomeOption = DEFAULT_HOME) -> None:
    """Stop the platform that runs in a home, whoever started it."""
    state = read_state(home)
    if state is None:
        raise StackFailed(f"no stack was ever started in {home}")
    supervisor = ProcessId.load(state.get("supervisor"))
    if supervisor is not None and state["running"]:
        os.kill(supervisor.pid, signal.SIGTERM)
        if not wait_until(lambda: not supervisor.is_alive(), DOWN_TIMEOUT_SECONDS):
            raise StackFailed(f"the supervisor (pid {supervisor.pid}) did not end in {DOWN_TIMEOUT_SECONDS:g} s")
    try:
        stop_leftovers(home)
    except AlreadyRunning as error:
        raise StackFailed(str(error)) from error
    print_text("geodag is down\n")


def show_urls(home: Path, title: str, *, as_json: bool) -> None:
    """Print where the doors of a running stack are."""
    state = read_state(home) or {}
    rows = {**state.get("urls", {}), "keys": str(Home(home.resolve()).root / "credentials.json")}
    show(state, key_value_table(title, rows), as_json=as_json)
    warn_of_broken(home)


def warn_of_broken(home: Path) -> None:
    """Say on stderr which workflow files of a running stack are broken, and what is wrong first with each."""
    try:
        broken = operate(home, "GET", "workflows")["broken"]
    except CliError:
        return  # Whether the stack answers is not asked here.
    if broken:
        lines = ["  " + _first_problem(one["file"], one["error"]) for one in broken]
        told = "`geodag workflow lint` with their folder shows every problem, but knows nothing of what is stored"
        print_warning("\n".join([f"broken workflow files: {len(broken)}; {told}", *lines]))


def _first_problem(file: str, error: str) -> str:
    first = error.partition("\n")[0]
    return first if first.startswith(file) else f"{file}: {first}"


def wait_for_ready(home: Path, child: "subprocess.Popen[bytes] | None") -> None:
    """Return once the stack of a home is ready; raises StackFailed with the end of its log when it gives up."""

    def settled() -> bool:
        state = read_state(home)
        ready = bool(state and state["running"] and state["state"] == "ready")
        if child is not None:
            ready = ready and state is not None and state["supervisor"]["pid"] == child.pid
            return ready or child.poll() is not None
        return ready or not (state and state["running"])

    finished = wait_until(settled, DETACH_TIMEOUT_SECONDS)
    state = read_state(home)
    if not finished or not state or not state["running"] or state["state"] != "ready":
        tail = "\n".join(last_lines(Home(home.resolve()).log("up"), 20))
        raise StackFailed(f"the stack did not become ready\n{tail}")


def _start_detached(home: Path, shape: Shape) -> None:
    log_file = Home(home.resolve()).log("up")
    log_file.parent.mkdir(parents=True, exist_ok=True)
    kinds = ["--queue", shape.queue, "--blobs", shape.blobs, *(["--identity"] if shape.identity else [])]
    if shape.workflows is not None:
        kinds += ["--workflows", str(shape.workflows)]
    with log_file.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "up", "--home", str(home.resolve()), *kinds],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=REPOSITORY,
        )
    wait_for_ready(home, child)


def _run_in_foreground(home: Path, shape: Shape) -> None:
    printer = Printer(("postgres", *shape.part_names))
    stack = Stack(home, shape=shape, report=printer.event)
    with _signals(stack) as stopping, _following(stack, printer):
        try:
            stack.start()
        except StartAborted:
            return
        except (StackError, GeodagError) as error:
            raise StackFailed(str(error)) from error
        _announce(stack)
        stopping.wait()
        stack.stop()


def _announce(stack: Stack) -> None:
    rows = {name: getattr(stack.urls, name) for name in ("gateway", "orchestrator", "serving")}
    console().print(key_value_table("geodag is up; Ctrl-C stops it", rows))
    warn_of_broken(stack.home.root)


@contextmanager
def _following(stack: Stack, printer: Printer) -> Iterator[None]:
    """Print what the parts log, until they are all ended."""
    tail = LogTail({name: stack.home.log(name) for name in stack.shape.part_names})
    finished = threading.Event()

    def follow() -> None:
        while not finished.wait(FOLLOW_SECONDS):
            for part, line in tail.lines():
                printer.line(part, line)

    follower = threading.Thread(target=follow, name="log-follower", daemon=True)
    follower.start()
    try:
        yield
    finally:
        finished.set()
        follower.join()


@contextmanager
def _signals(stack: Stack) -> Iterator[threading.Event]:
    """Turn Ctrl-C, SIGTERM and a closed terminal into one orderly stop."""
    stopping = threading.Event()

    def stop(*_: object) -> None:
        stopping.set()
        stack.abort()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
