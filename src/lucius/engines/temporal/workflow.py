"""One workflow per job. It has the aggregate, receives facts as signals, and has the job's only timer.

A turn decides the facts received, has a local activity write the result to the ledger (and publish), and continues from
there. The write compares revisions. If a worker dies between the activity and the end of its workflow task, the next
try, which may see more signals and another time, finds the ledger ahead, takes over its state, and decides again: what
has left the process is never undone.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid5

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
        DirectiveDied,
        DirectiveWithdrawn,
        DispatchDue,
        ForceCancelAsked,
        HeartbeatSeen,
        Input,
        PauseAsked,
        Published,
        PublishFailed,
        PublishHeld,
        Resulted,
        ResumeAsked,
    )
    from lucius.domain.job import LEASES_FROM_REVISION, RETRIES_REFUSED_EARLY, WITHDRAWS_DIRECTIVES, Job, JobSpec
    from lucius.domain.step import StepSpec, StepStatus
    from lucius.engines.temporal.already_decided import split_decided
    from lucius.engines.temporal.messages import WORKFLOW, JobEnd, JobStart, Projection, Recorded, StepCallback

STATUS = SearchAttributeKey.for_keyword("LuciusStatus")
ACTIVITY_SECONDS_MAX = 20
RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=10))
"""The ledger may be unavailable for long: the activity keeps trying."""
DEFERRED_FIRST_MS, DEFERRED_MAX_MS = 200, 30_000
HELD_MS = 30_000


class _Fresh:
    """For decisions on one revision of a job, from the workflow's own sources, which give the same values when its
    history is replayed.

    They also give the same values when a task whose worker died is tried again. The second try may find the ledger
    ahead and continue from there, so a lease id must differ from all that the first try may have written: it depends on
    the revision, which has moved on with every write.
    """

    # No claim: only this workflow publishes for its job, and it does so whenever an attempt is unsent.
    claim_seconds = 0.0
    publishes_inside = False

    def __init__(self, job: Job) -> None:
        self._job = job
        self._leases = 0

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return False  # That is up to the activity that publishes.

    def lease_id(self) -> str:
        drawn = workflow.uuid4()
        if self._job.spec.rules_version < LEASES_FROM_REVISION:
            return str(drawn)
        self._leases += 1
        return str(uuid5(drawn, f"{self._job.revision}.{self._leases}"))

    def jitter(self) -> float:
        return workflow.random().random()


class _Foreseen:
    """For the decisions of a query, which are discarded: the workflow's own sources are not used."""

    claim_seconds = 0.0
    publishes_inside = False

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return False

    def lease_id(self) -> str:
        return "foreseen"

    def jitter(self) -> float:
        return 0.0


