"""What an exception of a handler means to the engine."""

import errno
import logging
import os
import uuid
from collections.abc import Iterator
from typing import Any

from core.errors import Classification, ErrorDetail, GeodagError
from core.ids import canonical_json
from core.wording import readable, shorten
from handlers.json_values import NotJson, to_json

OUT_OF_MEMORY = "TASK_OUT_OF_MEMORY"
OUT_OF_DISK = "TASK_OUT_OF_DISK"
TIMEOUT = "TASK_TIMEOUT"
INTERNAL = "INTERNAL"
MAX_MESSAGE = 4000
MAX_VALUE = 1000
"""Characters: results, rows and answers with errors in them stay small."""

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def error_of(exc: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> ErrorDetail:
    """Return what to report for `exc`.

    Our own errors carry their code. No memory and no disk have codes of their own: the disk may be free again, but
    the same task meets the same memory limit, so only the first is tried again. What nobody foresaw is a defect: it
    is permanent, its traceback goes to the log and the `error_id` finds it there; the reader never sees its text,
    which may quote anything.
    """
    causes = tuple(_chain(exc))
    if any(isinstance(cause, MemoryError) or type(cause).__name__.endswith("OutOfMemoryError") for cause in causes):
        return out_of_memory("the handler asked for more memory than the task may use")
    if any(_is_full_disk(cause) for cause in causes):
        return ErrorDetail(
            code=OUT_OF_DISK,
            message="there was no room left to write the task's files",
            classification=Classification.TRANSIENT,
        )
    if isinstance(exc, GeodagError):
        return _shortened(exc.detail)
    return _unforeseen(exc, logger)


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what led to it: a full disk often arrives wrapped in an error of GDAL."""
    while exc is not None:
        yield exc
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)


def _is_full_disk(exc: BaseException) -> bool:
    if isinstance(exc, OSError) and exc.errno in _DISK_ERRORS:
        return True
    return not isinstance(exc, GeodagError) and os.strerror(errno.ENOSPC) in str(exc)


def out_of_memory(message: str) -> ErrorDetail:
    """Return the error of a task that met its memory limit."""
    return ErrorDetail(code=OUT_OF_MEMORY, message=message, remediation="Send smaller data or raise the memory limit.")


def _shortened(detail: ErrorDetail) -> ErrorDetail:
    """Return the detail with texts of some length, and with values that JSON can hold and are short too."""
    return detail.model_copy(
        update={
            "message": shorten(detail.message, MAX_MESSAGE),
            "field": None if detail.field is None else shorten(detail.field, MAX_VALUE),
            "remediation": None if detail.remediation is None else shorten(detail.remediation, MAX_MESSAGE),
            "value": _short(_json_or_text(detail.value)),
            "expected": _short(_json_or_text(detail.expected)),
        }
    )


def _short(value: Any) -> Any:
    """Return a value that fits into an error; a long one is cut as text."""
    text = value if isinstance(value, str) else canonical_json(value)
    return value if len(text) <= MAX_VALUE else shorten(text, MAX_VALUE)


def _json_or_text(value: Any) -> Any:
    try:
        return to_json(value)
    except NotJson:
        return readable(repr(value))


def _unforeseen(exc: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> ErrorDetail:
    error_id = uuid.uuid4().hex
    logger.error("handler failed unexpectedly", exc_info=exc, extra={"error_id": error_id})
    return ErrorDetail(
        code=INTERNAL, message=f"the handler failed unexpectedly ({type(exc).__name__})", error_id=error_id
    )
