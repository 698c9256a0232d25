"""One step of one member, init, rollback or removal, as a record."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.time import Instant, after
from lucius.runbooks.core.states import FAILURES, OPEN_STATUSES, POLLING, Kind


class ExecutionState(Struct):
    """One row of any of the three execution tables."""

    kind: Kind
    id: int
    batch_id: int
    member_id: int | None
    phase_id: int | None
    parent_id: int | None
    """For a rollback: the step or init execution that failed. For a removal: the member."""
    round: int
    """For a rollback or removal: the job of its cause, so that each attempt has its own chain."""
    version: int
    list_name: str
    """The runbook's version and the step list in it: the name of a phase, of a rollback, or the like."""
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
    """Why it can never be sent, determined when it was created."""
    cancel_cause: str | None
    dispatch_count: int
    retries_used: int
    ready: bool
    in_flight: bool
    retry_at: Instant | None
    timeout_at: Instant | None
    wake_at: Instant | None
    poll_asked: int
    has_token: bool
    """Whether its newest job was sent with a token; earlier versions of LUCIUS sent none."""

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def is_idle_poll(self) -> bool:
        """Whether it waits for its next poll: no worker has it, and nothing else advances it."""
        return self.status == POLLING and not self.in_flight and not self.ready and self.retry_at is None

    def awaits_poll(self, poll_count: int) -> bool:
        """Whether a `poll-check` may be the next one. LUCIUS's scheduler sends the next count, and says so in
        `poll_asked`; one that knows only the contract may also send the row's own."""
        is_own = poll_count == self.poll_count and self.poll_asked == 0
        return self.is_idle_poll and (is_own or poll_count == self.poll_count + 1)

    @property
    def poll_deadline(self) -> Instant | None:
        """The first instant that is too late; the contract says `poll_started_at + poll_timeout_sec < now`."""
        if self.poll_started_at is None or self.poll_timeout_sec is None:
            return None
        return after(self.poll_started_at, self.poll_timeout_sec) + 1

    @property
    def has_failed(self) -> bool:
        return self.status in FAILURES
