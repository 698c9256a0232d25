"""The activities of the workflow: they write its projections to the ledger and publish its directives.

Every write compares revisions, so a late or repeated write changes nothing: the ledger never goes backwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec.structs import replace
from temporalio import activity

from lucius.domain.attempt import DispatchStatus
from lucius.domain.decide import decide
from lucius.domain.effects import Event
from lucius.domain.inputs import Published, PublishHeld
from lucius.domain.job import Job, JobSpec
from lucius.domain.step import Step, StepSpec, StepStatus
from lucius.domain.time import Instant
from lucius.engines.directives import current_directive_ref, directive_ref, past_directives
from lucius.engines.temporal.messages import JobStart, Projection, Recorded
from lucius.engines.tenant_cap import TenantCap
from lucius.ports.bus import Bus, BusUnavailable, Deferred, DeliveryRef, Message
from lucius.ports.clock import Clock
from lucius.ports.ledger import Change, Claim, Committed, Conflict, Ledger, Webhook
from lucius.ports.observer import Observer

TRIES_MAX = 10
"""Maximum tries of a write that meets a conflict although the ledger has the expected revision."""
EVENTS_MAX = 1_000
"""More events than one workflow task adds to a trail."""


class _NothingFresh:
    """A successful publish creates nothing new."""

    claim_seconds = 0.0
    publishes_inside = False

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return False

    def lease_id(self) -> str:
        raise AssertionError("publishing creates no attempt")

    def jitter(self) -> float:
        return 0.0


NOTHING_FRESH = _NothingFresh()


class JobActivities:
    def __init__(
        self,
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        observer: Observer,
        compose: Callable[[Job, int], Message],
        changed: Callable[[Job], None] = lambda job: None,
        publish_timeout_seconds: float = 10.0,
        cap: TenantCap | None = None,
    ) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._compose = compose
        self._changed = changed
        self._timeout = publish_timeout_seconds
        self._cap = cap
        self._enlists = ledger.enlists(bus)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return [
            self.record_attempt_lease,
            self.project,
            self.publish_to_bus,
            self.look_at_queue,
            self.withdraw_directive,
            self.restore,
        ]

    @activity.defn
    async def record_attempt_lease(self, projection: Projection) -> Recorded:
        """Write a new attempt and its lease, with its directive if the bus is in the ledger's database."""
        return await self._project(projection)

    @activity.defn
    async def project(self, projection: Projection) -> Recorded:
        return await self._project(projection)

    @activity.defn
    async def publish_to_bus(self, job: Job) -> Recorded:
        """Publish the current attempt's directive, once, and record that the bus has it, or that it has to wait."""
        if self._cap is not None and not self._cap.admit(job):
            return await self._hold(job, self._cap)
        message = self._compose(job, job.current_index)
        refused = self._bus.refusal(message)
        if refused is not None:
            return Recorded(refused=refused.reason)
        began = self._clock.now()
        if not self._enlists:
            try:
                async with asyncio.timeout(self._timeout):
                    answer = (await self._bus.publish([message]))[0]
            except (BusUnavailable, TimeoutError):
                return Recorded(is_deferred=True)
            if isinstance(answer, Deferred):
                return Recorded(is_deferred=True)
            if answer is not None:
                return Recorded(refused=answer.reason)
        self._observer.dispatched(1, max(0, self._clock.now() - began) / 1000)
        at = self._published_at(job)
        after, events = _published(job, at)
        messages = (message,) if self._enlists else ()
        return await self._commit(Change(before=job, after=after, events=events, messages=messages), at)

    async def _hold(self, job: Job, cap: TenantCap) -> Recorded:
        step = job.current_step
        if step.attempt is not None and step.attempt.is_held:
            cap.committed(job)
            return Recorded(is_held=True)
        at = self._published_at(job)
        decision = decide(job, PublishHeld(step.spec.step_id, step.attempt_no), at, NOTHING_FRESH)
        recorded = await self._commit(Change(before=job, after=decision.job, events=decision.events), None)
        return recorded if recorded.ahead else Recorded(is_held=True, held_at=at)

    @activity.defn
    async def look_at_queue(self, job: Job) -> bool:
        """Whether the current directive certainly waits on the bus; no service can get it from an unreachable bus."""
        try:
            async with asyncio.timeout(self._timeout):
                return bool(await self._bus.still_queued([current_directive_ref(job)]))
        except (BusUnavailable, TimeoutError):
            return True

    @activity.defn
    async def withdraw_directive(self, job: Job) -> bool:
        """Whether the current directive was removed from the bus. If the bus is unreachable it was not, and the ack
        deadline ends the job."""
        try:
            async with asyncio.timeout(self._timeout):
                return bool(await self._bus.withdraw([current_directive_ref(job)]))
        except (BusUnavailable, TimeoutError) as error:
            self._observer.failed(f"withdrawing the directive of job {job.job_id}", error)
            return False

    @activity.defn
    async def restore(self, start: JobStart) -> bool:
        """Write a job that the ledger has lost; returns whether it had lost it."""
        job = start.job
        if await self._ledger.load([job.job_id]):
            return False
        seq = job.event_seq + 1
        event = Event(seq, self._clock.now(), "RESTORED", None, None, {"job_status": job.status})
        after = replace(job, event_seq=seq)
        claim = Claim(start.claim_key, job.spec.idempotency_hash) if start.claim_key else None
        outcome = (await self._ledger.commit([Change(before=None, after=after, events=(event,), claim=claim)]))[0]
        return isinstance(outcome, Committed)

    async def _project(self, projection: Projection) -> Recorded:
        before = projection.before
        after, events = _sharing(before, projection.after), projection.events
        messages: tuple[Message, ...] = ()
        published_at, refusal = None, None
        if self._enlists and is_unsent(after):
            message = self._compose(after, after.current_index)
            refused = self._bus.refusal(message)
            if refused is None:
                published_at = self._published_at(after)
                after, more = _published(after, published_at)
                events, messages = (*events, *more), (message,)
            else:
                refusal = refused.reason
        job = projection.after
        url = projection.webhook_url
        settled = tuple(dict.fromkeys(directive_ref(job, *pair) for pair in projection.settled))
        change = Change(
            before=before,
            after=after,
            events=events,
            messages=messages,
            settled=settled if self._enlists else (),
            webhook=None
            if url is None
            else Webhook(job_id=job.job_id, url=url, tenant_id=job.spec.tenant_id, next_at=self._clock.now()),
        )
        recorded = await self._commit(change, published_at)
        if settled and not self._enlists:
            await self.settle(settled)
        return recorded if refusal is None or recorded.ahead else replace(recorded, refused=refusal)

    def _published_at(self, job: Job) -> Instant:
        """Now, but not before the job's own time: the ack deadline follows the clock of the Temporal server, which may
        be ahead of the ledger's."""
        return max(self._clock.now(), job.updated_at)

    async def _commit(self, change: Change, published_at: int | None) -> Recorded:
        began = perf_counter()
        assert change.before is not None
        known_seq = change.before.event_seq
        for _ in range(TRIES_MAX):
            outcome = (await self._ledger.commit([change]))[0]
            if isinstance(outcome, Committed):
                self._observer.turn_done(1, perf_counter() - began, [change])
                self._changed(change.after)
                if self._cap is not None:
                    self._cap.decided(change.after)
                    self._cap.committed(change.after)
                return Recorded(published_at=published_at)
            assert isinstance(outcome, Conflict), f"a projection creates nothing: {outcome}"
            change = await self._reconciled(change)
            assert change.before is not None
            if change.before.revision > change.after.revision:
                events = await self._ledger.events(change.after.job_id, known_seq, EVENTS_MAX)
                return Recorded(ahead=change.before, events=tuple(events))
        raise RuntimeError(f"job {change.after.job_id}: {TRIES_MAX} conflicts, and the ledger has not moved")

    async def _reconciled(self, change: Change) -> Change:
        """The same change, based on the ledger's current state. A ledger that has fallen behind is brought up to
        date."""
        job_id = change.after.job_id
        held = (await self._ledger.load([job_id])).get(job_id)
        if held is None:
            raise RuntimeError(f"the ledger has lost job {job_id}; the reconciler will have it written again")
        if self._enlists and held.revision < change.after.revision:
            # It was restored from a backup, including the directives of attempts that have ended since.
            change = replace(change, settled=(*change.settled, *past_directives(change.after)))
        return replace(change, before=held)

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        """Best effort: directives that have reached a service are not delivered again."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._bus.settle(refs)
        except (BusUnavailable, TimeoutError) as error:
            # Harmless: the message is delivered once more, and its callbacks are answered as duplicates.
            self._observer.failed("settling directives", error)


def is_unsent(job: Job) -> bool:
    step = job.current_step
    attempt = step.attempt
    is_pending = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
    return is_pending and step.status is StepStatus.DISPATCHING and not job.is_terminal


def _published(job: Job, at: int) -> tuple[Job, tuple[Event, ...]]:
    step = job.current_step
    decision = decide(job, Published(step.spec.step_id, step.attempt_no), at, NOTHING_FRESH)
    return decision.job, decision.events


def _sharing(before: Job, after: Job) -> Job:
    """`after`, with unchanged steps and attempts taken from `before`, so that the ledger writes only the rest.

    Both were decoded separately, so equal parts are different objects.
    """
    return replace(after, steps=tuple(_same(*pair) for pair in zip(before.steps, after.steps, strict=True)))


def _same(before: Step, after: Step) -> Step:
    if after == before:
        return before
    if after.attempt == before.attempt:
        return replace(after, attempt=before.attempt)
    return after
