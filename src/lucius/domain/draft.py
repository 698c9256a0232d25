"""A draft: the job while one decision changes it. Mutable while `decide` runs, and not visible outside it."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from lucius.domain.attempt import Attempt, DispatchStatus, Failure
from lucius.domain.effects import CallWebhook, Decision, Effect, Event, Outcome, PublishDirective, SettleDirective
from lucius.domain.job import JOB_TERMINAL, JOB_TRANSITIONS, REPEATS_ONCE, Job, JobMove, JobSpec, JobStatus
from lucius.domain.step import STEP_TERMINAL, STEP_TRANSITIONS, Step, StepMove, StepSpec, StepStatus
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after


class IdSource(Protocol):
    """New ids and random numbers, which `decide` must not generate itself."""

    @property
    def claim_seconds(self) -> float:
        """How long the deciding process claims a new attempt for publishing; zero while nothing can be published."""
        ...

    @property
    def publishes_inside(self) -> bool:
        """Whether the bus takes a directive in the commit that creates its attempt."""
        ...

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        """Whether the job's tenant has as many unacknowledged directives for this lane and service as it may: a new
        attempt waits."""
        ...

    def lease_id(self) -> str:
        """A new lease id."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


# Named here once: on Python 3.11 every `Enum.MEMBER` in a function costs about as much as calling one.
_PENDING, _SENT = DispatchStatus.PENDING, DispatchStatus.SENT
_DISPATCHING, _FAILED_FINAL = StepStatus.DISPATCHING, JobStatus.FAILED_FINAL
_STEP_STARTED, _STEP_PUBLISHED = StepMove.STARTED, StepMove.PUBLISHED
_JOB_STARTED, _JOB_RAN = JobMove.STARTED, JobMove.RAN
_APPLIED = Outcome.APPLIED

_IN_A_SERVICES_HANDS = frozenset({StepStatus.INITIATED, StepStatus.PROCESSING})

CALLBACKS_RECORDED_MAX = 300
"""Kinds of unapplied callbacks that a job's trail records. A kind is type, step, attempt and outcome, so only a job
with about a hundred attempts reaches this."""


def _earlier(moment: Instant | None, latest: Instant) -> Instant | None:
    return None if moment is None else min(moment, latest)


