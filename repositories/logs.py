"""Structured logs of every process: constant events, data in `extra`, secrets never.

Call `setup_logging` once in a composition root. `redact` is also used where a text leaves the process in an error.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

HIDDEN: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"(password|passwd|pwd|secret|token(?!_hash)|api_?key|service_?key|upload_?key|account_?key|authorization|cookie"
    r"|signature|credential|connection_?string|sas)$",
    re.IGNORECASE,
)
_PATTERNS: Final = (
    # key=value and key: value, as in connection strings, headers and URLs
    re.compile(
        r"(?i)(?<![a-z0-9])(password|passwd|pwd|secret|token|api[-_]?key|service[-_]key|upload[-_]key|account[-_]?key"
        r"|sharedaccesskey|sharedaccesssignature|sig|signature)([\"']?\s*[=:]\s*)"
        r"(\"[^\"]*\"|'[^']*'|[^\s&;,\"'}]+)"
    ),
    re.compile(r"(?i)([?&]code)(=)([^\s&;,\"']+)"),
    re.compile(r"(?i)(authorization)([\"']?\s*[=:]\s*[\"']?)((?:bearer|basic)\s+[^\s,;\"']+|[^\s,;\"']+)"),
    # user:password@host
    re.compile(r"(?i)([a-z][a-z0-9+.-]*://[^\s:/@]+)(:)([^\s/@]+)(?=@)"),
    # upload addresses carry their credential in the path
    re.compile(r"(/uploads)(/)([A-Za-z0-9_\-.=~]{24,})"),
)
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_ESCAPED: Final = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""A value with a line break would look like another event, and a terminal obeys the rest."""
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


def redact(text: str) -> str:
    """Return a text without passwords, keys, tokens and signatures."""
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", text)
    return _BEARER.sub(lambda match: f"{match[1]}{HIDDEN}", text)


def redact_value(name: str, value: Any) -> Any:
    """Return a logged value without secrets, whether its name or its content gives it away."""
    if isinstance(value, dict):
        return {str(key): redact_value(str(key), item) for key, item in value.items()}
    if _SECRET_NAME.search(name) and value is not None:
        return HIDDEN
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_value(name, item) for item in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return redact(str(value))


class JsonFormatter(logging.Formatter):
    """One JSON object a line; every text in it is redacted."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "event": redact(record.getMessage()),
            **extras(record),
        }
        if record.exc_info:
            entry["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str).translate(_ESCAPED)


class TextFormatter(logging.Formatter):
    """One readable line for a terminal; redacted like the JSON."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one readable line, a traceback below it."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        data = " ".join(f"{name}={value}" for name, value in extras(record).items())
        said = f"{redact(record.getMessage())} {data}".rstrip().translate(_ESCAPED)
        line = f"{moment} {record.levelname:<7} {self._process} {said}"
        if record.exc_info:
            line += "\n" + redact(self.formatException(record.exc_info))
        return line


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the caller gave as `extra`, redacted."""
    given = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    return {name: redact_value(name, value) for name, value in given.items() if not name.startswith("_")}


def setup_logging(level: str, log_format: str, process: str, stream: TextIO | None = None) -> None:
    """Send every logger of this process to one stream (default: standard error) in the given format.

    Replaces the handlers that are there; libraries that log every request or every retry stay at WARNING.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(TextFormatter(process) if log_format == "text" else JsonFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(noisy).handlers.clear()
        logging.getLogger(noisy).propagate = True
    for quiet in ("uvicorn.access", "aiohttp.access", "azure", "rasterio", "asyncio", "psycopg.pool"):
        logging.getLogger(quiet).setLevel(max(logging.WARNING, root.level))
