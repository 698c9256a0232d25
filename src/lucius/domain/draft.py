"""A draft: the job as one decision rewrites it. Mutable while `decide` runs, and never seen outside it."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from lucius.domain.attempt import Attempt, DispatchStatus, Failure
from lucius.domain.effects import CallWebhook, Decision, Effect, Event, Outcome, PublishDirective
from lucius.domain.job import JOB_TERMINAL, JOB_TRANSITIONS, Job, JobMove, JobStatus
from lucius.domain.step import STEP_TERMINAL, STEP_TRANSITIONS, Step, StepMove, StepStatus
from lucius.domain.time import Instant, after


class Fresh(Protocol):
    """What is new in the world and `decide` may not make up itself."""

    @property
    def claim_seconds(self) -> float:
        """How long a new attempt is claimed for publishing by who decides; zero while nothing can be published."""
        ...

    @property
    def publishes_inside(self) -> bool:
        """Whether the bus takes a directive in the very commit that creates its attempt."""
        ...

    def lease_id(self) -> str:
        """A lease id that was never used before."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


class Draft:
    __slots__ = (
        "current_index",
        "effects",
        "error",
        "events",
        "fresh",
        "job",
        "now",
        "outcome",
        "started",
        "status",
        "steps",
    )

    def __init__(self, job: Job, now: Instant, fresh: Fresh) -> None:
        self.job = job
        self.now = now
        self.fresh = fresh
        self.status = job.status
        self.steps = list(job.steps)
        self.current_index = job.current_index
        self.error = job.error
        self.started = 0
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.outcome = Outcome.APPLIED

    @property
    def is_terminal(self) -> bool:
        return self.status in JOB_TERMINAL

    @property
    def step(self) -> Step:
        return self.steps[self.current_index]

    def record(self, type_: str, index: int | None = None, /, **data: Any) -> None:
        """Add a line to the audit trail; the statuses reached are part of it."""
        step_id = attempt_no = None
        if index is not None:
            step = self.steps[index]
            step_id, attempt_no = step.spec.step_id, step.attempt_no or None
            data["step_status"] = step.status
        data["job_status"] = self.status
        seq = self.job.event_seq + len(self.events) + 1
        self.events.append(Event(seq, self.now, type_, step_id, attempt_no, data))

    def move_job(self, move: JobMove) -> None:
        self.status = JOB_TRANSITIONS[self.status, move]

    def move_step(self, index: int, move: StepMove, **changes: Any) -> None:
        """Move a step, and let its current attempt show the same status; `attempt` may bring a changed attempt."""
        step = self.steps[index]
        status = STEP_TRANSITIONS[step.status, move]
        attempt: Attempt | None = changes.pop("attempt", step.attempt)
        if attempt is not None and attempt.status != status:
            attempt = replace(attempt, status=status)
        if status in STEP_TERMINAL:
            changes.setdefault("due_at", None)
            changes["completed_at"] = self.now
        self.steps[index] = replace(step, status=status, attempt=attempt, updated_at=self.now, **changes)

    def start_attempt(self, index: int) -> None:
        """Create the next attempt of a step: a new number, a new lease, and the order to publish it."""
        step = self.steps[index]
        attempt = Attempt(
            attempt_no=step.attempt_no + 1,
            lease_id=self.fresh.lease_id(),
            created_at=self.now,
            status=StepStatus.DISPATCHING,
            claimed_until=after(self.now, self.fresh.claim_seconds),
        )
        self.move_step(
            index,
            StepMove.STARTED,
            attempt=attempt,
            attempts_counted=step.attempts_counted + 1,
            due_at=None,
            queue_until=None,
            ends_by=None,
            progress=0.0,
            note=None,
        )
        self.current_index = index
        self.started += 1
        self.move_job(JobMove.STARTED)
        self.record("ATTEMPT_CREATED", index, lease_id=attempt.lease_id)
        if self.fresh.claim_seconds > 0:
            self.effects.append(PublishDirective(index))
            if self.fresh.publishes_inside:
                self.mark_published(index)

    def mark_published(self, index: int) -> None:
        """The bus took the current attempt's directive: its ack clock starts, unless a service was quicker."""
        step = self.steps[index]
        assert step.attempt is not None
        attempt = self.close_dispatch(step.attempt, DispatchStatus.SENT)
        if step.status is StepStatus.DISPATCHING and not self.is_terminal:
            policy = step.spec.policy
            self.move_step(
                index,
                StepMove.PUBLISHED,
                attempt=attempt,
                due_at=after(self.now, policy.ack_timeout_seconds),
                queue_until=after(self.now, policy.queue_timeout_seconds),
            )
            self.move_job(JobMove.RAN)
        else:
            self.steps[index] = replace(step, attempt=attempt)
        self.record("PUBLISHED", index)

    def close_dispatch(self, attempt: Attempt, dispatch: DispatchStatus) -> Attempt:
        """Settle the outbox side of an attempt, once."""
        if attempt.dispatch is not DispatchStatus.PENDING:
            return attempt
        return replace(attempt, dispatch=dispatch, sent_at=self.now if dispatch is DispatchStatus.SENT else None)

    def cancel_open_steps(self) -> None:
        for index, step in enumerate(self.steps):
            if step.status in STEP_TERMINAL:
                continue
            attempt = step.attempt
            if attempt is not None:
                attempt = self.close_dispatch(attempt, DispatchStatus.FAILED_FINAL)
                if attempt.ended_at is None:
                    attempt = replace(attempt, ended_at=self.now)
            self.move_step(index, StepMove.CANCELLED, attempt=attempt)

    def end(self, move: JobMove, event: str, error: Failure | None = None) -> None:
        """Bring the job to a terminal state."""
        self.move_job(move)
        self.error = error
        data = {"code": error.code, "message": error.message} if error else {}
        self.record(event, None, **data)
        url = self.job.spec.callback_urls.get("completed")
        if url:
            self.effects.append(CallWebhook(url))

    def decision(self) -> Decision:
        is_moved = self.status is not self.job.status or self.steps != list(self.job.steps)
        wake_at = self.wake_at()
        if not is_moved and not self.events and wake_at == self.job.wake_at:
            return Decision(self.job, (), tuple(self.effects), self.outcome)
        ended = self.is_terminal and not self.job.is_terminal
        job = replace(
            self.job,
            status=self.status,
            steps=tuple(self.steps),
            current_index=self.current_index,
            attempts_total=self.job.attempts_total + self.started,
            updated_at=self.now if is_moved else self.job.updated_at,
            completed_at=self.now if ended else self.job.completed_at,
            error=self.error,
            dead_letter=self.status is JobStatus.FAILED_FINAL,
            event_seq=self.job.event_seq + len(self.events),
            wake_at=wake_at,
        )
        return Decision(job, tuple(self.events), tuple(self.effects), self.outcome)

    def wake_at(self) -> Instant | None:
        """The job's one timer: its deadline, or what its current step waits for, whichever comes first."""
        if self.is_terminal:
            return None
        waits = self._step_waits_until()
        deadline_at = self.job.spec.deadline_at
        return deadline_at if waits is None else min(waits, deadline_at)

    def is_due(self) -> bool:
        """Whether what the current step waits for has come."""
        waits = self._step_waits_until()
        return waits is not None and waits <= self.now

    def _step_waits_until(self) -> Instant | None:
        """The current step's own clock; None where it waits for somebody and not for a moment."""
        spec, step = self.job.spec, self.step
        match step.status:
            case StepStatus.PENDING if self.status is not JobStatus.PAUSED:
                return spec.not_before or spec.created_at
            case StepStatus.FAILED_RETRY if self.status is not JobStatus.PAUSED:
                return step.due_at or spec.created_at
            case StepStatus.DISPATCHING if self.status is JobStatus.CANCELLING and step.attempt is not None:
                return step.attempt.claimed_until
            case StepStatus.DISPATCHING if step.attempt_was_sent:
                return step.updated_at
            case StepStatus.INITIATED | StepStatus.PROCESSING:
                return step.due_at or spec.created_at
        return None
