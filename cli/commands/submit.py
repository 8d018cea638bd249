"""`geodag submit`: a file through an upload address into the platform, with its progress; or only a look at it."""

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from cli.client import TIMEOUT_SECONDS, Client
from cli.errors import CliError, ExitCode, ProcessingFailed, Refused
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import console, key_value_table, printable, show
from cli.report_picture import picture_of
from cli.target import Target
from core.dag.json_values import NotJson, check_json
from core.ids import asset_id
from core.report_view import report_view

FINAL_STATES = frozenset({"completed", "failed", "cancelled"})
WAIT_SECONDS = 20
CHECK_SECONDS = 150.0
"""How long a dry run may take; the platform gives up before."""
PATIENCE_SECONDS = 60.0
"""How long nobody may answer before waiting ends; a platform that restarts takes less."""
MAX_WAIT_SECONDS = 6 * 3600.0
Json = dict[str, Any]


class WrongCommandLine(CliError):
    """The options do not fit together."""

    exit_code = ExitCode.USAGE


def json_object(text: str, option: str, **how: Any) -> Json:
    """Return the JSON object that an option gives; `how` goes to the reader. Raises `WrongCommandLine`."""
    try:
        value = json.loads(text, **how)
    except ValueError as error:
        raise WrongCommandLine(f"{option} is not JSON: {error}") from error
    except RecursionError as error:
        raise WrongCommandLine(f"{option} is nested too deeply") from error
    if not isinstance(value, dict):
        raise WrongCommandLine(f"{option} is not a JSON object")
    check_sendable(value, option)
    return value


def check_sendable(value: Any, path: str) -> None:
    """Refuse what Python reads as JSON and no request can carry. Raises `WrongCommandLine`."""
    try:
        check_json(value, path)
    except NotJson as error:
        raise WrongCommandLine(error.detail.message) from error


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for."""

    file: Path
    platform: str
    refs: Mapping[str, str]
    label: str | None
    title: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    access: str = "ouo"
    wait: bool = False
    dry_run: bool = False

    def body(self, container: str, blob: str, label: str) -> Json:
        """Return the submit request."""
        return {
            "platform_id": self.platform,
            "platform_refs": dict(self.refs),
            "version_label": label,
            "data_type": "raster",
            "source": {"container_name": container, "blob_name": blob},
            "title": self.title or self.file.name,
            "access_level": self.access,
            "options": dict(self.options),
            **({"dry_run": True} if self.dry_run else {}),
        }


def submit(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="The file to publish.")],
    dataset: Annotated[str | None, typer.Option(help="dataset_id, for platform ddh.")] = None,
    resource: Annotated[str | None, typer.Option(help="resource_id, for platform ddh.")] = None,
    ref: Annotated[list[str] | None, typer.Option(help="NAME=VALUE: a ref of another platform.")] = None,
    platform: Annotated[str, typer.Option(help="The platform that submits.")] = "ddh",
    version_label: Annotated[str | None, typer.Option(help="Default: v1, v2, … by what exists.")] = None,
    title: Annotated[str | None, typer.Option(help="Default: the file's name.")] = None,
    crs: Annotated[str | None, typer.Option(help="Only for a file that carries none, e.g. EPSG:4326.")] = None,
    override_crs: Annotated[bool, typer.Option("--override-crs", help="--crs replaces what the file says.")] = False,
    target_crs: Annotated[str | None, typer.Option(help="Resample into it, e.g. EPSG:3857.")] = None,
    nodata: Annotated[
        float | None, typer.Option(help="The value of pixels without data, instead of the file's.")
    ] = None,
    subdataset: Annotated[
        str | None,
        typer.Option(
            "--subdataset", "--variable", help="Page of a TIFF, variable[:step] of a NetCDF, field of a GRIB."
        ),
    ] = None,
    member: Annotated[str | None, typer.Option(help="Which raster of an archive.")] = None,
    access: Annotated[str, typer.Option(help="ouo or public: a wish, the reviewer decides.")] = "ouo",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is processed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check it and show the report.")] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Upload a file and submit it; with --wait, show how it is processed, with --dry-run, only what would be said."""
    said = {"crs": crs, "override_crs": override_crs or None, "target_crs": target_crs, "nodata": _finite(nodata),
            "subdataset": subdataset, "member": member}  # fmt: skip
    options = {name: value for name, value in said.items() if value is not None}
    refs = _refs(dataset, resource, ref or [])
    order = Order(file, platform, refs, version_label, title, options, access, wait, dry_run)
    answer = asyncio.run(_submit(Target.of(home), order))
    if dry_run:
        view = report_view(answer["report"], None, "")
        show(answer, picture_of(view, f"{order.title or file.name}: checked, not submitted"), as_json=as_json)
        return
    show(answer, key_value_table(_heading(answer), _summary(answer)), as_json=as_json)
    if answer.get("state") in FINAL_STATES - {"completed"}:
        raise ProcessingFailed(answer)


def _finite(nodata: float | None) -> float | None:
    if nodata is not None and not math.isfinite(nodata):
        raise WrongCommandLine("--nodata needs a finite number; NaN pixels never count as data, nobody has to say so")
    return nodata


def _heading(answer: Json) -> str:
    """Return what has happened to a request."""
    state = answer.get("state")
    if state == "completed":
        return "Processed"
    return f"Processing {state}" if state in FINAL_STATES else "Submitted"


