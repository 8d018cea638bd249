"""What an exception of a handler means to the engine."""

import errno
import logging
import uuid
from typing import Any

from core.errors import Classification, ErrorDetail, GeodagError
from handlers.json_values import NotJson, safe_text, to_json

OUT_OF_MEMORY = "TASK_OUT_OF_MEMORY"
OUT_OF_DISK = "TASK_OUT_OF_DISK"
TIMEOUT = "TASK_TIMEOUT"
INTERNAL = "INTERNAL"

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def error_of(exc: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> ErrorDetail:
    """Return what to report for `exc`.

    Our own errors carry their code. No memory and no disk have codes of their own: the disk may be free again, but
    the same task meets the same memory limit, so only the first is tried again. What nobody foresaw is a defect: it
    is permanent, its traceback goes to the log and the `error_id` finds it there; the reader never sees its text,
    which may quote anything.
    """
    match exc:
        case GeodagError():
            return sanitised(exc.detail)
        case MemoryError():
            return out_of_memory("the handler asked for more memory than the task may use")
        case OSError() if exc.errno in _DISK_ERRORS:
            return ErrorDetail(
                code=OUT_OF_DISK,
                message="there was no room left to write the task's files",
                classification=Classification.TRANSIENT,
            )
        case _:
            return _unforeseen(exc, logger)


def out_of_memory(message: str) -> ErrorDetail:
    """Return the error of a task that met its memory limit."""
    return ErrorDetail(code=OUT_OF_MEMORY, message=message, remediation="Send smaller data or raise the memory limit.")


def sanitised(detail: ErrorDetail) -> ErrorDetail:
    """Return the detail with text and value that JSON and jsonb can hold."""
    return detail.model_copy(
        update={
            "message": safe_text(detail.message),
            "value": _json_or_text(detail.value),
            "remediation": safe_text(detail.remediation) if detail.remediation else detail.remediation,
        }
    )


def _json_or_text(value: Any) -> Any:
    try:
        return to_json(value)
    except NotJson:
        return safe_text(repr(value))


def _unforeseen(exc: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> ErrorDetail:
    error_id = uuid.uuid4().hex
    logger.error("handler failed unexpectedly", exc_info=exc, extra={"error_id": error_id})
    return ErrorDetail(
        code=INTERNAL, message=f"the handler failed unexpectedly ({type(exc).__name__})", error_id=error_id
    )
