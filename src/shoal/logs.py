"""Logs: events with a stable name and fields, on stderr or in a file, with secrets removed."""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shoal.errors import UsageError

_LOGGER = logging.getLogger("shoal")
_bound_fields: contextvars.ContextVar[Mapping[str, object]] = contextvars.ContextVar(
    "shoal_log", default=MappingProxyType({})
)
_lazy_fields: contextvars.ContextVar[Callable[[], Mapping[str, object]] | None] = contextvars.ContextVar(
    "shoal_log_about", default=None
)
_process_fields: dict[str, object] = {}  # of this process; threads that others start know no context

HIDDEN = "[hidden]"
_SENSITIVE_WORDS = (
    r"token|key|api[_-]?key|apikey|pass(?:word|wd|phrase)?|pwd|secret|sig|signature|auth(?:orization)?"
    r"|credentials?|session(?:[_-]?id)?|sid|jwt|cookie|x-amz-[a-z-]+"
)
_SECRET_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token")
)
_USERINFO = re.compile(r"(?<=://)[^/\s?#@'\"]*(?:@[^/\s?#@'\"]*)*@")
_SECRET_NAME = rf"(?:[a-z0-9]+[_.-])*(?:{_SENSITIVE_WORDS})"
_PARAMETER = re.compile(rf"(?i)([?&;]{_SECRET_NAME}=)[^&#\s'\"]*")
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)(['\"]?\s*[:=]\s*)[^\r\n]+"
)
_SHOAL_TOKEN = re.compile(r"shoal_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")  # as `shoal token add` makes them
_SECRET_FIELD = re.compile(rf"(?i){_SECRET_NAME}")


def redact(value: Any) -> Any:
    """The same value without passwords in URLs, secret query parameters and secret headers."""
    if isinstance(value, str):
        if "shoal_" in value:
            value = _SHOAL_TOKEN.sub(HIDDEN, value)
        if not value.isprintable() or "=" in value or "@" in value or ":" in value:
            value = _USERINFO.sub(f"{HIDDEN}@", value)
            value = _PARAMETER.sub(rf"\g<1>{HIDDEN}", value)
            value = _HEADER.sub(rf"\g<1>\g<2>{HIDDEN}", value)
        return value
    if isinstance(value, bytes):
        return redact(value.decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return {str(key): _redact_field(str(key), item) for key, item in value.items()}
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return [value[0], _redact_field(value[0], value[1])]  # a header as a pair
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item) for item in value]
    return value


def _redact_field(name: str, value: object) -> object:
    secret = name.lower() in _SECRET_HEADERS or (isinstance(value, str) and _SECRET_FIELD.fullmatch(name))
    return HIDDEN if secret else redact(value)


def log(event: str, /, level: str = "info", **fields: object) -> None:
    """Log an event with a stable name such as "task.retry"; what is bound comes with it."""
    number = logging.getLevelNamesMapping()[level.upper()]
    if _LOGGER.isEnabledFor(number):
        _LOGGER.log(number, event, extra={"fields": fields})


def bind(**fields: object) -> None:
    """Fields such as run, task and worker for every later event of this context."""
    _bound_fields.set({**_bound_fields.get(), **fields})


def bind_lazy(fields: Callable[[], Mapping[str, object]] | None) -> None:
    """Fields for every later event of this context, computed only when something is logged."""
    _lazy_fields.set(fields)


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Fields for the events of a block."""
    token = _bound_fields.set({**_bound_fields.get(), **fields})
    try:
        yield
    finally:
        _bound_fields.reset(token)


def setup_logging(
    *, format: str = "console", level: str = "warning", file: str = "", fields: Mapping[str, object] | None = None
) -> None:
    """Send all logs of this process to one place, each with these fields; calling it again replaces both."""
    _process_fields.clear()
    _process_fields.update(fields or {})
    handler = _handler(file)
    handler.setFormatter(JsonFormatter() if format == "json" else ConsoleFormatter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if getattr(old, "is_shoal_handler", False)]:
        root.removeHandler(old)
        old.close()
    handler.is_shoal_handler = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(level.upper())  # what a scraper's own code logs, too
    _LOGGER.setLevel(level.upper())
    logging.captureWarnings(True)


def _handler(file: str) -> logging.Handler:
    if not file:
        return logging.StreamHandler(sys.stderr)
    try:
        return logging.FileHandler(Path(file), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", hint="choose another --log-file") from error


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "fields"}


def _event_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of the process, those bound, those given to `log`, and `extra` of plain logging calls."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    lazy_fields = _lazy_fields.get()
    known = {**_process_fields, **(lazy_fields() if lazy_fields is not None else {}), **_bound_fields.get()}
    fields = dict(redact({**known, **extra, **getattr(record, "fields", {})}))
    if record.name.partition(".")[0] != _LOGGER.name:
        fields["logger"] = record.name
    if record.exc_info:
        fields["traceback"] = redact(logging.Formatter().formatException(record.exc_info))
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: at, level, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": redact(record.getMessage()),
        }
        return json.dumps(head | _event_fields(record), ensure_ascii=False, default=str)


class ConsoleFormatter(logging.Formatter):
    """One line for people: time, level, event, name=value."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        fields = _event_fields(record)
        trace = fields.pop("traceback", "")
        words = " ".join(f"{name}={_format_value(value)}" for name, value in fields.items())
        line = f"{at} {record.levelname.lower():<7} {redact(record.getMessage())}"
        line = f"{line}  {words}" if words else line
        return f"{line}\n{trace}" if trace else line


def _format_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    plain = text and text.isprintable() and not any(char in text for char in " \"'")
    return text if plain else json.dumps(text, ensure_ascii=False)
