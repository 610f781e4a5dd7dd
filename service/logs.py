"""How the log looks: one record is one line, as a JSON object or for people, whatever is in it.

A log is read by machines that split it at line ends, and by people who trust what stands at the beginning of a line.
What comes from a caller, a model or a plug-in can end no line, start none, hide nothing and make none endless.
"""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import orjson

from service.probe_paths import BACKGROUND_PATHS

MAX_MESSAGE_CHARS = 4096
MAX_TRACEBACK_CHARS = 8192

# Docker's log drivers split longer lines, and a part of a JSON object is none.
MAX_LINE_BYTES = 16 * 1024

# Traceback entries per exception, the innermost ones; a recursion has a thousand.
_MAX_FRAMES = 40

_MAX_NAME_CHARS = 64
_MAX_ITEMS = 64

# Larger whole numbers are no exact ones to most readers of JSON, and very large ones cannot be written at all.
_MAX_INT_BITS = 64

# So much is cut when a line is too long although its parts are not: JSON writes a character beyond ASCII in 6 or 12.
_ESCAPED_CHARS = 12

_requests = logging.getLogger("jitney.request")


class LogFormat(StrEnum):
    """What a line of the log is."""

    JSON = "json"
    TEXT = "text"


class JsonLines(logging.Formatter):
    """One JSON object per record, in ASCII; never raises.

    `time` (ISO 8601, UTC, milliseconds), `level`, `logger`, `message`, the record's `fields` when there are some, and
    for errors `exception`, whose middle is left out when it is long.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        return _guarded(_json_line, record)


class TextLines(logging.Formatter):
    """One line per record for people, and below it the lines of its traceback behind a bar; never raises."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, or several that are told from records by the bar they begin with."""
        return _guarded(_text_lines, record)