@workflow.defn(name=WORKFLOW)
class JobWorkflow:
    @workflow.init
    def __init__(self, start: JobStart) -> None:
        self._start = start
        self._job = start.job
        self._inbox: list[Input] = []
        self._deciding: list[Input] = []
        self._now = 0
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = 0
        self._is_roused = False
        self._try_at = 0
        self._tries_deferred = 0
        self._is_to_restore = False
        self._has_tried_to_withdraw = False
        # It was started with these search attributes.
        self._shown_status: str = start.job.status

    # --- Signals -----------------------------------------------------------------------------------------------------

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
        """Several that arrived together, in order."""
        self._inbox += [callback.fact for callback in callbacks]

    @workflow.signal
    def cancel(self, fact: CancelAsked) -> None:
        self._has_tried_to_withdraw = False
        self._inbox.append(fact)

    @workflow.signal
    def force_cancel(self, fact: ForceCancelAsked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def pause(self, fact: PauseAsked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def resume(self, fact: ResumeAsked) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def directive_died(self, fact: DirectiveDied) -> None:
        self._inbox.append(fact)

    @workflow.signal
    def retry_dispatch(self) -> None:
        """The bus is available again."""
        self._try_at, self._is_roused = 0, True
        if self._job.spec.rules_version >= RETRIES_REFUSED_EARLY:
            self._inbox.append(DispatchDue(force=True))

    @workflow.signal
    def project_again(self) -> None:
        """The ledger has lost the job."""
        self._is_to_restore = self._is_roused = True

    @workflow.query
    def state(self) -> Job:
        return self._job

    @workflow.query
    def expected_state(self) -> Job:
        """The job once all facts received are decided."""
        job = self._job
        for fact in (*self._deciding, *self._inbox):
            job = decide(job, fact, max(self._now, job.updated_at), _Foreseen()).job
        return job

    # --- Turns -------------------------------------------------------------------------------------------------------

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
            elif self._is_to_withdraw:
                await self._withdraw()
            elif self._wakes_at <= self._clock():
                await self._turn([DeadlinePassed(await self._is_still_queued())])
            elif workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(replace(self._start, job=self._job))
            else:
                await self._wait()

    async def _turn(self, facts: list[Input]) -> None:
        """Decide all facts received, and have the result written at once."""
        while True:
            self._deciding = facts
            before, job = self._job, self._job
            id_source = _Fresh(before)
            events: list[Event] = []
            settled: list[tuple[int, int]] = []
            webhook_url = None
            for fact in facts:
                decision = decide(job, fact, self._clock(), id_source)
                job = decision.job
                events += decision.events
                for effect in decision.effects:
                    if isinstance(effect, SettleDirective):
                        settled.append((effect.step_index, effect.attempt_no))
                    elif isinstance(effect, CallWebhook):
                        webhook_url = effect.url
            if job is before and not events:
                self._deciding = []
                return
            projection = Projection(
                before=before, after=job, events=tuple(events), settled=tuple(settled), webhook_url=webhook_url
            )
            name = "project" if job.attempts_total == before.attempts_total else "record_attempt_lease"
            recorded = await self._hand(name, projection, Recorded)
            if self._took(recorded, job):
                self._deciding = []
                if recorded.refused is None:
                    return
                facts = [self._publish_failed(recorded.refused)]
            else:
                facts, events_left = split_decided(facts, recorded.events)
                self._inbox, _ = split_decided(self._inbox, events_left)

    async def _publish(self) -> None:
        # With the workflow's time: the ack deadline must not start earlier.
        recorded = await self._hand("publish_to_bus", replace(self._job, updated_at=self._clock()), Recorded)
        if recorded.is_deferred:
            wait_ms = min(DEFERRED_MAX_MS, DEFERRED_FIRST_MS * 2**self._tries_deferred)
            self._tries_deferred = min(self._tries_deferred + 1, 16)
            self._try_at = self._clock() + wait_ms
            return
        self._tries_deferred = 0
        if recorded.is_held:
            # A signal comes when its turn comes; this is in case it does not.
            self._try_at = self._clock() + HELD_MS
            if recorded.held_at is not None:
                self._took(recorded, self._job)
        elif recorded.refused is not None:
            await self._turn([self._publish_failed(recorded.refused)])
        elif recorded.published_at is not None or recorded.ahead is not None:
            self._took(recorded, self._job)
            self._inbox, _ = split_decided(self._inbox, recorded.events)

    async def _withdraw(self) -> None:
        """Once for every cancel; if it fails, the ack deadline ends the job."""
        self._has_tried_to_withdraw = True
        step = self._job.current_step
        if await self._hand("withdraw_directive", self._job, bool):
            await self._turn([DirectiveWithdrawn(step.spec.step_id, step.attempt_no)])

    def _took(self, recorded: Recorded, job: Job) -> bool:
        """Continue from the ledger's state; False if that differs from `job`."""
        if recorded.ahead is not None:
            self._job = recorded.ahead
            return False
        if recorded.published_at is not None:
            step = job.current_step
            fact = Published(step.spec.step_id, step.attempt_no)
            job = decide(job, fact, recorded.published_at, _Fresh(job)).job
        if recorded.held_at is not None:
            step = job.current_step
            job = decide(job, PublishHeld(step.spec.step_id, step.attempt_no), recorded.held_at, _Fresh(job)).job
        self._job = replace(job, revision=job.revision + 1)
        return True

    def _publish_failed(self, reason: str) -> PublishFailed:
        step = self._job.current_step
        return PublishFailed(step.spec.step_id, step.attempt_no, reason)

    async def _is_still_queued(self) -> bool:
        """Whether the directive certainly waits on the bus, so that no service has it; only ack deadlines need this."""
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
        """Workflow time, but never before the job's last change, which another clock may have written."""
        self._now = max(self._now, round(workflow.now().timestamp() * 1000), self._job.updated_at)
        return self._now

    @property
    def _is_unsent(self) -> bool:
        step = self._job.current_step
        attempt = step.attempt
        is_pending = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
        return is_pending and step.status is StepStatus.DISPATCHING

    @property
    def _is_to_withdraw(self) -> bool:
        has_such_rules = self._job.spec.rules_version >= WITHDRAWS_DIRECTIVES
        return has_such_rules and self._job.awaits_withdrawal and not self._has_tried_to_withdraw

    @property
    def _wakes_at(self) -> int:
        assert self._job.wake_at is not None, "a job that has not ended has a timer"
        return self._job.wake_at

    async def _wait(self) -> None:
        """Wait for a signal or the timer.

        A timer that fires too early costs one look; setting a new timer for every turn would cost two events of
        history each time.
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
