"""One workflow per job. It holds the aggregate, hears facts as signals, and has the job's one timer.

A turn is: decide what has gathered, have a local activity write it to the ledger (and publish), go on from there. The
write compares revisions. So if a worker dies between the activity and the end of its workflow task, the next try, which
may see more signals and another time, finds the ledger ahead, takes over what it holds, and decides again: what has
left the process is never taken back.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from msgspec.structs import replace

    from lucius.domain.attempt import DispatchStatus
    from lucius.domain.decide import decide
    from lucius.domain.effects import CallWebhook, Event, SettleDirective
    from lucius.domain.inputs import (
        Acked,
        CancelAsked,
        DeadlinePassed,
        HeartbeatSeen,
        Input,
        PauseAsked,
        Published,
        PublishFailed,
        Resulted,
        ResumeAsked,
    )
    from lucius.domain.job import Job
    from lucius.domain.step import StepStatus
    from lucius.engines.temporal.messages import WORKFLOW, JobEnd, JobStart, Projection, Recorded, StepCallback

STATUS = SearchAttributeKey.for_keyword("LuciusStatus")
ACTIVITY_SECONDS_MAX = 20
RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=10))
"""The ledger may be away for long: whoever waits for it tries on."""
DEFERRED_FIRST_MS, DEFERRED_MAX_MS = 200, 30_000


class _Fresh:
    """From the workflow's own sources: the same again when its history is replayed."""

    # No claim: nobody but this workflow publishes for its job, and it does so whenever an attempt is unsent.
    claim_seconds = 0.0
    publishes_inside = False

    def lease_id(self) -> str:
        return str(workflow.uuid4())

    def jitter(self) -> float:
        return workflow.random().random()


