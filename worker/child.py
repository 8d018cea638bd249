"""The subprocess that runs handlers: `python -I -m worker.child <socket> <parent pid>`.

It runs one task after the other. The main thread is the handler's; a second thread listens to the parent, so that a
cancellation arrives while the handler works and the process ends when its parent does.
"""

import json
import logging
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from core.payloads import ValueTooLarge
from core.wording import readable
from handlers.context import Checkpoint, Outcome, ProcessContext, TaskCancelled, TaskInfo
from handlers.failures import error_of
from handlers.json_values import to_json
from handlers.registry import resolve
from worker import jail
from worker.frames import (
    MAX_FRAME_BYTES,
    Cancel,
    ChildSocket,
    Done,
    Failed,
    Frame,
    Log,
    Note,
    Progress,
    Ready,
    Run,
    Saved,
    Setup,
    encode,
)

_PROGRESS_SECONDS = 0.2
_MAX_TEXT = 8000
_MAX_PROGRESS_TEXT = 500
_MAX_LINE = 500
_logger = logging.getLogger("worker.child")


class Child:
    """One subprocess: what it was told and what it is doing."""

    def __init__(self, channel: ChildSocket) -> None:
        self._channel = channel
        self._runs: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._progress_at = 0.0

    def work(self) -> None:
        """Serve the parent until it hangs up; never returns."""
        setup = self._channel.receive()
        if not isinstance(setup, Setup):
            raise SystemExit("expected a setup frame")
        sys.path[:0] = setup.import_paths
        jail.limit_files(setup.file_bytes)
        threading.Thread(target=self._listen, daemon=True).start()
        self._channel.send(Ready())
        self._warm_up(setup.warm)
        while True:
            self._channel.send(self._run(self._runs.get()))

    def _listen(self) -> None:
        while (frame := self._channel.receive()) is not None:
            if isinstance(frame, Run):
                self._cancelled.clear()
                self._runs.put(frame)
            elif isinstance(frame, Cancel):
                self._cancelled.set()
        os._exit(0)

    def _warm_up(self, targets: tuple[str, ...]) -> None:
        for target in targets:
            try:
                resolve(target)
            except Exception:  # the task that needs it fails with this error; others need not
                _logger.exception("handler cannot be imported", extra={"target": target})

    def _run(self, run: Run) -> Frame:
        """Run one task; whatever happens in it becomes a frame."""
        try:
            with _Workplace(run):
                done = self._handle(run)
            _check_size(done)
            return done.model_copy(update={"peak_rss_bytes": jail.peak_bytes()})
        except TaskCancelled:
            return Failed(error=None, peak_rss_bytes=jail.peak_bytes())
        except BaseException as exc:  # noqa: BLE001 - the boundary of a task; even sys.exit() in a handler is a result
            return Failed(error=error_of(exc, _logger), peak_rss_bytes=jail.peak_bytes())

    def _handle(self, run: Run) -> Done:
        params = resolve(run.params_type).model_validate_json(json.dumps(run.params))
        outcome: Outcome = resolve(run.target)(self._context(run), params)
        return Done(
            output=to_json(outcome.output),
            files=dict(outcome.files),
            findings=to_json([finding.model_dump(by_alias=True) for finding in outcome.findings], "findings"),
            metrics=to_json(outcome.metrics, "metrics"),
        )

    def _context(self, run: Run) -> ProcessContext:
        return ProcessContext(
            TaskInfo(run.task_id, run.job_id, run.node_id, run.attempt),
            Path(run.scratch),
            checkpoint=Checkpoint(run.checkpoint, self._save),
            report=self._report,
            is_cancelled=self._cancelled.is_set,
            write_journal=lambda line: self._channel.send(Note(line=readable(line[:_MAX_LINE]))),
            logger=logging.LoggerAdapter(logging.getLogger("handlers"), {}),
        )

    def _save(self, saved: dict[str, Any]) -> None:
        self._channel.send(Saved(phase=saved["phase"], state=saved["state"]))

    def _report(self, progress: dict[str, Any]) -> None:
        """Send progress, but not every block of it: what matters is what the next heartbeat finds."""
        now = time.monotonic()
        if now - self._progress_at >= _PROGRESS_SECONDS or progress["current"] == progress["total"]:
            self._progress_at = now
            message = progress["message"]
            fitting = {**progress, "message": message and message[:_MAX_PROGRESS_TEXT]}
            self._channel.send(Progress.model_validate(to_json(fitting, "progress")))


def _check_size(done: Done) -> None:
    size = len(encode(done))
    if size > MAX_FRAME_BYTES:
        raise ValueTooLarge(
            f"the output has {size} bytes of JSON; at most {MAX_FRAME_BYTES} (64 MiB) leave a subprocess",
            field="output",
            remediation="Divide the work among tasks of a fan_out, or put the data into a file and hand on its path.",
        )


class _Workplace:
    """The task's own folder, memory limit and peak; the process is as before when it ends."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        os.chdir(self._run.scratch)
        self._point_temporary_files_to(self._run.scratch)
        jail.reset_peak()
        jail.limit_memory(self._run.memory_bytes)

    def __exit__(self, *_: object) -> None:
        jail.limit_memory(0)
        os.chdir("/")
        self._point_temporary_files_to(None)

    def _point_temporary_files_to(self, folder: str | None) -> None:
        tempfile.tempdir = folder
        for name in ("TMPDIR", "CPL_TMPDIR"):
            if folder:
                os.environ[name] = folder
            else:
                os.environ.pop(name, None)


class FrameLogHandler(logging.Handler):
    """Sends log records to the parent, which writes them with the task's ids."""

    def __init__(self, channel: ChildSocket) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        extra = {"error_id": error_id} if (error_id := getattr(record, "error_id", None)) else {}
        if record.exc_info and record.exc_info[0]:
            text = "".join(traceback.format_exception(*record.exc_info))
            extra["traceback"] = readable(text[-_MAX_TEXT:])
        event = readable(record.getMessage()[:_MAX_TEXT])
        self._channel.send(Log(level=record.levelno, logger=record.name, event=event, extra=extra))


def main() -> None:
    """Lock up, then serve the parent."""
    descriptor, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    jail.lock_up(parent_pid)
    channel = ChildSocket(descriptor)
    logging.basicConfig(level=logging.INFO, handlers=[FrameLogHandler(channel)])
    logging.captureWarnings(True)
    Child(channel).work()


if __name__ == "__main__":
    main()
