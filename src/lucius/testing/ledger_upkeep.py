"""Ledger suite, part four: webhooks, drift repair, pruning."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from lucius.domain.inputs import CancelAsked, DeadlinePassed
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.ports.ledger import Committed, Conflict, JobFilter, Ledger, Repairs, Webhook
from lucius.testing.samples import START, ManualClock
from lucius.testing.scribe import Scribe, ack, published, result


class LedgerUpkeep:
    # --- What an adapter's test must bring: ways to break its store from below ----------------------------------------

    async def break_count(self, ledger: Ledger, scope: str, jobs: int) -> None:
        """Make the in-flight count of a scope wrong."""
        raise NotImplementedError

    async def lose_timer(self, ledger: Ledger, job_id: str) -> None:
        """Take away a job's `wake_at`."""
        raise NotImplementedError

    async def set_outbox(self, ledger: Ledger, job_id: str, step_index: int, attempt_no: int, status: str) -> None:
        """Overwrite the outbox status of an attempt."""
        raise NotImplementedError

    # --- Webhooks ----------------------------------------------------------------------------------------------------

    async def _ended(self, ledger: Ledger, clock: ManualClock, next_at: int = START) -> Webhook:
        scribe = Scribe(ledger, clock)
        job = await scribe.create(steps=["ocr"])
        webhook = Webhook(job_id=job.job_id, url="https://client.example/done", tenant_id="acme", next_at=next_at)
        await scribe.succeed(job, webhook)
        return webhook

    async def test_webhook_is_owed_from_the_commit_that_brought_it(self, ledger: Ledger, clock: ManualClock) -> None:
        assert await ledger.webhooks_due(START, 10, after(START, 60)) == []
        webhook = await self._ended(ledger, clock, next_at=after(START, 5))
        assert await ledger.webhooks_due(after(START, 4.999), 10, after(START, 60)) == []
        assert await ledger.webhooks_due(after(START, 5), 10, after(START, 60)) == [webhook]

    async def test_webhook_taken_up_is_nobody_elses_until_the_claim_ends(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        webhook = await self._ended(ledger, clock)
        assert await ledger.webhooks_due(START, 10, after(START, 60)) == [webhook]
        assert await ledger.webhooks_due(after(START, 59.999), 10, after(START, 120)) == []
        again = await ledger.webhooks_due(after(START, 60), 10, after(START, 120))
        assert [each.job_id for each in again] == [webhook.job_id]

    async def test_webhook_delivered_is_no_longer_owed(self, ledger: Ledger, clock: ManualClock) -> None:
        webhook = await self._ended(ledger, clock)
        await ledger.webhooks_due(START, 10, after(START, 60))
        await ledger.webhook_done(replace(webhook, attempts=1), delivered=True)
        assert await ledger.webhooks_due(after(START, 10**6), 10, after(START, 10**7)) == []

    async def test_webhook_given_up_is_no_longer_owed(self, ledger: Ledger, clock: ManualClock) -> None:
        webhook = await self._ended(ledger, clock)
        await ledger.webhooks_due(START, 10, after(START, 60))
        await ledger.webhook_done(replace(webhook, attempts=9, next_at=0, last_error="410 Gone"), delivered=False)
        assert await ledger.webhooks_due(after(START, 10**6), 10, after(START, 10**7)) == []

    async def test_webhook_that_failed_is_due_again_with_what_is_known(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        webhook = await self._ended(ledger, clock)
        await ledger.webhooks_due(START, 10, after(START, 60))
        later = replace(webhook, attempts=1, next_at=after(START, 300), last_error="connection refused")
        await ledger.webhook_done(later, delivered=False)
        assert await ledger.webhooks_due(after(START, 299), 10, after(START, 400)) == []
        assert await ledger.webhooks_due(after(START, 300), 10, after(START, 400)) == [later]

    async def test_webhooks_are_taken_up_once_by_many_takers(self, ledger: Ledger, clock: ManualClock) -> None:
        owed = {(await self._ended(ledger, clock)).job_id for _ in range(12)}
        assert len(await ledger.webhooks_due(START, 5, after(START, 60))) == 5
        rest = await asyncio.gather(*(ledger.webhooks_due(START, 4, after(START, 60)) for _ in range(4)))
        taken = [webhook.job_id for batch in rest for webhook in batch]
        assert len(taken) == len(set(taken))
        assert set(taken) <= owed
        assert len(taken) <= 7

    # --- Repair ------------------------------------------------------------------------------------------------------

    async def test_repair_finds_nothing_in_a_sound_ledger(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        jobs = [await scribe.create() for _ in range(5)]
        jobs[1] = await scribe.tell(jobs[1], published(jobs[1]))
        jobs[2] = await scribe.tell(jobs[2], ack(jobs[2]))
        jobs[3] = await scribe.succeed(jobs[3])
        jobs[4] = await scribe.cancel(jobs[4])
        assert await ledger.repair(clock.now()) == Repairs()
        assert await ledger.load([job.job_id for job in jobs]) == {job.job_id: job for job in jobs}

    async def test_repair_mends_counts_that_differ_from_the_jobs(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        for tenant in ("acme", "acme", "globex"):
            await scribe.create(tenant_id=tenant)
        sound = await ledger.inflight()
        await self.break_count(ledger, "tenant:acme", 7)
        await self.break_count(ledger, "global", 1)
        await self.break_count(ledger, "tenant:gone", 3)
        repairs = await ledger.repair(clock.now())
        assert repairs == Repairs(slots=3)
        counts = {scope: count for scope, count in (await ledger.inflight()).items() if count}
        assert counts == sound == {"global": 3, "mode:DEFAULT": 3, "tenant:acme": 2, "tenant:globex": 1}
        assert await ledger.repair(clock.now()) == Repairs()

    async def test_repair_wakes_a_job_without_a_timer(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        job = await scribe.create(not_before=after(START, 60))
        await self.lose_timer(ledger, job.job_id)
        assert await ledger.due(after(START, 10**6), 10) == []
        assert (await ledger.repair(clock.now())).wake_ups == 1
        assert await ledger.due(clock.now(), 10) == [job.job_id]
        assert (await ledger.load([job.job_id]))[job.job_id].revision > job.revision

    async def test_repair_leaves_jobs_that_have_ended_without_a_timer(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        job = await scribe.succeed(await scribe.create())
        assert await ledger.repair(clock.now()) == Repairs()
        assert await scribe.read(job) == job

    async def test_repair_wakes_a_step_that_waits_for_a_row_already_closed(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        scribe = Scribe(ledger, clock)
        job = await scribe.create()
        await self.set_outbox(ledger, job.job_id, 0, 1, "SENT")
        assert (await ledger.repair(clock.now())).wake_ups == 1
        assert await ledger.due(clock.now(), 10) == [job.job_id]
        woken = await scribe.tell(await scribe.read(job), DeadlinePassed())
        assert woken.current_step.status is StepStatus.FAILED_RETRY
        assert (await ledger.repair(clock.now())).wake_ups == 0

    async def test_repair_closes_rows_that_belong_to_no_open_job(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        job = await scribe.cancel(await scribe.create())
        await self.set_outbox(ledger, job.job_id, 0, 1, "PENDING")
        assert [row.job_id for row in await ledger.outbox(10)] == [job.job_id]
        assert (await ledger.repair(clock.now())).outbox == 1
        assert await ledger.outbox(10) == []
        assert await ledger.repair(clock.now()) == Repairs()

    async def test_change_decided_before_a_repair_conflicts_with_it(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        job = await scribe.create(not_before=after(START, 60))
        change = scribe.change(job, CancelAsked("operator"))
        await self.lose_timer(ledger, job.job_id)
        await ledger.repair(clock.now())
        assert await scribe.commit(change) == Conflict()
        woken = await scribe.read(job)
        clock.advance(60)
        started = await scribe.tell(woken, DeadlinePassed())
        assert started.current_step.status is StepStatus.DISPATCHING

    # --- Pruning -----------------------------------------------------------------------------------------------------

    async def _past(self, ledger: Ledger, clock: ManualClock, count: int) -> list[Job]:
        """Jobs that ended a minute apart, the first one now."""
        scribe = Scribe(ledger, clock)
        jobs = []
        for place in range(count):
            jobs.append(await scribe.succeed(await scribe.create(key=f"key {place}")))
            clock.advance(60)
        return jobs

    async def test_prune_removes_a_job_with_all_that_belongs_to_it(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        change = scribe.creation(key="one", steps=["ocr"])
        assert change.claim is not None
        job = await scribe.write(change)
        webhook = Webhook(job_id=job.job_id, url="https://client.example", tenant_id="acme", next_at=START)
        await scribe.succeed(job, webhook)
        assert await ledger.prune(after(START, 1), 10) == 1
        assert await ledger.load([job.job_id]) == {}
        assert await ledger.events(job.job_id, 0, 100) == []
        assert await ledger.attempts(job.job_id) == {}
        assert await ledger.jobs(JobFilter(), 10, None) == []
        assert await ledger.find_claim(change.claim.key) is None
        assert await ledger.webhooks_due(after(START, 10), 10, after(START, 20)) == []

    async def test_prune_lets_the_same_command_be_accepted_again(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        await scribe.succeed(await scribe.create(key="one"))
        await ledger.prune(after(START, 1), 10)
        assert await scribe.commit(scribe.creation(key="one")) == Committed()

    async def test_prune_keeps_jobs_that_are_open_or_ended_later(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        still_open = await scribe.create()
        jobs = await self._past(ledger, clock, 3)
        assert await ledger.prune(after(START, 60), 10) == 1
        left = await ledger.load([job.job_id for job in (still_open, *jobs)])
        assert set(left) == {still_open.job_id, jobs[1].job_id, jobs[2].job_id}
        assert await ledger.prune(after(START, 10**6), 10) == 2
        assert await ledger.jobs(JobFilter(), 10, None) == [still_open]
        assert (await ledger.inflight())["global"] == 1

    async def test_prune_takes_no_more_than_its_limit(self, ledger: Ledger, clock: ManualClock) -> None:
        await self._past(ledger, clock, 5)
        moment = after(START, 10**6)
        assert [await ledger.prune(moment, 2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_prune_keeps_the_claim_of_a_later_job(self, ledger: Ledger, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        await scribe.succeed(await scribe.create(key="one", steps=["ocr"]))
        await ledger.prune(after(START, 1), 10)
        clock.advance(100)
        change = scribe.creation(key="one", steps=["ocr"])
        assert change.claim is not None
        job = await scribe.write(change)
        await scribe.tell(job, result(job))
        assert await ledger.prune(after(START, 50), 10) == 0
        assert await ledger.find_claim(change.claim.key) is not None
