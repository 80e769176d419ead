"""Logging: a constant phrase for each message and the data in fields, one line each, on standard error.

log = logging.getLogger(__name__)
log.info("batch committed", extra=fields(table="profiles", snapshot_id=123, rows=10_000))
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

from thermocline.process.masking import mask_password, mask_secrets
from thermocline.text.shown import as_field, json_form, json_text
from thermocline.text.typed import as_typed

Level = Literal["debug", "info", "warning", "error"]

# Their INFO lines are about themselves, once per request, connection or process, and would bury ours.
CHATTY: Final = ("py4j", "httpx", "httpcore", "uvicorn.access", "uvicorn.error", "asyncio", "urllib3")


# Ours, and those that are printed beside them.
_COMMAND: Final = re.compile(r"(?<![\w./-])(thermocline|make|pip install|rm|kill) [^\s]")


def fields(**data: object) -> dict[str, object]:
    """The data of a message, for ``extra=``, as ``thermocline.text.shown`` shows values."""
    return {"fields": data}


def configure(level: Level = "info", json: bool = False) -> None:
    """Sends the whole process's log to standard error, as plain lines or as one JSON object a line.

    Calling it again replaces what an earlier call set.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if json else _PlainLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


class _PlainLines(logging.Formatter):
    """``12:00:00.123 INFO thermocline.log: topic described  table=profiles rows=3``."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        data = "".join(f" {name}={as_field(value)}" for name, value in _fields_of(record).items())
        said = _one_line(_message(record))
        line = mask_secrets(f"{time} {record.levelname} {record.name}: {said}{data and ' ' + data}")
        return f"{line}\n{_traceback(self, record)}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message and the fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        line |= {name: value for name, value in _fields_of(record).items() if name not in line}
        if record.exc_info:
            line["traceback"] = _traceback(self, record)
        return json_text(_masked(json_form(line)))


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields; ``next`` only where it has a command: what is to be waited for is waited for by itself."""
    data: dict[str, object] = getattr(record, "fields", {})
    shown = {name: as_typed(str(value)) if name == "next" else value for name, value in data.items()}
    if not _COMMAND.search(str(shown.get("next", ""))):
        shown.pop("next", None)
    return shown


def _message(record: logging.LogRecord) -> str:
    """Of other programs' libraries without what their words call a secret: ours never have one."""
    said = record.getMessage()
    return said if record.name.partition(".")[0] == "thermocline" else mask_password(said)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return mask_password(formatter.formatException(record.exc_info)) if record.exc_info else ""


def _masked(value: Any) -> Any:
    """Something in the types of JSON, without secrets."""
    match value:
        case str():
            return mask_secrets(value)
        case list():
            return [_masked(part) for part in value]
        case dict():
            return {name: _masked(part) for name, part in value.items()}
    return value


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
