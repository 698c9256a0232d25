"""Ledger suite: jobs found by correlation id, idempotency key and values of their payload."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.job import JobStatus
from lucius.domain.search import SearchValue
from lucius.domain.time import after
from lucius.ports.ledger import Change, JobFilter, Ledger
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import START, ManualClock, accepted

CUSTOMER = SearchValue("customer", "4711")
KIND = SearchValue("kind", "invoice' OR 1=1 --")


class LedgerSearch:
    async def _found(self, ledger: Ledger, filter_: JobFilter) -> list[str]:
        found = [job.job_id for job in await ledger.jobs(filter_, 10, None)]
        assert [key.job_id for key in await ledger.matching(filter_, 10, None)] == found
        return found

    async def test_jobs_are_found_by_correlation_id(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        first, second = [await driver.create(correlation_id="order-1", tenant_id=one) for one in ("acme", "globex")]
        await driver.create(correlation_id="order-10")
        assert await self._found(ledger, JobFilter(correlation_id="order-1")) == [second.job_id, first.job_id]
        assert await self._found(ledger, JobFilter(correlation_id="order-1", tenants=("acme",))) == [first.job_id]
        assert await self._found(ledger, JobFilter(correlation_id="order-1", tenants=())) == []
        await driver.succeed(first)
        ended = JobFilter(correlation_id="order-1", status=JobStatus.SUCCEEDED)
        assert await self._found(ledger, ended) == [first.job_id]
        assert await self._found(ledger, JobFilter(correlation_id="order")) == []

    async def test_a_job_without_a_correlation_id_is_found_by_its_own(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        change = driver.creation()
        own = await driver.write(_with_own_correlation_id(driver, clock))
        follower = await driver.create(correlation_id=own.job_id)
        other = await driver.write(change)
        assert await self._found(ledger, JobFilter(correlation_id=own.job_id)) == [follower.job_id, own.job_id]
        assert await self._found(ledger, JobFilter(correlation_id=own.job_id, tenants=("globex",))) == []
        assert await self._found(ledger, JobFilter(correlation_id=other.job_id)) == [], "it was given another"

    async def test_the_job_accepted_under_a_key_is_found(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        acme, globex = [await driver.create(key="k-1", tenant_id=one) for one in ("acme", "globex")]
        await driver.create(key="k-2")
        redrive = await driver.create(key="k-1", redrive_of=acme.job_id, claims=False)
        assert redrive.spec.idempotency_key == "k-1"
        assert await self._found(ledger, JobFilter(idempotency_key="k-1")) == [globex.job_id, acme.job_id]
        assert await self._found(ledger, JobFilter(idempotency_key="k-1", tenants=("globex",))) == [globex.job_id]
        assert await self._found(ledger, JobFilter(idempotency_key="k-1", status=JobStatus.CANCELLED)) == []
        assert await self._found(ledger, JobFilter(idempotency_key="k-3")) == []

    async def test_jobs_are_found_by_values_of_their_payload(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        both = await driver.create(searchable=(CUSTOMER, KIND), correlation_id="order-1")
        one = await driver.create(searchable=(CUSTOMER,), tenant_id="globex")
        await driver.create(searchable=(SearchValue("customer", "471"),))
        await driver.create()
        assert await self._found(ledger, JobFilter(search=CUSTOMER)) == [one.job_id, both.job_id]
        assert await self._found(ledger, JobFilter(search=CUSTOMER, tenants=("acme",))) == [both.job_id]
        assert await self._found(ledger, JobFilter(search=KIND)) == [both.job_id]
        assert await self._found(ledger, JobFilter(search=KIND, correlation_id="order-1")) == [both.job_id]
        assert await self._found(ledger, JobFilter(search=KIND, correlation_id=one.spec.correlation_id)) == []
        assert await self._found(ledger, JobFilter(search=SearchValue("kind", "4711"))) == []
        assert (await driver.read(both)).spec.searchable == (CUSTOMER, KIND)

    async def test_pages_of_a_search_continue(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        made = [await driver.create(searchable=(CUSTOMER,), tenant_id=one) for one in ("acme", "globex", "acme")]
        ids = sorted((job.job_id for job in made), reverse=True)
        wanted = JobFilter(search=CUSTOMER, tenants=("acme", "globex"), created_from=START)
        assert [job.job_id for job in await ledger.jobs(wanted, 2, None)] == ids[:2]
        assert [job.job_id for job in await ledger.jobs(wanted, 2, ids[1])] == ids[2:]

    async def test_a_pruned_job_is_no_longer_found(self, ledger: Ledger, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        await driver.succeed(await driver.create(searchable=(CUSTOMER,), correlation_id="order-1", key="k-1"))
        assert await ledger.prune(after(START, 1_000), 10) == 1
        for filter_ in (
            JobFilter(search=CUSTOMER),
            JobFilter(correlation_id="order-1"),
            JobFilter(idempotency_key="k-1"),
        ):
            assert await self._found(ledger, filter_) == []
        again = await driver.create(searchable=(CUSTOMER,), correlation_id="order-1", key="k-1")
        assert await self._found(ledger, JobFilter(search=CUSTOMER, idempotency_key="k-1")) == [again.job_id]


def _with_own_correlation_id(driver: LedgerDriver, clock: ManualClock) -> Change:
    fact = accepted(clock)
    return driver.creation(fact=replace(fact, spec=replace(fact.spec, correlation_id=fact.spec.job_id)))
