"""Ledger suite, part two: limits are exact, and in-flight counts change with the jobs."""

from __future__ import annotations

import asyncio

from lucius.domain.inputs import CancelAsked, DeadlinePassed, PauseAsked, ResumeAsked
from lucius.domain.job import Job
from lucius.domain.routing import Mode
from lucius.domain.time import after
from lucius.ports.ledger import Committed, Duplicate, Ledger, Limit, Saturated
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import CLAIM_SECONDS, START, ManualClock, global_limit, mode_limit, tenant_limit


class LedgerLimits:
    counts_are_exact = True
    """Whether counts equal the open jobs at every commit; a ledger of many partitions may need `repair` first."""

    async def counted(self, ledger: Ledger, clock: ManualClock) -> dict[str, int]:
        if not self.counts_are_exact:
            await ledger.repair(clock.now(), CLAIM_SECONDS)
        return {scope: count for scope, count in (await ledger.inflight()).items() if count}

    async def test_commit_refuses_a_job_beyond_a_limit(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = tenant_limit(2)
        await driver.create(limits=(limit,))
        await driver.create(limits=(limit,))
        third = driver.creation(limits=(limit,))
        assert await driver.commit(third) == Saturated(limit)
        assert await ledger.load([third.after.job_id]) == {}
        assert await ledger.events(third.after.job_id, 0, 10) == []
        other = driver.creation(tenant_id="globex", limits=(tenant_limit(2, "globex"),))
        assert await driver.commit(other) == Committed()

    async def test_a_limit_of_none_admits_nobody(self, ledger: Ledger, clock: ManualClock) -> None:
        outcome = await LedgerDriver(ledger, clock).commit(
            LedgerDriver(ledger, clock).creation(limits=(tenant_limit(0),))
        )
        assert outcome == Saturated(tenant_limit(0))

    async def test_saturated_names_the_limit_that_is_full(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.create(mode=Mode.BURST, doc_id="1")
        await driver.create()
        roomy = (tenant_limit(9), mode_limit(9), global_limit(9))
        for full in (tenant_limit(2), mode_limit(1), global_limit(2)):
            limits = tuple(full if full.scope == limit.scope else limit for limit in roomy)
            assert await driver.commit(driver.creation(limits=limits)) == Saturated(full)
        burst = (mode_limit(1, Mode.BURST),)
        assert await driver.commit(driver.creation(mode=Mode.BURST, doc_id="2", limits=burst)) == Saturated(burst[0])
        assert await driver.commit(driver.creation(limits=roomy)) == Committed()

    async def test_a_saturated_command_keeps_no_claim(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limits = (tenant_limit(1),)
        first = await driver.create(limits=limits)
        refused = driver.creation(key="again", limits=limits)
        assert await driver.commit(refused) == Saturated(limits[0])
        assert refused.claim is not None
        assert await ledger.find_claim(refused.claim.key) is None
        await driver.cancel(first)
        assert await driver.commit(driver.creation(key="again", limits=limits)) == Committed()

    async def test_a_duplicate_is_answered_before_limits(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limits = (tenant_limit(1),)
        first = await driver.create(key="one", limits=limits)
        outcome = await driver.commit(driver.creation(key="one", limits=limits))
        assert outcome == Duplicate(first.job_id, first.spec.idempotency_hash, first.status)

    async def test_a_limit_is_met_within_one_call(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = tenant_limit(3)
        await driver.create(limits=(limit,))
        changes = [driver.creation(limits=(limit,)) for _ in range(4)]
        outcomes = await ledger.commit(changes)
        assert outcomes == [Committed(), Committed(), Saturated(limit), Saturated(limit)]
        assert await self.counted(ledger, clock) == {"global": 3, "mode:DEFAULT": 3, "tenant:acme": 3}

    async def test_a_full_tenant_leaves_room_for_another_in_one_call(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        tenants = ["acme", "acme", "globex", "acme", "globex"]
        changes = [
            driver.creation(tenant_id=tenant, limits=(tenant_limit(1, tenant), global_limit(10))) for tenant in tenants
        ]
        full, other = Saturated(tenant_limit(1)), Saturated(tenant_limit(1, "globex"))
        assert await ledger.commit(changes) == [Committed(), full, Committed(), full, other]
        assert (await self.counted(ledger, clock))["global"] == 2

    async def test_a_duplicate_of_a_saturated_command_in_one_call_names_no_job(
        self, ledger: Ledger, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        limits = (tenant_limit(1),)
        await driver.create(limits=limits)
        changes = [driver.creation(key="one", limits=limits) for _ in range(2)]
        assert await ledger.commit(changes) == [Saturated(limits[0])] * 2

    async def test_a_job_that_ends_makes_room_in_the_same_call(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limits = (tenant_limit(1), global_limit(1))
        job = await driver.create(limits=limits)
        for ends_first in (True, False):
            end = driver.change(job, ack(job), CancelAsked("operator"), result(job))
            begin = driver.creation(limits=limits)
            assert end.after.is_terminal
            changes = [end, begin] if ends_first else [begin, end]
            assert await ledger.commit(changes) == [Committed(), Committed()]
            assert (await self.counted(ledger, clock))["tenant:acme"] == 1
            job = await driver.read(begin.after)

    async def test_an_ending_that_conflicts_makes_no_room(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = tenant_limit(1)
        job = await driver.create(limits=(limit,))
        stale = driver.change(job, ack(job), CancelAsked("operator"), result(job))
        await driver.tell(job, published(job))
        outcomes = await ledger.commit([stale, driver.creation(limits=(limit,))])
        assert outcomes[1] == Saturated(limit)
        assert (await self.counted(ledger, clock))["tenant:acme"] == 1

    async def test_changes_with_other_limits_share_one_call(self, ledger: Ledger, clock: ManualClock) -> None:
        """Limits come from settings that may be reloaded between two commands of one turn; a redrive may have none."""
        driver = LedgerDriver(ledger, clock)
        tight, wide = tenant_limit(2), tenant_limit(9)
        wishes: list[tuple[Limit, ...]] = [(wide,), (tight,), (), (tight,), (wide,), ()]
        for count in (3, 6):
            outcomes = await asyncio.wait_for(ledger.commit([driver.creation(limits=w) for w in wishes[:count]]), 5)
            refused = [place for place, outcome in enumerate(outcomes) if outcome != Committed()]
            assert refused == ([] if count == 3 else [1, 3])
        assert (await self.counted(ledger, clock))["tenant:acme"] == 7

    # --- Counts ------------------------------------------------------------------------------------------------------

    async def test_counts_equal_open_jobs_after_every_commit(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        open_jobs: dict[str, Job] = {}

        async def check(job: Job) -> Job:
            open_jobs.pop(job.job_id, None)
            if not job.is_terminal:
                open_jobs[job.job_id] = job
            expected: dict[str, int] = {}
            for each in open_jobs.values():
                for scope in each.slots:
                    expected[scope] = expected.get(scope, 0) + 1
            assert await self.counted(ledger, clock) == expected
            return job

        a = await check(await driver.create(tenant_id="acme"))
        b = await check(await driver.create(tenant_id="globex", mode=Mode.BURST, doc_id="7"))
        c = await check(await driver.create(tenant_id="acme", not_before=after(START, 60)))
        a = await check(await driver.tell(a, PauseAsked("operator")))
        await check(await driver.cancel(c))
        b = await check(await driver.tell(b, published(b)))
        await check(await driver.fail(b))
        a = await check(await driver.tell(a, ResumeAsked("operator")))
        d = await check(await driver.create(tenant_id="initech", deadline_seconds=10))
        await check(await driver.succeed(a))
        clock.advance(11)
        await check(await driver.tell(d, DeadlinePassed()))
        assert open_jobs == {}

    async def test_counts_start_empty(self, ledger: Ledger) -> None:
        assert await ledger.inflight() == {}

    async def test_concurrent_creations_fill_a_limit_exactly(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = tenant_limit(50)
        changes = [driver.creation(limits=(limit, global_limit(1_000))) for _ in range(200)]
        outcomes = [o for batch in await asyncio.gather(*(ledger.commit([c]) for c in changes)) for o in batch]
        assert outcomes.count(Committed()) == 50
        assert outcomes.count(Saturated(limit)) == 150
        assert len(await ledger.load([c.after.job_id for c in changes])) == 50
        assert (await self.counted(ledger, clock))["tenant:acme"] == 50

    async def test_concurrent_calls_of_many_fill_a_limit_exactly(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = global_limit(55)
        tenants = [f"tenant {place % 3}" for place in range(10)]
        calls = [[driver.creation(tenant_id=tenant, limits=(limit,)) for tenant in tenants] for _ in range(12)]
        outcomes = [o for batch in await asyncio.gather(*map(ledger.commit, calls)) for o in batch]
        assert outcomes.count(Committed()) == 55
        assert outcomes.count(Saturated(limit)) == 65
        assert (await self.counted(ledger, clock))["global"] == 55

    async def test_concurrent_endings_and_creations_keep_the_count(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = tenant_limit(10)
        jobs = [await driver.create(limits=(limit,)) for _ in range(10)]
        calls = [[driver.change(job, ack(job), CancelAsked("operator"), result(job))] for job in jobs]
        calls += [[driver.creation(limits=(limit,))] for _ in range(30)]
        outcomes = [o for batch in await asyncio.gather(*map(ledger.commit, calls)) for o in batch]
        begun = outcomes[10:].count(Committed())
        assert outcomes[:10] == [Committed()] * 10
        assert begun <= 10
        assert (await self.counted(ledger, clock)).get("tenant:acme", 0) == begun
