"""Ledger suite: dead letters leave their list when their job is redriven or somebody dismisses them."""

from __future__ import annotations

from lucius.domain.time import after
from lucius.ports.ledger import Closing, JobFilter, JobKey, Ledger, Tally
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock


async def _listed(ledger: Ledger, *, dead_letter: bool = False, dismissed: bool = False) -> list[str]:
    filter_ = JobFilter(dead_letter=dead_letter, dismissed=dismissed)
    return [job.job_id for job in await ledger.jobs(filter_, 10, None)]


class LedgerDeadLetters:
    async def test_redriven_job_leaves_the_dead_letters_unchanged(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        first, second = [await driver.fail(await driver.create()) for _ in range(2)]
        clock.advance(1)
        again = await driver.create(redrive_of=first.job_id)
        assert await _listed(ledger, dead_letter=True) == [second.job_id]
        assert await driver.read(first) == first, "a job that has ended is never rewritten"
        closing = (await ledger.closings([first.job_id, second.job_id]))[first.job_id]
        assert closing == Closing(job_id=first.job_id, at=again.spec.created_at, redriven_as=again.job_id)
        assert await _listed(ledger, dismissed=True) == []

    async def test_redrive_that_fails_is_a_dead_letter_itself(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        first = await driver.fail(await driver.create())
        second = await driver.fail(await driver.create(redrive_of=first.job_id))
        third = await driver.create(redrive_of=first.job_id)
        assert await _listed(ledger, dead_letter=True) == [second.job_id]
        closing = (await ledger.closings([first.job_id]))[first.job_id]
        assert closing.redriven_as == second.job_id != third.job_id, "the first closing counts"

    async def test_dismissed_job_leaves_the_dead_letters_unchanged(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.fail(await driver.create())
        closing = Closing(job_id=job.job_id, at=clock.now(), by="ann", reason="sent by mistake")
        assert await ledger.dismiss(closing) == closing
        assert (
            await ledger.dismiss(Closing(job_id=job.job_id, at=after(clock.now(), 9), by="ben", reason="so")) == closing
        )
        assert await _listed(ledger, dead_letter=True) == []
        assert await _listed(ledger, dismissed=True) == [job.job_id]
        assert await ledger.closings([job.job_id]) == {job.job_id: closing}
        assert await driver.read(job) == job
        assert [one.job_id for one in await ledger.jobs(JobFilter(status="FAILED_FINAL"), 10, None)] == [job.job_id]

    async def test_unclosed_jobs_are_those_that_nobody_redrove_or_dismissed(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        redriven, dismissed, free = [await driver.fail(await driver.create()) for _ in range(3)]
        cancelled, again = [await driver.cancel(await driver.create()) for _ in range(2)]
        await driver.create(redrive_of=redriven.job_id)
        await driver.create(redrive_of=again.job_id)
        await ledger.dismiss(Closing(job_id=dismissed.job_id, at=clock.now(), by="ann", reason="sent by mistake"))
        for status, job in (("FAILED_FINAL", free), ("CANCELLED", cancelled)):
            wanted = JobFilter(statuses=(status,), unclosed=True)
            assert [key.job_id for key in await ledger.matching(wanted, 10, None)] == [job.job_id]
            assert await ledger.tally(wanted, 5, 10) == Tally(1, [JobKey(job.job_id, job.spec.tenant_id)])

    async def test_closings_go_with_their_job(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.fail(await driver.create())
        await ledger.dismiss(Closing(job_id=job.job_id, at=clock.now(), by="ann", reason="sent by mistake"))
        clock.advance(10)
        assert await ledger.prune(clock.now(), 10) == 1
        assert await ledger.closings([job.job_id]) == {}