def log_config(log_format: LogFormat, level: str) -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`: everything from `level` on, one stream, in one format."""
    formatter = JsonLines if log_format is LogFormat.JSON else TextLines
    to_stderr = {"level": level.upper(), "handlers": ["stderr"]}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": to_stderr,
        "loggers": {"gunicorn.error": {**to_stderr, "propagate": False}},
    }


def is_request_logged(route: str) -> bool:
    """Whether `log_request` would do anything; asked before what it is to be told is looked up."""
    return _requests.isEnabledFor(_level(route))


def log_request(
    *,
    method: str,
    route: str,
    status: int,
    duration_ms: float,
    request_id: str | None,
    client: str | None = None,
    rows: int | None = None,
    queue_ms: float | None = None,
    model_ms: float | None = None,
    batch_sizes: Sequence[int] = (),
    model: str | None = None,
    version: str | None = None,
    problem: str | None = None,
) -> None:
    """Log one line about a request that has been answered; what is None is left out.

    route: the URL rule, never the path itself: neither it nor a query string or a body has a place in a log. client:
    the address of the connection's other side. queue_ms, model_ms: of the row that waited or ran longest. batch_sizes:
    of the batches that carried the rows. problem: the title of the error that was answered. Probes are logged at the
    level debug. *Thread:* any.
    """
    level = _level(route)
    if not _requests.isEnabledFor(level):
        return
    fields = {
        "request_id": request_id,
        "method": method,
        "route": route,
        "status": status,
        "problem": problem,
        "duration_ms": _ms(duration_ms),
        "rows": rows,
        "queue_ms": _ms(queue_ms),
        "model_ms": _ms(model_ms),
        "batch_sizes": list(batch_sizes) or None,
        "model": model,
        "version": version,
        "client": client,
    }
    log_fields(_requests, level, f"{method} {route} {status}", fields)


def log_fields(log: logging.Logger, level: int, message: str, fields: Mapping[str, Any]) -> None:
    """Log `message` with named values beside it, those left out that are None.

    Made here and not by the logger, which would walk the stack to find out a place that no line shows.
    """
    if log.isEnabledFor(level):
        shown = {name: value for name, value in fields.items() if value is not None}
        log.handle(log.makeRecord(log.name, level, "", 0, message, (), None, extra={"fields": shown}))


def _level(route: str) -> int:
    return logging.DEBUG if route in BACKGROUND_PATHS else logging.INFO


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _guarded(write: Callable[[logging.LogRecord], str], record: logging.LogRecord) -> str:
    """The line for a record, or one that says that there was one: a log that fails must not cost anybody an answer."""
    try:
        return write(record)
    except Exception as error:
        told = f"a record of the log cannot be shown ({type(error).__name__})"
        return write(logging.makeLogRecord({"levelname": "ERROR", "name": "jitney", "msg": told}))


def _json_line(record: logging.LogRecord) -> str:
    line = ""
    for shrink, has_fields in ((1, True), (_ESCAPED_CHARS, True), (_ESCAPED_CHARS, False)):
        line = _encoded(_entry(record, shrink, has_fields))
        if len(line) <= MAX_LINE_BYTES:
            break
    return line


def _encoded(entry: dict[str, Any]) -> str:
    """JSON in ASCII: a stream may have any encoding, and put something in the place of what that lacks."""
    line = orjson.dumps(entry)  # a tenth of what the standard library takes, but only that can escape
    return line.decode("ascii") if line.isascii() else json.dumps(entry)


def _entry(record: logging.LogRecord, shrink: int, has_fields: bool) -> dict[str, Any]:
    """The record as an object; its texts are cut to their limits divided by `shrink`."""
    message_chars, traceback_chars = MAX_MESSAGE_CHARS // shrink, MAX_TRACEBACK_CHARS // shrink
    entry: dict[str, Any] = {
        "time": _time(record.created),
        "level": _name(record.levelname).lower(),
        "logger": _name(record.name),
        "message": _cut(_message(record), message_chars),
    }
    if told := _traceback(record, traceback_chars):
        entry["exception"] = told
    for name, value in _fields(record) if has_fields else ():
        entry.setdefault(name, _plain(value, message_chars))
    return entry


def _text_lines(record: logging.LogRecord) -> str:
    message = _cut(_message(record), MAX_MESSAGE_CHARS)
    head = f"{_time(record.created)} {_name(record.levelname)} {_name(record.name)}: {message}"
    values = [f"{name}={_for_people(_plain(value, MAX_MESSAGE_CHARS))}" for name, value in _fields(record)]
    told = [f"  | {_printable(line)}" for line in _traceback(record, MAX_TRACEBACK_CHARS).splitlines()]
    return "\n".join([_printable(" ".join([head, *values])), *told])


def _time(created: float) -> str:
    """`created`, seconds since 1970, as ISO 8601 in UTC with milliseconds."""
    whole = math.floor(created)
    return f"{_second(whole)}.{math.floor((created - whole) * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(since_1970: int) -> str:
    return datetime.fromtimestamp(since_1970, UTC).isoformat()[:19]


def _message(record: logging.LogRecord) -> str:
    try:
        return _well_formed(record.getMessage())
    except Exception:
        return _well_formed(record.msg) if isinstance(record.msg, str) else "(a message that cannot be shown)"


def _traceback(record: logging.LogRecord, limit_chars: int) -> str:
    error = record.exc_info
    if not error or error[0] is None:
        return ""
    try:
        told = "".join(traceback.format_exception(*error, limit=-_MAX_FRAMES)).rstrip()
    except Exception:
        told = f"{error[0].__name__}, which cannot be shown"
    # Where it began and what it was stand at the two ends.
    told = _well_formed(told)
    if len(told) <= limit_chars:
        return told
    half = limit_chars // 2
    return f"{told[:half]}\n... {len(told) - 2 * half} characters left out ...\n{told[-half:]}"


def _fields(record: logging.LogRecord) -> list[tuple[str, Any]]:
    fields = getattr(record, "fields", None)
    return [(_name(name), value) for name, value in fields.items()] if isinstance(fields, dict) else []


def _plain(value: Any, limit_chars: int) -> Any:
    """`value` as something that JSON has."""
    if type(value) is str and value.isascii() and len(value) <= limit_chars:
        return value  # most are like this
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _MAX_INT_BITS else "(a number that is too long)"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return [_plain(each, limit_chars) for each in value[:_MAX_ITEMS]]
    try:
        return _cut(_well_formed(str(value)), limit_chars)
    except Exception:
        return "(a value that cannot be shown)"


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    """A name from the code, as it is shown."""
    return _cut(_well_formed(str(text)), _MAX_NAME_CHARS)


def _for_people(value: Any) -> str:
    """Quoted where it could be taken for something else."""
    text = str(value).replace(" ", "") if isinstance(value, list) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\n\r\t') else text


def _well_formed(text: str) -> str:
    """`text` with halves of surrogate pairs replaced: strict readers of JSON refuse them, and no encoding has them."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _printable(text: str) -> str:
    """`text` on one line: what moves the cursor, ends a line or turns the writing around is shown by its code."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _cut(text: str, limit_chars: int) -> str:
    left_out = len(text) - limit_chars
    return text if left_out <= 0 else f"{text[:limit_chars]}... ({left_out} characters left out)"
