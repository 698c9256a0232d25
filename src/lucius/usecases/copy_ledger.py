"""Copying jobs from one ledger to another, while no server works on either."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.attempt import Attempt
from lucius.domain.canonical import idempotency_scope_key
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.ports.ledger import Change, Claim, Committed, Duplicate, JobFilter, JobKey, Ledger

PAGE_JOBS = 500
EVENTS_PAGE = 1_000


class Copied(Struct, frozen=True):
    jobs: int
    known: int
    """Jobs that the target had already, from an earlier copy."""
    refused: tuple[str, ...]
    """Jobs that could not be copied, with the reason."""


async def copy_jobs(
    source: Ledger, target: Ledger, report: Callable[[int, int], None] = lambda done, total: None
) -> Copied:
    """Every job with its attempts, events, claim and closing, the oldest first, so that a redrive finds the job that it
    repeats. Can be repeated: of jobs that the target has, only
    dismissals are copied. Webhooks that are pending are not copied."""
    keys = await _all_keys(source)
    copied = known = 0
    refused: list[str] = []
    for place, key in enumerate(reversed(keys), 1):
        if key.job_id in await target.statuses([key.job_id]):
            known += 1
            await _copy_closing(source, target, key.job_id)  # The copy before may have ended just here.
        elif (reason := await _copy(source, target, key.job_id)) is None:
            copied += 1
        else:
            refused.append(f"{key.job_id}: {reason}")
        report(place, len(keys))
    return Copied(copied, known, tuple(refused))


async def _all_keys(source: Ledger) -> list[JobKey]:
    keys: list[JobKey] = []
    while page := await source.matching(JobFilter(), PAGE_JOBS, keys[-1].job_id if keys else None):
        keys += page
    return keys


async def _copy(source: Ledger, target: Ledger, job_id: str) -> str | None:
    """Why it could not be copied; None if it was."""
    job = (await source.load([job_id])).get(job_id)
    if job is None:
        return "its rows cannot be read"
    change = Change(
        before=None,
        after=replace(job, revision=job.revision - 1),
        events=tuple(await _events(source, job_id)),
        past_attempts=tuple(await _past_attempts(source, job)),
        claim=await _claim(source, job),
    )
    (outcome,) = await target.commit([change])
    if isinstance(outcome, Duplicate):
        return f"the target has another job for the same command: {outcome.job_id}"
    if not isinstance(outcome, Committed):
        return f"the target answers {type(outcome).__name__}"
    await _copy_closing(source, target, job_id)
    return None


async def _copy_closing(source: Ledger, target: Ledger, job_id: str) -> None:
    """A redrive closes its job by itself."""
    closing = (await source.closings([job_id])).get(job_id)
    if closing is not None and closing.by is not None:
        await target.dismiss(closing)


async def _events(source: Ledger, job_id: str) -> list[Event]:
    events: list[Event] = []
    while page := await source.events(job_id, events[-1].seq if events else 0, EVENTS_PAGE):
        events += page
    return events


async def _past_attempts(source: Ledger, job: Job) -> list[tuple[int, Attempt]]:
    by_step = await source.attempts(job.job_id)
    found: list[tuple[int, Attempt]] = []
    for index, step in enumerate(job.steps):
        found += [(index, one) for one in by_step.get(step.spec.step_id, []) if one.attempt_no != step.attempt_no]
    return found


async def _claim(source: Ledger, job: Job) -> Claim | None:
    spec = job.spec
    key = idempotency_scope_key(spec.tenant_id, spec.idempotency_key, spec.idempotency_hash)
    holder = await source.find_claim(key)
    return Claim(key, spec.idempotency_hash) if holder is not None and holder.job_id == job.job_id else None
