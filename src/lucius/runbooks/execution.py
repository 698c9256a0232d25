"""One step of one member, of init, of a rollback or of a removal: the pure machine that drives them all.

A method is a fact. It changes the execution, or it does nothing and says so: a fact that comes twice, late or out of
order finds that it no longer applies. `ready` means that only a free slot is missing, `in_flight` that a worker has a
job of this execution, and `wake_at` is the one moment at which something must happen if nothing else does.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant, after
from lucius.runbooks.definition.model import Step
from lucius.runbooks.states import (
    CANCELLED,
    DISPATCHED,
    FAILED,
    FAILURES,
    OPEN,
    PENDING,
    POLL_TIMEOUT,
    POLLING,
    RETRIED,
    REVOCABLE,
    ROLLED_BACK,
    STEP,
    SUCCEEDED,
)

Kind = Literal["step", "init", "rollback", "removal"]
KINDS: tuple[Kind, ...] = ("step", "init", "rollback", "removal")

THROTTLE_SECONDS = 30
"""How long a throttled step without a retry interval of its own waits."""
ERROR_CHARS_MAX = 4_000


class Execution(Struct):
    """In the order in which `tables/executions.py` selects the columns."""

    kind: Kind
    id: int
    batch_id: int
    member_id: int | None
    phase_id: int | None
    parent_id: int | None
    """Of a rollback: the step, or the init execution, that failed. Of a removal: the member."""
    round: int
    """Of a rollback or removal: the job of its cause that it belongs to, so that another try has another chain."""
    version: int
    list_name: str
    """The runbook's version and the list in it that this is a step of: a phase's name, a rollback's, or the like."""
    step_name: str
    step_index: int
    worker_id: str
    function_name: str
    params_json: str
    status: str
    job_id: str | None
    result_json: str | None
    error_message: str | None
    dispatched_at: Instant | None
    completed_at: Instant | None
    is_poll_step: bool
    poll_interval_sec: int | None
    poll_timeout_sec: int | None
    poll_started_at: Instant | None
    last_polled_at: Instant | None
    poll_count: int
    late_json: str | None
    fault: str | None
    """Why it cannot be sent at all, found when it was made."""
    cancel_cause: str | None
    dispatch_count: int
    retries_used: int
    ready: bool
    in_flight: bool
    retry_at: Instant | None
    timeout_at: Instant | None
    wake_at: Instant | None
    poll_asked: int

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def poll_deadline(self) -> Instant | None:
        """The first moment that is too late: `poll_started_at + poll_timeout_sec < now`, says the contract."""
        if self.poll_started_at is None or self.poll_timeout_sec is None:
            return None
        return after(self.poll_started_at, self.poll_timeout_sec) + 1

    # --- Towards the worker ------------------------------------------------------------------------------------------

    def make_ready(self) -> bool:
        if self.ready or self.in_flight or not self.is_open:
            return False
        self.ready = True
        return True

    def send(self, now: Instant, step: Step) -> None:
        """A job goes out; `job_id` names it."""
        self.ready, self.in_flight, self.retry_at = False, True, None
        self.dispatch_count += 1
        self.job_id = f"{self.kind}-{self.id}-a{self.dispatch_count}"
        if self.status == POLLING:
            self.last_polled_at = now
            self.poll_count += 1
        else:
            self._move(DISPATCHED)
            self.dispatched_at = now
        if self.timeout_at is None:  # A throttled job that is sent again keeps the clock it had.
            self.timeout_at = after(now, step.timeout_seconds)
        self._set_wake()

    def refuse(self, now: Instant, reason: str) -> None:
        """It cannot be sent: a template has no value, or the bus would not take it. Retries would not help."""
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
        if not self.is_poll_step:
            self._end(now, FAILED, "the function says that it still runs, but the step has no `poll`: give it one")
            return
        if self.poll_started_at is None:
            self.poll_started_at = self.last_polled_at = now
        if self.status != POLLING:
            self._move(POLLING)
        self.timeout_at = None
        self._set_wake()

    def take_failure(self, now: Instant, step: Step, message: str, is_throttled: bool = False) -> None:
        """Wait and try again if that is allowed; else it has failed."""
        self.in_flight = False
        self.error_message = message[:ERROR_CHARS_MAX]
        if is_throttled:
            wait = step.retry.interval_seconds if step.retry.max_retries else THROTTLE_SECONDS
            self.retry_at = after(now, wait)
        elif self.retries_used < step.retry.max_retries:
            self.retries_used += 1
            self.retry_at, self.timeout_at = after(now, step.retry.interval_seconds), None
        else:
            self._end(now, FAILED, message)
            return
        self._set_wake()

    # --- Time --------------------------------------------------------------------------------------------------------

    def poll(self, now: Instant, poll_count: int) -> bool:
        """A `poll-check`, the `poll_count`th: whether anything came of it."""
        if self.status != POLLING:
            return False
        if self._is_past(self.poll_deadline, now):
            self._end_polling(now)
            return True
        if self.in_flight or self.ready or self.retry_at is not None or poll_count != self.poll_count + 1:
            return False
        return self.make_ready()

    def wake(self, now: Instant, step: Step) -> bool:
        """`wake_at` has come: whether anything came of it."""
        if self.wake_at is None or self.wake_at > now:
            return False
        if not self.is_open:
            self.in_flight, self.timeout_at = False, None  # Nobody will answer a cancelled job any more.
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
        """An operator wants it tried again, from the start."""
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
        """The earliest of what may have to happen."""
        moments = [self.retry_at]
        if self.in_flight or self.retry_at is not None:
            moments.append(self.timeout_at)
        if self.status == POLLING:
            moments.append(self.poll_deadline)
        self.wake_at = min((moment for moment in moments if moment is not None), default=None)

    @property
    def has_failed(self) -> bool:
        return self.status in FAILURES


def _member(fields: dict[str, Any], name: str) -> Any:
    """A field by its name in any letter case."""
    if name in fields:
        return fields[name]
    return next((value for key, value in fields.items() if key.lower() == name), None)
