"""Logs: one line per record on stderr, as JSON or text, with the ids of its subject and without credentials.

On a terminal, unless configured otherwise: warnings only, as short lines without the ids that the message has anyway.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from lucius.domain.job import Job
from lucius.domain.time import iso
from lucius.settings import Settings, SettingsError
from lucius.telemetry.redaction import Redactor

FIELDS = ("event", "code", "job_id", "step_id", "tenant_id", "attempt_no", "correlation_id", "trace_id")
"""Fields that a record may have in `extra`; a line shows those that are set."""
TEXT_CHARS_MAX = 16_384

AUTO = "auto"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("json", "text")
_TALKATIVE = ("httpx", "httpcore")
"""Loggers that log every address they call, which may contain a secret."""

_encode = msgspec.json.Encoder().encode


def job_fields(job: Job) -> dict[str, Any]:
    """The `extra` fields of a job."""
    spec = job.spec
    fields = {"job_id": spec.job_id, "tenant_id": spec.tenant_id, "correlation_id": spec.correlation_id}
    if spec.traceparent is not None:
        fields["trace_id"] = spec.traceparent[3:35]
    return fields


def configure_logs(settings: Settings, secrets: Iterable[str] = ()) -> None:
    """Send this process's logs to stderr as configured. `secrets` are removed from every line. Calling it again
    replaces the earlier setup. Raises `SettingsError`."""
    is_terminal = sys.stderr.isatty()
    level = settings.log_level.upper()
    if level == AUTO.upper():
        level = "WARNING" if is_terminal else "INFO"
    if level not in LEVELS:
        raise SettingsError(f"LUCIUS_LOG_LEVEL={settings.log_level!r}: there are {', '.join(LEVELS)} and {AUTO}")
    if settings.log_format not in (AUTO, *FORMATS):
        raise SettingsError(f"LUCIUS_LOG_FORMAT={settings.log_format!r}: there are {', '.join(FORMATS)} and {AUTO}")
    redactor = Redactor((*settings.secret_values, *secrets))
    handler = LogHandler(sys.stderr)
    handler.setFormatter(_formatter(settings.log_format, is_terminal)(redactor))
    root = logging.getLogger()
    for other in [other for other in root.handlers if isinstance(other, LogHandler)]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("lucius").setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def hide_in_logs(secrets: Iterable[str]) -> None:
    """Remove these from every line from now on: secrets that were not known when the logs were configured."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogHandler) and isinstance(handler.formatter, _Formatter):
            handler.formatter.redactor.add(secrets)


def _formatter(log_format: str, is_terminal: bool) -> type[_Formatter]:
    if log_format == AUTO:
        return TerminalFormatter if is_terminal else JsonFormatter
    return JsonFormatter if log_format == "json" else TextFormatter


class LogHandler(logging.StreamHandler[Any]):
    """The handler that `configure_logs` installs."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Logging never stops the work: a line that cannot be written is lost, without a message."""


class _Formatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self.redactor = redactor

    def _clean(self, text: str) -> str:
        # Cut twice: a credential that the first cut splits is beyond the second cut.
        return self.redactor.redact(text[: 2 * TEXT_CHARS_MAX])[:TEXT_CHARS_MAX]

    def _message(self, record: logging.LogRecord) -> str:
        return self._clean(record.getMessage())

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = value if isinstance(value, int | float) else self._clean(str(value))
        return fields

    def _error(self, record: logging.LogRecord) -> str | None:
        return self._clean(self.formatException(record.exc_info)) if record.exc_info else None


class JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": iso(int(record.created * 1000)),
            "level": record.levelname,
            "logger": record.name,
            "message": self._message(record),
            **self._fields(record),
        }
        error = self._error(record)
        if error is not None:
            line["error"] = error
        try:
            return _encode(line).decode()
        except (UnicodeEncodeError, UnicodeDecodeError):
            # A lone surrogate must not make the whole line fail.
            clean = {
                name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
                for name, value in line.items()
            }
            return _encode(clean).decode()


class TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in self._fields(record).items())
        line = f"{iso(int(record.created * 1000))} {record.levelname:<7} {record.name}: {self._message(record)}{fields}"
        error = self._error(record) or ""
        return "\n    ".join(escaped(part) for part in (line, *error.split("\n")) if part)


class TerminalFormatter(_Formatter):
    """For the person who looks at the terminal: the time of day in UTC, the level, the message."""

    def format(self, record: logging.LogRecord) -> str:
        time_of_day = iso(int(record.created * 1000))[11:19]
        line = f"{time_of_day} {record.levelname:<8} {self._message(record)}"
        error = self._error(record) or ""
        return "\n    ".join(escaped(part) for part in (line, *error.split("\n")) if part)


def escaped(text: str) -> str:
    """One line without control characters, including those of writing direction, so that an id can neither forge a log
    line nor control the reader's terminal."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
