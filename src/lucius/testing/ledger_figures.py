"""Ledger suite: figures for people."""

from __future__ import annotations

from lucius.domain.job import JobStatus
from lucius.domain.signature import error_signature
from lucius.domain.time import after
from lucius.ports.ledger import REFUSED, Closing, JobFilter, Ledger
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import START, ManualClock


class LedgerFigures:
    async def test_counts_are_of_a_time_and_of_tenants(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.succeed(await driver.create(tenant_id="acme"))
        await driver.fail(await driver.create(tenant_id="acme"))
        await driver.create(tenant_id="globex")
        everything = {"ACCEPTED": 3, JobStatus.SUCCEEDED.value: 1, JobStatus.FAILED_FINAL.value: 1}
        assert await ledger.counts(START, None) == everything
        assert await ledger.counts(START, ["globex"]) == {"ACCEPTED": 1}
        assert await ledger.counts(START, []) == {}
        assert await ledger.counts(after(START, 86_400), None) == {}

    async def test_counts_of_several_hours_begin_at_the_minute(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        hour = after(START, -(START % 3_600_000) / 1000)
        moments = [after(hour, seconds) for seconds in (0, 59 * 60, 3_600, 3_600 + 30 * 60, 30 * 3_600)]
        for moment in moments:
            clock.set(moment)
            await driver.create(tenant_id="acme")
        for since, jobs in [(hour, 5), (after(hour, 60), 4), *zip(moments[1:], (4, 3, 2, 1), strict=True)]:
            assert await ledger.counts(since, None) == {"ACCEPTED": jobs}
            assert await ledger.counts(since, ["acme"]) == {"ACCEPTED": jobs}
            assert await ledger.counts_by_tenant(since, None) == {"acme": {"ACCEPTED": jobs}}
        assert await ledger.counts(after(moments[-1], 60), None) == {}

    async def test_counts_by_tenant_have_what_was_refused(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.fail(await driver.create(tenant_id="acme"))
        await ledger.count_refused(clock.now(), {"acme": 2, "initech": 1})
        await ledger.count_refused(clock.now(), {"acme": 3})
        counted = await ledger.counts_by_tenant(START, None)
        acme = {"ACCEPTED": 1, JobStatus.FAILED_FINAL.value: 1, REFUSED: 5}
        assert counted == {"acme": acme, "initech": {REFUSED: 1}}
        assert await ledger.counts_by_tenant(START, ["initech"]) == {"initech": {REFUSED: 1}}
        assert await ledger.counts_by_tenant(START, []) == {}
        assert await ledger.counts_by_tenant(after(START, 86_400), None) == {}

    async def test_open_jobs_are_grouped_by_version_lane_and_tenant(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        jobs = [await driver.create(tenant_id=tenant) for tenant in ("acme", "acme", "globex")]
        await driver.succeed(await driver.create(tenant_id="acme"))
        found = await ledger.open_groups(10, None)
        spec = jobs[0].spec
        assert not found.is_cut_off
        assert sorted((group.tenant_id, group.jobs) for group in found.groups) == [("acme", 2), ("globex", 1)]
        (group,) = (await ledger.open_groups(10, ["acme"])).groups
        known = (group.protocol_id, group.protocol_version, group.lane)
        assert known == (spec.protocol_id, spec.protocol_version, spec.routing.lane)
        assert (await ledger.open_groups(10, [])).groups == []
        assert (await ledger.open_groups(2, None)).is_cut_off

    async def test_oldest_waiting_is_the_oldest_that_no_service_has(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        worked_on = await driver.create(tenant_id="acme")
        worked_on = await driver.tell(worked_on, published(worked_on))
        await driver.tell(worked_on, ack(worked_on))
        waiting = [await driver.create(tenant_id=tenant) for tenant in ("acme", "acme", "globex")]
        await driver.succeed(await driver.create(tenant_id="initech"))
        assert await ledger.oldest_waiting(None) == {"acme": waiting[0].job_id, "globex": waiting[2].job_id}
        assert await ledger.oldest_waiting(["globex"]) == {"globex": waiting[2].job_id}
        assert await ledger.oldest_waiting([]) == {}

    async def test_wait_causes_count_open_jobs_and_lists_filter_by_them(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        unsent = await driver.create(tenant_id="acme")
        queued = await driver.create(tenant_id="acme")
        queued = await driver.tell(queued, published(queued))
        worked_on = await driver.create(tenant_id="globex")
        worked_on = await driver.tell(worked_on, published(worked_on))
        await driver.tell(worked_on, ack(worked_on))
        await driver.succeed(await driver.create(tenant_id="acme"))
        assert await ledger.count_wait_causes(None) == {"BUS": 1, "ACK": 1, "RESULT": 1}
        assert await ledger.count_wait_causes(["acme"]) == {"BUS": 1, "ACK": 1}
        for cause, job in (("BUS", unsent), ("ACK", queued), ("RESULT", worked_on)):
            assert [one.job_id for one in await ledger.jobs(JobFilter(wait_cause=cause), 10, None)] == [job.job_id]
        assert await ledger.jobs(JobFilter(wait_cause="ACK", tenants=("globex",)), 10, None) == []

    async def test_steps_of_the_newest_that_succeeded_are_measured(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        for seconds, tenant in ((1, "acme"), (2, "globex"), (3, "acme")):
            job = await driver.create(tenant_id=tenant, steps=["ocr"])
            job = await driver.tell(job, published(job))
            job = await driver.tell(job, ack(job))
            clock.advance(seconds)
            await driver.tell(job, result(job))
        type_ = job.spec.request_type
        await driver.succeed(await driver.create(request_type="ANOTHER"))
        await driver.fail(await driver.create())
        await driver.create()
        assert await ledger.step_millis(type_, None, 200) == [{"ocr": 3_000}, {"ocr": 2_000}, {"ocr": 1_000}]
        assert await ledger.step_millis(type_, ["acme"], 200) == [{"ocr": 3_000}, {"ocr": 1_000}]
        assert len(await ledger.step_millis(type_, ["acme", "globex"], 200)) == 3
        assert await ledger.step_millis(type_, [], 200) == []
        assert await ledger.step_millis("UNKNOWN", None, 200) == []

    async def test_failures_are_grouped_by_reason(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        failed = [await driver.fail(await driver.create(tenant_id=tenant)) for tenant in ("acme", "acme", "globex")]
        await driver.succeed(await driver.create())
        found = await ledger.failures(JobFilter(), 10, 10)
        assert (found.scanned, found.is_cut_off, len(found.groups)) == (3, False, 1)
        (group,) = found.groups
        assert (group.error_signature, group.jobs, group.tenants) == (error_signature(failed[0]), 3, 2)
        ends = [job.completed_at or 0 for job in failed]
        assert (group.first_at, group.last_at) == (min(ends), max(ends))
        assert group.newest_id == max(job.job_id for job in failed)
        assert (await ledger.failures(JobFilter(tenants=("globex",)), 10, 10)).groups[0].jobs == 1
        assert (await ledger.failures(JobFilter(tenants=()), 10, 10)).groups == []
        assert (await ledger.failures(JobFilter(created_from=after(START, 86_400)), 10, 10)).groups == []
        cut = await ledger.failures(JobFilter(), 2, 10)
        assert (cut.scanned, cut.is_cut_off) == (2, True)
        await ledger.dismiss(Closing(job_id=failed[0].job_id, at=clock.now(), by="key:x", reason="known"))
        assert (await ledger.failures(JobFilter(dead_letter=True), 10, 10)).scanned == 2
        assert (await ledger.failures(JobFilter(), 10, 10)).scanned == 3
