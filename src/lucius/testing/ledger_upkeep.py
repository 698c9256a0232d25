"""Ledger suite, part four: webhooks, drift repair, pruning."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from lucius.domain.inputs import CancelAsked, DeadlinePassed, DispatchDue
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.domain.time import Instant, after
from lucius.ports.ledger import Committed, Conflict, JobFilter, Ledger, Repairs, Webhook
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import CLAIM_SECONDS, START, ManualClock


class LedgerUpkeep:
    # --- Hooks of an adapter's test: ways to corrupt its store --------------------------------------------------------

    async def break_count(self, ledger: Ledger, scope: str, jobs: int) -> None:
        """Make the in-flight count of a scope wrong."""
        raise NotImplementedError

    async def lose_timer(self, ledger: Ledger, job_id: str) -> None:
        """Remove a job's `wake_at`."""
        raise NotImplementedError

    async def set_outbox(self, ledger: Ledger, job_id: str, step_index: int, attempt_no: int, status: str) -> None:
        """Overwrite the outbox status of an attempt."""
        raise NotImplementedError

    # --- Webhooks ----------------------------------------------------------------------------------------------------

    async def _ended(
        self, ledger: Ledger, clock: ManualClock, next_at: Instant = START, tenant_id: str = "acme"
    ) -> Webhook:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(steps=["ocr"], tenant_id=tenant_id)
        webhook = Webhook(job_id=job.job_id, url="https://client.example/done", tenant_id=tenant_id, next_at=next_at)
        await driver.succeed(job, webhook)
        return webhook

    async def _taken_up(
        self, ledger: Ledger, now: Instant, claim_until: Instant, per_tenant: int = 10
    ) -> list[Webhook]:
        """Find and claim the due webhooks."""
        due = await ledger.webhooks_due(now, "", 10, per_tenant)
        claimed = await ledger.claim_webhooks([webhook.job_id for webhook in due], now, claim_until)
        return [webhook for webhook in due if webhook.job_id in claimed]

    async def test_webhook_is_owed_from_the_commit_that_brought_it(self, ledger: Ledger, clock: ManualClock) -> None:
        assert await self._taken_up(ledger, START, after(START, 60)) == []
        webhook = await self._ended(ledger, clock, next_at=after(START, 5))
        assert await self._taken_up(ledger, after(START, 4.999), after(START, 60)) == []
        assert await self._taken_up(ledger, after(START, 5), after(START, 60)) == [webhook]

    async def test_webhook_taken_up_is_nobody_elses_until_the_claim_ends(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        webhook = await self._ended(ledger, clock)
        assert await self._taken_up(ledger, START, after(START, 60)) == [webhook]
        assert await self._taken_up(ledger, after(START, 59.999), after(START, 120)) == []
        again = await self._taken_up(ledger, after(START, 60), after(START, 120))
        assert [each.job_id for each in again] == [webhook.job_id]

    async def test_webhook_delivered_is_no_longer_owed(self, ledger: Ledger, clock: ManualClock) -> None:
        webhook = await self._ended(ledger, clock)
        await self._taken_up(ledger, START, after(START, 60))
        await ledger.webhook_done(replace(webhook, attempts=1), delivered=True)
        assert await self._taken_up(ledger, after(START, 10**6), after(START, 10**7)) == []

    async def test_webhook_given_up_is_no_longer_owed(self, ledger: Ledger, clock: ManualClock) -> None:
        webhook = await self._ended(ledger, clock)
        await self._taken_up(ledger, START, after(START, 60))
        await ledger.webhook_done(replace(webhook, attempts=9, next_at=0, last_error="410 Gone"), delivered=False)
        assert await self._taken_up(ledger, after(START, 10**6), after(START, 10**7)) == []

    async def test_webhook_that_failed_is_due_again_with_what_is_known(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        webhook = await self._ended(ledger, clock)
        await self._taken_up(ledger, START, after(START, 60))
        later = replace(webhook, attempts=1, next_at=after(START, 300), last_error="connection refused")
        await ledger.webhook_done(later, delivered=False)
        assert await self._taken_up(ledger, after(START, 299), after(START, 400)) == []
        assert await self._taken_up(ledger, after(START, 300), after(START, 400)) == [later]

    async def test_webhook_is_called_no_later_than_its_calls_allow(self, ledger: Ledger, clock: ManualClock) -> None:
        webhooks = [await self._ended(ledger, clock) for _ in range(4)]
        for webhook, attempts, seconds in zip(webhooks, (0, 1, 5, 2), (3_600, 3_600, 3_600, 30), strict=True):
            later = replace(webhook, attempts=attempts, next_at=after(START, seconds))
            await ledger.webhook_done(later, delivered=False)
        await ledger.shorten_webhooks([after(START, seconds) for seconds in (10, 20, 60)])
        found = {one.job_id: one.next_at for one in await ledger.webhooks_due(after(START, 60), "", 10, 10)}
        assert [found[webhook.job_id] for webhook in webhooks] == [after(START, wait) for wait in (10, 20, 60, 30)]

    async def test_webhook_waits_as_long_as_its_receiver_asked(self, ledger: Ledger, clock: ManualClock) -> None:
        webhook = await self._ended(ledger, clock)
        asked = replace(webhook, attempts=1, next_at=after(START, 50), asked_wait_ms=40_000)
        await ledger.webhook_done(asked, delivered=False)
        await ledger.shorten_webhooks([after(START, seconds) for seconds in (10, 20)])
        assert await self._taken_up(ledger, after(START, 49), after(START, 400)) == []
        assert await self._taken_up(ledger, after(START, 50), after(START, 400)) != []

    async def test_webhooks_are_taken_up_once_by_many_takers(self, ledger: Ledger, clock: ManualClock) -> None:
        pending = {(await self._ended(ledger, clock)).job_id for _ in range(12)}
        takers = [self._taken_up(ledger, START, after(START, 60), per_tenant) for per_tenant in (4, 8, 12, 12)]
        taken = [webhook.job_id for batch in await asyncio.gather(*takers) for webhook in batch]
        assert len(taken) == len(set(taken))
        assert set(taken) == pending

    async def test_webhooks_of_one_tenant_hide_no_other_tenants(self, ledger: Ledger, clock: ManualClock) -> None:
        early = [await self._ended(ledger, clock, place, "acme") for place in range(1, 31)]
        late = {tenant: await self._ended(ledger, clock, START, tenant) for tenant in ("globex", "initech", "umbrella")}
        await self._ended(ledger, clock, after(START, 1), "hooli")

        async def due(after_tenant: str, tenants_max: int = 10) -> list[str]:
            found = await ledger.webhooks_due(START, after_tenant, tenants_max, 2)
            return [webhook.job_id for webhook in found]

        acme, others = [webhook.job_id for webhook in early[:2]], [late[tenant].job_id for tenant in sorted(late)]
        assert await due("") == [*acme, *others]
        assert await due("acme") == [*others, *acme]
        assert await due("hooli") == [*others[1:], *acme, others[0]]
        assert await due("initech", tenants_max=2) == [others[2], *acme]
        await ledger.claim_webhooks(acme, START, after(START, 60))
        assert await due("", tenants_max=1) == [webhook.job_id for webhook in early[2:4]], "others of the same tenant"

    async def test_webhook_that_is_not_due_cannot_be_claimed(self, ledger: Ledger, clock: ManualClock) -> None:
        webhook = await self._ended(ledger, clock, after(START, 5))
        assert await ledger.claim_webhooks([webhook.job_id, clock.job_id()], START, after(START, 60)) == set()
        assert await self._taken_up(ledger, after(START, 5), after(START, 60)) == [webhook]

    # --- Repair ------------------------------------------------------------------------------------------------------

    async def test_repair_finds_nothing_in_a_sound_ledger(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        jobs = [await driver.create() for _ in range(5)]
        jobs[1] = await driver.tell(jobs[1], published(jobs[1]))
        jobs[2] = await driver.tell(jobs[2], ack(jobs[2]))
        jobs[3] = await driver.succeed(jobs[3])
        jobs[4] = await driver.cancel(jobs[4])
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs()
        assert await ledger.load([job.job_id for job in jobs]) == {job.job_id: job for job in jobs}

    async def test_repair_mends_counts_that_differ_from_the_jobs(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        for tenant in ("acme", "acme", "globex"):
            await driver.create(tenant_id=tenant)
        sound = await ledger.inflight()
        await self.break_count(ledger, "tenant:acme", 7)
        await self.break_count(ledger, "global", 1)
        await self.break_count(ledger, "tenant:gone", 3)
        repairs = await ledger.repair(clock.now(), CLAIM_SECONDS)
        assert repairs == Repairs(slots=3)
        counts = {scope: count for scope, count in (await ledger.inflight()).items() if count}
        assert counts == sound == {"global": 3, "mode:DEFAULT": 3, "tenant:acme": 2, "tenant:globex": 1}
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs()

    async def test_repair_wakes_a_job_without_a_timer(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(not_before=after(START, 60))
        await self.lose_timer(ledger, job.job_id)
        assert await ledger.due(after(START, 10**6), 10) == []
        assert (await ledger.repair(clock.now(), CLAIM_SECONDS)).wake_ups == 1
        assert await ledger.due(clock.now(), 10) == [job.job_id]
        assert (await ledger.load([job.job_id]))[job.job_id].revision > job.revision

    async def test_repair_leaves_jobs_that_have_ended_without_a_timer(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.succeed(await driver.create())
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs()
        assert await driver.read(job) == job

    async def test_repair_leaves_attempts_that_are_held(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        clock.is_holding_back = True
        job = await driver.create()
        clock.advance(10 * CLAIM_SECONDS)
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs()
        assert await driver.read(job) == job

    async def test_repair_wakes_a_step_that_waits_for_a_row_already_closed(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        await self.set_outbox(ledger, job.job_id, 0, 1, "SENT")
        assert (await ledger.repair(clock.now(), CLAIM_SECONDS)).wake_ups == 1
        assert await ledger.due(clock.now(), 10) == [job.job_id]
        woken = await driver.tell(await driver.read(job), DeadlinePassed())
        assert woken.current_step.status is StepStatus.FAILED_RETRY
        assert (await ledger.repair(clock.now(), CLAIM_SECONDS)).wake_ups == 0

    async def test_repair_wakes_what_a_clock_that_was_ahead_has_written(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        sound = await driver.create()
        leased, claimed, ended = [await driver.create(deadline_seconds=86_400.0) for _ in range(3)]
        overdue = await driver.create(deadline_seconds=1.0)
        clock.advance(3_600)
        await driver.tell(leased, ack(leased))
        await driver.tell(claimed, DispatchDue(force=True))
        await driver.tell(overdue, ack(overdue))
        await driver.succeed(ended)
        clock.advance(-3_590)
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs(wake_ups=3)
        assert set(await ledger.due(clock.now(), 10)) == {leased.job_id, claimed.job_id, overdue.job_id}
        assert (await driver.read(overdue)).wake_at == overdue.spec.deadline_at
        assert await driver.read(sound) == sound
        for job in (leased, claimed, overdue):
            await driver.tell(await driver.read(job), DeadlinePassed())
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs()
        assert claimed.job_id in await ledger.undispatched(after(clock.now(), CLAIM_SECONDS), 10)

    async def test_repair_closes_rows_that_belong_to_no_open_job(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.cancel(await driver.create())
        await self.set_outbox(ledger, job.job_id, 0, 1, "PENDING")
        assert [row.job_id for row in await ledger.outbox(10)] == [job.job_id]
        assert (await ledger.repair(clock.now(), CLAIM_SECONDS)).outbox == 1
        assert await ledger.outbox(10) == []
        assert await ledger.repair(clock.now(), CLAIM_SECONDS) == Repairs()

    async def test_change_decided_before_a_repair_conflicts_with_it(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create(not_before=after(START, 60))
        change = driver.change(job, CancelAsked("operator"))
        await self.lose_timer(ledger, job.job_id)
        await ledger.repair(clock.now(), CLAIM_SECONDS)
        assert await driver.commit(change) == Conflict()
        woken = await driver.read(job)
        clock.advance(60)
        started = await driver.tell(woken, DeadlinePassed())
        assert started.current_step.status is StepStatus.DISPATCHING

    # --- Pruning -----------------------------------------------------------------------------------------------------

    async def _past(self, ledger: Ledger, clock: ManualClock, count: int) -> list[Job]:
        """Jobs that ended a minute apart, the first one now."""
        driver = LedgerDriver(ledger, clock)
        jobs = []
        for place in range(count):
            jobs.append(await driver.succeed(await driver.create(key=f"key {place}")))
            clock.advance(60)
        return jobs

    async def test_prune_removes_a_job_with_all_that_belongs_to_it(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        change = driver.creation(key="one", steps=["ocr"])
        assert change.claim is not None
        job = await driver.write(change)
        webhook = Webhook(job_id=job.job_id, url="https://client.example", tenant_id="acme", next_at=START)
        await driver.succeed(job, webhook)
        assert await ledger.prune(after(START, 1), 10) == 0, "its webhook is pending"
        await ledger.webhook_done(replace(webhook, attempts=1, next_at=0), delivered=True)
        assert await ledger.prune(after(START, 1), 10) == 1
        assert await ledger.load([job.job_id]) == {}
        assert await ledger.events(job.job_id, 0, 100) == []
        assert await ledger.attempts(job.job_id) == {}
        assert await ledger.jobs(JobFilter(), 10, None) == []
        assert await ledger.find_claim(change.claim.key) is None
        assert await ledger.webhooks_due(after(START, 10), "", 10, 10) == []

    async def test_prune_lets_the_same_command_be_accepted_again(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.succeed(await driver.create(key="one"))
        await ledger.prune(after(START, 1), 10)
        assert await driver.commit(driver.creation(key="one")) == Committed()

    async def test_prune_keeps_jobs_that_are_open_or_ended_later(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        still_open = await driver.create()
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
        driver = LedgerDriver(ledger, clock)
        await driver.succeed(await driver.create(key="one", steps=["ocr"]))
        await ledger.prune(after(START, 1), 10)
        clock.advance(100)
        change = driver.creation(key="one", steps=["ocr"])
        assert change.claim is not None
        job = await driver.write(change)
        await driver.tell(job, result(job))
        assert await ledger.prune(after(START, 50), 10) == 0
        assert await ledger.find_claim(change.claim.key) is not None

    async def test_prunable_names_ended_jobs_by_tenant(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.create(key="open")
        ended = {
            tenant: await driver.succeed(await driver.create(key=tenant, tenant_id=tenant))
            for tenant in ("acme", "rival")
        }
        clock.advance(60)
        later = await driver.succeed(await driver.create(key="later"))
        moment = after(START, 60)

        async def found(**filters: Any) -> set[str]:
            return {one.job_id for one in await ledger.prunable(moment, 10, **filters)}

        acme, rival = ended["acme"].job_id, ended["rival"].job_id
        assert await found() == {acme, rival}
        assert await found(tenants=["acme"]) == {acme}
        assert await found(except_tenants=["acme"]) == {rival}
        assert len(await ledger.prunable(moment, 1)) == 1
        (key,) = await ledger.prunable(moment, 10, ["rival"])
        assert key.tenant_id == "rival"
        assert await ledger.prune(moment, 10, [rival, later.job_id]) == 1
        assert await found() == {acme}
        assert set(await ledger.statuses([acme, rival, later.job_id])) == {acme, later.job_id}

    async def test_a_job_is_kept_while_the_job_that_redrives_it_is_open(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        failed = await driver.fail(await driver.create(key="one", steps=["ocr"]))
        again = await driver.create(key="again", steps=["ocr"], redrive_of=failed.job_id)
        moment = after(START, 1)
        assert await ledger.prunable(moment, 10) == []
        assert await ledger.prune(moment, 10) == 0
        clock.advance(10)
        await driver.succeed(again)
        assert [one.job_id for one in await ledger.prunable(moment, 10)] == [failed.job_id]
