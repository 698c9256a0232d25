"""Logs: their fields, their levels, and what never stands in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.callbacks import CallbackIds, CallbackKey, TokenSigner
from lucius.domain.inputs import Acked, DeadlinePassed, Published, Resulted
from lucius.ports.ledger import LedgerUnavailable, Repairs
from lucius.settings import Settings, SettingsError
from lucius.sql.database import DatabaseUnavailable
from lucius.telemetry import LogObserver, configure_logs
from lucius.telemetry.log_observer import REPEAT_SECONDS
from lucius.telemetry.logs import TEXT_CHARS_MAX, JsonFormatter, LogHandler
from lucius.telemetry.redaction import Redactor

TOKEN = TokenSigner((CallbackKey("k1", b"secret"),)).mint(CallbackIds("t", "j", "s", 1, "l"), 1_700_000_000_000, 60)


class Log:
    """What was written to stderr."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def levels(self) -> list[str]:
        return [line["level"] for line in self.lines]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Log]]:
    names = ("", "lucius", "httpx", "httpcore")
    levels = {name: logging.getLogger(name).level for name in names}

    def configure(secrets: tuple[str, ...] = (), **settings: Any) -> Log:
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        configure_logs(Settings(**settings), secrets)
        return Log(stream)

    yield configure
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, LogHandler)]:
        root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def failing(drive: Callable[..., Any]) -> Any:
    job = drive().accept().tell(Published("ocr", 1), 2_000).tell(Acked("ocr", 1, "lease-1"), 2_100)
    job.tell(Resulted("ocr", 1, "lease-1", Verdict.FAILED, error=Failure("BUSY", "later")), 3_000)
    job.tell(DeadlinePassed(), job.job.wake_at)
    return job.tell(Resulted("ocr", 2, "lease-2", Verdict.FAILED, retryable=False, error=Failure("BAD", "no")), 90_000)


