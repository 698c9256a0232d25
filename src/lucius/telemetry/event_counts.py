"""Metrics from the audit trail of committed turns: one pass over the events, one table lookup for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.step import Step
from lucius.ports.ledger import Change
from lucius.telemetry.tallies import Tallies

SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0),
)
OUTCOMES = {"JOB_SUCCEEDED": "SUCCEEDED", "JOB_FAILED": "FAILED_FINAL", "JOB_CANCELLED": "CANCELLED"}
TIMEOUTS = ("ACK_TIMEOUT", "LEASE_EXPIRED", "STEP_TIMEOUT", "DEADLINE_EXCEEDED")
CAUSES = (
    "ACK_TIMEOUT",
    "LEASE_EXPIRED",
    "STEP_TIMEOUT",
    "PUBLISH_FAILED",
    "PUBLISH_LOST",
    "STEP_FAILED",
    "RATE_LIMITED",
)


class EventCounts:
    def __init__(self, tallies: Tallies) -> None:
        counter, histogram = tallies.counter, tallies.histogram
        self._accepted = counter("lucius_jobs_accepted", "Commands that became jobs.")
        self._finished = counter(
            "lucius_jobs_finished", "Jobs that ended, by outcome.", ("outcome",), [(o,) for o in OUTCOMES.values()]
        )
        self._job_seconds = histogram(
            "lucius_job_seconds", "From acceptance to the end of a job, by outcome.", SECONDS, "outcome"
        )
        self._dead_letters = counter("lucius_dead_letters", "Jobs that failed for good.")
        self._attempts = counter("lucius_attempts", "Attempts created, by step type.", ("step_type",))
        self._retries = counter("lucius_retries", "Retries set, by cause.", ("cause",), [(c,) for c in CAUSES])
        self._timeouts = counter("lucius_timeouts", "Deadlines missed, by kind.", ("kind",), [(k,) for k in TIMEOUTS])
        self._still_queued = counter("lucius_ack_deadlines_moved", "Ack deadlines moved on: still queued.")
        self._lag = histogram("lucius_dispatch_lag_seconds", "From creating an attempt to the bus taking it.", SECONDS)
        self._dispatch_to_ack = histogram(
            "lucius_step_dispatch_to_ack_seconds", "From the bus taking a directive to its ACK.", SECONDS, "step_type"
        )
        self._ack_to_result = histogram(
            "lucius_step_ack_to_result_seconds", "From an attempt's ACK to its RESULT.", SECONDS, "step_type"
        )
        self._dispatch_to_result = histogram(
            "lucius_step_dispatch_to_result_seconds", "From the bus taking it to its RESULT.", SECONDS, "step_type"
        )
        self._start_to_success = histogram(
            "lucius_step_start_to_success_seconds", "From a step's first ACK to its success.", SECONDS, "step_type"
        )
        self._on: dict[str, Callable[[Job, Event], None]] = {
            "ACCEPTED": self._on_accepted,
            "ATTEMPT_CREATED": self._on_attempt,
            "PUBLISHED": self._on_published,
            "ACK": self._on_ack,
            "RESULT": self._on_result,
            "STILL_QUEUED": self._on_still_queued,
            "ACK_TIMEOUT": self._on_failure,
            "LEASE_EXPIRED": self._on_failure,
            "STEP_TIMEOUT": self._on_failure,
            "PUBLISH_FAILED": self._on_failure,
            "PUBLISH_LOST": self._on_failure,
            **dict.fromkeys(OUTCOMES, self._on_end),
        }

    def count(self, changes: Sequence[Change]) -> None:
        on = self._on
        for change in changes:
            for event in change.events:
                handle = on.get(event.type)
                if handle is not None:
                    handle(change.after, event)

    def _on_accepted(self, job: Job, event: Event) -> None:
        self._accepted.add()

    def _on_attempt(self, job: Job, event: Event) -> None:
        for step in job.steps:
            if step.spec.step_id == event.step_id:
                self._attempts.add(1, (step.spec.step_type,))

    def _on_published(self, job: Job, event: Event) -> None:
        found = _attempt_of(job, event)
        if found is not None and found[1].sent_at is not None:
            self._lag.observe((found[1].sent_at - found[1].created_at) / 1000)

    def _on_ack(self, job: Job, event: Event) -> None:
        found = _attempt_of(job, event)
        if found is None or event.data.get("outcome") != "APPLIED":
            return
        step, attempt = found
        if attempt.acked_at is not None and attempt.sent_at is not None:
            self._dispatch_to_ack.observe((attempt.acked_at - attempt.sent_at) / 1000, step.spec.step_type)

    def _on_result(self, job: Job, event: Event) -> None:
        data = event.data
        if data.get("outcome") != "APPLIED":
            return
        if "retry_at" in data:
            self._retries.add(1, ("RATE_LIMITED" if data.get("rate_limited") else "STEP_FAILED",))
        found = _attempt_of(job, event)
        if found is None:
            return
        step, attempt = found
        step_type = step.spec.step_type
        if attempt.acked_at is not None:
            self._ack_to_result.observe((event.at - attempt.acked_at) / 1000, step_type)
        if attempt.sent_at is not None:
            self._dispatch_to_result.observe((event.at - attempt.sent_at) / 1000, step_type)
        if step.started_at is not None and data.get("verdict") == "SUCCEEDED":
            self._start_to_success.observe((event.at - step.started_at) / 1000, step_type)

    def _on_failure(self, job: Job, event: Event) -> None:
        if "retry_at" in event.data:
            self._retries.add(1, (event.type,))
        if event.type in TIMEOUTS:
            self._timeouts.add(1, (event.type,))

    def _on_still_queued(self, job: Job, event: Event) -> None:
        self._still_queued.add()

    def _on_end(self, job: Job, event: Event) -> None:
        outcome = OUTCOMES[event.type]
        self._finished.add(1, (outcome,))
        self._job_seconds.observe((event.at - job.spec.created_at) / 1000, outcome)
        if event.type == "JOB_FAILED":
            self._dead_letters.add()
            if event.data.get("code") == "DEADLINE_EXCEEDED":
                self._timeouts.add(1, ("DEADLINE_EXCEEDED",))


def _attempt_of(job: Job, event: Event) -> tuple[Step, Attempt] | None:
    """The step and attempt of an event, if that attempt is still the step's newest."""
    for step in job.steps:
        if step.spec.step_id == event.step_id:
            attempt = step.attempt
            return (step, attempt) if attempt is not None and attempt.attempt_no == event.attempt_no else None
    return None
