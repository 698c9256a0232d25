"""Why a job waits, in one plain sentence: for whom, since when, until when."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.job import Job, JobStatus
from lucius.domain.step import Step, StepStatus
from lucius.domain.time import Instant, iso


class WaitingOn(Struct, frozen=True):
    what: str
    since: Instant
    until: Instant | None
    sentence: str


def waiting_on(job: Job) -> WaitingOn | None:
    """What the job waits for; None once it has ended."""
    if job.is_terminal:
        return None
    step = job.current_step
    what, since, until, text = _step_wait(job, step)
    if job.status is JobStatus.PAUSED and not step.is_live:
        what, since, until = "RESUME", job.updated_at, job.spec.deadline_at
        text = f"Paused since {iso(since)}: step {step.spec.step_id} starts when somebody resumes the job"
    elif job.status is JobStatus.CANCELLING:
        text = f"Being cancelled; {text[0].lower()}{text[1:]}"
    elif job.status is JobStatus.PAUSED:
        text = f"Paused; {text[0].lower()}{text[1:]}"
    tail = f", until {iso(until)} at the latest." if until is not None else "."
    return WaitingOn(what, since, until, text + tail)


def _step_wait(job: Job, step: Step) -> tuple[str, Instant, Instant | None, str]:
    name, service = step.spec.step_id, step.spec.service
    since, until = step.updated_at, step.due_at
    attempt = f"attempt {step.attempt_no} of step {name}"
    match step.status:
        case StepStatus.PENDING:
            until = job.spec.not_before or job.spec.deadline_at
            return "START", since, until, f"Step {name} has not started: the job may not begin before its start time"
        case StepStatus.DISPATCHING:
            text = f"The bus has not yet taken {attempt} for service {service}"
            return "BUS", since, job.spec.deadline_at, text
        case StepStatus.INITIATED:
            text = f"Service {service} has not yet picked up {attempt} from lane {job.spec.routing.lane}"
            return "ACK", since, until, text
        case StepStatus.PROCESSING:
            share = f" ({step.progress:.0%} done)" if step.progress else ""
            return "RESULT", since, until, f"Service {service} is working on {attempt}{share}"
        case _:
            why = step.error.message if step.error else "it failed"
            return (
                "RETRY",
                since,
                until,
                f"Step {name} will be tried again after attempt {step.attempt_no} failed: {why}",
            )
