"""Ledger suite, part five: `note_holder` records for every process which instance has an attempt."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from lucius.domain.inputs import PauseAsked
from lucius.domain.job import Job
from lucius.ports.ledger import Committed, Ledger
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import ManualClock


class LedgerHolders:
    async def _note(self, ledger: Ledger, job: Job, instance: str) -> str | None:
        attempt = job.current_step.attempt
        assert attempt is not None
        return await ledger.note_holder(job.job_id, job.current_index, attempt.attempt_no, attempt.lease_id, instance)

    async def _noted(self, ledger: Ledger, job: Job) -> str | None:
        loaded = (await ledger.load([job.job_id]))[job.job_id]
        attempts = (await ledger.attempts(job.job_id))[job.current_step.spec.step_id]
        assert loaded.steps[job.current_index].attempt == attempts[-1]
        return attempts[-1].acked_by

    async def test_first_instance_that_is_noted_stays(self, ledger: Ledger, clock: ManualClock) -> None:
        job = await LedgerDriver(ledger, clock).create()
        assert await self._note(ledger, job, "one") == "one"
        assert await self._note(ledger, job, "two") == "one"
        assert await self._note(ledger, job, "one") == "one"
        assert await self._noted(ledger, job) == "one"

    async def test_of_instances_noted_at_once_all_are_told_the_same(self, ledger: Ledger, clock: ManualClock) -> None:
        job = await LedgerDriver(ledger, clock).create()
        holders = await asyncio.gather(*(self._note(ledger, job, f"instance {place}") for place in range(10)))
        assert len(set(holders)) == 1
        assert await self._noted(ledger, job) == holders[0]

    async def test_note_leaves_the_revision_and_outlasts_commits_that_know_nothing_of_it(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        changes = [driver.change(job, published(job))]
        changes.append(driver.change(replace(changes[0].after, revision=job.revision + 1), PauseAsked("ann")))
        await self._note(ledger, job, "one")
        for change in changes:
            assert await ledger.commit([change]) == [Committed()]
            assert await self._noted(ledger, job) == "one"

    async def test_ack_and_result_replace_the_note(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        for fact, instance in ((ack, "instance-1"), (result, None)):
            job = await driver.create(key=f"replaced by {instance}")
            change = driver.change(job, fact(job))
            await self._note(ledger, job, "one")
            assert await ledger.commit([change]) == [Committed()]
            assert await self._noted(ledger, job) == instance

    async def test_attempt_that_was_answered_or_does_not_exist_gets_no_note(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.create()
        attempt = job.current_step.attempt
        assert attempt is not None
        lease_id = attempt.lease_id
        assert await ledger.note_holder(job.job_id, 0, 1, "another lease", "one") is None
        assert await ledger.note_holder(job.job_id, 0, 2, lease_id, "one") is None
        assert await ledger.note_holder(job.job_id, 1, 1, lease_id, "one") is None
        assert await ledger.note_holder(clock.job_id(), 0, 1, lease_id, "one") is None
        acked = await driver.tell(job, ack(job))
        assert await self._note(ledger, acked, "two") is None
        assert await self._noted(ledger, acked) == "instance-1"