def _refs(dataset: str | None, resource: str | None, pairs: list[str]) -> dict[str, str]:
    named = {"dataset_id": dataset, "resource_id": resource}
    return {name: value for name, value in named.items() if value is not None} | parse_refs(pairs)


def parse_refs(pairs: list[str]) -> dict[str, str]:
    """Return refs given as NAME=VALUE; raises `WrongCommandLine`."""
    refs = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise WrongCommandLine(f"--ref needs NAME=VALUE, found {pair!r}")
        refs[name] = value
    return refs


def _summary(answer: Json) -> Json:
    keys = ("request_id", "asset_id", "version_ordinal", "revision", "state", "review", "status_url", "warnings")
    return {key: answer[key] for key in keys if answer.get(key) not in (None, [], {})}


async def _submit(target: Target, order: Order) -> Json:
    async with target.client(f"submitter-{order.platform}") as client:
        label = order.label or await _next_label(client, target, order)
        with SubmitDisplay(order) as display:
            address = await _upload(client, target, order, display)
            body = order.body(address["container_name"], address["blob_name"], label)
            url = f"{target.urls.gateway}/api/platform/submit"
            seconds = CHECK_SECONDS if order.dry_run else TIMEOUT_SECONDS
            accepted: Json = await client.call("POST", url, body, timeout_seconds=seconds)
            if order.dry_run or not order.wait:
                return accepted
            return await wait_for_request(client, target, accepted["request_id"], display)


async def _next_label(client: Client, target: Target, order: Order) -> str:
    """Return v1, v2, … by how many versions of the asset exist; an unapproved newest one is submitted again."""
    asset = asset_id(order.platform, order.refs)
    try:
        answer = await client.call("GET", f"{target.urls.gateway}/api/assets/{asset}/versions")
    except Refused as refused:
        if refused.status != 404:
            raise
        return "v1"
    versions = answer["versions"] if isinstance(answer, dict) else answer
    newest = max(versions, key=lambda version: version["version_ordinal"], default=None)
    if newest and newest["approval_state"] in {"pending_review", "rejected"}:
        return str(newest["version_label"])
    return f"v{len(versions) + 1}"


async def _upload(client: Client, target: Target, order: Order, display: "SubmitDisplay") -> Json:
    size = order.file.stat().st_size
    wish: Json = {"platform_id": order.platform, "filename": order.file.name}
    if size:
        wish["size_bytes"] = size
    address: Json = await client.call("POST", f"{target.urls.gateway}/api/platform/uploads", wish)
    await client.upload(address["upload_url"], order.file, display.uploaded)
    return address


async def wait_for_request(client: Client, target: Target, request_id: str, display: "SubmitDisplay") -> Json:
    """Return the status of a request once it is final, showing each status on the way.

    A platform that is away for a while loses no request, so neither does the one who waits for it.
    """
    url = f"{target.urls.gateway}/api/platform/status/{request_id}"
    before: Json = {}
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        while True:
            waiting = f"?wait={WAIT_SECONDS}" if before else ""
            status: Json = await patiently_get(client, url + waiting)
            display.status(status)
            if status["state"] in FINAL_STATES:
                return status
            if status == before:
                await asyncio.sleep(0.2)
            before = status


async def patiently_get(client: Client, url: str) -> Json:
    """Return the answer of a GET; ask again while nobody answers, up to PATIENCE_SECONDS."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer: Json = await client.call("GET", url)
        except CliError as error:
            if error.exit_code is not ExitCode.UNREACHABLE or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.5)
        else:
            return answer


class SubmitDisplay:
    """Live picture of an upload and of what happens afterwards, on stderr; stdout is for the answer."""

    def __init__(self, order: Order) -> None:
        self._transfer = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
        )
        self._steps = Progress(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
            TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(),
        )  # fmt: skip
        self._upload = self._transfer.add_task(printable(f"upload {order.file.name}"), total=order.file.stat().st_size)
        self._process = self._steps.add_task("accepted", total=None, note="", visible=False)
        self._console = console(stderr=True)
        self._live = Live(Group(self._transfer, self._steps), console=self._console, refresh_per_second=10)

    def __enter__(self) -> "SubmitDisplay":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if not self._console.is_terminal:
            self._console.line()  # Rich leaves the last line open where it cannot draw over it.

    def uploaded(self, size_bytes: int) -> None:
        """Move the upload's bar."""
        self._transfer.advance(self._upload, size_bytes)

    def status(self, status: Json) -> None:
        """Show a request's state and how many of its steps are done."""
        progress = status.get("progress") or {}
        total, done = _steps_of(progress)
        state = status["state"]
        if state == "completed":
            done = total = total or 1
        note = printable(str(progress.get("message") or progress.get("step") or ""))
        self._steps.update(
            self._process, description=printable(state), total=total, completed=done or 0, note=note, visible=True
        )  # fmt: skip


def _steps_of(progress: Json) -> tuple[int | None, int | None]:
    for total, done in (("nodes_total", "nodes_completed"), ("total", "current"), ("total", "completed")):
        if isinstance(progress.get(total), int) and isinstance(progress.get(done), int):
            return progress[total], progress[done]
    return None, None
