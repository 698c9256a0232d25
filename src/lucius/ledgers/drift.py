"""What drift repair looks for in a job."""

from __future__ import annotations

from lucius.domain.attempt import DispatchStatus
from lucius.domain.job import OUTBOX, Job
from lucius.domain.step import StepStatus
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after


def needs_waking(job: Job, now: Instant, claim_seconds: float) -> bool:
    """Whether an open job of the outbox engine waits for nothing that will happen: it has no timer, a clock that was
    ahead wrote it, or nobody will publish its directive."""
    if job.is_terminal or job.engine != OUTBOX:
        return False
    tolerated = after(now, CLOCK_TOLERANCE_SECONDS)
    is_ahead = job.current_step.updated_at > tolerated
    return job.wake_at is None or is_ahead or _is_orphaned(job, after(tolerated, claim_seconds))


def _is_orphaned(job: Job, claimed_max: Instant) -> bool:
    """Whether its directive is not unsent, or claimed for longer than anybody may."""
    step, attempt = job.current_step, job.current_step.attempt
    is_unsent = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
    is_claimable = is_unsent and attempt is not None and attempt.claimed_until <= claimed_max
    return step.status is StepStatus.DISPATCHING and not is_claimable