def test_a_line_carries_the_ids_of_its_job(configured: Callable[..., Log], drive: Callable[..., Any]) -> None:
    log = configured(log_level="WARNING")
    LogObserver().turn_done(1, 0.001, failing(drive).changes)
    (line,) = log.lines
    assert line["level"] == "WARNING"
    assert line["event"] == "JOB_FAILED"
    assert line["code"] == "BAD"
    assert line["job_id"] == "018f6b1e-7c00-7000-8000-0123456789ab"
    assert line["tenant_id"] == "acme"
    assert line["correlation_id"] == "corr-1"
    assert line["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert line["at"].endswith("Z")
    assert line["logger"] == "lucius.jobs"


def test_levels_tell_failures_retries_and_progress_apart(
    configured: Callable[..., Log], drive: Callable[..., Any]
) -> None:
    log = configured(log_level="INFO")
    LogObserver().turn_done(1, 0.001, failing(drive).changes)
    assert [(line["level"], line["event"]) for line in log.lines] == [("INFO", "RESULT"), ("WARNING", "JOB_FAILED")]
    assert log.lines[0]["step_id"] == "ocr"
    assert log.lines[0]["attempt_no"] == 1
    log = configured(log_level="DEBUG")
    LogObserver().turn_done(1, 0.001, failing(drive).changes)
    assert {"ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED", "ACK"} <= {line.get("event") for line in log.lines}


def test_a_turn_without_trouble_logs_nothing_at_info(configured: Callable[..., Log], drive: Callable[..., Any]) -> None:
    log = configured(log_level="INFO")
    job = drive().accept().tell(Published("ocr", 1), 2_000).tell(Acked("ocr", 1, "lease-1"), 2_100)
    job.tell(Resulted("ocr", 1, "lease-1", Verdict.SUCCEEDED), 3_000)
    LogObserver().turn_done(4, 0.001, job.changes)
    assert log.text == ""


def test_timeouts_are_worth_an_info(configured: Callable[..., Log], drive: Callable[..., Any]) -> None:
    log = configured()
    job = drive().accept().tell(Published("ocr", 1), 2_000).tell(DeadlinePassed(), 40_000)
    LogObserver().turn_done(1, 0.001, job.changes)
    assert [(line["level"], line["event"]) for line in log.lines] == [("INFO", "ACK_TIMEOUT")]


def test_trouble_without_a_job_is_a_warning(configured: Callable[..., Log]) -> None:
    log = configured()
    observer = LogObserver()
    observer.circuit_changed(True, "no route")
    observer.repaired(Repairs())
    observer.repaired(Repairs(slots=1))
    observer.failed("sweep", LedgerUnavailable("disk full"))
    observer.callback_answered("ACK", "FORGED")
    observer.callback_answered("ACK", "APPLIED")
    observer.command_refused("FORBIDDEN")
    observer.dispatched(1, 0.1)
    observer.swept("deadline", 1)
    assert log.levels == ["WARNING"] * 4
    assert "disk full" in log.lines[2]["message"]
    assert "error" not in log.lines[2], "an outage needs no traceback"


def test_what_repeats_is_said_once_and_then_counted(configured: Callable[..., Log]) -> None:
    log, now = configured(), [0.0]
    observer = LogObserver(monotonic=lambda: now[0])
    for _ in range(100):
        observer.callback_answered("RESULT", "FORGED")
        observer.failed("sweep", LedgerUnavailable("gone"))
    assert len(log.lines) == 2
    now[0] += REPEAT_SECONDS
    observer.callback_answered("RESULT", "FORGED")
    observer.failed("sweep", LedgerUnavailable("gone"))
    assert log.lines[2]["message"].startswith("100 RESULT")
    assert "(100 times)" in log.lines[3]["message"]


def test_outage_of_loops_is_said_when_it_begins_and_counted_when_it_ends(configured: Callable[..., Log]) -> None:
    log, now = configured(), [0.0]
    observer = LogObserver(monotonic=lambda: now[0])
    for _ in range(2):
        for _ in range(50):
            observer.loop_failed("sweep", LedgerUnavailable("disk full"))
            observer.loop_failed("outbox", DatabaseUnavailable("disk full"))
            observer.failed(f"job {now[0]}", LedgerUnavailable("disk full"))
            now[0] += REPEAT_SECONDS
        observer.loop_worked("sweep")
        observer.loop_worked("repair")
        assert len(log.lines) % 2 == 1, "one of them still fails"
        observer.loop_worked("outbox")
        observer.loop_worked("outbox")
    assert [line["message"] for line in log.lines] == 2 * [
        "sweep failed: LedgerUnavailable: disk full; further failures are counted until it recovers",
        "recovered after 500.0 s: 150 failures of sweep, outbox",
    ]


def test_defect_of_a_loop_is_no_outage(configured: Callable[..., Log]) -> None:
    log = configured()
    observer = LogObserver()
    observer.loop_failed("sweep", ValueError("a defect"))
    observer.loop_worked("sweep")
    assert len(log.lines) == 1
    assert "error" in log.lines[0]


def test_a_defect_is_logged_with_its_traceback_and_without_credentials(configured: Callable[..., Log]) -> None:
    log = configured()
    try:
        raise ValueError(f"could not send {TOKEN}")
    except ValueError as error:
        LogObserver().failed("turn", error)
    assert "Traceback" in log.lines[0]["error"]
    assert TOKEN not in log.text


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    ("message", "secret"),
    [
        (f"callback_token {TOKEN} refused", TOKEN),
        ('{"callback_token":"' + TOKEN + '"}', TOKEN),
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ("authorization=Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("{'Authorization': 'Bearer short'}", "short"),
        ("(b'authorization', b'Bearer short')", "short"),
        ('{"authorization": "plain-key"}', "plain-key"),
        ("sent bearer  0123456789abcdef", "0123456789abcdef"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln here", "eyJzdWIiOiJ4In0"),
        ("secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("{'token': 'j1.k1.w5Vb0LIFOVDwXYZ0123456789abcdefghij'}", "w5Vb0LIFOVDwXYZ"),
        ("cannot reach postgresql://lucius:hunter2@db/lucius", "hunter2"),
        ("the key my-own-api-key was used", "my-own-api-key"),
        ("signed with callback-secret-1", "callback-secret-1"),
        ("and another told-secret", "told-secret"),
    ],
)
def test_credentials_are_never_written(configured: Callable[..., Log], form: str, message: str, secret: str) -> None:
    settings = {"log_format": form, "api_key": "my-own-api-key", "callback_keys": ("k1:callback-secret-1",)}
    log = configured(("told-secret",), **settings)
    logger = logging.getLogger("lucius.test")
    logger.warning(message)
    logger.warning("%s", message)
    logger.warning("in a field", extra={"correlation_id": message})
    logging.getLogger("somebody.else").error("%r", [message])
    assert secret not in log.text
    assert log.text.count("[redacted]") >= 4


@pytest.mark.parametrize(
    "text", ["the bearer of bad news", "v1.2.3", "v1.0", "j1.k1.x", "https://x.example:8000/a@b", "authorization"]
)
def test_innocent_text_is_left_alone(text: str) -> None:
    assert Redactor().redact(text) == text


def test_long_texts_are_cut_and_odd_ones_survive(configured: Callable[..., Log]) -> None:
    log = configured()
    logging.getLogger("lucius").warning("x" * 100_000)
    logging.getLogger("lucius").warning("y" * (2 * TEXT_CHARS_MAX - 10) + f" Bearer {'z' * 200}")
    assert len(log.lines[0]["message"]) == TEXT_CHARS_MAX
    assert "z" not in log.lines[1]["message"]
    record = logging.LogRecord("lucius", logging.WARNING, "", 0, "half a character: %s", ("\udcff",), None)
    record.tenant_id = "\ud800"
    assert json.loads(JsonFormatter(Redactor()).format(record))["message"] == "half a character: ?"


def test_text_lines_cannot_be_forged(configured: Callable[..., Log]) -> None:
    log = configured(log_format="text")
    logging.getLogger("lucius").warning("one\ntwo", extra={"correlation_id": "a\nERROR b"})
    assert len(log.text.splitlines()) == 1
    assert "correlation_id=a\\nERROR b" in log.text


def test_configuring_twice_writes_once(configured: Callable[..., Log]) -> None:
    configured()
    log = configured()
    logging.getLogger("lucius").info("hello")
    assert len(log.lines) == 1


def test_addresses_that_libraries_call_are_not_logged(configured: Callable[..., Log]) -> None:
    log = configured(log_level="DEBUG")
    logging.getLogger("httpx").info("HTTP Request: GET https://x.example/?key=1")
    assert log.text == ""


@pytest.mark.parametrize("settings", [{"log_level": "LOUD"}, {"log_format": "xml"}])
def test_unknown_levels_and_formats_are_refused_by_name(settings: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="LUCIUS_LOG_"):
        configure_logs(Settings(**settings))  # type: ignore[arg-type]


STEERING = "a\nb\rc\x1b[2Jd\x9b31me\u202ef\u2066g\u2028h\x00i\x7fj\u200fk\x85l"


def test_text_lines_hold_no_character_that_steers_a_terminal_or_forges_a_line(configured: Callable[..., Log]) -> None:
    log = configured(log_format="text")
    logging.getLogger("lucius.jobs").warning("job %s", STEERING, extra={"tenant_id": STEERING})
    (line,) = log.text.splitlines()
    assert line.isprintable()
    assert line.count(r"a\nb\rc\x1b[2Jd\x9b31me\u202ef\u2066g\u2028h\x00i\x7fj\u200fk\x85l") == 2


def test_text_of_an_error_keeps_its_lines_and_no_other_control(configured: Callable[..., Log]) -> None:
    log = configured(log_format="text")
    try:
        raise ValueError(STEERING)
    except ValueError:
        logging.getLogger("lucius.jobs").exception("it failed")
    lines = log.text.split("\n")
    assert lines[1] == "    Traceback (most recent call last):"
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith("    ") for line in lines[1:] if line), "no line of it looks like one of the log's own"


def test_text_lines_keep_what_people_write(configured: Callable[..., Log]) -> None:
    log = configured(log_format="text")
    logging.getLogger("lucius.jobs").warning("größe & co \N{GRINNING FACE} 東京 C:\\temp")
    assert "größe & co \N{GRINNING FACE} 東京 C:\\temp" in log.text