@workflow.defn(name=WORKFLOW)
class JobWorkflow:
    @workflow.init
    def __init__(self, start: JobStart) -> None:
        self._start = start
        self._job = start.job
        self._inbox: list[Input] = []
        self._fresh = _Fresh()
        self._now = 0
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = 0
        self._is_roused = False
        self._try_at = 0
        self._tries_deferred = 0
        self._is_to_restore = False
        # It was started with search attributes that say so.
        self._shown_status: str = start.job.status

    # --- What it is told ---------------------------------------------------------------------------------------------

    @workflow.signal
    def step_ack(self, fact: Acked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def step_result(self, fact: Resulted) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def step_heartbeat(self, fact: HeartbeatSeen) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def step_callbacks(self, callbacks: list[StepCallback]) -> None:
        """Several that came together, in their order."""
        self._inbox += [callback.fact for callback in callbacks]

    @workflow.signal
    def cancel(self, fact: CancelAsked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def pause(self, fact: PauseAsked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def resume(self, fact: ResumeAsked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def retry_dispatch(self) -> None:
        """Somebody knows that the bus is back."""
        self._try_at, self._is_roused = 0, True

    @workflow.signal
    def project_again(self) -> None:
        """The ledger has lost the job."""
        self._is_to_restore = self._is_roused = True

    @workflow.query
    def state(self) -> Job:
        return self._job

    # --- What it does ------------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, start: JobStart) -> JobEnd:
        while True:
            self._show_status()
            facts, self._inbox = self._inbox, []
            if facts:
                await self._turn(facts)
            elif self._is_to_restore:
                self._is_to_restore = False
                await self._hand("restore", replace(self._start, job=self._job), bool)
            elif self._job.is_terminal:
                return JobEnd(self._job.status, self._job.revision)
            elif self._is_unsent and self._clock() >= self._try_at:
                await self._publish()
            elif self._wakes_at <= self._clock():
                await self._turn([DeadlinePassed(await self._is_still_queued())])
            elif workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(replace(self._start, job=self._job))
            else:
                await self._wait()

    async def _turn(self, facts: list[Input]) -> None:
        """Decide all that has gathered, and have it written in one go."""
        while True:
            before, job = self._job, self._job
            events: list[Event] = []
            settled: list[tuple[int, int]] = []
            webhook_url = None
            for fact in facts:
                decision = decide(job, fact, self._clock(), self._fresh)
                job = decision.job
                events += decision.events
                for effect in decision.effects:
                    if isinstance(effect, SettleDirective):
                        settled.append((effect.step_index, effect.attempt_no))
                    elif isinstance(effect, CallWebhook):
                        webhook_url = effect.url
            if job is before and not events:
                return
            projection = Projection(
                before=before, after=job, events=tuple(events), settled=tuple(settled), webhook_url=webhook_url
            )
            name = "project" if job.attempts_total == before.attempts_total else "record_attempt_lease"
            recorded = await self._hand(name, projection, Recorded)
            if self._took(recorded, job):
                if recorded.refused is not None:
                    facts = [self._publish_failed(recorded.refused)]
                    continue
                return

    async def _publish(self) -> None:
        recorded = await self._hand("publish_to_bus", self._job, Recorded)
        if recorded.is_deferred:
            wait_ms = min(DEFERRED_MAX_MS, DEFERRED_FIRST_MS * 2**self._tries_deferred)
            self._tries_deferred = min(self._tries_deferred + 1, 16)
            self._try_at = self._clock() + wait_ms
            return
        self._tries_deferred = 0
        if recorded.refused is not None:
            await self._turn([self._publish_failed(recorded.refused)])
        elif recorded.published_at is not None or recorded.ahead is not None:
            self._took(recorded, self._job)

    def _took(self, recorded: Recorded, job: Job) -> bool:
        """Go on from what the ledger holds now; False if that is something else than `job`."""
        if recorded.ahead is not None:
            self._job = recorded.ahead
            return False
        if recorded.published_at is not None:
            step = job.current_step
            fact = Published(step.spec.step_id, step.attempt_no)
            job = decide(job, fact, recorded.published_at, self._fresh).job
        self._job = replace(job, revision=job.revision + 1)
        return True

    def _publish_failed(self, reason: str) -> PublishFailed:
        step = self._job.current_step
        return PublishFailed(step.spec.step_id, step.attempt_no, reason)

    async def _is_still_queued(self) -> bool:
        """Whether the bus can prove that nobody could have acknowledged yet; only an ack deadline asks."""
        if self._job.current_step.status is not StepStatus.INITIATED or self._clock() >= self._job.spec.deadline_at:
            return False
        return bool(await self._hand("look_at_queue", self._job, bool))

    async def _hand(self, name: str, argument: Any, result_type: type) -> Any:
        return await workflow.execute_local_activity(
            name,
            argument,
            result_type=result_type,
            start_to_close_timeout=timedelta(seconds=ACTIVITY_SECONDS_MAX),
            retry_policy=RETRIES,
        )

    # --- Time --------------------------------------------------------------------------------------------------------

    def _clock(self) -> int:
        """Workflow time, which a job never sees run backwards, though its ledger's writer may have another clock."""
        self._now = max(self._now, round(workflow.now().timestamp() * 1000), self._job.updated_at)
        return self._now

    @property
    def _is_unsent(self) -> bool:
        step = self._job.current_step
        attempt = step.attempt
        is_pending = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
        return is_pending and step.status is StepStatus.DISPATCHING

    @property
    def _wakes_at(self) -> int:
        assert self._job.wake_at is not None, "a job that has not ended has a timer"
        return self._job.wake_at

    async def _wait(self) -> None:
        """Until something is told, or it is time.

        An alarm that is set and rings too early costs one look; setting it anew for every turn would cost two events
        of history each time.
        """
        until = min(self._wakes_at, self._try_at) if self._is_unsent else self._wakes_at
        if self._alarm is None or self._alarm_at > until:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = until
            self._alarm = asyncio.create_task(self._ring(max(1, until - self._clock())))
        await workflow.wait_condition(lambda: bool(self._inbox) or self._is_roused)
        self._is_roused = False

    async def _ring(self, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1000)
        self._alarm, self._is_roused = None, True

    def _show_status(self) -> None:
        if self._start.is_searchable and self._shown_status != self._job.status:
            self._shown_status = self._job.status
            workflow.upsert_search_attributes([STATUS.value_set(str(self._job.status))])
