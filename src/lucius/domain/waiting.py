"""What a job waits for, since when and until when, as one sentence."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from lucius.domain.job import WITHDRAWS_DIRECTIVES, Job, JobStatus
from lucius.domain.step import Step, StepStatus
from lucius.domain.time import Instant, iso

Absent = Callable[[str], str | None]
"""A sentence without its full stop if nobody asks for the work of a service; None if somebody does."""


class WaitingOn(Struct, frozen=True):
    what: str
    since: Instant
    until: Instant | None
    sentence: str
    progress_at: Instant | None = None
    """While a service works: when it last reported something new."""


_CAUSES = {
    StepStatus.PENDING: "START",
    StepStatus.DISPATCHING: "BUS",
    StepStatus.INITIATED: "ACK",
    StepStatus.PROCESSING: "RESULT",
}


WAIT_CAUSES = ("START", "BUS", "TENANT_CAP", "ACK", "RESULT", "RETRY", "RESUME")


def wait_cause(job: Job) -> str | None:
    """What the job waits for, in one word; None once it has ended."""
    if job.is_terminal:
        return None
    step = job.current_step
    if job.status is JobStatus.PAUSED and not step.is_live:
        return "RESUME"
    if step.status is StepStatus.DISPATCHING and step.attempt is not None and step.attempt.is_held:
        return "TENANT_CAP"
    return _CAUSES.get(step.status, "RETRY")


def waiting_on(job: Job, absent: Absent = lambda service: None) -> WaitingOn | None:
    """What the job waits for; None once it has ended."""
    if job.is_terminal:
        return None
    step = job.current_step
    if job.status is JobStatus.PAUSED and not step.is_live:
        since, until = job.updated_at, job.spec.deadline_at
        text = f"Paused since {iso(since)}: step {step.spec.step_id} starts when somebody resumes the job,"
        text += f" which must end by {iso(until)}."
        return WaitingOn("RESUME", since, until, text)
    what, until, text = _step_wait(job, step, absent)
    before = {JobStatus.CANCELLING: "Being cancelled; ", JobStatus.PAUSED: "Paused; "}.get(job.status, "")
    text = before + (text[0].lower() + text[1:] if before else text)
    if step.status is StepStatus.PROCESSING:
        return WaitingOn(what, _work_began_at(step), until, text, step.progress_at)
    return WaitingOn(what, step.updated_at, until, text)


def _work_began_at(step: Step) -> Instant:
    """Not the last heartbeat: a service whose work hangs may go on sending those."""
    acked_at = step.attempt.acked_at if step.attempt else None
    return step.updated_at if acked_at is None else acked_at


def _step_wait(job: Job, step: Step, absent: Absent) -> tuple[str, Instant, str]:
    name, service = step.spec.step_id, step.spec.service
    deadline_at = job.spec.deadline_at
    until = step.due_at or deadline_at
    attempt = f"attempt {step.attempt_no} of step {name}"
    match step.status:
        case StepStatus.PENDING:
            until = job.spec.not_before or deadline_at
            return "START", until, f"Step {name} has not started: the job may begin at {iso(until)}."
        case StepStatus.DISPATCHING if step.attempt is not None and step.attempt.is_held:
            text = f"Tenant {job.spec.tenant_id} has as many unacknowledged directives for service {service} on lane"
            text += f" {job.spec.routing.lane} as it may: {attempt} is published when its turn comes; the job must end"
            return "TENANT_CAP", deadline_at, f"{text} by {iso(deadline_at)}."
        case StepStatus.DISPATCHING:
            text = f"The bus has not yet taken {attempt} for service {service}; the job must end by {iso(deadline_at)}."
            return "BUS", deadline_at, text
        case StepStatus.INITIATED if job.awaits_withdrawal and job.spec.rules_version >= WITHDRAWS_DIRECTIVES:
            text = f"Service {service} may have taken {attempt}: the job ends with its answer, or at {iso(until)}."
            return "ACK", until, text
        case StepStatus.INITIATED:
            nobody, lane = absent(service), job.spec.routing.lane
            text = f"Service {service} has not yet picked up {attempt} from lane {lane}"
            if nobody is not None:
                text = f"{nobody[0].upper()}{nobody[1:]}: {attempt} waits on lane {lane}"
            text += f"; looked at again at {iso(until)}."
            return "ACK", until, text
        case StepStatus.PROCESSING:
            share = f" ({step.progress:.0%} done)" if step.progress else ""
            at = step.progress_at
            news = " and has reported no progress" if at is None else f", its last progress was at {iso(at)}"
            text = f"Service {service} is working on {attempt}{share}: it began at {iso(_work_began_at(step))}{news}"
            return "RESULT", until, f"{text}; its lease ends at {iso(until)}."
        case _:
            why = step.error.message if step.error else "it failed"
            return "RETRY", until, f"Step {name} will be tried again at {iso(until)}, for {attempt} failed: {why}."