class Draft:
    __slots__ = (
        "callbacks_recorded",
        "current_index",
        "effects",
        "error",
        "events",
        "id_source",
        "job",
        "now",
        "outcome",
        "started",
        "status",
        "steps",
    )

    def __init__(self, job: Job, now: Instant, id_source: IdSource) -> None:
        self.job = job
        self.now = now
        self.id_source = id_source
        self.status = job.status
        self.steps = list(job.steps)
        self.current_index = job.current_index
        self.error = job.error
        self.callbacks_recorded = job.callbacks_recorded
        self.started = 0
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.outcome = _APPLIED

    @property
    def is_terminal(self) -> bool:
        return self.status in JOB_TERMINAL

    @property
    def step(self) -> Step:
        return self.steps[self.current_index]

    def record(self, type_: str, index: int | None = None, /, **data: Any) -> None:
        """Add a line, with the current statuses, to the audit trail."""
        step_id = attempt_no = None
        if index is not None:
            step = self.steps[index]
            step_id, attempt_no = step.spec.step_id, step.attempt_no or None
            data["step_status"] = step.status
        data["job_status"] = self.status
        seq = self.job.event_seq + len(self.events) + 1
        self.events.append(Event(seq, self.now, type_, step_id, attempt_no, data))

    def record_unapplied(self, type_: str, index: int, attempt_no: int, outcome: Outcome) -> None:
        """Answer a callback that changes nothing, and add it to the trail if it is the first of its kind."""
        self.outcome = outcome
        if self.job.spec.rules_version >= REPEATS_ONCE:
            kind = f"{index}/{attempt_no}/{type_}/{outcome}"
            if kind in self.callbacks_recorded or len(self.callbacks_recorded) >= CALLBACKS_RECORDED_MAX:
                return
            self.callbacks_recorded += (kind,)
        self.record(type_, index, outcome=outcome, of_attempt_no=attempt_no)

    def move_job(self, move: JobMove) -> None:
        self.status = JOB_TRANSITIONS[self.status, move]

    def move_step(self, index: int, move: StepMove, step: Step) -> None:
        """Move a step and set the same status on its current attempt. `step` has every other change already."""
        status, now = STEP_TRANSITIONS[step.status, move], self.now
        attempt = step.attempt
        if attempt is not None and attempt.status != status:
            attempt = replace(attempt, status=status)
        if status in STEP_TERMINAL:
            step = replace(step, due_at=None, completed_at=now)
        self.steps[index] = replace(step, status=status, attempt=attempt, updated_at=now)

    def start_attempt(self, index: int) -> None:
        """Create the next attempt of a step: a new number, a new lease, and the effect that publishes it, unless its
        tenant has to wait."""
        step, id_source = self.steps[index], self.id_source
        is_held = id_source.holds_back(self.job.spec, step.spec)
        claim_seconds = 0.0 if is_held else id_source.claim_seconds
        attempt = Attempt(
            attempt_no=step.attempt_no + 1,
            lease_id=id_source.lease_id(),
            created_at=self.now,
            status=_DISPATCHING,
            claimed_until=after(self.now, claim_seconds),
            is_held=is_held,
        )
        step = replace(
            step,
            attempt=attempt,
            attempts_counted=step.attempts_counted + 1,
            due_at=None,
            queue_until=None,
            ends_by=None,
            progress=0.0,
            note=None,
            progress_at=None,
        )
        self.move_step(index, _STEP_STARTED, step)
        self.current_index = index
        self.started += 1
        self.move_job(_JOB_STARTED)
        held = {"is_held": True} if is_held else {}
        self.record("ATTEMPT_CREATED", index, lease_id=attempt.lease_id, **held)
        if claim_seconds > 0:
            self.effects.append(PublishDirective(index))
            if id_source.publishes_inside:
                self.mark_published(index)

    def mark_published(self, index: int) -> None:
        """The bus took the current attempt's directive: its ack timeout starts, unless a service has already
        answered."""
        step, now = self.steps[index], self.now
        assert step.attempt is not None
        step = replace(step, attempt=self.close_dispatch(step.attempt, _SENT))
        if step.status is _DISPATCHING and not self.is_terminal:
            policy = step.spec.policy
            due_at, queue_until = after(now, policy.ack_timeout_seconds), after(now, policy.queue_timeout_seconds)
            self.move_step(index, _STEP_PUBLISHED, replace(step, due_at=due_at, queue_until=queue_until))
            self.move_job(_JOB_RAN)
        else:
            self.steps[index] = step
        self.record("PUBLISHED", index)

    def close_dispatch(self, attempt: Attempt, dispatch: DispatchStatus) -> Attempt:
        """Close the outbox side of an attempt, once."""
        if attempt.dispatch is not _PENDING:
            return attempt
        return replace(attempt, dispatch=dispatch, sent_at=self.now if dispatch is _SENT else None, is_held=False)

    def settle_directive(self, index: int) -> None:
        """Have the current attempt's directive removed from the bus, unless its ACK has done so already."""
        attempt = self.steps[index].attempt
        if attempt is not None and attempt.acked_at is None:
            self.effects.append(SettleDirective(index, attempt.attempt_no))

    def shorten_waits(self) -> bool:
        """Whether the current step's waits are too long, because a clock that was ahead wrote them; if so, they start
        again now with their intended length."""
        step, tolerated = self.step, after(self.now, CLOCK_TOLERANCE_SECONDS)
        changes: dict[str, Any] = {}
        if step.updated_at > tolerated:
            policy = step.spec.policy
            changes = {
                "due_at": _earlier(step.due_at, self._due_at_latest()),
                "queue_until": _earlier(step.queue_until, after(self.now, policy.queue_timeout_seconds)),
                "ends_by": _earlier(step.ends_by, after(self.now, policy.max_step_seconds)),
                "updated_at": self.now,
            }
        attempt, claim_seconds = step.attempt, self.id_source.claim_seconds
        is_unsent = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
        if is_unsent and attempt is not None and attempt.claimed_until > after(tolerated, claim_seconds):
            changes["attempt"] = replace(attempt, claimed_until=after(self.now, claim_seconds))
        if changes:
            self.steps[self.current_index] = replace(step, **changes)
            ahead_seconds = (max(step.updated_at, self.job.updated_at) - self.now) / 1000
            self.record("CLOCK_CORRECTED", self.current_index, ahead_seconds=ahead_seconds)
        return bool(changes)

    def _due_at_latest(self) -> Instant:
        step, policy = self.step, self.step.spec.policy
        match step.status:
            case StepStatus.INITIATED:
                return after(self.now, policy.ack_timeout_seconds)
            case StepStatus.PROCESSING:
                return after(self.now, policy.lease_seconds)
        return self.now + (step.due_at or step.updated_at) - step.updated_at  # Any of the backoffs.

    def cancel_open_steps(self) -> None:
        for index, step in enumerate(self.steps):
            if step.status in STEP_TERMINAL:
                continue
            attempt = step.attempt
            if attempt is not None:
                self.settle_directive(index)
                attempt = self.close_dispatch(attempt, DispatchStatus.FAILED_FINAL)
                if attempt.ended_at is None:
                    attempt = replace(attempt, ended_at=self.now)
            self.move_step(index, StepMove.CANCELLED, replace(step, attempt=attempt))

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
        before, steps = self.job, tuple(self.steps)
        is_moved = self.status is not before.status or steps != before.steps
        wake_at = self.wake_at()
        if not is_moved and not self.events and wake_at == before.wake_at:
            return Decision(before, (), tuple(self.effects), self.outcome)
        ended = self.is_terminal and not before.is_terminal
        job = replace(
            before,
            status=self.status,
            steps=steps,
            current_index=self.current_index,
            attempts_total=before.attempts_total + self.started,
            updated_at=self.now if is_moved else before.updated_at,
            completed_at=self.now if ended else before.completed_at,
            error=self.error,
            dead_letter=self.status is _FAILED_FINAL,
            event_seq=before.event_seq + len(self.events),
            callbacks_recorded=self.callbacks_recorded,
            wake_at=wake_at,
        )
        return Decision(job, tuple(self.events), tuple(self.effects), self.outcome)

    def wake_at(self) -> Instant | None:
        """The job's only timer: its deadline or the current step's, whichever comes first."""
        if self.is_terminal:
            return None
        waits = self._step_waits_until()
        deadline_at = self.job.spec.deadline_at
        return deadline_at if waits is None else min(waits, deadline_at)

    def is_due(self) -> bool:
        """Whether the current step's timer has expired."""
        waits = self._step_waits_until()
        return waits is not None and waits <= self.now

    def _step_waits_until(self) -> Instant | None:
        """The current step's own timer; None if it does not wait for a time."""
        spec, step = self.job.spec, self.step
        if step.status in _IN_A_SERVICES_HANDS:
            return step.due_at or spec.created_at
        match step.status:
            case StepStatus.PENDING if self.status is not JobStatus.PAUSED:
                return spec.not_before or spec.created_at
            case StepStatus.FAILED_RETRY if self.status is not JobStatus.PAUSED:
                return step.due_at or spec.created_at
            case StepStatus.DISPATCHING if self.status is JobStatus.CANCELLING and step.attempt is not None:
                return step.attempt.claimed_until
            case StepStatus.DISPATCHING if step.attempt_was_sent:
                return step.updated_at
        return None
