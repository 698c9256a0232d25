"""One step of one member, init, rollback or removal: the pure state machine that drives them all.

Each method is a fact. It changes the execution, or does nothing and returns so: a duplicate, late or out-of-order fact
no longer applies. `ready` means that only a free slot is missing, `in_flight` that a worker has a job of this
execution, and `wake_at` is the time at which something must happen if nothing else does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.runbooks.core.definition.model import Step
from lucius.runbooks.core.execution_state import ExecutionState
from lucius.runbooks.core.states import (
    CANCELLED,
    DISPATCHED,
    FAILED,
    PENDING,
    POLL_TIMEOUT,
    POLLING,
    RETRIED,
    REVOCABLE,
    ROLLED_BACK,
    STEP,
    SUCCEEDED,
)

THROTTLE_SECONDS = 30
"""How long a throttled step without its own retry interval waits."""
POLL_INTERVAL_SECONDS = 300
POLL_TIMEOUT_SECONDS = 86_400
"""For a step without `poll` whose function says that it is still running."""
ERROR_CHARS_MAX = 4_000


class Execution(ExecutionState):
    """The facts that apply to an execution. A fact that no longer applies changes nothing."""

    # --- To the worker ----- ------------------------------------------------------------------------------------------

    def make_ready(self) -> bool:
        if self.ready or self.in_flight or not self.is_open:
            return False
        self.ready = True
        return True

    def send(self, now: Instant, step: Step) -> None:
        """Send a job, named by `job_id`."""
        self.ready, self.in_flight, self.retry_at = False, True, None
        self.dispatch_count += 1
        self.job_id = f"{self.kind}-{self.id}-a{self.dispatch_count}"
        self.has_token = True
        if self.status == POLLING:
            self.last_polled_at = now
            self.poll_count += 1
        else:
            self._move(DISPATCHED)
            self.dispatched_at = now
        # A throttled job that is sent again keeps its deadline, unless that passed while it waited for its turn.
        if self.timeout_at is None or self.timeout_at <= now:
            self.timeout_at = after(now, step.timeout_seconds)
        self._set_wake()

    def refuse(self, now: Instant, reason: str) -> None:
        """It cannot be sent: a variable has no value, or the bus rejects it. Retries would not help."""
        self.ready = False
        if self.status == PENDING:
            self._move(DISPATCHED)
            self.dispatched_at = now
        self._end(now, FAILED, reason)

    # --- From the worker ---------------------------------------------------------------------------------------------

    def take_success(self, now: Instant, result: Any) -> None:
        self.in_flight, self.retry_at = False, None
        if isinstance(result, dict) and _member(result, "complete") is False:
            self._still_polling(now)
            return
        self.result_json = None if result is None else msgspec.json.encode(result).decode()
        self._end(now, SUCCEEDED, None)

    def _still_polling(self, now: Instant) -> None:
        if not self.is_poll_step or self.poll_interval_sec is None or self.poll_timeout_sec is None:
            self.is_poll_step = True
            self.poll_interval_sec = self.poll_interval_sec or POLL_INTERVAL_SECONDS
            self.poll_timeout_sec = self.poll_timeout_sec or POLL_TIMEOUT_SECONDS
        if self.poll_started_at is None:
            self.poll_started_at = self.last_polled_at = now
        if self.status != POLLING:
            self._move(POLLING)
        self.timeout_at = None
        self._set_wake()

    def take_failure(self, now: Instant, step: Step, message: str, is_throttled: bool = False) -> None:
        """Schedule a retry if one is left; otherwise fail."""
        self.in_flight = False
        self.error_message = message[:ERROR_CHARS_MAX]
        if is_throttled:
            self.retry_at = after(now, _retry_seconds(step))
        elif self.retries_used < step.retry.max_retries:
            self.retries_used += 1
            self.retry_at, self.timeout_at = after(now, _retry_seconds(step)), None
        else:
            self._end(now, FAILED, message)
            return
        self._set_wake()

    # --- Time --------------------------------------------------------------------------------------------------------

    def poll(self, now: Instant, poll_count: int) -> bool:
        """Apply the `poll_count`th `poll-check`; returns whether anything changed."""
        if self.status != POLLING:
            return False
        if self._is_past(self.poll_deadline, now):
            self._end_polling(now)
            return True
        if not self.awaits_poll(poll_count):
            return False
        # With the row's own count, only the interval tells the next check from a repetition of the last one.
        return (poll_count > self.poll_count or self._interval_has_passed(now)) and self.make_ready()

    def _interval_has_passed(self, now: Instant) -> bool:
        if self.last_polled_at is None or self.poll_interval_sec is None:
            return True
        return after(self.last_polled_at, self.poll_interval_sec) <= now

    def wake(self, now: Instant, step: Step) -> bool:
        """Apply `wake_at`; returns whether anything changed."""
        if self.wake_at is None or self.wake_at > now:
            return False
        if not self.is_open:
            self.in_flight, self.timeout_at = False, None  # A cancelled job gets no result any more.
        elif self.status == POLLING and self._is_past(self.poll_deadline, now):
            self._end_polling(now)
        elif self._is_past(self.timeout_at, now):
            was_out, self.timeout_at = self.in_flight, None
            waited = f"no answer within {step.timeout_seconds} s" if was_out else "throttled until its timeout"
            self.take_failure(now, step, waited)
        elif self._is_past(self.retry_at, now):
            self.retry_at = None
            self.make_ready()
        self._set_wake()
        return True

    def shorten_waits(self, now: Instant, step: Step) -> bool:
        """Limit waits that a fast clock may have written to what the step allows; returns whether anything changed."""
        latest = {
            "retry_at": after(now, _retry_seconds(step)),
            "timeout_at": after(now, step.timeout_seconds),
            "dispatched_at": now,
            "poll_started_at": now,
            "last_polled_at": now,
        }
        known = {name: moment for name in latest if (moment := getattr(self, name)) is not None}
        ahead = [name for name, moment in known.items() if moment > after(latest[name], CLOCK_TOLERANCE_SECONDS)]
        for name in ahead:
            setattr(self, name, latest[name])
        self._set_wake()
        return bool(ahead)

    def _end_polling(self, now: Instant) -> None:
        self._end(now, POLL_TIMEOUT, f"still running after {self.poll_timeout_sec} s of polling")

    @staticmethod
    def _is_past(moment: Instant | None, now: Instant) -> bool:
        return moment is not None and moment <= now

    # --- Endings -----------------------------------------------------------------------------------------------------

    def cancel(self, now: Instant, cause: str, reason: str) -> bool:
        if not self.is_open:
            return False
        self._move(CANCELLED)
        self.cancel_cause, self.error_message, self.completed_at = cause, reason, now
        self.ready, self.retry_at = False, None
        self._set_wake()
        return True

    def roll_back(self) -> bool:
        if self.status not in (FAILED, POLL_TIMEOUT):
            return False
        self._move(ROLLED_BACK)
        return True

    def retry(self) -> bool:
        """An operator retries it from the start."""
        if PENDING not in RETRIED.get(self.status, ()) or self.in_flight:
            return False
        if self.status == CANCELLED and self.cancel_cause not in REVOCABLE:
            return False
        self.status = PENDING
        self.error_message = self.cancel_cause = self.result_json = self.completed_at = self.dispatched_at = None
        self.poll_started_at = self.last_polled_at = self.retry_at = self.timeout_at = self.wake_at = None
        self.retries_used = self.poll_count = self.poll_asked = 0
        return True

    def _end(self, now: Instant, status: str, reason: str | None) -> None:
        self._move(status)
        self.completed_at = now
        self.error_message = None if reason is None else reason[:ERROR_CHARS_MAX]
        self.ready = self.in_flight = False
        self.retry_at = self.timeout_at = self.wake_at = None

    def _move(self, status: str) -> None:
        if status != self.status and status not in STEP[self.status]:
            raise AssertionError(f"{self.kind} {self.id}: {self.status} never becomes {status}")
        self.status = status

    def _set_wake(self) -> None:
        """The earliest of its deadlines."""
        moments = [self.retry_at]
        if self.in_flight or self.retry_at is not None:
            moments.append(self.timeout_at)
        if self.status == POLLING:
            moments.append(self.poll_deadline)
        self.wake_at = min((moment for moment in moments if moment is not None), default=None)


def _retry_seconds(step: Step) -> int:
    return step.retry.interval_seconds if step.retry.max_retries else THROTTLE_SECONDS


def _member(fields: dict[str, Any], name: str) -> Any:
    """A field by name, in any letter case."""
    if name in fields:
        return fields[name]
    return next((value for key, value in fields.items() if key.lower() == name), None)
