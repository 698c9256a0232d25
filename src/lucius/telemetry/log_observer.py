"""The observer that logs: final failures, circuit and repairs at high levels, retries and timeouts at low ones, little
else.

It checks the level first. At INFO a turn without failures costs one table lookup per event.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from lucius.domain.effects import Event, Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.job import Job
from lucius.ports.bus import BusUnavailable
from lucius.ports.ledger import Change, LedgerUnavailable, Repairs
from lucius.ports.observer import Observer
from lucius.sql.database import DatabaseUnavailable
from lucius.telemetry.logs import job_fields

REPEAT_SECONDS = 10.0
KINDS_MAX = 256

DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING

_LEVEL_OF: dict[str, int] = {
    "ACCEPTED": DEBUG,
    "ATTEMPT_CREATED": DEBUG,
    "PUBLISHED": DEBUG,
    "STILL_QUEUED": DEBUG,
    "JOB_SUCCEEDED": DEBUG,
    "JOB_FAILED": WARNING,
    "CLOCK_CORRECTED": WARNING,
}
"""All other events are logged at INFO; a callback only if it was not applied."""
_CALLBACKS = frozenset({"ACK", "HEARTBEAT", "RESULT"})
_EXPECTED = (LedgerUnavailable, BusUnavailable, DatabaseUnavailable, InfrastructureError, TimeoutError, OSError)


class LogObserver(Observer):
    def __init__(self, log: logging.Logger | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log or logging.getLogger("lucius.jobs")
        self._damper = _Damper(monotonic)
        self._outage = _Outage(monotonic)

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        log = self._log
        if not log.isEnabledFor(WARNING):
            return
        least = log.getEffectiveLevel()
        for change in changes:
            for event in change.events:
                kind = event.type
                level = _callback_level(event) if kind in _CALLBACKS else _LEVEL_OF.get(kind, INFO)
                if level >= least:
                    self._event(level, change.after, event)
        if least <= DEBUG:
            log.debug("turn of %d inputs and %d changes took %.1f ms", inputs, len(changes), seconds * 1000)

    def _event(self, level: int, job: Job, event: Event) -> None:
        data = event.data
        code = data.get("code")
        parts = [event.type]
        if "outcome" in data:
            parts.append(str(data["outcome"]))
        if code is not None:
            parts.append(f"{code}: {data.get('message', '')}")
        if "by" in data:
            parts.append(f"by {data['by']}")
        extra = {
            **job_fields(job),
            "event": event.type,
            "code": code,
            "step_id": event.step_id,
            "attempt_no": event.attempt_no,
        }
        self._log.log(level, "job %s: %s", job.job_id, " ".join(parts), extra=extra)

    def command_refused(self, code: str, tenant_id: str | None = None) -> None:
        if self._log.isEnabledFor(DEBUG):
            self._log.debug("command refused: %s", code, extra={"code": code})

    def callback_answered(self, kind: str, outcome: str) -> None:
        if outcome != "FORGED":
            return
        count = self._damper.count(f"forged {kind}")
        if count:
            self._log.warning("%d %s with a missing, forged or expired token refused", count, kind)

    def reply_refused(self, code: str) -> None:
        count = self._damper.count(f"reply {code}")
        if count:
            self._log.warning("%d messages on reply topics are dead letters now: %s", count, code)

    def worker_answered(self, outcome: str) -> None:
        if outcome != "FORGED":
            return
        count = self._damper.count("forged worker results")
        if count:
            self._log.warning("%d runbook results with a missing or wrong job token refused", count)

    def dispatched(self, count: int, lag_seconds: float) -> None:
        if self._log.isEnabledFor(DEBUG):
            self._log.debug("%d directives dispatched, the oldest after %.3f s", count, lag_seconds)

    def circuit_changed(self, is_open: bool, reason: str) -> None:
        self._log.warning("circuit of the bus %s: %s", "opened" if is_open else "closed", reason)

    def swept(self, kind: str, count: int) -> None:
        if self._log.isEnabledFor(DEBUG):
            self._log.debug("swept %s: %d", kind, count)

    def repaired(self, repairs: Repairs) -> None:
        if repairs.slots or repairs.wake_ups or repairs.outbox:
            self._log.warning(
                "drift repaired: %d in-flight counts, %d jobs without a timer, %d outbox rows",
                repairs.slots,
                repairs.wake_ups,
                repairs.outbox,
            )

    def source_troubled(self, runbook: str, state: str, reason: str) -> None:
        count = self._damper.count(f"source {state} {runbook}")
        if count:
            what = "could not be read" if state == "failed" else "is held"
            times = "" if count == 1 else f" ({count} times)"
            self._log.warning("the data source of runbook %s %s%s: %s", runbook, what, times, reason)

    def operation_moved(self, operation_id: str, action: str, status: str, sentence: str) -> None:
        level = WARNING if status == "STOPPED" else INFO
        self._log.log(level, "operation %s (%s) is %s: %s", operation_id, action, status, sentence)

    def failed(self, what: str, error: BaseException) -> None:
        kind = type(error).__name__
        if isinstance(error, _EXPECTED) and self._outage.is_open:
            self._outage.failures += 1
            return
        count = self._damper.count(f"{what} {kind}")
        if count:
            times = "" if count == 1 else f" ({count} times)"
            trace = None if isinstance(error, _EXPECTED) else error
            self._log.warning("%s failed%s: %s: %s", what, times, kind, error, exc_info=trace)

    def loop_failed(self, name: str, error: BaseException) -> None:
        if not isinstance(error, _EXPECTED):
            self.failed(name, error)
        elif self._outage.begins(name):
            self._log.warning(
                "%s failed: %s: %s; further failures are counted until it recovers", name, type(error).__name__, error
            )

    def loop_worked(self, name: str) -> None:
        if self._outage.is_open and self._outage.ends(name):
            outage = self._outage
            self._log.warning(
                "recovered after %.1f s: %d failures of %s", outage.seconds, outage.failures, ", ".join(outage.names)
            )


def _callback_level(event: Event) -> int:
    data = event.data
    if "retry_at" in data or data.get("outcome", Outcome.APPLIED) != Outcome.APPLIED:
        return INFO
    return DEBUG


class _Outage:
    """From the first failure of a loop until every loop that failed since has worked again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began_at = 0.0
        self._failing: set[str] = set()
        self.failures = 0
        self.names: dict[str, None] = {}
        """The loops that failed, in the order of their first failures."""

    @property
    def is_open(self) -> bool:
        return bool(self._failing)

    @property
    def seconds(self) -> float:
        return self._monotonic() - self._began_at

    def begins(self, name: str) -> bool:
        """Count a failure; returns whether it is the first."""
        is_first = not self._failing
        if is_first:
            self._began_at, self.failures, self.names = self._monotonic(), 0, {}
        self._failing.add(name)
        self.names[name] = None
        self.failures += 1
        return is_first

    def ends(self, name: str) -> bool:
        """Whether no loop fails any more."""
        self._failing.discard(name)
        return not self._failing


class _Damper:
    """Passes one of a kind every few seconds, with the number since the last one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, int]] = {}

    def count(self, kind: str) -> int:
        """How many of this kind to log now, including this one; 0 to log nothing."""
        now = self._monotonic()
        spoken_at, held_back = self._seen.get(kind, (None, 0))
        if spoken_at is not None and now - spoken_at < REPEAT_SECONDS:
            self._seen[kind] = (spoken_at, held_back + 1)
            return 0
        if len(self._seen) >= KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        return held_back + 1
